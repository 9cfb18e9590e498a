"""A topic is deleted, and another gets its name: nothing that is left of the first is taken for the second's.

Checkpoints name a partition by its topic's name. A mark in the new log's directory says that they still speak
of an earlier one.
"""

import errno
from contextlib import suppress
from random import Random

import pytest

from harness.log_directories import open_log_directory
from headrace.records.builder import build_batch
from headrace.storage.config import LogConfig
from headrace.storage.errors import DiskFull, InconsistentTopicId
from headrace.storage.faulty_disk import CHANGES, Crash, DiskCrashed, Fail, Fault, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.open_files import OpenFiles

WALL_MS = 1_700_000_000_000
FIRST, SECOND, THIRD = bytes(range(16, 32)), bytes(range(32, 48)), bytes(range(48, 64))
ORDERS = ("orders", 0)
LOG = "orders-0/00000000000000000000.log"


def open_directory(disk, boot_id="boot-1"):
    return open_log_directory(
        disk,
        "data",
        node_id=1,
        cluster_id="cluster",
        directory_id_if_new=bytes(16),
        boot_id=boot_id,
        files=OpenFiles(),
    )


def open_log(directory, topic_id):
    return directory.open_log("orders", 0, topic_id, LogConfig(), WALL_MS)


def append(log, count=1):
    batch = build_batch([(WALL_MS, b"k", b"v", ())] * count)
    log.append(memoryview(bytearray(batch)), wall_ms=WALL_MS, leader_epoch=0)


def with_first(disk, count=16):
    """A directory in which the checkpoints speak of a first log, which has so many records, all flushed."""
    directory = open_directory(disk)
    log = open_log(directory, FIRST)
    append(log, count)
    log.complete_flush(log.flush_job().run(disk))
    directory.checkpoint({ORDERS: count})
    return directory


def assert_ends_at(disk, topic_id, end_offset):
    """After a kill, and after it once more."""
    for _ in range(2):
        log = open_log(open_directory(disk), topic_id)
        assert (log.log_end_offset, log.damages) == (end_offset, [])


def test_what_a_removal_leaves_never_gets_the_partitions_name_back():
    """The files were removed and the new name was not durable: a lost host brought back an empty
    directory, and nothing told that it was not the next topic's.
    """
    for seed in range(60):
        disk = MemoryDisk()
        directory = with_first(disk)
        directory.doom(*ORDERS).run(disk)
        after = disk.crash("lost", Random(seed))
        if after.exists("orders-0"):
            assert after.exists(LOG)
            assert open_directory(after).topic_id_of(*ORDERS) == FIRST


def test_a_log_that_could_not_be_marked_is_marked_when_it_is_made_later():
    disk = MemoryDisk()
    with_first(disk).doom(*ORDERS)
    faulty = FaultyDisk(disk, [Fault(Fail(errno.EMFILE), "create", "fresh")])
    directory = open_directory(faulty)
    with pytest.raises(DiskFull):
        open_log(directory, SECOND)
    append(open_log(directory, SECOND), 6)
    assert_ends_at(disk, SECOND, 6)


def test_the_third_log_is_marked_where_no_checkpoint_spoke_of_the_second():
    disk = MemoryDisk()
    with_first(disk).doom(*ORDERS)
    directory = open_directory(disk)
    append(open_log(directory, SECOND), 3)
    directory.doom(*ORDERS)
    append(open_log(directory, THIRD), 6)
    assert_ends_at(disk, THIRD, 6)


def test_a_log_that_could_not_be_renamed_away_is_not_opened_for_the_next_topic():
    """It was: the second topic had the first one's records, and appended behind them."""
    disk = FaultyDisk(MemoryDisk())
    directory = with_first(disk)
    disk.faults.append(Fault(Fail(errno.EDQUOT), "rename"))
    with pytest.raises(DiskFull):
        directory.doom(*ORDERS)
    with pytest.raises(InconsistentTopicId):
        open_log(directory, SECOND)
    directory.doom(*ORDERS)
    assert open_log(directory, SECOND).log_end_offset == 0


@pytest.mark.parametrize("kind", ["log starts", "everything"])
def test_a_late_checkpoint_of_the_second_log_takes_no_mark_from_the_third(kind):
    disk = MemoryDisk()
    directory = with_first(disk)
    directory.doom(*ORDERS)
    log = open_log(directory, SECOND)
    append(log, 9)
    log.complete_flush(log.flush_job().run(disk))
    late = (
        directory.log_start_job({ORDERS: 4})
        if kind == "log starts"
        else directory.checkpoint_job({ORDERS: 9})
    )
    directory.doom(*ORDERS)
    append(open_log(directory, THIRD), 6)
    late.run(disk)
    assert_ends_at(disk, THIRD, 6)
    assert open_log(open_directory(disk), THIRD).log_start_offset == 0


