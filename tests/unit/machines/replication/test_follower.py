"""The follower's states: what each answer of the leader makes it do."""

from __future__ import annotations

from headrace.base.ids import BrokerId, Epoch, Offset
from headrace.base.time import Instant
from headrace.machines.replication.follower import (
    PAUSE_SECONDS,
    AdvanceLogStart,
    AppendRecords,
    Fact,
    FetchAnswered,
    FetchFailed,
    LogFlushed,
    LogTruncated,
    Order,
    PartitionFollower,
    RecordsAppended,
    StartOverAt,
    State,
    TruncateTo,
    Woke,
)
from headrace.machines.replication.leader import RaiseHighWatermark
from headrace.machines.replication.lineage import Divergence
from headrace.protocol.errors import ErrorCode
from headrace.storage.leader_epochs import LeaderEpochs


class Lineage:
    def __init__(self, entries: list[tuple[int, int]], end: int) -> None:
        self.epochs = LeaderEpochs(entries)
        self.end = end

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset(epoch, self.end)

    def epoch_at(self, offset: int) -> int:
        return self.epochs.epoch_of(offset)


class FollowerFixture:
    def __init__(
        self,
        epochs: list[tuple[int, int]],
        end: int,
        *,
        high_watermark: int = 0,
        log_start: int = 0,
        flushed_end: int | None = None,
        flushes_each: bool = False,
    ) -> None:
        lineage = Lineage(epochs, end)
        self.now = 10.0
        self.follower = PartitionFollower(
            BrokerId(1),
            Epoch(7),
            lineage,
            end=end,
            last_epoch=lineage.epochs.latest,
            high_watermark=high_watermark,
            log_start=log_start,
            flushed_end=end if flushed_end is None else flushed_end,
            flushes_each=flushes_each,
        )

    def step(self, fact: Fact, *, after: float = 0.0) -> list[Order]:
        self.now += after
        orders = self.follower.step(Instant(self.now), fact)
        self.follower.check()
        return orders

    def answer(
        self,
        *,
        error: int = ErrorCode.NONE,
        high_watermark: int = 0,
        log_start: int = 0,
        divergence: Divergence | None = None,
        has_records: bool = False,
    ) -> list[Order]:
        return self.step(
            FetchAnswered(
                self.follower.fetch_offset,
                self.follower.last_epoch,
                error,
                high_watermark,
                log_start,
                divergence,
                has_records,
            )
        )


def raised(offset: int) -> RaiseHighWatermark:
    return RaiseHighWatermark(Offset(offset))


def test_records_are_appended_and_the_next_fetch_asks_for_what_follows() -> None:
    fixture = FollowerFixture([(6, 0)], 10)
    assert fixture.answer(high_watermark=10, has_records=True) == [AppendRecords()]
    assert fixture.follower.state is State.APPENDING
    assert fixture.step(RecordsAppended(15, 7, 10)) == [raised(10)]
    assert fixture.follower.is_fetching
    assert (fixture.follower.fetch_offset, fixture.follower.last_epoch) == (15, 7)


def test_the_high_watermark_is_the_leaders_up_to_the_own_end() -> None:
    fixture = FollowerFixture([(6, 0)], 10)
    assert fixture.answer(high_watermark=25) == [raised(10)]
    fixture.answer(high_watermark=25, has_records=True)
    assert fixture.step(RecordsAppended(20, 6, 20)) == [raised(20)]


def test_it_does_not_fall_when_a_new_leader_knows_less() -> None:
    fixture = FollowerFixture([(6, 0)], 10, high_watermark=8)
    assert fixture.answer(high_watermark=5) == []
    assert fixture.follower.high_watermark == 8


def test_records_deleted_on_the_leader_are_deleted_here_once_they_are_committed() -> None:
    fixture = FollowerFixture([(6, 0)], 10)
    assert fixture.answer(high_watermark=4, log_start=6) == [raised(4)]
    assert fixture.answer(high_watermark=8, log_start=6) == [raised(8), AdvanceLogStart(Offset(6))]
    assert fixture.answer(high_watermark=8, log_start=6) == []


