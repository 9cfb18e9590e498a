"""A day in a log's life, cut short at every single call that changes the disk, by kill -9 and by the loss of
the machine.

Afterwards the log holds a prefix of what was written: after a kill all that was appended, after a loss at
least all that was flushed. The step that was under way has happened or has not. Repeated batches are known,
and the files are in order.
"""

from __future__ import annotations

import copy
import os
from random import Random

import pytest

from harness.log_day import CONFIG, DIRECTORY, Day, check
from harness.log_judge import judge, open_log
from headrace.storage.faulty_disk import Crash, DiskCrashed, Fault, FaultyDisk
from headrace.storage.memory_disk import CrashKind, MemoryDisk

LOSSES = 6  # what a lost machine's disk keeps of the unflushed is random
# `make test` tries two of them at each call, other ones at the next call; `make fuzz` tries all.
STRIDE = 1 if "HEADRACE_FUZZ_CASES" in os.environ else 3


def cut_short(crash: Fault) -> tuple[Day, MemoryDisk]:
    memory = MemoryDisk()
    day = Day(FaultyDisk(memory, [crash]))
    with pytest.raises(DiskCrashed):
        day.live()
    return day, memory


def crash_points() -> list[Fault]:
    """Before each call that changes something, and inside each append."""
    day = Day(FaultyDisk(MemoryDisk()))
    day.live()
    points = []
    for number, call in enumerate(day.disk.changes()):
        points.append(Fault(Crash(), skip=number))
        if call.operation == "append":
            points += [Fault(Crash(written=w), skip=number) for w in {1, call.size // 2, call.size - 1}]
    return points


def described(fault: Fault, day: Day) -> str:
    return f"crash at {day.disk.calls[-1]} of call {len(day.disk.calls)}, {fault.action}"


def test_the_day_without_a_crash() -> None:
    disk = FaultyDisk(MemoryDisk())
    day = Day(disk)
    day.live()
    judge(day.log, day.before, disk, wall_ms=day.wall_ms)
    assert len(disk.changes()) > 60
    taken = [one for one in disk.changes() if one.operation == "rename" and one.path.endswith(".log")]
    assert len(taken) >= 2, "some rolls find their files prepared"


@pytest.mark.parametrize("kind", ["killed", "lost"])
def test_a_crash_at_every_call(kind: CrashKind) -> None:
    for number, fault in enumerate(crash_points()):
        day, memory = cut_short(copy.copy(fault))
        for seed in [0] if kind == "killed" else range(number % STRIDE, LOSSES, STRIDE):
            try:
                check(day, memory.crash(kind, Random(seed)), kind)
            except Exception as problem:
                raise AssertionError(f"{described(fault, day)}, seed {seed}: {problem!r}") from problem


def test_a_crash_in_the_recovery_from_a_crash() -> None:
    """The second start finds what the first one left half done."""
    for number, fault in enumerate(crash_points()[::7]):
        day, memory = cut_short(copy.copy(fault))
        lost = memory.crash("lost", Random(number))
        recovery_point = min(day.before.flushed, day.after.flushed)
        for calls in range(100):
            again = lost.clone()
            faulty = FaultyDisk(again, [Fault(Crash(), skip=calls)])
            try:
                open_log(
                    faulty,
                    DIRECTORY,
                    CONFIG,
                    "lost",
                    recovery_point=recovery_point,
                    log_start=day.before.start,
                )
            except DiskCrashed:
                check(day, again.crash("lost", Random(calls)), "lost")
            else:
                break
