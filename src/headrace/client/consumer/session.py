"""Session of a consumer: its group, if it has one, and the reader of its partitions.

The shell sends the requests that `requests` returns, passes every answer to `answered` and calls `requests`
again at `deadline`. A poll of the application is: `polled`, then the listeners are called with the events of
`take_events` (`acknowledge` after a revocation), then `take_records`; without records the shell waits until
`has_news`. After any call, `needs_turn` says whether there is something to send.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from headrace.base.randomness import Randomness
from headrace.base.time import NEVER, Instant
from headrace.client.cluster import Partition, TopicPartition
from headrace.client.consumer.offsets import (
    ByTime,
    Committed,
    CommittedOffsets,
    Ends,
    OffsetCalls,
    check_partitions,
    committed_offset,
)
from headrace.client.consumer.position import ConsumerEvent
from headrace.client.consumer.reader import PartitionReader
from headrace.client.errors import ClientError, InvalidInput, TimedOut
from headrace.client.membership.events import (
    NOBODY,
    Assigned,
    AutoCommitFailed,
    CommitEnded,
    CommittedOffset,
    Failed,
    GroupEvent,
    GroupMembership,
    Identity,
    Left,
    Lost,
    OffsetsFetched,
    Revoked,
    TopicRefused,
)
from headrace.client.membership.group import Group
from headrace.client.membership.subscription import Subscription
from headrace.client.metadata import Metadata
from headrace.client.session import Answer, Outgoing, RequestQueue
from headrace.client.settings.consumer import (
    EARLIEST,
    LATEST,
    ConsumerSettings,
)
from headrace.client.steps import Pending


class Closing:
    """open --begin--> waiting --the last answer, or too late--> done"""

    def __init__(self) -> None:
        self.pending: Pending[None] | None = None
        self.answers = 0  # that are still waited for, besides the group's
        self._until = NEVER

    @property
    def has_begun(self) -> bool:
        return self.pending is not None

    def begin(self, now: Instant, timeout_s: float) -> Pending[None]:
        self.pending = Pending("closing the consumer")
        self._until = Instant(now + timeout_s)
        return self.pending

    def answered(self) -> None:
        self.answers -= 1

    def advance(self, now: Instant, *, has_left: bool) -> None:
        if self.pending is None or self.pending.is_done:
            return
        if has_left and not self.answers:
            self.pending.finish()
        elif now >= self._until:
            self.pending.finish(error=TimedOut("the consumer was not closed in time"))

    def deadline(self) -> Instant:
        return self._until if self.pending is not None and not self.pending.is_done else NEVER


class ConsumerSession(PartitionReader):
    """Invariant: with a subscription the positions are those of what the group has given us and we have not
    acknowledged to lose; otherwise those that the application assigned.
    """

    def __init__(self, settings: ConsumerSettings, rng: Randomness, *, wall_ms: Callable[[], int]) -> None:
        """`wall_ms` is asked for the time when a reset by duration needs it."""
        self._request_queue = RequestQueue()
        metadata = Metadata(
            self._request_queue,
            rng,
            request_timeout_s=settings.request_timeout_s,
            max_age_s=settings.metadata_age_s,
            creates_topics=settings.allow_auto_create_topics,
            retry_first_s=settings.retry_first_s,
            retry_last_s=settings.retry_last_s,
        )
        self.group: Group | None = None
        if settings.group is not None:
            self.group = Group(settings.group, rng, self._request_queue, metadata)
        look_up = None if self.group is None else self.group.fetch_committed
        super().__init__(settings, self._request_queue, metadata, rng, wall_ms=wall_ms, look_up=look_up)
        self._offset_calls = OffsetCalls(self.group, self._list_offsets)
        self._subscription: Subscription | None = None
        self._told_identity: Identity | None = NOBODY  # ours when the application had heard of all events
        self._failure: ClientError | None = None  # why the group is of no use until we subscribe again
        self._leaving: list[Pending[None]] = []  # done when the group says that we have left
        self._counts_as_read = True  # what is handed out, when the application polls again or closes
        self._closing = Closing()
        self._wake_at = NEVER  # as the shell was told

    # --- the shell -----------------------------------------------------------------------------------------

    def requests(self, now: Instant) -> list[Outgoing]:
        """What has to be sent now."""
        self._needs_turn = False
        if not self._closing.has_begun:
            self._advance(now)
        self._list_offsets.advance(now)
        self._topics.advance(now)
        if self.group is None:
            outgoing = self._request_queue.take()
        else:
            outgoing = self.group.requests(now)
            self._digest(now)
        has_left = not self._leaving and (self.group is None or self.group.has_committed)
        self._closing.advance(now, has_left=has_left)
        self._wake_at = self.deadline()
        return outgoing

    def answered(self, now: Instant, ticket: int, answer: Answer) -> None:
        self._needs_turn = True
        self._request_queue.answered(now, ticket, answer)
        self._digest(now)

    def deadline(self) -> Instant:
        """When `requests` has something new to say at the latest, unless an answer comes first."""
        if self._needs_turn:
            return Instant(0.0)
        earliest = min(self._list_offsets.deadline(), self._topics.deadline(), self._closing.deadline())
        if not self._closing.has_begun:
            earliest = min(earliest, self._reads_again_at())
        return earliest if self.group is None else min(earliest, self.group.deadline())

    @property
    def needs_turn(self) -> bool:
        """Whether `requests` should be asked before the deadline that was last given."""
        return self._needs_turn or self._fetcher.is_due

    @property
    def has_news(self) -> bool:
        """Whether the application is to be told something: an event, an error, or records."""
        return bool(self._events or self._errors or self._failure or self._buffer)

    @property
    def has_error(self) -> bool:
        return self._failure is not None or super().has_error

    def take_events(self) -> list[ConsumerEvent]:
        """What listeners have to know, in order; after a `Revoked`, `acknowledge` has to follow."""
        events = list(self._events)
        self._events.clear()
        self._know_identity()
        return events

    def take_error(self) -> ClientError | None:
        """The error that `take_records` would raise; that the group is lost is returned by every call."""
        return self._failure or super().take_error()

    # --- what comes from elsewhere -------------------------------------------------------------------------

    def _digest(self, now: Instant) -> None:
        """Does what the group's events mean for positions, and passes on what is for the application."""
        if self.group is None:
            return
        for event in self.group.take_events():
            self._judge(now, event)

    def _judge(self, now: Instant, event: GroupEvent) -> None:
        match event:
            case Assigned():
                self._add(event.partitions)
                self._events.append(event)
            case Revoked():
                self._stop(event.partitions)
                self._events.append(event)
            case Lost():
                self._remove(event.partitions)
                self._events.append(event)
            case CommitEnded():
                self._offset_calls.commit_ended(event)
            case OffsetsFetched():
                if not self._offset_reset.fetched(now, event.number, event.offsets, event.error):
                    self._offset_calls.fetched(event)
            case Failed():
                self._failure = event.error
            case TopicRefused():
                self._fail(event.error)
            case Left():
                leaving, self._leaving = self._leaving, []
                for pending in leaving:
                    pending.finish()
            case _:
                self._events.append(event)

    # --- what is read --------------------------------------------------------------------------------------

    def subscribe(self, now: Instant, subscription: Subscription) -> None:
        """Reads what the group gives us of these topics, instead of what it gave us of others."""
        if self.group is None:
            raise InvalidInput("subscribe() needs a group: set group.id, or use assign() instead")
        if self._subscription is None and self._positions and not self._leaving:
            raise InvalidInput("this consumer uses assign(); call unsubscribe() before subscribe()")
        self.group.subscribe(now, subscription)
        self._subscription = subscription
        self._failure = None
        self._needs_turn = True

    def unsubscribe(self, now: Instant) -> Pending[None]:
        """Stops reading; done when the member has left its group. An event is for the listeners."""
        pending: Pending[None] = Pending("leaving the group")
        if self._subscription is not None:
            self._leave(now, pending)
        elif self._leaving:
            self._leaving.append(pending)
        else:
            self._save(now)
            self._remove(list(self._positions))
            pending.finish()
        return pending

    def _leave(self, now: Instant, pending: Pending[None]) -> None:
        assert self.group is not None
        self._save(now)
        self._subscription = None
        self._failure = None
        self._leaving.append(pending)
        self._needs_turn = True
        self.group.leave(now)
        self._digest(now)

    def assign(
        self,
        now: Instant,
        partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int | CommittedOffset | None],
    ) -> None:
        """Reads exactly these partitions, from the given offsets. Without an offset a partition keeps its
        position, or begins at the committed offset or where auto.offset.reset says.
        """
        if self._subscription is not None:
            raise InvalidInput("this consumer uses subscribe(); call unsubscribe() before assign()")
        if self._leaving:
            raise InvalidInput("this consumer has not left its group yet; wait until unsubscribe() returns")
        given = partitions if isinstance(partitions, Mapping) else dict.fromkeys(partitions)
        check_partitions(given)
        wanted = {at: None if each is None else committed_offset(each) for at, each in given.items()}
        self._save(now)
        self._remove([at for at in self._positions if at not in wanted])
        self._add([at for at in wanted if at not in self._positions])
        for at, begin in wanted.items():
            if begin is not None:
                self.seek(now, at, begin.offset, begin.leader_epoch)

    @property
    def subscription(self) -> Subscription | None:
        return self._subscription

    def polled(self, now: Instant) -> None:
        """The application is at work, and done with all that it was given before."""
        if self.group is not None:
            self._save(now)
            self.group.polled(now)
            self._needs_turn |= self.group.deadline() < self._wake_at

    def acknowledge(self, now: Instant) -> None:
        """The application is done with all that it was told is revoked; of that counts as read what it had
        before it last polled. While there are events that it has not heard, it is not done.
        """
        assert self.group is not None
        if any(isinstance(event, Revoked) for event in self._events):
            return
        self.group.acknowledge(now)
        self._remove([position.at for position in self._positions.values() if position.is_leaving])
        self._digest(now)

    def _save(self, now: Instant) -> None:
        """What was handed out counts as read from now on, for those commits that nobody asks for."""
        touched = self._buffer.touched
        if touched and self.group is not None and self._counts_as_read:
            read = {position.at: position.committable() for position in touched}
            self.group.consumed(now, {at: each for at, each in read.items() if each is not None})
        touched.clear()

    def discount_last_poll(self) -> None:
        """What was handed out since the application last polled, or will be, does not count as read."""
        self._counts_as_read = False

    # --- offsets -------------------------------------------------------------------------------------------

    def commit(
        self,
        now: Instant,
        offsets: Mapping[TopicPartition, int | CommittedOffset] | None = None,
        timeout_s: float | None = None,
    ) -> Pending[Committed]:
        """Keeps these in the group, or how far all that is assigned was read; done with what was kept."""
        self._needs_turn = True
        pending = self._offset_calls.commit(now, self.positions() if offsets is None else offsets, timeout_s)
        self._digest(now)
        return pending

    def committed(
        self, now: Instant, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> Pending[CommittedOffsets]:
        """What the group has kept, None where it has kept nothing."""
        self._needs_turn = True
        return self._offset_calls.committed(now, partitions, timeout_s)

    def group_metadata(self) -> GroupMembership:
        """The membership with which a producer commits this consumer's offsets in a transaction.

        If the member has lost partitions and the application does not know yet, this is the old membership,
        and the broker refuses it.
        """
        settings = self._offset_calls.needed_group("for its metadata").settings
        if not self._events:
            self._know_identity()
        identity = self._told_identity
        if identity is None:
            return GroupMembership(settings.group_id, instance_id=settings.instance_id)
        return GroupMembership(settings.group_id, identity.epoch, identity.member_id, identity.instance_id)

    def _know_identity(self) -> None:
        if self.group is not None:
            self._told_identity = self.group.membership.identity()

    def beginning_offsets(
        self, now: Instant, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> Pending[Ends]:
        """The first offset that is still there, of each."""
        self._needs_turn = True
        return self._offset_calls.ends(now, partitions, EARLIEST, self._timeout_s(timeout_s))

    def end_offsets(
        self, now: Instant, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> Pending[Ends]:
        """The offset behind the last record that can be read, of each."""
        self._needs_turn = True
        return self._offset_calls.ends(now, partitions, LATEST, self._timeout_s(timeout_s))

    def offsets_for_times(
        self, now: Instant, times: Mapping[TopicPartition, int], timeout_s: float | None = None
    ) -> Pending[ByTime]:
        """The first record of each that is as late as the timestamp (in ms); None where none is."""
        self._needs_turn = True
        return self._offset_calls.by_time(now, times, self._timeout_s(timeout_s))

    def partitions_for(
        self, now: Instant, topic: str, timeout_s: float | None = None
    ) -> Pending[list[Partition]]:
        self._needs_turn = True
        return self._topics.list_partitions(now, topic, self._timeout_s(timeout_s))

    def _timeout_s(self, asked_s: float | None) -> float:
        return self.settings.api_timeout_s if asked_s is None else asked_s

    # --- the end -------------------------------------------------------------------------------------------

    def close(self, now: Instant, timeout_s: float | None = None) -> Pending[None]:
        """Commits what is to be committed on its own, leaves the group, and has the brokers forget us.

        Events come as ever and have to be taken and acknowledged, until it is done.
        """
        if self._closing.pending is not None:
            return self._closing.pending
        pending = self._closing.begin(now, self._timeout_s(timeout_s))
        if self._subscription is not None:
            self._leave(now, Pending("leaving the group"))
        elif self.group is not None and self._commits_itself and not self._leaving:
            read = self.positions() if self._counts_as_read else self.group.unsaved
            self.commit(now, read, timeout_s).when_done(partial(self._committed_last, read))
        self._closing.answers = self._fetcher.end_sessions(self._closing.answered)
        self._needs_turn = True
        return pending

    @property
    def _commits_itself(self) -> bool:
        return self.group is not None and self.group.settings.auto_commit_interval_s is not None

    def _committed_last(self, read: Committed, pending: Pending[Committed]) -> None:
        if pending.error is not None:
            self._events.append(AutoCommitFailed(read, pending.error))
