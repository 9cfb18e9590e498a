"""Reading and writing at a pace: the time they take is what the bytes are worth, and no more."""

from __future__ import annotations

from headrace.server.paced_disk import Pace, PacedDisk
from headrace.server.worker import _paced
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.segment_removal import RemoveJob


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.seconds += seconds


def test_bytes_read_and_written_take_their_time() -> None:
    clock = Clock()
    disk = PacedDisk(MemoryDisk(), Pace(1000, clock, clock.sleep))
    file = disk.open("file", create=True)
    file.append(b"x" * 500)
    assert clock.seconds == 100.5
    assert file.read(0, 2000) == b"x" * 500
    assert clock.seconds == 101.0
    file.sync()
    disk.rename("file", "other")
    assert clock.seconds == 101.0


def test_time_that_went_by_counts() -> None:
    clock = Clock()
    pace = Pace(1000, clock, clock.sleep)
    pace.spend(100)
    clock.seconds += 5
    pace.spend(1000)
    assert clock.seconds == 105.1
    pace.spend(5000)
    assert clock.seconds == 100 + 6.1


def test_only_jobs_that_say_so_are_paced() -> None:
    disk = MemoryDisk()
    assert _paced(disk, RemoveJob([])) is disk
