"""Initial positions, offset resets, and position validation: where a partition is read from.

The first position is the committed offset, or what auto.offset.reset says. A new one is chosen when one is
not usable: out of range, or of records that are no longer in the log.

Validation (KIP-320) asks a new leader with OffsetForLeaderEpoch before the next fetch. A position remembers
under which leader epoch the record before it was written. When the partition has a leader of a later epoch,
that one says where the records of our epoch end in its log; if that is before our position, what we read was
lost with the old leader, and the logs part there.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from headrace.base.randomness import Randomness
from headrace.base.time import NEVER, Instant
from headrace.client.cluster import Cluster, TopicPartition
from headrace.client.consumer.fetch_buffer import FetchBuffer
from headrace.client.consumer.offsets import FoundOffsets, ListOffsets
from headrace.client.consumer.position import (
    NO_EPOCH,
    NO_OFFSET,
    LogTruncated,
    Position,
    PositionEvent,
    PositionPhase,
    PositionReset,
)
from headrace.client.errors import ClientError, KafkaError, LogTruncation, NoOffset, UnsupportedByBroker
from headrace.client.membership.events import CommittedOffset
from headrace.client.session import Answer, RequestQueue
from headrace.client.settings.consumer import (
    EARLIEST,
    LATEST,
    TO_EARLIEST,
    ConsumerSettings,
    Reset,
    ResetKind,
)
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

FetchCommitted = Callable[[Instant, list[TopicPartition]], int]


class OffsetReset:
    """Invariant: a position that is asked about is in one lookup of `_lookups`, or in one search."""

    def __init__(
        self,
        settings: ConsumerSettings,
        positions: dict[TopicPartition, Position],
        buffer: FetchBuffer,
        list_offsets: ListOffsets,
        rng: Randomness,
        *,
        wall_ms: Callable[[], int],
        look_up: FetchCommitted | None,
        found: Callable[[], None],
        tell: Callable[[PositionEvent], None],
    ) -> None:
        """`look_up` asks the group for committed offsets and gives a number by which `fetched` gets
        them; None without a group. `found` hears that something may be fetched.
        """
        self._settings = settings
        self._positions = positions
        self._buffer = buffer
        self._list_offsets = list_offsets
        self._rng = rng
        self._wall_ms = wall_ms
        self._look_up = look_up
        self._found = found
        self._tell = tell
        self._lookups: dict[int, list[tuple[Position, int]]] = {}
        self.is_due = True  # something has changed
        self._wake_at = NEVER

    def advance(self, now: Instant) -> None:
        if not self.is_due and now < self._wake_at:
            return
        self.is_due = False
        self._wake_at = NEVER
        unknown: list[Position] = []
        for position in self._positions.values():
            if position.phase not in (PositionPhase.UNKNOWN, PositionPhase.RESETTING) or not position.is_idle:
                continue
            if now < position.retry_at:
                self._wake_at = min(self._wake_at, position.retry_at)
            elif position.phase is PositionPhase.UNKNOWN:
                unknown.append(position)
            else:
                self._search(now, position)
        if not unknown:
            return
        if self._look_up is None:
            for position in unknown:
                self._begin_without(now, position)
                if position.phase is PositionPhase.RESETTING:
                    self._search(now, position)
            return
        for position in unknown:
            position.is_asked = True
        number = self._look_up(now, [position.at for position in unknown])
        self._lookups[number] = [(position, position.round) for position in unknown]

    def deadline(self) -> Instant:
        return self._wake_at

    # Committed offsets

    def fetched(
        self,
        now: Instant,
        number: int,
        offsets: Mapping[TopicPartition, CommittedOffset | None],
        error: ClientError | None,
    ) -> bool:
        """The group's answer; False if it was not we who asked."""
        asked = self._lookups.pop(number, None)
        if asked is None:
            return False
        for position, round in asked:
            if position.round != round:
                continue
            position.is_asked = False
            if error is not None:
                self._set_back(now, position, error)
                continue
            committed = offsets.get(position.at)
            if committed is None:
                self._begin_without(now, position)
            else:
                position.move(committed.offset, committed.leader_epoch)
                self._found()
        return True

    def _begin_without(self, now: Instant, position: Position) -> None:
        if self._settings.reset.kind is ResetKind.NONE:
            self._set_back(now, position, NoOffset(f"partition {position.at} has no committed offset"))
        else:
            self.is_due = True
            position.begin_reset(self._settings.reset, "no offset was committed")

    def _set_back(self, now: Instant, position: Position, error: ClientError) -> None:
        position.postpone(now, self._settings, self._rng)
        self.is_due = True
        if not error.is_retriable:
            self._buffer.fail(position, error)

    # Resets

    def _search(self, now: Instant, position: Position) -> None:
        assert position.reset is not None
        if position.reset.kind is ResetKind.NONE:
            self._set_back(now, position, _truncation(position, position.reset_reason, NO_OFFSET))
        else:
            self._ask(now, position, position.reset.timestamp(self._wall_ms()))

    def _ask(self, now: Instant, position: Position, timestamp: int) -> None:
        position.is_asked = True
        self._list_offsets.find(
            now,
            {position.at: timestamp},
            self._settings.api_timeout_s,
            partial(self._searched, position, position.round, timestamp),
        )

    def _searched(
        self,
        position: Position,
        round: int,
        timestamp: int,
        now: Instant,
        found: FoundOffsets,
        error: ClientError | None,
    ) -> None:
        if position.round != round:
            return
        position.is_asked = False
        if error is not None:
            self._set_back(now, position, error)
            return
        result = found[position.at]
        if result is None:
            # no record is as late as the duration says: nothing was written since
            assert timestamp not in (EARLIEST, LATEST)
            self._ask(now, position, LATEST)
            return
        before, reason = position.offset, position.reset_reason
        position.move(result.offset, result.leader_epoch)
        if reason:  # else the application has sought
            self._tell(PositionReset(position.at, before, result.offset, reason))
        self._found()

    def seek_end(self, position: Position, reset: Reset) -> None:
        """The application wants to be at the beginning or at the end."""
        self._buffer.drop(position)
        position.offset = None
        position.begin_reset(reset, "")
        self.is_due = True

    # Positions that are of no use

    def out_of_range(self, position: Position) -> None:
        """The log no longer holds, or does not hold yet, what comes next."""
        said = f"offset {position.fetch_offset} of partition {position.at}"
        if self._settings.reset.kind is ResetKind.NONE:
            self._buffer.fail(position, KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, subject=said))
        else:
            position.begin_reset(self._settings.reset, f"{said} is out of range")
            self.is_due = True

    def truncated(self, position: Position, offset: int, epoch: int) -> None:
        """The log holds other records than those we read, from `offset` on; NO_OFFSET: all are others."""
        assert position.offset is not None
        before = position.offset
        if self._settings.reset.kind is ResetKind.NONE:
            where = "" if offset == NO_OFFSET else f" from offset {offset} on"
            said = f"the log has other records{where} than those that were read up to offset {before}"
            self._buffer.fail(position, _truncation(position, said, offset))
        elif offset == NO_OFFSET:
            position.begin_reset(self._settings.reset, "the leader has none of the records that were read")
            self.is_due = True
        else:
            position.move(offset, epoch)
            self._tell(LogTruncated(position.at, before, offset))
            self._found()

    def recreated(self, position: Position) -> None:
        """The topic was deleted and another one has its name: all that was read is gone."""
        if position.phase is PositionPhase.UNKNOWN:
            return
        self._buffer.drop(position)
        # As with a truncated log reading goes on where the two logs part, wherever the policy would begin.
        is_told = self._settings.reset.kind is ResetKind.NONE
        reason = "the topic was deleted and created again"
        position.begin_reset(self._settings.reset if is_told else TO_EARLIEST, reason)
        self.is_due = True


