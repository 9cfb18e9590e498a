"""The calls of a consumer, as steps that every shell can take (client/steps.py).

Callbacks run inside `poll`, `unsubscribe` and `close` (rebalance_callbacks.py). Iteration takes whole polls
and hands out one message at a time. Those not handed out yet are `unread`: for commits, positions and a close
they count as not read.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from headrace.base.time import NEVER, Instant
from headrace.client.cluster import Partition, TopicPartition
from headrace.client.consumer.fetch_buffer import Unread, first_offsets, partition_of
from headrace.client.consumer.offsets import Committed, OffsetAndTimestamp, committed_offset
from headrace.client.consumer.rebalance_callbacks import Callbacks, OnCommit, RebalanceListener
from headrace.client.consumer.session import ConsumerSession
from headrace.client.errors import ClientError, Closed, InvalidInput, TimedOut, WokenUp
from headrace.client.membership.events import CommittedOffset, GroupMembership, Partitions
from headrace.client.membership.heartbeat import PULSE_S, PollInterval
from headrace.client.membership.subscription import Subscription
from headrace.client.serializers import Deserializers
from headrace.client.session import Log
from headrace.client.settings.consumer import ConsumerSettings
from headrace.client.steps import Call, Pending, Steps, Wait
from headrace.records._columns import Columns
from headrace.records._messages import Message

T = TypeVar("T")
PartitionLike = tuple[str, int]  # a TopicPartition, or a plain pair
P = TypeVar("P", bound=PartitionLike)

CLOSE_S = 30.0  # Java's default


class ConsumerCore:
    """Invariant: `unread` has the records between those that the application got and the session's
    positions.
    """

    def __init__(
        self,
        session: ConsumerSession,
        settings: ConsumerSettings,
        deserializers: Deserializers,
        clock: Callable[[], Instant],
        *,
        log: Log,
    ) -> None:
        self.session = session
        self._log = log
        self.unread = Unread()
        self.poll_interval = PollInterval(settings, log)
        self.is_closing = False
        self.is_closed = False
        self.settings = settings
        self._deserializers = deserializers
        self._clock = clock
        self._callbacks = Callbacks(session, clock, log, give_up=self._give_up, forget=self._forget)
        self._is_polling = False
        self._is_woken = False
        self._membership: GroupMembership | None = None  # as of the last poll
        self._polls = 0

    def __repr__(self) -> str:
        group = self.settings.group
        return "<Consumer without a group>" if group is None else f"<Consumer of group {group.group_id!r}>"

    # --- reading --------------------------------------------------------------------------------------------

    def poll(self, timeout_s: float | None, max_records: int | None) -> Steps[list[Message]]:
        """The next messages; none if the time was over."""
        count_max = self.settings.max_poll_records if max_records is None else max_records
        if count_max < 1:
            raise InvalidInput(f"max_records={max_records}: must be at least 1")
        found: list[Message] = []

        def take() -> bool:
            if not self.unread:
                found.extend(self.session.take_records(self._clock(), count_max))
            return bool(found) or bool(self.unread)

        yield from self._poll(take, timeout_s)
        if not found:
            return [self.unread.popleft() for _ in range(min(count_max, len(self.unread)))]
        if not self._deserializers:
            return found
        try:
            count, error = yield Call(self._deserializers.apply, (found,))
        except BaseException:  # an interrupt: nobody gets any of these
            self._seek_back(found)
            raise
        if error is not None:
            self._seek_back(found[count:])
            if not count:
                raise error
        return found[:count]

    def poll_columns(self, timeout_s: float | None) -> Steps[Columns]:
        """All that was fetched, column by column."""
        self._seek_back(self.unread)
        columns = Columns()

        def take() -> bool:
            nonlocal columns
            columns = Columns(*self.session.buffered())  # growing would cost more than all the rest
            self.session.take_columns(self._clock(), columns)
            return columns.row_count > 0

        yield from self._poll(take, timeout_s)
        return columns

    def _poll(self, take: Callable[[], bool], timeout_s: float | None) -> Steps[None]:
        self._check_open()
        self._check_idle("poll")
        self._is_polling = True
        try:
            now = self._clock()
            until = NEVER if timeout_s is None else Instant(now + timeout_s)
            self._polls += 1
            while True:
                self._show_life(now)
                self._check_wakeup()
                yield from self._callbacks.everything()
                if take() or (now := self._clock()) >= until:
                    break
                reachability = self.session.reachability
                reachability.check(now)
                yield Wait(self._has_news, min(until, Instant(now + PULSE_S), reachability.give_up_at()))
                now = self._clock()
            self._note_membership()
        finally:
            self._is_polling = False

    def _has_news(self) -> bool:
        return self._is_woken or self.is_closing or self._callbacks.has_callbacks or self.session.has_news

    def pulse(self) -> Steps[None]:
        """Shows the group that the application is working on the messages of an iteration, and runs
        callbacks.
        """
        self._check_open()
        self._show_life(self._clock())
        yield from self._callbacks.everything()
        self._note_membership()

    def _note_membership(self) -> None:
        """Stores the membership that the application knows, after its listeners were called."""
        if self.settings.group is not None:
            self._membership = self.session.group_metadata()

    def _show_life(self, now: Instant) -> None:
        self.poll_interval.shown(now, is_subscribed=self.session.subscription is not None)
        if not self.unread:
            self.session.polled(now)
        elif self.session.group is not None:  # the last poll is not read to its end
            self.session.group.polled(now)

    def watch(self) -> None:
        """From the background, after every turn."""
        if not self._is_polling:
            self.poll_interval.watch(self._clock(), is_subscribed=self.session.subscription is not None)

    # --- what is read ---------------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription, listener: RebalanceListener) -> None:
        self._check_open()
        self._seek_back(self.unread)
        self.session.subscribe(self._clock(), subscription)
        self._callbacks.listener = listener

    def unsubscribe(self) -> Steps[None]:
        """Gives up all partitions; the listener is called before this returns."""
        self._check_open()
        self._check_idle("unsubscribe")
        self._seek_back(self.unread)
        yield from self._all_told(self.session.unsubscribe(self._clock()), self._until(None))
        self._callbacks.listener = RebalanceListener()

    def assign(self, partitions: Iterable[PartitionLike] | Mapping[P, int | CommittedOffset]) -> None:
        self._check_open()
        self._seek_back(self.unread)
        if isinstance(partitions, Mapping):
            offsets = {_topic_partition(at): offset for at, offset in partitions.items()}
            self.session.assign(self._clock(), offsets)
        else:
            self.session.assign(self._clock(), list(map(_topic_partition, partitions)))

    def seek(self, at: PartitionLike, offset: int | CommittedOffset) -> None:
        self._check_open()
        begin = committed_offset(offset)
        self.session.seek(self._clock(), _topic_partition(at), begin.offset, begin.leader_epoch)
        self.unread.drop(lambda each: each == at)

    def seek_to_beginning(self, partitions: Iterable[PartitionLike] | None) -> None:
        self._seek_to(self.session.seek_to_beginning, partitions)

    def seek_to_end(self, partitions: Iterable[PartitionLike] | None) -> None:
        self._seek_to(self.session.seek_to_end, partitions)

    def _seek_to(
        self,
        seek: Callable[[Instant, list[TopicPartition]], None],
        partitions: Iterable[PartitionLike] | None,
    ) -> None:
        self._check_open()
        assigned = self.session.assignment
        wanted = list(assigned if partitions is None else map(_topic_partition, partitions))
        seek(self._clock(), wanted)
        self.unread.drop(wanted.__contains__)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        self._check_open()
        return self.session.assignment

    @property
    def subscription(self) -> Subscription | None:
        self._check_open()
        return self.session.subscription

    @property
    def paused(self) -> frozenset[TopicPartition]:
        self._check_open()
        return self.session.paused

    def pause(self, partitions: Iterable[PartitionLike]) -> None:
        self._check_open()
        wanted = list(map(_topic_partition, partitions))
        self._seek_back([message for message in self.unread if partition_of(message) in wanted])
        self.session.pause(wanted)

    def resume(self, partitions: Iterable[PartitionLike]) -> None:
        self._check_open()
        self.session.resume(list(map(_topic_partition, partitions)))

    def _seek_back(self, messages: Iterable[Message]) -> None:
        """The application did not get these: they are read again."""
        firsts = first_offsets(messages)
        for at in firsts.keys() & self.session.assignment:
            self.session.seek(self._clock(), at, firsts[at])
        self.unread.drop(firsts.__contains__)

    def _give_up(self) -> None:
        """Called before a revocation: the records that the application got count as read for automatic
        commits.
        """
        self._seek_back(self.unread)
        self.session.polled(self._clock())

    def _forget(self, partitions: Partitions) -> None:
        self.unread.drop(partitions.__contains__)

    # --- how far -------------------------------------------------------------------------------------------

    def position(self, at: PartitionLike, timeout_s: float | None) -> Steps[int]:
        """The offset of the next message; waits until it is known."""
        self._check_open()
        at = _topic_partition(at)
        until = self._until(timeout_s)
        if at in (unread := first_offsets(self.unread)):
            return unread[at]
        while (offset := self.session.position(at)) is None:
            error = self.session.take_error()
            if error is not None:
                raise error
            now = self._clock()
            self.session.reachability.check(now)
            if now >= until:
                raise self._late(TimedOut(f"the position of partition {at} could not be determined in time"))
            yield Wait(lambda: self._has_position(at), self._next_look(now, until))
            self._check_wakeup()
        return offset

    def _has_position(self, at: TopicPartition) -> bool:
        return self._is_woken or self.session.has_error or self.session.position(at) is not None

    def lag(self, at: PartitionLike) -> int | None:
        self._check_open()
        at = _topic_partition(at)
        lag, position = self.session.lag(at), self.session.position(at)
        if lag is None or position is None:
            return lag
        return lag + position - first_offsets(self.unread).get(at, position)

    def committed(
        self, partitions: Iterable[PartitionLike], timeout_s: float | None
    ) -> Steps[dict[TopicPartition, CommittedOffset | None]]:
        self._check_open()
        wanted = list(map(_topic_partition, partitions))
        return (yield from self._done(self.session.committed(self._clock(), wanted, timeout_s)))

    def beginning_offsets(
        self, partitions: Iterable[PartitionLike], timeout_s: float | None
    ) -> Steps[dict[TopicPartition, int]]:
        self._check_open()
        wanted = list(map(_topic_partition, partitions))
        return (yield from self._done(self.session.beginning_offsets(self._clock(), wanted, timeout_s)))

    def end_offsets(
        self, partitions: Iterable[PartitionLike], timeout_s: float | None
    ) -> Steps[dict[TopicPartition, int]]:
        self._check_open()
        wanted = list(map(_topic_partition, partitions))
        return (yield from self._done(self.session.end_offsets(self._clock(), wanted, timeout_s)))

    def offsets_for_times(
        self, timestamps_ms: Mapping[P, int], timeout_s: float | None
    ) -> Steps[dict[TopicPartition, OffsetAndTimestamp | None]]:
        self._check_open()
        wanted = {_topic_partition(at): timestamp for at, timestamp in timestamps_ms.items()}
        return (yield from self._done(self.session.offsets_for_times(self._clock(), wanted, timeout_s)))

    def partitions_for(self, topic: str, timeout_s: float | None) -> Steps[list[Partition]]:
        self._check_open()
        return (yield from self._done(self.session.partitions_for(self._clock(), topic, timeout_s)))

    # --- commits -------------------------------------------------------------------------------------------

    def commit(
        self, offsets: Mapping[P, int | CommittedOffset] | Message | None, timeout_s: float | None
    ) -> Steps[Committed]:
        """Gives what was committed; callbacks of earlier commits are called before it returns."""
        committed = yield from self._done(self._commit(offsets, timeout_s))
        yield from self._callbacks.callbacks()
        return committed

    def commit_async(
        self, offsets: Mapping[P, int | CommittedOffset] | Message | None, callback: OnCommit | None
    ) -> None:
        """`callback(offsets, error)` is called by a later poll, commit or close."""
        pending = self._commit(offsets, None)

        def ended(pending: Pending[Committed]) -> None:
            if callback is not None:
                self._callbacks.commit_ended(callback, pending.value or {}, pending.error)
            elif pending.error is not None:
                self._log.warning("offsets were not committed: %s", pending.error)

        pending.when_done(ended)

    def _commit(
        self, offsets: Mapping[P, int | CommittedOffset] | Message | None, timeout_s: float | None
    ) -> Pending[Committed]:
        self._check_open()
        if self.settings.group is None:
            raise InvalidInput("this consumer cannot commit offsets because it has no group.id; set group.id")
        if offsets is None:
            return self.session.commit(self._clock(), self.positions(), timeout_s)
        if isinstance(offsets, Message):
            wanted: dict[TopicPartition, int | CommittedOffset] = {
                partition_of(offsets): CommittedOffset(offsets.offset + 1, offsets.leader_epoch)
            }
        else:
            wanted = {_topic_partition(at): offset for at, offset in offsets.items()}
        self._callbacks.check_not_lost(wanted)
        return self.session.commit(self._clock(), wanted, timeout_s)

    def positions(self) -> Committed:
        """Of all that was handed out, where something is known."""
        self._check_open()
        positions = dict(self.session.positions())
        for at, offset in first_offsets(self.unread).items():
            if at in positions:
                positions[at] = positions[at]._replace(offset=offset)
        return positions

    def group_metadata(self) -> GroupMembership:
        """As of the last poll: what came later was not read by the member that the group knows now."""
        self._check_open()
        if self.settings.group is None:
            raise InvalidInput("this consumer is not a member of a group; set group.id")
        return self._membership or self.session.group_metadata()

    def metrics(self) -> dict[str, float]:
        told = self.session.metrics()
        return {
            "records": told.records,
            "bytes": told.bytes,
            "fetches": told.fetches,
            "buffered_bytes": told.buffered_bytes,
            "lag": sum(told.lag.values()),
            "lag_max": max(told.lag.values(), default=0),
            "partitions": len(self.session.assignment),
            "polls": self._polls,
            "rebalances": self._callbacks.rebalances,
        }

    # --- waiting and ending ---------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """The call that waits, or the next one that would, raises WokenUp."""
        self._is_woken = True

    def close(self, timeout_s: float | None, *, ends_poll: bool = False) -> Steps[None]:
        """Leaves the group, in at most this time; afterwards the consumer is of no use.

        `ends_poll`: a poll that is under way is another's, and ends as if it had come too late.
        """
        if self.is_closed:
            return
        if not ends_poll:
            self._check_idle("close")
        until = Instant(self._clock() + (CLOSE_S if timeout_s is None else timeout_s))
        self.is_closing = True
        try:
            yield Wait(lambda: not self._is_polling, until)
            self._seek_back(self.unread)
            now = self._clock()
            yield from self._all_told(self.session.close(now, max(0.0, until - now)), until)
        except TimedOut as error:
            self._log.warning("the consumer could not be closed cleanly in time: %s", error)
        finally:
            self.is_closed = True

    def _all_told(self, pending: Pending[None], until: Instant) -> Steps[None]:
        """Until it is done, whatever listeners say: the first of their errors is raised in the end."""
        failure: Exception | None = None
        while True:
            try:
                yield from self._callbacks.everything(is_end=True)
            except Exception as error:
                failure = failure or error
                continue
            if pending.is_done or self._clock() >= until:
                break
            yield Wait(lambda: pending.is_done or self._callbacks.has_more, until)
        if failure is not None:
            raise failure
        if pending.is_done:
            pending.result()
        else:
            raise TimedOut(pending.what)

    def _done(self, pending: Pending[T]) -> Steps[T]:
        """Every Pending has a deadline of its own."""
        while not pending.is_done and not (self._is_woken and not self.is_closing):
            now = self._clock()
            self.session.reachability.check(now)
            yield Wait(
                lambda: pending.is_done or (self._is_woken and not self.is_closing),
                self._next_look(now, NEVER),
            )
        if not pending.is_done:
            self._check_wakeup()
        if isinstance(pending.error, TimedOut):
            raise self._late(pending.error)
        return pending.result()

    def _next_look(self, now: Instant, until: Instant) -> Instant:
        """When a call that waits has to see whether brokers are out of reach for too long."""
        reachability = self.session.reachability
        if reachability.limit_s is None:
            return until
        return min(until, Instant(now + PULSE_S), reachability.give_up_at())

    def _late(self, error: TimedOut) -> ClientError:
        """What to raise when time is up: that no broker can be reached says more."""
        if self.session.reachability.outage is None:
            return error
        return self.session.reachability.as_error(self._clock())

    def _until(self, timeout_s: float | None) -> Instant:
        return Instant(self._clock() + (self.settings.api_timeout_s if timeout_s is None else timeout_s))

    def _check_open(self) -> None:
        if self.is_closed:
            raise Closed("the consumer is closed")

    def _check_idle(self, what: str) -> None:
        if self._is_polling:
            raise InvalidInput(f"{what} cannot be called during a poll, by a listener or by another task")

    def _check_wakeup(self) -> None:
        if self.is_closing:
            raise Closed("the consumer was closed during the call")
        if self._is_woken:
            self._is_woken = False
            raise WokenUp("the consumer was woken by wakeup()")


def _topic_partition(at: PartitionLike) -> TopicPartition:
    return at if isinstance(at, TopicPartition) else TopicPartition(*at)
