"""The record of how the last run stopped."""

from __future__ import annotations

from random import Random

from headrace.storage.checkpoints import META_PROPERTIES
from headrace.storage.disk import read_whole, write_atomically
from headrace.storage.faulty_disk import FaultyDisk
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.stop_record import DISTRUSTED_OTHERS, StopRecord


def test_a_start_makes_names_durable_that_a_killed_process_left() -> None:
    """A process is killed between the creation of a partition's directory and its sync; the next one flushes
    the log, and relies on the name.
    """
    disk = MemoryDisk()
    StopRecord(disk, "boot").mark_boot()
    write_atomically(disk, META_PROPERTIES, b"version=1\n")
    disk.make_dir("topic-0")
    StopRecord(disk, "boot").mark_boot()
    assert disk.crash("lost", Random(1)).exists("topic-0")


def test_the_first_start_after_another_program_makes_its_names_durable() -> None:
    """Kafka knows no boot id. If it was killed, its partitions may be in the page cache only."""
    disk = MemoryDisk()
    write_atomically(disk, META_PROPERTIES, b"version=1\n")
    disk.make_dir("topic-0")
    StopRecord(disk, "boot").mark_boot()
    assert disk.crash("lost", Random(1)).exists("topic-0")


def test_a_first_start_syncs_no_name() -> None:
    """There is none yet, and the clients of a new node wait for its start."""
    disk = FaultyDisk(MemoryDisk())
    StopRecord(disk, "boot").mark_boot()
    assert "sync_dir" not in [call.operation for call in disk.calls]


def test_of_directories_that_are_distrusted_only_the_recovered_are_trusted_again() -> None:
    disk = MemoryDisk()
    record = StopRecord(disk, "boot")
    record.settle_others({b"a" * 16})  # there are none
    for directory_id in (b"a" * 16, b"b" * 16, b"c" * 16):
        record.distrust_other(directory_id)
    before = read_whole(disk, DISTRUSTED_OTHERS).splitlines()
    assert len(before) == 3
    record.settle_others({b"b" * 16})
    assert read_whole(disk, DISTRUSTED_OTHERS).splitlines() == [before[0], before[2]]
    record.settle_others({b"a" * 16, b"c" * 16})
    assert not disk.exists(DISTRUSTED_OTHERS)
