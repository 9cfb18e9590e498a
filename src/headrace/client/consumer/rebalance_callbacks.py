"""Rebalance listeners and commit callbacks of the application, called in the order of what happened.

They are called inside the application's own calls, never from the background. A revocation is acknowledged
when its listener has returned or failed: the group waits for it. `on_assign` is called again after an error,
and every listener whose call was cancelled or interrupted.
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
    """A listener whose methods are called inside `poll`, `unsubscribe` and `close`, on the application's own
    thread: they may seek and commit. Override those that you need. With `headrace.aio` they may be
    coroutines.

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
        """These partitions were added to the assignment; the list may be empty. If it raises an error, `poll`
        raises that error, and the next `poll` calls it again before it reads anything.
        """

    def on_revoke(self, consumer: Any, partitions: list[TopicPartition]) -> object:
        """These partitions are being taken away, and the group waits: commit their offsets now."""

    def on_lost(self, consumer: Any, partitions: list[TopicPartition]) -> object:
        """These partitions belong to other members already, so a commit is too late. Calls `on_revoke` by
        default.
        """
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
        """`give_up` is called before partitions are revoked, `forget` before the listener is called after
        a loss.
        """
        self.listener = RebalanceListener()
        self.rebalances = 0
        self._session = session
        self._clock = clock
        self._log = log
        self._give_up = give_up
        self._forget = forget
        self._untold: deque[Assigned | Revoked | Lost] = deque()  # taken from the session
        self._refused: object = None  # the event at which the listener failed last
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
        """Raises for lost partitions: their new owner may be ahead, and a commit would set the group back."""
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

    def everything(self, *, is_end: bool = False) -> Steps[None]:
        """Calls all that is to be called; `is_end`: nothing will be read any more."""
        while True:
            self._gather()
            yield from self.callbacks()
            if not self._untold:
                return
            event = self._untold.popleft()
            if isinstance(event, Assigned) and event is self._refused and (is_end or self._has_loss):
                continue  # it cannot be read any more
            try:
                yield from self._call_listener(event)
            except BaseException as error:
                # One that was cancelled has not done its work yet. After an error nothing may be read before
                # the listener has found where to begin; but partitions that are given up are given up.
                if isinstance(event, Assigned) or not isinstance(error, Exception):
                    self._refused = event
                    self._untold.appendleft(event)
                else:
                    self._told(event)
                raise
            self._told(event)

    @property
    def _has_loss(self) -> bool:
        return any(isinstance(event, Lost) for event in self._untold)

    def _call_listener(self, event: Assigned | Revoked | Lost) -> Steps[None]:
        partitions = sorted(event.partitions)
        match event:
            case Assigned():
                yield Tell(self.listener.on_assign, (partitions,))
            case Lost():
                self._log.warning("%s lost: %s", _names(partitions), event.reason)
                self._forget(event.partitions)
                yield Tell(self.listener.on_lost, (partitions,))
            case Revoked():
                self._give_up()
                yield Tell(self.listener.on_revoke, (partitions,))

    def _told(self, event: Assigned | Revoked | Lost) -> None:
        """The listener has returned or failed."""
        if isinstance(event, Assigned):
            self.rebalances += 1
        elif isinstance(event, Revoked) and not any(isinstance(each, Revoked) for each in self._untold):
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
                        "records of partition %s that were read are lost: the new leader does not have those "
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