def _truncation(position: Position, said: str, offset: int) -> LogTruncation:
    topic, partition = position.at
    return LogTruncation(f"partition {position.at}: {said}", topic=topic, partition=partition, offset=offset)


CONSUMER_REPLICA_ID = -1

# So often metadata are requested before a position of a later epoch than theirs is taken for one of another
# log, such as one that was restored from a copy: about a minute with the default settings.
NEWER_LEADER_TRIES_MAX = 60


class _Asked(NamedTuple):
    position: Position
    round: int
    leader_epoch: int  # of the leader that is asked


class PositionValidation:
    """Invariant: a position is CHECKING only with a fetch epoch; its fetch offset is what is checked."""

    def __init__(
        self,
        settings: ConsumerSettings,
        positions: dict[TopicPartition, Position],
        buffer: FetchBuffer,
        cluster: Cluster,
        request_queue: RequestQueue,
        rng: Randomness,
        *,
        passed: Callable[[], None],
        truncated: Callable[[Position, int, int], None],
    ) -> None:
        """`passed` is called when a partition may be fetched. `truncated` decides about a position if the
        log has only the records before an offset, of that epoch; NO_OFFSET: none of them.
        """
        self._settings = settings
        self._positions = positions
        self._buffer = buffer
        self._cluster = cluster
        self._request_queue = request_queue
        self._rng = rng
        self._passed = passed
        self._truncated = truncated
        self.is_due = True  # something has changed
        self._wake_at = NEVER

    def advance(self, now: Instant) -> None:
        if not self.is_due and now < self._wake_at:
            return
        self.is_due = False
        self._wake_at = NEVER
        loads: dict[int, list[_Asked]] = {}
        for position in self._positions.values():
            epoch = self._cluster.leader_epoch_of(position.at)
            if position.phase is PositionPhase.READY and epoch > position.leader_epoch:
                self._meet(position, epoch)
            if position.phase is PositionPhase.CHECKING and position.is_idle:
                leader = self._leader(now, position, epoch)
                if leader is not None:
                    loads.setdefault(leader, []).append(_Asked(position, position.round, epoch))
        for leader, load in loads.items():
            self._ask(leader, load)

    def _meet(self, position: Position, epoch: int) -> None:
        """The partition has a leader that we have not read from."""
        if NO_EPOCH < position.fetch_epoch < epoch:
            position.round += 1  # what the old leader may still answer is no longer wanted
            position.phase = PositionPhase.CHECKING
        else:
            position.leader_epoch = epoch

    def _leader(self, now: Instant, position: Position, epoch: int) -> int | None:
        """Who is to be asked now, if that is necessary."""
        leader = self._cluster.leader_of(position.at)
        if leader is None or position.at.topic in self._cluster.stale:
            self._cluster.mark_stale(position.at.topic)
        elif epoch == NO_EPOCH or position.fetch_epoch == epoch:
            self._pass(position, epoch)  # epochs are not counted here, or within one nothing is taken back
        elif now < position.retry_at:
            self._wake_at = min(self._wake_at, position.retry_at)
        elif position.fetch_epoch < epoch:
            return leader
        elif position.failures < NEWER_LEADER_TRIES_MAX:
            # Another consumer has read from a later leader. The one that we know was replaced, perhaps
            # without hearing of it: its log may end before the position, and it would call that out of range.
            self._set_back(now, position, None)
            self._wake_at = min(self._wake_at, position.retry_at)
        else:
            self._pass(position, epoch)
        return None

    def deadline(self) -> Instant:
        return self._wake_at

    def _pass(self, position: Position, leader_epoch: int) -> None:
        position.phase = PositionPhase.READY
        position.leader_epoch = leader_epoch
        position.settled()
        self._passed()

    def _ask(self, leader: int, load: list[_Asked]) -> None:
        topics: dict[str, OffsetForLeaderTopic] = {}
        for asked in load:
            position = asked.position
            position.is_asked = True
            topic = topics.setdefault(position.at.topic, OffsetForLeaderTopic(topic=position.at.topic))
            topic.partitions.append(
                OffsetForLeaderPartition(
                    partition=position.at.partition,
                    current_leader_epoch=asked.leader_epoch,
                    leader_epoch=position.fetch_epoch,
                )
            )
        self._request_queue.post(
            self._cluster.brokers[leader],
            OffsetForLeaderEpochRequest(replica_id=CONSUMER_REPLICA_ID, topics=list(topics.values())),
            partial(self._answered, load),
            timeout_s=self._settings.request_timeout_s,
        )

    def _answered(self, load: list[_Asked], now: Instant, answer: Answer) -> None:
        self.is_due = True
        still = {asked.position.at: asked for asked in load if asked.position.round == asked.round}
        for asked in still.values():
            asked.position.is_asked = False
        if isinstance(answer, UnsupportedByBroker):
            for asked in still.values():
                self._pass(asked.position, asked.leader_epoch)
            return
        if isinstance(answer, ClientError):
            for asked in still.values():
                self._set_back(now, asked.position, answer)
            return
        assert isinstance(answer, OffsetForLeaderEpochResponse)
        for topic in answer.topics:
            for told in topic.partitions:
                found = still.pop(TopicPartition(topic.topic, told.partition), None)
                if found is not None:
                    self._judge(now, found, told)
        for asked in still.values():  # left out
            self._set_back(now, asked.position, None)

    def _judge(self, now: Instant, asked: _Asked, told: EpochEndOffset) -> None:
        position = asked.position
        if told.error_code:
            error = KafkaError(told.error_code, subject=f"partition {position.at}")
            self._set_back(now, position, error)
        elif NO_OFFSET < position.fetch_offset <= told.end_offset:
            self._pass(position, asked.leader_epoch)
        elif position.chunks:
            # What was fetched ahead is not what the log holds; is it so for what was handed out, too?
            self._buffer.drop(position)
            position.rewind()
        elif told.end_offset == NO_OFFSET or told.leader_epoch == NO_EPOCH:
            self._truncated(position, NO_OFFSET, NO_EPOCH)
        else:
            self._truncated(position, told.end_offset, told.leader_epoch)

    def _set_back(self, now: Instant, position: Position, error: ClientError | None) -> None:
        position.postpone(now, self._settings, self._rng)
        self._cluster.mark_stale(position.at.topic)
        if error is not None and not error.is_retriable:
            self._buffer.fail(position, error)
