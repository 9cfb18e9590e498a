"""The disk that fails by script: each call meets its faults, and after a crash nothing works."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from headrace.storage.faulty_disk import (
    CHANGES,
    Crash,
    DiskCrashed,
    Fail,
    Fault,
    FaultyDisk,
    Flip,
    Operation,
)
from headrace.storage.memory_disk import MemoryDisk

Act = Callable[[FaultyDisk], object]
ACTS: dict[Operation, Act] = {
    "create": lambda disk: disk.open(f"d/new-{len(disk.calls)}", create=True),
    "open": lambda disk: disk.open("d/old"),
    "list": lambda disk: disk.list("d"),
    "make_dir": lambda disk: disk.make_dir("e"),
    "rename": lambda disk: disk.rename("d/old", "d/other"),
    "remove": lambda disk: disk.remove("d/old"),
    "sync_dir": lambda disk: disk.sync_dir("d"),
    "append": lambda disk: disk.open("d/old").append(b"x"),
    "read": lambda disk: disk.open("d/old").read(0, 3),
    "truncate": lambda disk: disk.open("d/old").truncate(1),
    "sync": lambda disk: disk.open("d/old").sync(),
}


def a_disk() -> FaultyDisk:
    disk = MemoryDisk()
    disk.make_dir("d")
    disk.open("d/old", create=True).append(b"abc")
    return FaultyDisk(disk)


@pytest.mark.parametrize("operation", ACTS)
def test_each_operation_meets_its_faults(operation: Operation) -> None:
    disk = a_disk()
    disk.faults = [Fault(Fail(errno.ENOSPC), operation, skip=1, times=2)]
    codes = []
    for _ in range(4):
        try:
            ACTS[operation](disk)
        except FileNotFoundError:
            codes.append(0)  # the first call has moved it away
        except OSError as error:
            codes.append(error.errno or 0)
        else:
            codes.append(0)
    assert codes == [0, errno.ENOSPC, errno.ENOSPC, 0]
    assert [call.operation for call in disk.calls].count(operation) == 4


@pytest.mark.parametrize("operation", sorted(CHANGES))
def test_after_a_crash_nothing_works_and_nothing_has_changed(operation: Operation) -> None:
    disk = a_disk()
    disk.faults = [Fault(Crash(), operation)]
    before = sorted(disk.disk.list("d"))
    with pytest.raises(DiskCrashed):
        ACTS[operation](disk)
    assert disk.is_crashed
    for act in (*ACTS.values(), lambda disk: disk.exists("d")):
        with pytest.raises(DiskCrashed):
            act(disk)
    assert sorted(disk.disk.list("d")) == before
    assert disk.disk.open("d/old").read(0, 9) == b"abc"


def test_a_fault_is_for_a_path_and_for_what_changes() -> None:
    disk = a_disk()
    disk.faults = [Fault(Fail(errno.EIO), path="other")]
    disk.open("d/old").append(b"x")
    disk.open("d/old").read(0, 1)
    with pytest.raises(OSError, match="other"):
        disk.open("d/other", create=True)
    disk.open("d/other", create=True)


def test_a_part_of_an_append_arrives_before_it_fails_or_stops() -> None:
    for action, failure in ((Fail(errno.EIO, written=2), OSError), (Crash(written=2), DiskCrashed)):
        disk = a_disk()
        disk.faults = [Fault(action, "append")]
        with pytest.raises(failure):
            disk.open("d/old").append(b"12345")
        assert disk.disk.open("d/old").read(0, 9) == b"abc12"


def test_a_flipped_bit_is_written_or_read() -> None:
    disk = a_disk()
    disk.faults = [Fault(Flip(9), "append")]
    disk.open("d/old").append(b"\0\0\0")
    assert disk.open("d/old").read(3, 3) == b"\0\2\0"
    disk.faults = [Fault(Flip(0), "read")]
    assert disk.open("d/old").read(0, 3) == b"`bc"
    assert disk.open("d/old").read(0, 3) == b"abc"


def test_space_runs_out_and_returns() -> None:
    disk = a_disk()
    disk.space_bytes = 4
    file = disk.open("d/old")
    file.append(b"123")
    with pytest.raises(OSError, match="No space"):
        file.append(b"456")
    assert file.read(0, 9) == b"abc1234"
    disk.space_bytes = None
    file.append(b"!")
    assert file.size() == 8
