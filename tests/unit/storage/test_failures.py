"""A full disk is survived; a failing one is never believed again."""

import errno

import pytest

from headrace.base.time import ManualClock
from headrace.storage.config import LogConfig
from headrace.storage.errors import DiskFull, LogOffline
from headrace.storage.faulty_disk import OPENS, Fail, Fault, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.open_files import OpenFiles

LOG = "00000000000000000000.log"


@pytest.fixture
def faulty(scene):
    scene.disk = FaultyDisk(MemoryDisk())
    return scene


def test_a_full_disk_cuts_back_to_the_last_whole_batch_and_goes_on_later(faulty):
    faulty.open()
    for _ in range(3):
        faulty.append(size=50)
    size = len(faulty.content(LOG))
    faulty.disk.space_bytes = 20
    with pytest.raises(DiskFull):
        faulty.append(size=50)
    assert len(faulty.content(LOG)) == size
    assert faulty.bases() == [0, 1, 2]
    assert not faulty.log.is_offline
    faulty.disk.space_bytes = None
    assert faulty.append(size=50).base_offset == 3
    assert faulty.bases() == [0, 1, 2, 3]


def test_an_idempotent_producer_can_repeat_what_a_full_disk_refused(faulty):
    faulty.open()
    faulty.write(7, 0)
    faulty.disk.space_bytes = 0
    with pytest.raises(DiskFull):
        faulty.write(7, 1)
    faulty.disk.space_bytes = None
    assert faulty.write(7, 1).base_offset == 1
    assert faulty.write(7, 1).is_duplicate


def test_space_that_runs_out_at_any_point_of_a_roll_harms_nothing(faulty):
    for space in range(0, 700, 9):
        faulty.disk = FaultyDisk(MemoryDisk())
        faulty.files = OpenFiles()
        faulty.config = LogConfig(segment_bytes=600, index_interval_bytes=100)
        faulty.open()
        for number in range(4):
            faulty.write(7, number)
        faulty.disk.space_bytes = space
        accepted = 4
        for number in range(4, 12):
            try:
                faulty.write(7, number)
            except DiskFull:
                break
            accepted += 1
        assert faulty.bases() == list(range(accepted))
        faulty.disk.space_bytes = None
        for number in range(accepted, 12):
            faulty.write(7, number)
        assert faulty.bases() == list(range(12))
        faulty.files = OpenFiles()
        faulty.open("killed")
        assert faulty.bases() == list(range(12))
        assert faulty.write(7, 11).is_duplicate


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".log"])
def test_a_roll_that_fails_half_way_hides_no_record(faulty, suffix):
    """The next segment's files cannot all be made; a smaller batch still fits into the old one."""
    faulty.config = LogConfig(segment_bytes=500)
    faulty.open()
    for _ in range(3):
        faulty.append(size=60)
    faulty.disk.faults = [Fault(Fail(errno.ENOSPC), "create", f"00000000000000000003{suffix}")]
    with pytest.raises(DiskFull):
        faulty.append(size=200)
    faulty.append(size=0)
    faulty.files = OpenFiles()
    faulty.open("killed")
    assert faulty.bases() == [0, 1, 2, 3]
    assert faulty.append(size=200).base_offset == 4


def test_a_cut_that_finds_no_space_is_made_before_the_next_batch(faulty):
    faulty.open()
    faulty.append()
    faulty.disk.faults = [
        Fault(Fail(errno.ENOSPC, written=30), "append", LOG),
        Fault(Fail(errno.ENOSPC), "truncate", LOG, times=2),
    ]
    for _ in range(2):
        with pytest.raises(DiskFull):
            faulty.append()
        assert faulty.bases() == [0]
    assert faulty.append().base_offset == 1
    assert faulty.bases() == [0, 1]
    faulty.files = OpenFiles()
    faulty.open("killed")
    assert faulty.bases() == [0, 1]


def test_an_abort_that_finds_no_space_leaves_no_entry_in_the_transaction_index(faulty):
    faulty.open()
    faulty.write(7, 0, transactional=True)
    faulty.disk.faults = [
        Fault(Fail(errno.ENOSPC), "append", LOG),
        Fault(Fail(errno.ENOSPC), "truncate", ".txnindex", times=2),
    ]
    for _ in range(2):
        with pytest.raises(DiskFull):
            faulty.end(7, committed=False)
        assert faulty.log.aborted_transactions(0, 10) == []
    faulty.end(7, committed=True)
    faulty.files = OpenFiles()
    faulty.open("killed")
    assert faulty.log.aborted_transactions(0, 10) == []


