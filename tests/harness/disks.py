"""The disk in memory that a test's node or log writes to, below the faults."""

from __future__ import annotations

from headrace.storage.disk import Disk
from headrace.storage.faulty_disk import FaultyDisk
from headrace.storage.memory_disk import MemoryDisk


def memory_of(disk: Disk) -> MemoryDisk:
    """It can crash and be damaged, which a `Disk` in general cannot."""
    if isinstance(disk, FaultyDisk):
        disk = disk.disk
    assert isinstance(disk, MemoryDisk), f"{disk!r} is not in memory"
    return disk
