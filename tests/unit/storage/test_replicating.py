"""A follower's log: what its leader's batches make of it, which batches it refuses, and how it is cut."""

from __future__ import annotations

import errno
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from headrace.records.batch import assign
from headrace.records.builder import end_marker
from headrace.storage.config import LogConfig
from headrace.storage.errors import DiskFull
from headrace.storage.faulty_disk import OPENS, SPACE_NEEDING, Fail, Fault, FaultyDisk
from headrace.storage.log_directory import LogDirectory
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.open_files import OpenFiles


def content(scene: Any) -> bytes:
    """All batches of the log."""
    return b"".join(
        bytes(segment.file().read(0, segment.measure())) if not segment.is_new else b""
        for segment in scene.log.segments.items
    )


def follow(follower: Any, data: bytes, *, leader_epoch: int = 0, allows_gaps: bool = False) -> Any:
    return follower.log.append_as_follower(
        memoryview(bytearray(data)),
        leader_epoch=leader_epoch,
        allows_gaps=allows_gaps,
        wall_ms=follower.wall_ms,
    )


@pytest.fixture
def follower(scene: Any) -> Any:
    other = type(scene)()
    other.open()
    return other


def batch(scene: Any, offset: int, epoch: int = 0, count: int = 1) -> bytes:
    made = bytearray(scene.batch(count))
    assign(memoryview(made), 0, offset, epoch)
    return bytes(made)