def test_a_damaged_checkpoint_is_not_made_sound_by_one_that_leaves_it_where_it_is():
    disk = MemoryDisk()
    directory = with_first(disk)
    directory.doom(*ORDERS)
    for name in disk.list(""):
        if name.startswith(("recovery", "log-start", "cleaner")):
            disk.remove(name)
    path = "replication-offset-checkpoint"
    file = disk.open(path)
    file.truncate(0)
    file.append(b"0\n1\norders 0 17\n")
    directory = open_directory(disk)
    assert [damage.path for damage in directory.damages] == [path]
    append(open_log(directory, SECOND), 6)
    directory.log_start_job({}).run(disk)
    assert_ends_at(disk, SECOND, 6)


@pytest.mark.parametrize(
    "left", [b"", b"version: 0\ntopic_id: ", bytes(40), b"version: 0\ntopic_id: h6Iz" + bytes(18)]
)
@pytest.mark.parametrize("is_marked", [False, True])
def test_a_log_whose_topic_id_was_not_flushed_may_be_another_topics(left, is_marked):
    """The checkpoints' recovery point is that of an earlier log where the mark says so."""
    disk = MemoryDisk()
    if is_marked:
        with_first(disk).doom(*ORDERS)
    append(open_log(open_directory(disk), SECOND), 3)
    file = disk.open("orders-0/partition.metadata")
    file.truncate(0)
    file.append(left)
    assert open_directory(disk, "boot-2").has_unflushed_name(*ORDERS, THIRD)


@pytest.mark.parametrize("is_marked", [False, True])
def test_what_is_left_of_an_unflushed_topic_id_speaks_for_the_log(is_marked):
    disk = MemoryDisk()
    if is_marked:
        with_first(disk).doom(*ORDERS)
    append(open_log(open_directory(disk), SECOND), 3)
    file = disk.open("orders-0/partition.metadata")
    file.truncate(0 if is_marked else file.size() - 15)
    assert not open_directory(disk, "boot-2").has_unflushed_name(*ORDERS, SECOND)
    assert open_directory(disk, "boot-2").has_unflushed_name(*ORDERS, THIRD)


@pytest.mark.parametrize("flushes", ["by a flush", "after a failed fsync"])
def test_where_a_record_is_durable_it_is_known_whose_it_is(flushes):
    """The log was synced before its topic's id: a machine that was lost in between put it aside."""
    for calls in range(30):
        disk = MemoryDisk()
        directory = open_directory(disk)
        log = open_log(directory, SECOND)
        append(log, 3)
        faulty = FaultyDisk(disk, [Fault(Crash(), CHANGES, skip=calls)])
        with suppress(DiskCrashed):
            if flushes == "by a flush":
                log.flush_job().run(faulty)
            else:
                directory.distrust()
                open_log(open_directory(faulty), SECOND)
        for seed in range(8):
            after = disk.crash("lost", Random(seed))
            if after.exists(LOG) and disk.durable(LOG):
                assert open_directory(after, "boot-2").topic_id_of(*ORDERS) == SECOND


def test_a_topic_id_that_was_flushed_and_is_damaged_is_known_by_its_size():
    disk = MemoryDisk()
    append(open_log(open_directory(disk), SECOND), 3)
    file = disk.open("orders-0/partition.metadata")
    text = file.read(0, 1000)
    file.truncate(0)
    file.append(text.replace(b"topic_id", b"topic!id"))
    assert not open_directory(disk, "boot-2").has_unflushed_name(*ORDERS, THIRD)


def test_a_kill_after_a_loss_below_the_recovery_point_leaves_no_gap():
    """What was flushed is gone all the same; a checkpoint must not go on containing it."""
    disk = MemoryDisk()
    with_first(disk)
    for name in disk.list("orders-0"):
        if name.startswith("0000"):
            disk.remove(f"orders-0/{name}")
    log = open_log(open_directory(disk, "boot-2"), FIRST)
    append(log)
    end_offset = log.log_end_offset
    again = open_directory(disk, "boot-2")
    assert again.trust == "killed"
    assert open_log(again, FIRST).log_end_offset == end_offset
