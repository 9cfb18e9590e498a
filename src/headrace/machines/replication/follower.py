"""The follower's side of one partition, for one leader epoch: fetching, truncating, its high watermark.

    FETCHING    the next fetch asks for `fetch_offset`, and names the epoch of the record before it
    APPENDING   an answer brought records; the log writes them
    FLUSHING    each message has to be flushed, and the last ones are not yet
    TRUNCATING  the logs differ, or the leader's begins later: the follower's is being cut
    WAITING     the leader could not answer; the next try is at `deadline()`

    FETCHING ─ records ─▶ APPENDING ─▶ (FLUSHING) ─▶ FETCHING
    FETCHING ─ divergence, offset out of range ─▶ TRUNCATING ─▶ FETCHING
    FETCHING, APPENDING ─ error ─▶ WAITING ─▶ FETCHING

A follower needs no question before its first fetch: the fetch itself says which epoch its log ends with, and
the answer tells where the logs differ (KIP-320, Fetch 12 and later). An answer to a fetch of an earlier state
changes nothing. Another leader epoch means another `PartitionFollower`.
"""

from enum import Enum

from headrace.base.ids import BrokerId, Epoch, Offset
from headrace.base.time import Instant
from headrace.base.values import Value
from headrace.machines.replication.leader import RaiseHighWatermark
from headrace.machines.replication.lineage import Divergence, Lineage, truncation_offset
from headrace.protocol.errors import ErrorCode

# Pause after the first error, doubled with each one that follows. The usual error is that the metadata have
# reached one of the two brokers first, which lasts for milliseconds.
PAUSE_SECONDS = 0.02
PAUSE_SECONDS_MAX = 1.0  # Kafka's replica.fetch.backoff.ms

NO_EPOCH = -1
NO_OFFSET = -1


class State(Enum):
    FETCHING = "fetching"
    APPENDING = "appending"
    FLUSHING = "flushing"
    TRUNCATING = "truncating"
    WAITING = "waiting"


# --- facts ------------------------------------------------------------------------------------------------


class FetchAnswered(Value):
    """The leader's answer for this partition. Offset and epoch are those of the fetch: another log may have
    ended at the same offset.
    """

    fetch_offset: int
    last_epoch: int
    error: int = ErrorCode.NONE
    high_watermark: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET  # also told with OFFSET_OUT_OF_RANGE
    divergence: Divergence | None = None
    has_records: bool = False


class RecordsAppended(Value):
    end: int  # of the log
    last_epoch: int  # of the record before
    flushed_end: int
    is_complete: bool = True  # False: the rest of the answer was refused


class LogFlushed(Value):
    flushed_end: int


class FlushesChanged(Value):
    """Each message has to be flushed from now on, or does not have to any more."""

    flushes_each: bool
    flushed_end: int


class LogTruncated(Value):
    """The log was cut, or begins again at `end` without a record (last epoch -1)."""

    end: int
    last_epoch: int
    flushed_end: int


class LogDamaged(Value):
    """The log cannot be read from this offset on. The replica is not in sync, and may get the rest again."""

    offset: int


class FetchFailed(Value):
    """There was no answer, or it could not be appended: damaged on its way, no space left."""


class Woke(Value):
    """The deadline has passed."""


Fact = (
    FetchAnswered
    | RecordsAppended
    | LogFlushed
    | FlushesChanged
    | LogTruncated
    | LogDamaged
    | FetchFailed
    | Woke
)


# --- orders -----------------------------------------------------------------------------------------------


class AppendRecords(Value):
    """Write the records of this answer, and tell with RecordsAppended."""


class TruncateTo(Value):
    """Cut the log so that it ends at `offset` at the latest, and tell with LogTruncated."""

    offset: Offset


class StartOverAt(Value):
    """Remove all records: the log begins at `offset`, empty. Tell with LogTruncated."""

    offset: Offset


class AdvanceLogStart(Value):
    """Records before `offset` were deleted on the leader."""

    offset: Offset


Order = AppendRecords | TruncateTo | StartOverAt | AdvanceLogStart | RaiseHighWatermark


