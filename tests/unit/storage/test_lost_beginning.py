"""First segments that are missing are told from those that retention has removed."""

import pytest

from harness.log_directories import open_log_directory
from headrace.records.batch import assign
from headrace.records.builder import build_batch
from headrace.storage.checkpoint_sums import SUMS
from headrace.storage.checkpoints import LOG_STARTS
from headrace.storage.config import LogConfig
from headrace.storage.disk import read_whole, write_atomically
from headrace.storage.lost_beginning import LostBeginning
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.open_files import OpenFiles

WALL_MS = 1_700_000_000_000
EPOCHS = "orders-0/leader-epoch-checkpoint"
FIRST = "00000000000000000000"


def open_directory(disk, boot_id="boot-1"):
    return open_log_directory(
        disk,
        "data",
        node_id=1,
        cluster_id="cluster",
        directory_id_if_new=bytes(range(16)),
        boot_id=boot_id,
        files=OpenFiles(),
    )


def open_log(directory, config=None, topic_id=bytes(range(16, 32))):
    return directory.open_log("orders", 0, topic_id, config or LogConfig(), WALL_MS)


def append(log):
    batch = build_batch([(WALL_MS, b"k", b"v", ())])
    log.append(memoryview(bytearray(batch)), wall_ms=WALL_MS, leader_epoch=0)


def checkpoint(disk, directory):
    directory.checkpoint_job({("orders", 0): 3}).run(disk)


@pytest.fixture
def disk():
    """With a log of three segments, of one record each, after a checkpoint."""
    disk = MemoryDisk()
    directory = open_directory(disk)
    log = open_log(directory)
    for _ in range(3):
        append(log)
        log.roll(WALL_MS)
    checkpoint(disk, directory)
    return disk


def lose(disk, *bases):
    for name in disk.list("orders-0"):
        if name.partition(".")[0].isdigit() and int(name.partition(".")[0]) in bases:
            disk.remove(f"orders-0/{name}")


def found(disk, boot_id="boot-1"):
    return open_directory(disk, boot_id).lost_beginning("orders", 0)


def test_a_whole_log_has_lost_nothing(disk):
    assert found(disk) is None


def test_missing_segments_are_told(disk):
    lose(disk, 0, 1)
    assert found(disk) == LostBeginning(0, 2)


def test_after_the_loss_of_a_host_nothing_is_said(disk):
    lose(disk, 0, 1)
    assert found(disk, boot_id="boot-2") is None


def test_without_a_checksum_nothing_is_said(disk):
    """Kafka names a start only if it lies inside a segment."""
    lose(disk, 0, 1)
    disk.remove(SUMS)
    assert found(disk) is None


def test_nor_without_the_leader_epochs(disk):
    lose(disk, 0, 1)
    disk.remove(EPOCHS)
    assert found(disk) is None


@pytest.mark.parametrize("moment", ["renamed", "cut", "removed", "checkpointed"])
def test_what_retention_has_removed_is_not_lost(disk, moment):
    """Killed at each moment of it."""
    epochs = read_whole(disk, EPOCHS)
    directory = open_directory(disk)
    log = open_log(directory, LogConfig(retention_ms=1))
    doomed = log.retire(WALL_MS + 2)
    assert log.log_start_offset == 3
    if moment == "renamed":
        write_atomically(disk, EPOCHS, epochs)
    elif moment != "cut":
        for one in doomed:
            one.remove_job().run(disk)
        if moment == "checkpointed":
            checkpoint(disk, directory)
    assert (b"orders 0 3" in read_whole(disk, LOG_STARTS)) == (moment == "checkpointed")
    assert found(disk) is None


def test_what_is_lost_after_retention_is_told(disk):
    directory = open_directory(disk)
    log = open_log(directory)
    for one in log.advance_log_start(1, WALL_MS):
        one.remove_job().run(disk)
    lose(disk, 1)
    assert found(disk) == LostBeginning(1, 2)


def test_a_log_that_began_later_has_lost_nothing(disk):
    """A follower whose leader has deleted the first records."""
    directory = open_directory(disk)
    log = open_log(directory)
    log.start_over(500, WALL_MS)
    batch = bytearray(build_batch([(WALL_MS, b"k", b"v", ())]))
    assign(memoryview(batch), 0, 500, 3)
    log.append_as_follower(memoryview(batch), leader_epoch=3, allows_gaps=False, wall_ms=WALL_MS)
    for one in log.take_doomed():
        one.remove_job().run(disk)
    assert found(disk) is None


def test_a_segment_that_is_being_replaced_is_there(disk):
    disk.rename(f"orders-0/{FIRST}.log", f"orders-0/{FIRST}.log.swap")
    assert found(disk) is None


def test_until_the_log_is_cut_each_start_finds_it(disk):
    lose(disk, 0, 1)
    directory = open_directory(disk)
    log = open_log(directory)
    assert log.log_start_offset == 2
    directory.doubt("orders", 0, directory.lost_beginning("orders", 0))
    checkpoint(disk, directory)
    assert found(disk) == LostBeginning(0, 2)
    log.truncate_to(log.first_damage())
    directory.complete_cut("orders", 0)
    checkpoint(disk, directory)
    assert not log.damages
    assert found(disk) is None


def test_a_lost_last_segment_costs_no_other(disk):
    """A replica is cut where its records are missing, to get them again from its leader."""
    lose(disk, 2, 3)
    log = open_log(open_directory(disk))
    assert log.first_damage() == 2
    log.truncate_to(2)
    assert (log.log_start_offset, log.log_end_offset, log.damages) == (0, 2, [])
    append(log)
    again = open_log(open_directory(disk))
    assert (again.log_start_offset, again.log_end_offset, again.damages) == (0, 3, [])