def test_a_batch_that_is_written_ahead_begins_again_after_an_abort_that_finds_no_space(faulty):
    faulty.open()
    faulty.write(7, 0, transactional=True)
    faulty.write(8, 0, transactional=True)
    faulty.end(8, committed=False)
    large = memoryview(bytearray(faulty.batch(size=500)))
    ahead = {"wall_ms": faulty.wall_ms, "leader_epoch": 0, "piece_bytes": 100}
    assert not faulty.log.write_ahead(large, **ahead)
    faulty.disk.faults = [
        Fault(Fail(errno.ENOSPC, written=3), "append", ".txnindex"),
        Fault(Fail(errno.ENOSPC), "truncate", ".txnindex", times=2),
    ]
    with pytest.raises(DiskFull):
        faulty.end(7, committed=False)
    while not faulty.log.write_ahead(large, **ahead):
        pass
    assert faulty.log.append(large, wall_ms=faulty.wall_ms, leader_epoch=0).base_offset == 3
    size = faulty.log.active.size
    faulty.open("killed")
    assert (faulty.log.log_end_offset, faulty.log.active.size) == (4, size)


@pytest.mark.parametrize("operation", ["create", "append"])
def test_a_snapshot_that_finds_no_space_leaves_the_directory_online(faulty, operation):
    faulty.open()
    faulty.write(7, 0)
    faulty.disk.faults = [Fault(Fail(errno.ENOSPC), operation, ".snapshot")]
    with pytest.raises(DiskFull):
        faulty.log.roll(faulty.wall_ms)
    assert faulty.write(7, 1).base_offset == 1
    faulty.log.roll(faulty.wall_ms)
    assert faulty.bases() == [0, 1]


def test_no_descriptor_is_no_io_error(faulty):
    faulty.config = LogConfig(segment_bytes=200)
    faulty.open()
    faulty.append(size=50)
    faulty.disk.faults = [Fault(Fail(errno.EMFILE), OPENS, times=3)]
    with pytest.raises(DiskFull):
        faulty.append(size=100)
    faulty.disk.faults.clear()
    assert faulty.append(size=100).base_offset == 1


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_failed_fsync_is_final_whatever_its_errno(faulty, code):
    """Not of a flush: of the snapshot that is to speak for segments that go."""
    faulty.open()
    faulty.write(7, 0)
    faulty.log.roll(faulty.wall_ms)
    faulty.disk.faults = [Fault(Fail(code), "sync")]
    with pytest.raises(LogOffline):
        faulty.log.advance_log_start(1, faulty.wall_ms)
    assert faulty.log.is_offline


def test_a_segment_that_cannot_be_renamed_away_stays_with_all_after_it(faulty):
    faulty.open()
    for _ in range(4):
        faulty.append()
        faulty.log.roll(faulty.wall_ms)
    faulty.log.configure(LogConfig(retention_bytes=0))
    faulty.disk.faults = [Fault(Fail(errno.ENOSPC), "rename", "2.log", times=2)]
    doomed = faulty.log.retire(faulty.wall_ms)
    assert [one.base_offset for one in doomed] == [0, 1]
    assert faulty.log.log_start_offset == 2
    assert faulty.bases() == [2, 3]
    assert [one.base_offset for one in faulty.log.retire(faulty.wall_ms)] == []
    assert [one.base_offset for one in faulty.log.retire(faulty.wall_ms)] == [2, 3]


def test_retention_works_on_a_full_disk(faulty):
    faulty.open()
    for _ in range(3):
        faulty.append()
        faulty.log.roll(faulty.wall_ms)
    faulty.disk.space_bytes = 0
    faulty.log.configure(LogConfig(retention_bytes=0))
    with pytest.raises(DiskFull):
        faulty.append()
    doomed = faulty.log.retire(faulty.wall_ms)
    assert len(doomed) == 3
    for one in doomed:
        one.remove_job().run(faulty.disk)
    assert faulty.disk.space_bytes > 0
    assert faulty.append().base_offset == 3


@pytest.mark.parametrize("operation", ["append", "truncate"])
def test_an_io_error_takes_the_log_offline_until_it_is_opened_again(faulty, operation):
    faulty.open()
    faulty.append()
    if operation == "truncate":
        faulty.disk.space_bytes = 3  # the cut after a full disk is what fails
    faulty.disk.faults = [Fault(Fail(errno.EIO), operation, LOG)]
    with pytest.raises(LogOffline):
        faulty.append()
    faulty.disk.space_bytes = None
    assert faulty.log.is_offline
    for use in (
        faulty.append,
        faulty.bases,
        lambda: faulty.log.retire(faulty.wall_ms),
        lambda: faulty.log.flush_job(),
        lambda: faulty.log.truncate_to(0),
    ):
        with pytest.raises(LogOffline):
            use()
    faulty.files = OpenFiles()
    faulty.open("killed")
    assert faulty.bases()[0] == 0