def test_a_diverging_log_is_cut_at_the_end_of_the_common_epoch() -> None:
    fixture = FollowerFixture([(4, 0), (5, 6)], 10)
    assert fixture.answer(divergence=Divergence(5, 8)) == [TruncateTo(Offset(8))]
    assert fixture.follower.state is State.TRUNCATING
    assert fixture.answer(has_records=True) == []  # of an earlier fetch
    assert fixture.step(LogTruncated(8, 5, 8)) == []
    assert fixture.follower.is_fetching
    assert fixture.follower.fetch_offset == 8


def test_an_epoch_that_the_follower_does_not_have_is_asked_for_step_by_step() -> None:
    """KIP-279: the leader has epochs 3 and 5, the follower 3 and 4."""
    fixture = FollowerFixture([(3, 0), (4, 6)], 10)
    assert fixture.answer(divergence=Divergence(3, 8)) == [TruncateTo(Offset(6))]


def test_a_late_answer_to_a_fetch_from_before_a_truncation_changes_nothing() -> None:
    """The log has the same length again, with other records."""
    fixture = FollowerFixture([(4, 0), (5, 6)], 10)
    late = FetchAnswered(10, 5, divergence=Divergence(4, 6))
    fixture.answer(divergence=Divergence(4, 6))
    fixture.step(LogTruncated(6, 4, 6))
    fixture.answer(has_records=True)
    fixture.step(RecordsAppended(10, 7, 10))
    assert fixture.step(late) == []


def test_it_starts_over_where_the_leaders_log_starts() -> None:
    fixture = FollowerFixture([(4, 0)], 10, high_watermark=9)
    assert fixture.answer(error=ErrorCode.OFFSET_OUT_OF_RANGE, log_start=50) == [StartOverAt(Offset(50))]
    assert fixture.step(LogTruncated(50, -1, 50)) == []
    # what the leader has deleted was committed
    assert (fixture.follower.fetch_offset, fixture.follower.high_watermark) == (50, 50)


def test_it_starts_over_where_nothing_is_left_to_compare() -> None:
    """All that may be common lies before the leader's log: nobody can tell which of it is."""
    fixture = FollowerFixture([(4, 0)], 10)
    assert fixture.answer(divergence=Divergence(4, 6), log_start=6) == [StartOverAt(Offset(6))]


def test_out_of_range_alone_does_not_shorten_a_log_with_records() -> None:
    fixture = FollowerFixture([(4, 0)], 10)
    assert fixture.answer(error=ErrorCode.OFFSET_OUT_OF_RANGE, log_start=3) == []
    assert fixture.follower.state is State.WAITING


def test_an_empty_log_moves_to_the_leaders_start() -> None:
    fixture = FollowerFixture([], 10)
    assert fixture.answer(error=ErrorCode.OFFSET_OUT_OF_RANGE, log_start=3) == [StartOverAt(Offset(3))]
    fixture.step(LogTruncated(3, -1, 3))
    assert fixture.follower.fetch_offset == 3


