"""Who is told when partitions come and go."""

from collections.abc import Callable
from typing import Any

from headrace.client.cluster import TopicPartition

Listening = Callable[[Any, list[TopicPartition]], object]  # gets the consumer and the partitions, sorted


class RebalanceListener:
    """Is told inside `poll`, `unsubscribe` and `close`, on the application's own thread: it may seek and
    commit. Override what you need. With `headrace.aio` the methods may be coroutines.

    >>> from headrace import Consumer, RebalanceListener
    >>> class FromTheStart(RebalanceListener):
    ...     def on_assign(self, consumer, partitions):
    ...         consumer.seek_to_beginning(partitions)
    >>> with Consumer(servers, group_id="audit") as consumer:
    ...     consumer.subscribe(["orders"], listener=FromTheStart())
    ...     [message.value for message in consumer.poll(10)]
    [b'first', b'second']
    """

    def on_assign(self, consumer: Any, partitions: list[TopicPartition]) -> object:
        """These are ours now, besides those that we had; perhaps none."""

    def on_revoke(self, consumer: Any, partitions: list[TopicPartition]) -> object:
        """These are to be given up, and the group waits: commit what was done."""

    def on_lost(self, consumer: Any, partitions: list[TopicPartition]) -> object:
        """These are no longer ours, and a commit would come too late; unless overridden, as `on_revoke`."""
        return self.on_revoke(consumer, partitions)


class Functions(RebalanceListener):
    """A listener made of functions."""

    def __init__(
        self,
        on_assign: Listening | None = None,
        on_revoke: Listening | None = None,
        on_lost: Listening | None = None,
    ) -> None:
        self._on_assign = on_assign
        self._on_revoke = on_revoke
        self._on_lost = on_lost or on_revoke

    def on_assign(self, consumer: Any, partitions: list[TopicPartition]) -> object:
        return self._on_assign and self._on_assign(consumer, partitions)

    def on_revoke(self, consumer: Any, partitions: list[TopicPartition]) -> object:
        return self._on_revoke and self._on_revoke(consumer, partitions)

    def on_lost(self, consumer: Any, partitions: list[TopicPartition]) -> object:
        return self._on_lost and self._on_lost(consumer, partitions)