def test_a_read_error_takes_the_log_offline(faulty):
    faulty.open()
    faulty.append()
    faulty.log.close(clean=True)
    faulty.files = OpenFiles()
    faulty.open(recovery_point=1)
    faulty.disk.faults = [Fault(Fail(errno.EIO), "read")]
    with pytest.raises(LogOffline):
        faulty.bases()
    assert faulty.log.is_offline


def test_a_failed_fsync_is_final_though_the_next_would_succeed(faulty):
    faulty.open()
    faulty.append()
    faulty.disk.faults = [Fault(Fail(errno.EIO), "sync")]
    job = faulty.log.flush_job()
    with pytest.raises(OSError) as caught:
        job.run(faulty.disk)
    faulty.log.fail_flush(caught.value)
    with pytest.raises(LogOffline):
        faulty.append()
    assert faulty.log.flushed_offset == 0


def test_flushes_are_due_by_messages_and_by_time(scene):
    clock = ManualClock()
    scene.config = LogConfig(flush_messages=3, flush_ms=1000)
    scene.open()
    assert scene.log.flush_due_at(clock.now()) is None
    scene.append(2)
    assert scene.log.flush_due_at(clock.now()) == clock.now().mono + 1
    assert not scene.log.needs_flush(clock.now())
    scene.append()
    assert scene.log.needs_flush(clock.now())
    scene.flush()
    assert scene.log.flushed_offset == 3
    assert not scene.log.needs_flush(clock.advance(5))
    scene.append()
    assert not scene.log.needs_flush(clock.now())
    assert scene.log.needs_flush(clock.advance(1))


def test_default_settings_never_ask_for_a_flush(scene):
    scene.open()
    scene.append(100)
    assert scene.log.flush_due_at(ManualClock().now()) is None


def test_a_flush_covers_what_was_there_when_it_was_ordered(scene):
    scene.open()
    scene.append()
    job = scene.log.flush_job()
    scene.append()
    scene.log.complete_flush(job.run(scene.disk))
    assert scene.log.flushed_offset == 1
    assert scene.log.unflushed_bytes > 0
    scene.flush()
    assert scene.log.flushed_offset == 2
    assert scene.log.unflushed_bytes == 0
    assert scene.log.flush_job() is None


def test_a_flush_from_before_a_truncation_counts_for_nothing(scene):
    scene.open()
    scene.append()
    scene.flush()
    scene.append(5)
    job = scene.log.flush_job()
    scene.log.truncate_to(1)
    scene.append(5)
    scene.log.complete_flush(job.run(scene.disk))
    assert scene.log.flushed_offset == 1


def test_a_truncation_below_the_recovery_point_lowers_it_first(scene):
    told = []
    scene.open(lower_recovery_point=lambda: told.append(scene.log.flushed_offset))
    scene.append()
    scene.append()
    scene.flush()
    scene.log.truncate_to(1)
    assert told == [1]


def test_a_question_about_producers_that_finds_no_descriptor_is_asked_again(faulty):
    """After a clean start the producers are read late, by whoever asks first."""
    faulty.open()
    faulty.write(7, 0)
    faulty.log.close(clean=True)
    faulty.files = OpenFiles()
    faulty.open(recovery_point=1)
    faulty.disk.faults.append(Fault(Fail(errno.EMFILE), "open", ".snapshot"))
    with pytest.raises(DiskFull):
        faulty.log.producer_state()
    assert [one.producer_id for one in faulty.log.producer_state()] == [7]
    assert not faulty.log.is_offline


@pytest.mark.parametrize("operation", ["append", "rename", "create"])
def test_a_log_whose_opening_had_no_space_is_opened_later(faulty, operation):
    """An index that the first try had begun was cleared away by the second, which wrote to it all the same:
    the missing file cost the directory.
    """
    for skip in range(12):
        faulty.disk = FaultyDisk(MemoryDisk())
        faulty.files = OpenFiles()
        faulty.config = LogConfig(segment_bytes=300, index_interval_bytes=0)
        faulty.open()
        for number in range(8):
            faulty.write(7, number)
        faulty.files = OpenFiles()
        for name in faulty.disk.list("orders-0"):
            if name.endswith("index"):
                faulty.disk.remove(f"orders-0/{name}")
        faulty.disk.faults.append(Fault(Fail(errno.EDQUOT), operation, skip=skip, times=3))
        for _ in range(4):
            try:
                log = faulty.open("lost", recovery_point=8)
            except DiskFull:
                continue
        assert not log.is_offline
        assert log.log_end_offset == 8
