"""Segments that are missing are told from those that were removed."""

import errno
from random import Random

import pytest

from harness.log_directories import open_log_directory
from headrace.records.batch import assign
from headrace.records.builder import build_batch, end_marker
from headrace.storage.checkpoint_sums import SUMS
from headrace.storage.checkpoints import LOG_STARTS
from headrace.storage.config import LogConfig
from headrace.storage.disk import read_whole, write_atomically
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk
from headrace.storage.file_list import FILE_LIST
from headrace.storage.lost_segments import LostSegments
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.open_files import OpenFiles
from headrace.storage.segment import UNLIMITED

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


def open_log(directory, config=None, topic_id=bytes(range(16, 32)), *, has_copies=True):
    return directory.open_log("orders", 0, topic_id, config or LogConfig(), WALL_MS, has_copies=has_copies)


def append(log):
    batch = build_batch([(WALL_MS, b"k", b"v", ())])
    log.append(memoryview(bytearray(batch)), wall_ms=WALL_MS, leader_epoch=0)


def append_aborted(log):
    batch = build_batch(
        [(WALL_MS, b"k", b"v", ())], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    log.append(memoryview(bytearray(batch)), wall_ms=WALL_MS, leader_epoch=0)
    marker = end_marker(
        committed=False, coordinator_epoch=0, producer_id=7, producer_epoch=0, timestamp=WALL_MS
    )
    log.append(memoryview(bytearray(marker)), wall_ms=WALL_MS, leader_epoch=0, from_client=False)


def checkpoint(disk, directory):
    directory.checkpoint_job({("orders", 0): 3}).run(disk)


def with_segments(disk):
    """Three of one record each, and an empty one."""
    directory = open_directory(disk)
    log = open_log(directory)
    for _ in range(3):
        append(log)
        log.roll(WALL_MS)
    return directory


@pytest.fixture
def disk():
    disk = MemoryDisk()
    checkpoint(disk, with_segments(disk))
    return disk


@pytest.fixture
def unlisted(disk):
    """As a version without the list has left it."""
    disk.remove(f"orders-0/{FILE_LIST}")
    return disk


def lose(disk, *bases):
    for name in disk.list("orders-0"):
        if name.partition(".")[0].isdigit() and int(name.partition(".")[0]) in bases:
            disk.remove(f"orders-0/{name}")


def found(disk, boot_id="boot-1"):
    return open_directory(disk, boot_id).lost_segments("orders", 0)


def test_a_whole_log_has_lost_nothing(disk):
    assert found(disk) is None


@pytest.mark.parametrize("is_checkpointed", [True, False])
@pytest.mark.parametrize(
    ("bases", "told"),
    [
        ((0,), LostSegments(0, 1)),
        ((0, 1), LostSegments(0, 2)),
        ((1,), LostSegments(1, 2)),
        ((1, 3), LostSegments(1, 2)),
        ((2, 3), LostSegments(2, UNLIMITED)),
        ((3,), LostSegments(3, UNLIMITED)),
        ((0, 1, 2, 3), LostSegments(0, UNLIMITED)),
    ],
)
def test_missing_segments_are_told(bases, told, is_checkpointed):
    disk = MemoryDisk()
    directory = with_segments(disk)
    if is_checkpointed:
        checkpoint(disk, directory)
    lose(disk, *bases)
    assert found(disk) == told
    assert found(disk, boot_id="boot-2") == told, "also after the loss of a host"


def test_without_a_list_missing_first_segments_are_told(unlisted):
    lose(unlisted, 0, 1)
    assert found(unlisted) == LostSegments(0, 2)
    assert found(unlisted, boot_id="boot-2") is None


def test_without_a_checksum_nothing_is_said(unlisted):
    """Kafka names a start only if it lies inside a segment."""
    lose(unlisted, 0, 1)
    unlisted.remove(SUMS)
    assert found(unlisted) is None


def test_nor_without_the_leader_epochs(unlisted):
    lose(unlisted, 0, 1)
    unlisted.remove(EPOCHS)
    assert found(unlisted) is None


@pytest.mark.parametrize("is_same_boot", [True, False])
def test_a_clean_stop_makes_the_list_durable(disk, is_same_boot):
    directory = open_directory(disk)
    log = open_log(directory)
    append(log)
    log.roll(WALL_MS)
    directory.close_clean({})
    disk = disk.crash("lost", Random(1))
    lose(disk, 4)
    assert found(disk, "boot-1" if is_same_boot else "boot-2") == LostSegments(4, UNLIMITED)


def test_a_lost_transaction_index_is_told():
    disk = MemoryDisk()
    log = open_log(open_directory(disk))
    append_aborted(log)
    log.roll(WALL_MS)
    append(log)
    disk.remove("orders-0/00000000000000000000.txnindex")
    assert found(disk) == LostSegments(0, 2)


@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize("moment", ["renamed", "cut", "removed", "checkpointed"])
def test_what_retention_has_removed_is_not_lost(disk, moment, is_listed):
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
    if not is_listed:
        disk.remove(f"orders-0/{FILE_LIST}")
    assert found(disk) is None


def test_what_is_lost_after_retention_is_told(disk):
    directory = open_directory(disk)
    log = open_log(directory)
    for one in log.advance_log_start(1, WALL_MS):
        one.remove_job().run(disk)
    lose(disk, 1)
    assert found(disk) == LostSegments(1, 2)


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


def test_a_segment_that_is_being_replaced_is_there(unlisted):
    unlisted.rename(f"orders-0/{FIRST}.log", f"orders-0/{FIRST}.log.swap")
    assert found(unlisted) is None


def test_until_the_log_is_cut_each_start_finds_it(disk):
    lose(disk, 0, 1)
    directory = open_directory(disk)
    log = open_log(directory)
    assert log.log_start_offset == 2
    directory.doubt("orders", 0, directory.lost_segments("orders", 0))
    checkpoint(disk, directory)
    assert found(disk) == LostSegments(0, 2)
    assert open_log(open_directory(disk)).log_start_offset == 2
    assert found(disk) == LostSegments(0, 2), "opening it has changed nothing"
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


@pytest.mark.parametrize("bases", [(0,), (1,), (2, 3), (3,), (0, 1, 2, 3)])
def test_after_its_cut_a_log_lacks_nothing(bases):
    disk = MemoryDisk()
    with_segments(disk)
    lose(disk, *bases)
    directory = open_directory(disk)
    lost = directory.lost_segments("orders", 0)
    log = open_log(directory)
    directory.doubt("orders", 0, lost)
    assert log.first_damage() == min(bases)
    log.cut_to(log.first_damage(), WALL_MS)
    directory.complete_cut("orders", 0)
    assert (log.log_end_offset, log.damages) == (min(bases), [])
    assert found(disk) is None
    while log.log_end_offset < 4:
        append(log)
        log.roll(WALL_MS)
    assert found(disk) is None
    lose(disk, 4)
    assert found(disk) == LostSegments(4, UNLIMITED), "and is watched again"


def test_of_a_log_without_other_replicas_the_loss_is_told_once(disk):
    """Nobody has what is missing."""
    lose(disk, 1)
    assert found(disk) is not None
    open_log(open_directory(disk), has_copies=False)
    assert found(disk) is None


@pytest.mark.parametrize("base", [1, 2])
def test_after_the_loss_of_a_host_a_lost_segment_costs_no_other(disk, base):
    """Without the list it seems that retention had begun to remove the segments before."""
    directory = open_directory(disk)
    log = open_log(directory)
    append(log)
    log.flush_now()
    checkpoint(disk, directory)
    disk = disk.crash("lost", Random(1))
    lose(disk, base)
    directory = open_directory(disk, "boot-2")
    lost = directory.lost_segments("orders", 0)
    assert lost == LostSegments(base, base + 1)
    log = open_log(directory)
    assert log.log_start_offset == 0
    directory.doubt("orders", 0, lost)
    log.cut_to(log.first_damage(), WALL_MS)
    assert (log.log_start_offset, log.log_end_offset) == (0, base)


@pytest.mark.parametrize(("code", "operation"), [(errno.ENOSPC, "append"), (errno.EMFILE, "open")])
def test_a_segment_that_could_not_be_listed_is_listed_later(code, operation):
    """Also if others are taken off the list before that."""
    memory = MemoryDisk()
    disk = FaultyDisk(memory)
    log = open_log(open_directory(disk), LogConfig(retention_ms=1))
    append(log)
    disk.faults = [Fault(Fail(code), operation, FILE_LIST)]
    log.roll(WALL_MS)
    append(log)
    assert not disk.faults[0].times
    log.advance_log_start(1, WALL_MS)
    log.roll(WALL_MS)
    append(log)
    lose(memory, 1)
    assert found(memory) == LostSegments(1, 2)