def test_after_an_error_it_waits_longer_each_time() -> None:
    fixture = FollowerFixture([(4, 0)], 10)
    for pause in (0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0):
        fixture.answer(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        at = fixture.follower.deadline()
        assert at is not None
        assert round(at - fixture.now, 3) == pause
        fixture.step(Woke(), after=pause / 2)
        assert not fixture.follower.is_fetching
        fixture.step(Woke(), after=pause / 2 + 0.001)
        assert fixture.follower.is_fetching
    fixture.answer()
    fixture.step(FetchFailed())
    at = fixture.follower.deadline()
    assert at is not None
    assert round(at - fixture.now, 3) == 0.02


def test_what_could_not_be_appended_is_fetched_again() -> None:
    fixture = FollowerFixture([(4, 0)], 10)
    fixture.answer(has_records=True)
    fixture.step(FetchFailed())
    assert fixture.follower.state is State.WAITING
    assert fixture.follower.fetch_offset == 10


def test_a_refused_rest_is_fetched_again_after_a_pause() -> None:
    fixture = FollowerFixture([(4, 0)], 10)
    fixture.answer(has_records=True)
    fixture.step(RecordsAppended(12, 4, 12, is_complete=False))
    assert fixture.follower.state is State.WAITING
    assert fixture.follower.fetch_offset == 12


def test_where_each_message_is_flushed_it_fetches_from_its_flushed_end() -> None:
    """A fetch is a promise to hold everything before its offset."""
    fixture = FollowerFixture([(4, 0)], 10, flushes_each=True)
    fixture.answer(has_records=True)
    fixture.step(RecordsAppended(12, 4, 10))
    assert fixture.follower.state is State.FLUSHING
    fixture.step(LogFlushed(11))
    assert not fixture.follower.is_fetching
    fixture.step(LogFlushed(12))
    assert fixture.follower.is_fetching


def test_an_end_that_is_not_flushed_is_not_promised_to_a_new_leader() -> None:
    fixture = FollowerFixture([(4, 0)], 10, flushed_end=8, flushes_each=True)
    assert not fixture.follower.is_fetching
    fixture.step(LogFlushed(10))
    assert fixture.follower.is_fetching


def test_nor_after_the_rest_of_an_answer_was_refused() -> None:
    fixture = FollowerFixture([(4, 0)], 10, flushes_each=True)
    fixture.answer(has_records=True)
    fixture.step(RecordsAppended(12, 4, 10, is_complete=False))
    fixture.step(Woke(), after=PAUSE_SECONDS)
    assert fixture.follower.state is State.FLUSHING
    fixture.step(LogFlushed(12))
    assert fixture.follower.is_fetching


def test_a_flush_during_the_pause_counts() -> None:
    fixture = FollowerFixture([(4, 0)], 10, flushes_each=True)
    fixture.answer(has_records=True)
    fixture.step(RecordsAppended(12, 4, 10, is_complete=False))
    fixture.step(LogFlushed(12))
    fixture.step(Woke(), after=PAUSE_SECONDS)
    assert fixture.follower.is_fetching


def test_a_log_that_starts_as_late_as_the_leaders_is_left_alone() -> None:
    fixture = FollowerFixture([(4, 0)], 10, log_start=5)
    assert fixture.answer(high_watermark=10, log_start=5) == [RaiseHighWatermark(Offset(10))]
    assert fixture.answer(high_watermark=10, log_start=6) == [AdvanceLogStart(Offset(6))]


def test_a_log_that_was_cut_before_its_start_starts_there() -> None:
    fixture = FollowerFixture([(4, 0), (6, 7)], 10, log_start=8)
    fixture.answer(divergence=Divergence(4, 7))
    fixture.step(LogTruncated(7, 4, 7))
    orders = fixture.answer(high_watermark=7, log_start=6)
    assert orders == [RaiseHighWatermark(Offset(7))]
    assert fixture.answer(high_watermark=7, log_start=7) == []


def test_pauses_grow_while_records_cannot_be_appended() -> None:
    """A full disk: the leader answers every time, but that is not a success."""
    fixture = FollowerFixture([(7, 0)], 5)
    pauses = []
    for _ in range(4):
        assert fixture.answer(has_records=True) == [AppendRecords()]
        fixture.step(FetchFailed())
        wakes_at = fixture.follower.deadline()
        assert wakes_at is not None
        pauses.append(round(wakes_at - fixture.now, 3))
        fixture.step(Woke(), after=pauses[-1] + 0.001)
    assert pauses == [0.02, 0.04, 0.08, 0.16]