class PartitionFollower:
    """Invariants: high_watermark <= fetch_offset; the high watermark falls only with a truncation below it,
    which happens after an unclean election alone. It falls when the truncation is ordered: a checkpoint that
    is written during the cut must not promise what comes after it.
    """

    __slots__ = (
        "_errors",
        "_flushed_end",
        "_flushes_each",
        "_leader_high_watermark",
        "_leader_log_start",
        "_lineage",
        "_log_start",
        "_wakes_at",
        "epoch",
        "fetch_offset",
        "high_watermark",
        "last_epoch",
        "leader_id",
        "state",
    )

    def __init__(
        self,
        leader_id: BrokerId,
        epoch: Epoch,
        lineage: Lineage,
        *,
        end: int,
        last_epoch: int,
        high_watermark: int,
        log_start: int = 0,
        flushed_end: int = 0,
        flushes_each: bool = False,
    ) -> None:
        """`last_epoch` is the epoch of the log's last record; -1 without any. `flushed_end` counts only where
        each message is flushed.
        """
        self.leader_id = leader_id
        self.epoch = epoch
        self.fetch_offset = Offset(end)
        self.last_epoch = last_epoch
        self.high_watermark = Offset(min(high_watermark, end))
        self.state = State.FETCHING
        self._lineage = lineage
        self._flushes_each = flushes_each
        self._flushed_end = flushed_end
        self._go_on()
        self._leader_high_watermark = 0
        self._leader_log_start = 0
        self._log_start = log_start  # as far as it was ordered
        self._errors = 0  # in a row
        self._wakes_at: Instant | None = None

    @property
    def is_fetching(self) -> bool:
        return self.state is State.FETCHING

    def step(self, now: Instant, fact: Fact) -> list[Order]:
        match fact:
            case FetchAnswered():
                if (
                    self.state is not State.FETCHING
                    or fact.fetch_offset != self.fetch_offset
                    or fact.last_epoch != self.last_epoch
                ):
                    return []  # to a fetch of an earlier state
                return self._answered(now, fact)
            case RecordsAppended():
                return self._appended(now, fact)
            case LogFlushed(flushed_end):
                self._flushed_end = flushed_end
                if self.state is State.FLUSHING:
                    self._go_on()
                return []
            case FlushesChanged(flushes_each, flushed_end):
                self._flushes_each = flushes_each
                self._flushed_end = flushed_end
                if self.state in (State.FLUSHING, State.FETCHING):
                    self._go_on()
                return []
            case LogTruncated():
                return self._truncated(fact)
            case LogDamaged(offset):
                assert self.state in (State.FETCHING, State.FLUSHING), (
                    "damage is looked for before the first fetch"
                )
                return [self._cut_at(offset)]
            case FetchFailed():
                if self.state is State.FETCHING or self.state is State.APPENDING:
                    self._pause(now)
                return []
            case Woke():
                if self._wakes_at is not None and now >= self._wakes_at:
                    self._wakes_at = None
                    self._go_on()
                return []

    def _answered(self, now: Instant, answer: FetchAnswered) -> list[Order]:
        if answer.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            return self._start_over(now, answer.log_start_offset)
        if answer.error != ErrorCode.NONE:
            self._pause(now)
            return []
        if answer.divergence is not None:
            self._errors = 0
            return self._truncate(answer.divergence, answer.log_start_offset)
        self._leader_high_watermark = answer.high_watermark
        self._leader_log_start = answer.log_start_offset
        if answer.has_records:
            self.state = State.APPENDING
            return [AppendRecords()]
        self._errors = 0
        return self._raise_high_watermark()

    def _appended(self, now: Instant, appended: RecordsAppended) -> list[Order]:
        assert self.state is State.APPENDING, "records are appended on order"
        self.fetch_offset = Offset(appended.end)
        self.last_epoch = appended.last_epoch
        self._flushed_end = appended.flushed_end
        if appended.is_complete:
            self._errors = 0  # an answer whose records cannot be appended is not a success
            self._go_on()
        else:
            self._pause(now)
        return self._raise_high_watermark()

    def _raise_high_watermark(self) -> list[Order]:
        """Never lower, although a new leader may know less than the one before: it stays committed."""
        orders: list[Order] = []
        reached = min(self._leader_high_watermark, self.fetch_offset)
        if reached > self.high_watermark:
            self.high_watermark = Offset(reached)
            orders.append(RaiseHighWatermark(self.high_watermark))
        if self._log_start < self._leader_log_start <= self.high_watermark:
            self._log_start = self._leader_log_start
            orders.append(AdvanceLogStart(Offset(self._log_start)))
        return orders

    def _truncate(self, divergence: Divergence, leader_start: int) -> list[Order]:
        offset = truncation_offset(self._lineage, self.fetch_offset, divergence)
        if offset <= leader_start:
            # the leader has deleted all that may be common, and cannot tell which of it is
            return [self._start_at(leader_start)]
        return [self._cut_at(offset)]

    def _cut_at(self, offset: int) -> TruncateTo:
        self.state = State.TRUNCATING
        self.high_watermark = Offset(min(self.high_watermark, offset))
        return TruncateTo(Offset(offset))

    def _start_at(self, offset: int) -> StartOverAt:
        self.state = State.TRUNCATING
        self.high_watermark = Offset(min(self.high_watermark, offset))
        return StartOverAt(Offset(offset))

    def _start_over(self, now: Instant, leader_start: int) -> list[Order]:
        """The leader's log begins behind the follower's end. What lies before is committed, and was deleted
        there: nothing that the follower has is needed.
        """
        if leader_start <= self.fetch_offset and self.last_epoch != NO_EPOCH:
            self._pause(
                now
            )  # the leader's log has not come so far yet, and only its lineage may shorten ours
            return []
        if leader_start < 0 or leader_start == self.fetch_offset:
            self._pause(now)
            return []
        return [self._start_at(leader_start)]

    def _truncated(self, log: LogTruncated) -> list[Order]:
        assert self.state is State.TRUNCATING, "a log is truncated on order"
        end = log.end
        # a log that begins later than it ended lacks nothing but what was committed and deleted
        self.high_watermark = Offset(end if end > self.fetch_offset else min(self.high_watermark, end))
        self.fetch_offset = Offset(end)
        self._log_start = min(self._log_start, end)
        self.last_epoch = log.last_epoch
        self._flushed_end = log.flushed_end
        self._go_on()
        return []

    def _go_on(self) -> None:
        """A fetch says that everything before its offset is here, for good where each message is flushed."""
        is_durable = not self._flushes_each or self._flushed_end >= self.fetch_offset
        self.state = State.FETCHING if is_durable else State.FLUSHING

    def _pause(self, now: Instant) -> None:
        self.state = State.WAITING
        self._wakes_at = Instant(now + min(PAUSE_SECONDS * 2**self._errors, PAUSE_SECONDS_MAX))
        self._errors = min(self._errors + 1, 16)

    def deadline(self) -> Instant | None:
        return self._wakes_at

    def check(self) -> None:
        assert self.high_watermark <= self.fetch_offset
        assert (self._wakes_at is not None) == (self.state is State.WAITING)
