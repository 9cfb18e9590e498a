"""Rebalance listeners and commit callbacks of the application, called in the order of what happened.

They are called inside the application's own calls, never from the background. A revocation is acknowledged
when its listener has returned or failed: the group waits for it.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from headrace.base.time import Instant
from headrace.client.cluster import TopicPartition
from headrace.client.consumer.offsets import Committed
from headrace.client.consumer.position import LogTruncated, PositionReset
from headrace.client.consumer.session import ConsumerSession
from headrace.client.errors import ClientError, PartitionsLost
from headrace.client.membership.events import (
    Assigned,
    AutoCommitFailed,
    Lost,
    Partitions,
    PolledTooLate,
    Revoked,
)
from headrace.client.session import Log
from headrace.client.steps import Call, Steps, Tell

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


OnCommit = Callable[[Committed, ClientError | None], object]


class Callbacks:
    def __init__(
        self,
        session: ConsumerSession,
        clock: Callable[[], Instant],
        log: Log,
        *,
        give_up: Callable[[], None],
        forget: Callable[[Partitions], None],
    ) -> None:
        """`give_up` is called before partitions are revoked, `forget` before the listener hears of a loss."""
        self.listener = RebalanceListener()
        self.rebalances = 0
        self._session = session
        self._clock = clock
        self._log = log
        self._give_up = give_up
        self._forget = forget
        self._untold: deque[Assigned | Revoked | Lost] = deque()  # taken from the session
        self._ended: deque[tuple[OnCommit, Committed, ClientError | None]] = deque()  # callbacks to call

    @property
    def has_callbacks(self) -> bool:
        return bool(self._ended)

    @property
    def has_more(self) -> bool:
        self._gather()
        return bool(self._untold) or bool(self._ended)

    def commit_ended(self, callback: OnCommit, offsets: Committed, error: ClientError | None) -> None:
        self._ended.append((callback, offsets, error))

    def check_not_lost(self, partitions: Iterable[TopicPartition]) -> None:
        """Whoever owns them now may be further than the application: a commit would take that back."""
        self._gather()
        wanted = frozenset(partitions)
        for event in self._untold:
            if isinstance(event, Lost) and (gone := event.partitions & wanted):
                raise PartitionsLost(f"{_names(gone)} lost: {event.reason}")

    def callbacks(self) -> Steps[None]:
        """Of commits that have ended, in their order."""
        while self._ended:
            callback, offsets, error = self._ended.popleft()
            yield Call(callback, (offsets, error))

    def everything(self) -> Steps[None]:
        while True:
            self._gather()
            yield from self.callbacks()
            if not self._untold:
                return
            event = self._untold.popleft()
            match event:
                case Assigned(partitions):
                    self.rebalances += 1
                    yield Tell(self.listener.on_assign, (sorted(partitions),))
                case Lost(partitions, reason):
                    self._log.warning("%s lost: %s", _names(partitions), reason)
                    self._forget(partitions)
                    yield Tell(self.listener.on_lost, (sorted(partitions),))
                case Revoked(partitions):
                    self._give_up()
                    try:
                        yield Tell(self.listener.on_revoke, (sorted(partitions),))
                    finally:
                        if not any(isinstance(each, Revoked) for each in self._untold):
                            self._session.acknowledge(self._clock())

    def _gather(self) -> None:
        for event in self._session.take_events():
            match event:
                case Assigned() | Revoked() | Lost():
                    self._untold.append(event)
                case AutoCommitFailed(offsets, error):
                    self._log.warning("offsets of %s were not committed: %s", _names(offsets), error)
                case LogTruncated(at, before, after):
                    self._log.warning(
                        "records of partition %s that were read are gone: a new leader never had those "
                        "between offsets %d and %d",
                        at,
                        after,
                        before,
                    )
                case PositionReset(at, before, after, reason):
                    write = self._log.info if before is None else self._log.warning
                    write("partition %s is read from offset %d on: %s", at, after, reason)
                case PolledTooLate():
                    pass  # the application was warned when it happened


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions)))