def test_many_batches_are_one_write(scene: Any) -> None:
    writes: list[int] = []
    disk = scene.disk = MemoryDisk()
    scene.open()
    append = type(disk.open("probe", create=True)).append

    def counted(self: Any, data: Any) -> None:
        if "log" in getattr(self, "path", ".log"):
            writes.append(len(data))
        append(self, data)

    data = b"".join(batch(scene, offset) for offset in range(50))
    follow(scene, batch(scene, 0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(disk.open("probe")), "append", counted)
        follow(scene, data[len(batch(scene, 0)) :])
    assert writes == [len(data) - len(batch(scene, 0))]
    assert content(scene) == data
    assert scene.log.log_end_offset == 50


def test_a_batch_of_a_later_epoch_than_the_leaders_is_refused(follower: Any) -> None:
    data = batch(follower, 0, 3) + batch(follower, 1, 3) + batch(follower, 2, 4)
    result = follow(follower, data, leader_epoch=3)
    assert result.end_offset == 2
    assert "leader epoch 4" in result.refusal


def test_a_batch_of_an_earlier_epoch_than_the_last_is_refused(follower: Any) -> None:
    result = follow(follower, batch(follower, 0, 3) + batch(follower, 1, 2), leader_epoch=3)
    assert result.end_offset == 1
    assert "behind records of epoch 3" in result.refusal


def test_a_gap_is_refused_unless_compaction_may_have_left_it(follower: Any) -> None:
    data = batch(follower, 0) + batch(follower, 5)
    result = follow(follower, data)
    assert (result.end_offset, "gap" in result.refusal) == (1, True)
    assert follow(follower, batch(follower, 5), allows_gaps=True).end_offset == 6


def test_what_overlaps_is_refused(follower: Any) -> None:
    follow(follower, batch(follower, 0, count=3))
    assert "before the end" in follow(follower, batch(follower, 2)).refusal
    assert follower.log.log_end_offset == 3


def test_a_damaged_batch_is_refused_with_all_that_follows(follower: Any) -> None:
    data = bytearray(b"".join(batch(follower, offset) for offset in range(3)))
    data[len(data) // 3 + 70] ^= 1
    result = follow(follower, bytes(data))
    assert result.end_offset == 1
    assert "checksum" in result.refusal


def test_epochs_are_learned_from_batches(follower: Any) -> None:
    data = batch(follower, 0, 1) + batch(follower, 1, 1) + batch(follower, 2, 4)
    follow(follower, data, leader_epoch=6)
    assert follower.log.epochs.read().entries() == [(1, 0), (4, 2)]
    assert follower.log.last_record_epoch() == 4


def test_an_epoch_in_which_nothing_was_written_is_forgotten_by_a_follower(follower: Any) -> None:
    """It led in epoch 5 and wrote nothing; the next leader has records of epoch 3."""
    follow(follower, batch(follower, 0, 2), leader_epoch=2)
    follower.log.assign_epoch(5)
    assert follower.log.last_record_epoch() == 2
    follow(follower, batch(follower, 1, 3), leader_epoch=6)
    assert follower.log.epochs.read().entries() == [(2, 0), (3, 1)]


def test_a_batch_larger_than_a_segment_was_accepted_by_the_leader(follower: Any) -> None:
    follower.log.configure(LogConfig(segment_bytes=50))
    follow(follower, batch(follower, 0) + batch(follower, 1))
    assert follower.log.segment_count == 2
    assert follower.log.log_end_offset == 2


def test_a_full_disk_leaves_the_log_where_it_was(scene: Any) -> None:
    scene.disk = FaultyDisk(MemoryDisk(), [Fault(Fail(28, written=99), "append", ".log")])
    scene.open()
    data = batch(scene, 0, 1) + batch(scene, 1, 1)
    with pytest.raises(DiskFull):
        follow(scene, data, leader_epoch=1)
    assert scene.log.log_end_offset == 0
    assert scene.log.last_record_epoch() == -1
    assert follow(scene, data, leader_epoch=1).end_offset == 2
    assert content(scene) == data


@pytest.mark.parametrize("refused", ["append", "create"])
def test_an_epoch_whose_first_batch_found_no_space_is_entered_again(scene: Any, refused: str) -> None:
    """The end of a transaction, and the roll of a segment, meet the full disk after the epoch was noted."""
    disk = scene.disk = FaultyDisk(MemoryDisk())
    scene.open()
    follow(scene, batch(scene, 0, 0))
    if refused == "create":
        scene.log.configure(LogConfig(segment_bytes=50))
        data = batch(scene, 1, 3)
    else:
        data = end_marker(
            committed=True,
            coordinator_epoch=0,
            producer_id=7,
            producer_epoch=0,
            timestamp=scene.wall_ms,
            base_offset=1,
            leader_epoch=3,
        )
    disk.faults.append(Fault(Fail(28), refused, ".log"))  # type: ignore[arg-type]
    with pytest.raises(DiskFull):
        follow(scene, data, leader_epoch=3)
    follow(scene, data, leader_epoch=3)
    assert scene.log.log_end_offset == 2
    assert scene.log.epochs.read().entries() == [(0, 0), (3, 1)]


class TestCutting:
    def test_segments_behind_the_cut_wait_for_removal(self, follower: Any) -> None:
        follower.log.configure(LogConfig(segment_bytes=200))
        data = [batch(follower, offset, offset // 3) for offset in range(9)]
        follow(follower, b"".join(data), leader_epoch=9)
        segments = follower.log.segment_count
        assert segments > 3
        follower.log.cut_to(4, follower.wall_ms)
        assert follower.log.log_end_offset == 4
        assert follower.log.epochs.read().entries() == [(0, 0), (1, 3)]
        assert len(follower.log.take_doomed()) >= segments - 3
        assert content(follower) == b"".join(data[:4])
        follow(follower, data[4], leader_epoch=9)
        assert follower.log.log_end_offset == 5

    def test_nothing_is_synced_before_the_flush(self, scene: Any) -> None:
        scene.disk = disk = FaultyDisk(MemoryDisk(), [])
        scene.open()
        for _ in range(4):
            scene.append()
        disk.faults.append(Fault(Fail(5), "sync", ""))
        disk.faults.append(Fault(Fail(5), "sync_dir", ""))
        scene.log.cut_to(2, scene.wall_ms)
        scene.log.start_over(7, scene.wall_ms)
        assert scene.log.log_end_offset == 7

    def test_at_the_end_it_forgets_epochs_without_records(self, scene: Any) -> None:
        scene.open()
        scene.append(leader_epoch=1)
        scene.log.assign_epoch(4)
        scene.log.cut_to(1, scene.wall_ms)
        assert scene.log.epochs.read().entries() == [(1, 0)]
        scene.log.assign_epoch(4)
        scene.log.truncate_to(9)
        assert scene.log.epochs.read().entries() == [(1, 0)]

    def test_a_flush_that_was_ordered_before_says_nothing_about_what_comes_after(self, scene: Any) -> None:
        scene.open()
        for _ in range(4):
            scene.append()
        job = scene.log.flush_job()
        scene.log.cut_to(2, scene.wall_ms)
        scene.append(leader_epoch=2)  # which makes the cut durable before
        scene.log.complete_flush(job.run(scene.disk))
        assert scene.log.flushed_offset == 2

    def test_the_state_of_producers_is_that_of_what_is_left(self, scene: Any) -> None:
        scene.open()
        scene.write(7, 0, transactional=True)
        scene.end(7, committed=False)
        scene.write(7, 1, transactional=True)
        scene.write(8, 0)
        scene.log.cut_to(1, scene.wall_ms)
        assert {one.producer_id: one.last_sequence for one in scene.log.producers()} == {7: 0}
        assert scene.log.first_unstable_offset == 0
        assert scene.log.aborted_transactions(0, 10) == []

    @pytest.mark.parametrize("is_durable", [False, True], ids=["cut_to", "truncate_to"])
    @pytest.mark.parametrize("suffix", [".txnindex", ".index", ".timeindex"])
    @pytest.mark.parametrize("cuts", [1, 2])
    def test_a_cut_that_finds_no_descriptor_is_complete_when_it_is_made_again(
        self, scene: Any, is_durable: bool, suffix: str, cuts: int
    ) -> None:
        """The producer wrote a transaction that was aborted, and committed another one that has its place
        now: a reader that hears of the first would skip what it is to read.
        """

        def cut() -> None:
            if is_durable:
                scene.log.truncate_to(2)
            else:
                scene.log.cut_to(2, scene.wall_ms)

        scene.disk = disk = FaultyDisk(MemoryDisk(), [])
        scene.config = LogConfig(index_interval_bytes=1)
        scene.open()
        scene.append()
        scene.append()
        for sequence in (0, 1):
            scene.write(7, sequence, transactional=True)
            scene.end(7, committed=False)
        scene.flush()
        scene.files.forget_directory(disk, scene.log.directory)
        disk.faults.append(Fault(Fail(errno.EMFILE), "open", suffix, times=cuts))
        for _ in range(cuts):
            with suppress(DiskFull):
                cut()
        cut()
        assert (scene.log.log_start_offset, scene.log.log_end_offset) == (0, 2)
        assert disk.faults[0].times < cuts
        disk.faults.clear()
        scene.write(7, 0, transactional=True)
        scene.end(7, committed=True)
        scene.write(8, 0, transactional=True)
        scene.end(8, committed=False)
        assert scene.log.aborted_transactions(0, 10) == [(8, 4)]
        scene.log.close(clean=True)
        scene.files = OpenFiles()
        scene.open("clean", recovery_point=6)
        assert scene.log.aborted_transactions(0, 10) == [(8, 4)]
        assert scene.bases() == [0, 1, 2, 3, 4, 5]

    def test_a_cut_without_a_descriptor_holds_after_a_clean_stop(self, scene: Any) -> None:
        """Nothing was written or read in between."""
        scene.disk = disk = FaultyDisk(MemoryDisk(), [])
        scene.open()
        scene.append()
        scene.write(7, 0, transactional=True)
        scene.end(7, committed=False)
        scene.flush()
        scene.files.forget_directory(disk, scene.log.directory)
        disk.faults.append(Fault(Fail(errno.EMFILE), "open", ".txnindex"))
        with pytest.raises(DiskFull):
            scene.log.cut_to(1, scene.wall_ms)
        scene.log.cut_to(1, scene.wall_ms)
        scene.log.close(clean=True)
        scene.flush()
        scene.files = OpenFiles()
        scene.open("clean", recovery_point=1)
        scene.write(7, 0, transactional=True)
        scene.end(7, committed=True)
        assert scene.log.aborted_transactions(0, 10) == []


def test_a_log_that_begins_inside_a_batch_takes_the_whole_batch(follower: Any) -> None:
    """The leader's records before offset 7 were deleted, and it cannot send half a batch."""
    follower.log.start_over(7, follower.wall_ms)
    result = follow(follower, batch(follower, 5, 2, count=4) + batch(follower, 9, 2), leader_epoch=2)
    assert result.refusal is None
    assert (follower.log.log_start_offset, follower.log.log_end_offset) == (7, 10)
    assert follower.log.read(7, max_bytes=1, limit_offset=10, at_least_one=True).position == 0
    assert follower.log.epoch_end_offset(2) == (2, 10)


def test_only_a_log_without_records_does(follower: Any) -> None:
    follower.log.start_over(7, follower.wall_ms)
    follow(follower, batch(follower, 7))
    result = follow(follower, batch(follower, 6, count=4))
    assert "before the end" in result.refusal


def test_a_batch_that_ends_before_the_log_begins_is_refused(follower: Any) -> None:
    follower.log.start_over(7, follower.wall_ms)
    result = follow(follower, batch(follower, 5, count=2))
    assert "before the end" in result.refusal
    assert follower.log.log_end_offset == 7


def test_starting_over(follower: Any) -> None:
    follow(follower, batch(follower, 0, 1) + batch(follower, 1, 1), leader_epoch=1)
    follower.log.start_over(100, follower.wall_ms)
    log = follower.log
    assert (log.log_start_offset, log.log_end_offset, log.flushed_offset) == (100, 100, 100)
    assert log.last_record_epoch() == -1
    assert len(log.take_doomed()) == 1
    follow(follower, batch(follower, 100, 3), leader_epoch=3)
    assert log.epochs.read().entries() == [(3, 100)]
    assert log.read(100, max_bytes=1000, limit_offset=101, at_least_one=True) is not None


def directory_of(disk: Any, boot: str = "one") -> LogDirectory:
    directory = LogDirectory.look(
        disk,
        "data",
        node_id=1,
        cluster_id="c",
        directory_id_if_new=b"d" * 16,
        boot_id=boot,
        files=OpenFiles(),
    )
    directory.take_possession()
    return directory


@pytest.mark.parametrize("boot", ["one", "two"])
def test_after_a_cut_below_the_checkpoints_a_start_finds_the_cut_log(scene: Any, boot: str) -> None:
    """Flushed, checkpointed, and then cut, as after an unclean election: a start must not take the missing
    end for damage.
    """
    disk = MemoryDisk()
    directory = directory_of(disk)
    log = directory.open_log("t", 0, b"t" * 16, LogConfig(), scene.wall_ms)
    for offset in range(6):
        log.append_as_follower(
            memoryview(bytearray(batch(scene, offset))), leader_epoch=0, allows_gaps=False, wall_ms=1
        )
    job = log.flush_job()
    assert job is not None
    log.complete_flush(job.run(disk))
    directory.checkpoint({("t", 0): 6})
    lower = directory.lower_job("t", 0, 2)
    assert lower is not None
    lower.run(disk)
    log.cut_to(2, scene.wall_ms)
    job = log.flush_job()
    assert job is not None
    log.complete_flush(job.run(disk))
    assert directory.lower_job("t", 0, 2) is None
    again = directory_of(disk, boot)
    reopened = again.open_log("t", 0, b"t" * 16, LogConfig(), scene.wall_ms)
    assert reopened.log_end_offset == 2
    assert reopened.damages == []
    assert again.high_watermark("t", 0) == 2


def test_a_cut_waits_for_checkpoints_that_an_earlier_order_has_not_written(scene: Any) -> None:
    """It failed, or has not begun, and whoever ordered it does not wait for it any more."""
    disk = MemoryDisk()
    directory = directory_of(disk)
    log = directory.open_log("t", 0, b"t" * 16, LogConfig(), scene.wall_ms)
    for offset in range(6):
        log.append_as_follower(
            memoryview(bytearray(batch(scene, offset))), leader_epoch=0, allows_gaps=False, wall_ms=1
        )
    job = log.flush_job()
    assert job is not None
    log.complete_flush(job.run(disk))
    directory.checkpoint({("t", 0): 6})
    assert directory.lower_job("t", 0, 2) is not None
    again = directory.lower_job("t", 0, 2)
    assert again is not None, "the checkpoints on disk still promise six records"
    again.run(disk)
    assert directory.lower_job("t", 0, 2) is None


@pytest.mark.parametrize(("has_copies", "left"), [(True, (0, 0)), (False, (1, 3))])
def test_a_replica_whose_first_segments_a_lost_host_has_forgotten_gets_all_from_its_leader(
    scene: Any, has_copies: bool, left: tuple[int, int]
) -> None:
    """It would be taken for one that is in sync, and lead, although it lacks what was committed. The only
    replica keeps what there is.
    """
    disk = MemoryDisk()
    config = LogConfig(segment_bytes=len(batch(scene, 0)) + 1)
    log = directory_of(disk).open_log("t", 0, b"t" * 16, config, scene.wall_ms)
    for offset in range(3):
        log.append_as_follower(
            memoryview(bytearray(batch(scene, offset))), leader_epoch=0, allows_gaps=False, wall_ms=1
        )
    for name in disk.list("t-0"):
        if name.startswith("0" * 20):
            disk.remove(f"t-0/{name}")
    again = directory_of(disk, "two")
    reopened = again.open_log("t", 0, b"t" * 16, config, scene.wall_ms, has_copies=has_copies)
    assert (reopened.log_start_offset, reopened.log_end_offset) == left
    assert reopened.last_record_epoch() == (-1 if has_copies else 0)


def test_a_replica_keeps_what_retention_has_left_of_it_when_the_host_is_lost(scene: Any) -> None:
    """Before a checkpoint has the new start. All replicas may lose their hosts at once: none of them may
    give up records that are flushed.
    """
    disk = MemoryDisk()
    size = len(batch(scene, 0))
    config = LogConfig(segment_bytes=size + 1, retention_bytes=2 * size, flush_messages=1)
    log = directory_of(disk).open_log("t", 0, b"t" * 16, config, scene.wall_ms)
    for offset in range(6):
        log.append_as_follower(
            memoryview(bytearray(batch(scene, offset))), leader_epoch=0, allows_gaps=False, wall_ms=1
        )
    assert log.retire(scene.wall_ms)
    job = log.flush_job()
    assert job is not None
    log.complete_flush(job.run(disk))
    assert (log.log_start_offset, log.flushed_offset) == (4, 6)
    lost = disk.crash("lost", Random(0))
    again = directory_of(lost, "two").open_log("t", 0, b"t" * 16, config, 1, has_copies=True)
    assert (again.log_start_offset, again.log_end_offset) == (4, 6)


@pytest.mark.parametrize("is_start", [False, True])
@pytest.mark.parametrize("removed", [1, 2])
def test_a_cut_that_a_full_disk_stops_halfway_leaves_a_whole_log(
    scene: Any, removed: int, is_start: bool
) -> None:
    """Before it is tried again, another leader epoch may begin, in which records are appended."""
    disk = FaultyDisk(MemoryDisk())
    directory = directory_of(disk)
    config = LogConfig(segment_bytes=len(batch(scene, 0)) + 1)
    log = directory.open_log("t", 0, b"t" * 16, config, scene.wall_ms)
    for offset in range(5):
        log.append_as_follower(
            memoryview(bytearray(batch(scene, offset, epoch=offset))),
            leader_epoch=offset,
            allows_gaps=False,
            wall_ms=1,
        )
    assert len(log.segments) == 5
    disk.faults = [Fault(Fail(errno.ENOSPC), "rename", f"{4 - removed}.log", times=100)]
    cut, offset = (log.start_over, 9) if is_start else (log.cut_to, 1)
    with pytest.raises(DiskFull):
        cut(offset, scene.wall_ms)
    disk.faults = []
    end = 5 - removed
    assert log.log_end_offset == end
    assert log.last_record_epoch() == end - 1
    appended = log.append(memoryview(bytearray(scene.batch())), wall_ms=1, leader_epoch=7, from_client=False)
    assert appended.base_offset == end
    assert directory_of(disk).open_log("t", 0, b"t" * 16, config, 1).log_end_offset == end + 1
    log.cut_to(1, scene.wall_ms)
    assert (log.log_end_offset, log.last_record_epoch()) == (1, 0)


@pytest.mark.parametrize("is_start", [False, True])
@pytest.mark.parametrize(("code", "calls"), [(errno.ENOSPC, SPACE_NEEDING), (errno.EMFILE, OPENS)])
def test_so_does_one_that_stops_anywhere_else(
    scene: Any, code: int, calls: frozenset[Any], is_start: bool
) -> None:
    """In the middle of the segment that is cut, its indexes, or the snapshots of producers."""
    config = LogConfig(segment_bytes=2 * len(batch(scene, 0)) + 1, index_interval_bytes=1)
    for passed in range(100):
        disk = FaultyDisk(MemoryDisk())
        log = directory_of(disk).open_log("t", 0, b"t" * 16, config, scene.wall_ms)
        for offset in range(7):
            log.append_as_follower(
                memoryview(bytearray(batch(scene, offset))), leader_epoch=0, allows_gaps=False, wall_ms=1
            )
        assert len(log.segments) == 4
        disk.faults = [Fault(Fail(code), calls, skip=passed, times=100)]
        cut, offset = (log.start_over, 9) if is_start else (log.cut_to, 1)
        try:
            cut(offset, scene.wall_ms)
        except DiskFull:
            pass
        else:
            break
        disk.faults = []
        end = log.log_end_offset
        for _ in range(2):
            log.append(memoryview(bytearray(scene.batch())), wall_ms=1, leader_epoch=7, from_client=False)
        again = directory_of(disk).open_log("t", 0, b"t" * 16, config, 1)
        assert again.log_end_offset == log.log_end_offset == end + 2
        for one in (log, again):
            for at in range(one.log_start_offset, end + 2):
                assert one.read(at, max_bytes=1000, limit_offset=end + 2, at_least_one=True) is not None, at
        cut(offset, scene.wall_ms)
        assert log.log_end_offset == offset
    assert passed < 99, "a cut that no fault strikes was the last"


@pytest.mark.parametrize("seed", range(25))
def test_a_followers_log_is_its_leaders(scene: Any, seed: int) -> None:
    """Batches of many producers and epochs, transactions, new segments, restarts, cuts: log, epochs,
    producers and aborted transactions are the same.
    """
    rng = Random(seed)
    config = LogConfig(segment_bytes=900, index_interval_bytes=100)
    scene.config = config
    scene.open()
    follower = type(scene)(config=config)
    follower.open()
    sequences = {7: 0, 8: 0}
    epoch = 0
    for _ in range(120):
        act = rng.random()
        if act < 0.3:
            scene.append(rng.randint(1, 3), size=rng.randint(1, 80), leader_epoch=epoch)
        elif act < 0.5:
            producer = rng.choice((7, 8))
            count = rng.randint(1, 3)
            made = scene.batch(
                count,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequences[producer],
                transactional=producer == 8,
            )
            scene.send(made, leader_epoch=epoch)
            sequences[producer] += count
        elif act < 0.6:
            marker = end_marker(
                committed=rng.random() < 0.5,
                coordinator_epoch=0,
                producer_id=8,
                producer_epoch=0,
                timestamp=scene.wall_ms,
            )
            scene.send(marker, leader_epoch=epoch, from_client=False)
        elif act < 0.65:
            epoch += 1
        elif act < 0.9:
            span = scene.log.read(
                follower.log.log_end_offset,
                max_bytes=rng.choice((1, 300, 10_000)),
                limit_offset=scene.log.log_end_offset,
                at_least_one=True,
            )
            if span is not None:
                result = follow(follower, bytes(span.read()), leader_epoch=epoch)
                assert result.refusal is None
        elif act < 0.95 and follower.log.log_end_offset:
            follower.log.cut_to(rng.randrange(follower.log.log_end_offset), follower.wall_ms)
        elif act < 0.97:
            follower.log.close(clean=False)
            follower.open("killed")
    while (end := follower.log.log_end_offset) < scene.log.log_end_offset:
        span = scene.log.read(end, max_bytes=2000, limit_offset=2**60, at_least_one=True)
        assert follow(follower, bytes(span.read()), leader_epoch=epoch).refusal is None
    assert content(follower) == content(scene)
    assert follower.log.epochs.read().entries() == scene.log.epochs.read().entries()
    assert states(follower) == states(scene)
    everything = (0, scene.log.log_end_offset)
    assert follower.log.aborted_transactions(*everything) == scene.log.aborted_transactions(*everything)
    for offset in range(*everything):
        found = follower.log.read(offset, max_bytes=1, limit_offset=2**60, at_least_one=True)
        own = scene.log.read(offset, max_bytes=1, limit_offset=2**60, at_least_one=True)
        assert bytes(found.read()) == bytes(own.read())


def states(scene: Any) -> dict[int, Any]:
    return {
        one.producer_id: (one.epoch, one.last_sequence, one.last_offset, one.transaction_start)
        for one in scene.log.producers()
    }


@pytest.mark.parametrize("damaged", range(12))
def test_a_damaged_log_is_cut_before_the_damage_and_goes_on_there(scene: Any, damaged: int) -> None:
    """Whichever batch of three segments it is, also the last one of a segment."""
    scene.config = LogConfig(segment_bytes=4 * len(scene.batch()))
    scene.open()
    data = [batch(scene, offset) for offset in range(12)]
    follow(scene, b"".join(data))
    assert [segment.base_offset for segment in scene.log.segments.items] == [0, 4, 8]
    name = scene.names(".log")[damaged // 4]
    scene.disk.flip(f"orders-0/{name}", damaged % 4 * len(data[0]) + 70, 0xFF)
    assert [scene.log.check_batch_at(offset) is None for offset in range(12)].count(False) == 1
    assert scene.log.first_damage() == damaged
    scene.log.cut_to(damaged, scene.wall_ms)
    assert (scene.log.log_end_offset, scene.log.first_damage()) == (damaged, None)
    assert scene.bases() == [*range(damaged)]
    follow(scene, b"".join(data[damaged:]))
    assert content(scene) == b"".join(data)
    scene.flush()
    scene.open("lost", recovery_point=0)
    assert (scene.bases(), scene.log.damages) == ([*range(12)], [])


def test_a_log_whose_files_are_gone_begins_where_it_began(scene: Any) -> None:
    """Its checkpoint says that there were records: a follower gets them all again."""
    scene.disk.make_dir("orders-0")
    scene.open("lost", recovery_point=5, log_start=2)
    assert (scene.log.log_end_offset, scene.log.first_damage()) == (5, 2)
    scene.log.cut_to(2, scene.wall_ms)
    assert (scene.log.log_end_offset, scene.log.first_damage()) == (2, None)
    follow(scene, batch(scene, 2, count=5))
    assert scene.bases() == [2]


@pytest.mark.parametrize(("lost", "trust"), [(4, "killed"), (8, "killed"), (8, "lost")])
def test_a_log_without_one_of_its_segments_keeps_those_before(scene: Any, lost: int, trust: str) -> None:
    """The segment's file is gone, and the log is cut where it began."""
    scene.config = LogConfig(segment_bytes=4 * len(scene.batch()))
    scene.open()
    data = [batch(scene, offset) for offset in range(12)]
    follow(scene, b"".join(data))
    scene.flush()
    scene.disk.remove(f"orders-0/{lost:020}.log")
    scene.open(trust, recovery_point=12)
    assert scene.log.log_end_offset == 12
    scene.log.cut_to(lost, scene.wall_ms)
    assert (scene.log.log_start_offset, scene.log.log_end_offset) == (0, lost)
    assert (scene.bases(), scene.log.first_damage()) == ([*range(lost)], None)
    follow(scene, b"".join(data[lost:]))
    assert content(scene) == b"".join(data)
    scene.flush()
    scene.open("lost", recovery_point=12)
    assert (scene.bases(), scene.log.damages) == ([*range(12)], [])
