"""Checksums of checkpoints: damage is found, stays found, and is told from what Kafka has written."""

import pytest

from harness.log_directories import open_log_directory
from headrace.records.builder import build_batch
from headrace.storage import checkpoints
from headrace.storage.checkpoint_sums import read_sums, sum_of, write_checkpoints
from headrace.storage.config import LogConfig
from headrace.storage.disk import read_whole, write_atomically
from headrace.storage.log_directory import LogDirectory
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.open_files import OpenFiles
from headrace.storage.stop_record import CLEAN_MARKER

WALL_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(16, 32))
OFFSETS = (checkpoints.RECOVERY_POINTS, checkpoints.LOG_STARTS, checkpoints.HIGH_WATERMARKS)


def opened(disk: MemoryDisk) -> LogDirectory:
    return open_log_directory(
        disk,
        "data",
        node_id=1,
        cluster_id="cluster",
        directory_id_if_new=bytes(range(16)),
        boot_id="boot-1",
        files=OpenFiles(),
    )


def stopped() -> MemoryDisk:
    """Five records, of which two were deleted."""
    disk = MemoryDisk()
    directory = opened(disk)
    log = directory.open_log("orders", 0, TOPIC_ID, LogConfig(), WALL_MS)
    batch = build_batch([(WALL_MS, b"k", b"v", ())] * 5)
    log.append(memoryview(bytearray(batch)), wall_ms=WALL_MS, leader_epoch=0)
    log.advance_log_start(2, WALL_MS)
    directory.close_clean({("orders", 0): 5})
    return disk.crash("killed")


@pytest.mark.parametrize("written", [checkpoints.LOG_STARTS, checkpoints.RECOVERY_POINTS])
@pytest.mark.parametrize("damaged", OFFSETS)
def test_a_later_write_does_not_make_a_damaged_file_look_intact(damaged: str, written: str) -> None:
    """Neither one of another file nor, should it be interrupted, one of the same."""
    disk = stopped()
    disk.flip(damaged, 13, 1)
    new = checkpoints.render_offsets({("orders", 0): 9})
    write_checkpoints(disk, {written: new})
    sums = read_sums(disk)
    assert sums is not None
    disk.open(damaged).truncate(0)
    disk.open(damaged).append(read_whole(stopped(), damaged))
    disk.flip(damaged, 13, 1)
    assert sum_of(damaged, read_whole(disk, damaged)) not in sums[damaged]
    assert [one.path for one in opened(disk).damages] == [damaged]


def test_an_interrupted_write_leaves_a_file_that_is_intact() -> None:
    disk = stopped()
    before = read_whole(disk, checkpoints.LOG_STARTS)
    for offset in (3, 4):
        write_checkpoints(disk, {checkpoints.LOG_STARTS: checkpoints.render_offsets({("orders", 0): offset})})
        sums = read_sums(disk)
        assert sums is not None
        assert sums[checkpoints.LOG_STARTS] == {
            sum_of("", before),
            sum_of("", read_whole(disk, checkpoints.LOG_STARTS)),
        }
        before = read_whole(disk, checkpoints.LOG_STARTS)


@pytest.mark.parametrize(
    "marker", [b'{"version":0,"brokerEpoch":7}', b"", None], ids=["kafka", "old", "kill"]
)
def test_what_kafka_wrote_in_the_meantime_is_believed(marker: bytes | None) -> None:
    """It does not know of our checksums, and leaves them as they are."""
    disk = stopped()
    disk.remove(CLEAN_MARKER)
    for name, offset in ((checkpoints.LOG_STARTS, 3), (checkpoints.HIGH_WATERMARKS, 4)):
        write_atomically(disk, name, checkpoints.render_offsets({("orders", 0): offset}))
    if marker is not None:
        write_atomically(disk, CLEAN_MARKER, marker)
    directory = opened(disk)
    assert directory.damages == []
    assert directory.high_watermark("orders", 0) == 4
    log = directory.open_log("orders", 0, TOPIC_ID, LogConfig(), WALL_MS)
    assert (log.log_start_offset, log.log_end_offset) == (3, 5)
    # and from then on ours are compared again
    directory.checkpoint({})
    disk = disk.crash("killed")
    disk.flip(checkpoints.LOG_STARTS, 13, 1)
    assert [one.path for one in opened(disk).damages] == [checkpoints.LOG_STARTS]


def test_a_single_log_start_that_kafka_moved_is_believed_after_its_clean_stop() -> None:
    disk = stopped()
    write_atomically(disk, checkpoints.LOG_STARTS, checkpoints.render_offsets({("orders", 0): 4}))
    write_atomically(disk, CLEAN_MARKER, b'{"version":0,"brokerEpoch":7}')
    directory = opened(disk)
    assert directory.damages == []
    assert directory.log_start("orders", 0) == 4


def test_a_checkpoint_that_kafka_created_empty_is_not_damaged() -> None:
    """Kafka 4.3.1 creates them at its start and writes them later. One that we wrote is never empty."""
    disk = MemoryDisk()
    for name in (checkpoints.HIGH_WATERMARKS, checkpoints.CLEANER_OFFSETS):
        disk.open(name, create=True).close()
    directory = opened(disk)
    assert directory.damages == []
    directory.checkpoint({})
    disk.open(checkpoints.CLEANER_OFFSETS).truncate(0)
    assert [one.path for one in opened(disk).damages] == [checkpoints.CLEANER_OFFSETS]
