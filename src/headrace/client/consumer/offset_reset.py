"""Initial positions and offset resets: the committed offset, or what auto.offset.reset says.

Also where to go on when a position turns out to be unusable: out of range, or of records that the log no
longer holds.
"""

from collections.abc import Callable, Mapping
from functools import partial

from headrace.base.dice import Dice
from headrace.base.time import NEVER, Instant
from headrace.client.cluster import TopicPartition
from headrace.client.consumer.fetch_buffer import FetchBuffer
from headrace.client.consumer.list_offsets import FoundOffsets, ListOffsets
from headrace.client.consumer.position import (
    NO_OFFSET,
    LogTruncated,
    Phase,
    Position,
    PositionEvent,
    PositionReset,
)
from headrace.client.errors import ClientError, KafkaError, LogTruncation, NoOffset
from headrace.client.membership.events import CommittedOffset
from headrace.client.settings.consumer import (
    EARLIEST,
    LATEST,
    TO_EARLIEST,
    ConsumerSettings,
    Reset,
    ResetKind,
)
from headrace.protocol.errors import ErrorCode

FetchCommitted = Callable[[Instant, list[TopicPartition]], int]


class OffsetReset:
    """Invariant: a position that is asked about is in one lookup of `_lookups`, or in one search."""

    def __init__(
        self,
        settings: ConsumerSettings,
        positions: dict[TopicPartition, Position],
        buffer: FetchBuffer,
        list_offsets: ListOffsets,
        dice: Dice,
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
        self._dice = dice
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
            if position.phase not in (Phase.UNKNOWN, Phase.RESETTING) or not position.is_idle:
                continue
            if now < position.retry_at:
                self._wake_at = min(self._wake_at, position.retry_at)
            elif position.phase is Phase.UNKNOWN:
                unknown.append(position)
            else:
                self._search(now, position)
        if not unknown:
            return
        if self._look_up is None:
            for position in unknown:
                self._begin_without(now, position)
                if position.phase is Phase.RESETTING:
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
        position.retry_at = Instant(now + self._settings.backoff(position.failures, self._dice))
        position.failures += 1
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
            said = f"it was read up to offset {before} and holds other records now{where}"
            self._buffer.fail(position, _truncation(position, said, offset))
        elif offset == NO_OFFSET:
            position.begin_reset(self._settings.reset, "the leader knows nothing of what was read")
            self.is_due = True
        else:
            position.move(offset, epoch)
            self._tell(LogTruncated(position.at, before, offset))
            self._found()

    def recreated(self, position: Position) -> None:
        """The topic was deleted and another one has its name: all that was read is gone."""
        if position.phase is Phase.UNKNOWN:
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
