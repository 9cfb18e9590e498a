"""A day in a log's life in which every single call to the disk fails once, or for a while, and then works.

Where something has run out (space, quota, descriptors) the call is refused, nothing of it stays, and the same
call is made again until it succeeds: in the end the log holds what it would hold without any error. After an
I/O error, and after a failed fsync whatever its errno, the directory is offline. In each case a kill right
after the error, and one in the end, loses nothing that was acknowledged and leaves the files in order.
"""

from __future__ import annotations

import copy
import errno
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from harness.batches import Batch, Row
from harness.log_day import CONFIG, DIRECTORY, Day, check
from harness.log_judge import judge
from harness.log_model import LogModel
from headrace.storage.errors import DiskFull, LogOffline, is_transient
from headrace.storage.faulty_disk import CHANGES, OPENS, SPACE_NEEDING, Fail, Fault, FaultyDisk, Operation
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.recovery import Trust
from headrace.storage.segment_removal import Doomed

# `make test` fails every n-th call, another one in each test; `make fuzz` fails every one.
STRIDE = 1 if "HEADRACE_FUZZ_CASES" in os.environ else 23
FOR_A_WHILE = 6
ATTEMPTS_MAX = 60

# Which errno strikes which calls.
TRANSIENT: dict[str, tuple[int, frozenset[Operation]]] = {
    "ENOSPC": (errno.ENOSPC, SPACE_NEEDING),
    "EDQUOT": (errno.EDQUOT, SPACE_NEEDING),
    "EMFILE": (errno.EMFILE, OPENS),
}
FINAL: dict[str, tuple[int, frozenset[Operation]]] = {
    "EIO": (errno.EIO, CHANGES | {"open", "read", "list"}),
    "ENOSPC in fsync": (errno.ENOSPC, frozenset(("sync", "sync_dir"))),
}


class StubbornDay(Day):
    """Whoever lives it asks again when the disk refuses, as clients do."""

    def __init__(self, disk: FaultyDisk) -> None:
        super().__init__(disk)
        self.refusals = 0
        self.small = 0
        self.insists = True
        self.first_refusal: Callable[[], None] = lambda: None

    def step(self, change: Callable[[LogModel], None], act: Callable[[], None]) -> None:
        self.after = copy.deepcopy(self.before)
        change(self.after)
        if self.insists:
            self.insist(act)
        else:
            act()
        self.before = self.after

    def insist(self, act: Callable[[], None]) -> None:
        for _ in range(ATTEMPTS_MAX):
            try:
                act()
                return
            except DiskFull:
                self._refused()
            except OSError as error:  # of a job, which tells whoever ordered it
                if not is_transient(error):
                    raise
                self._refused()
        raise AssertionError(f"still refused after {ATTEMPTS_MAX} attempts: {self.disk.calls[-1]}")

    def _refused(self) -> None:
        self.refusals += 1
        if self.refusals == 1:
            self.first_refusal()

    def append(self, count: int, *, codec: int = 0, producer: int = -1, ahead: bool = False) -> None:
        """While a batch is refused, others write smaller ones: where those are taken, they stay."""
        self.insists = False

        def act() -> None:
            try:
                Day.append(self, count, codec=codec, producer=producer, ahead=ahead)
            except DiskFull:
                self.after = self.before
                self._append_small()
                raise

        self.insist(act)
        self.insists = True

    def _append_small(self) -> None:
        batch = Batch([Row(self.wall_ms, None, b"")])
        try:
            self.log.append(batch.sent(), wall_ms=self.wall_ms, leader_epoch=0)
        except DiskFull:
            return
        self.before.append(batch, 0)
        self.after = self.before
        self.small += 1
        if self.small == 1:
            self.first_refusal()

    def open(self, trust: Trust) -> None:
        self.insist(lambda: Day.open(self, trust))

    def flush(self) -> None:
        end = self.before.end

        def act() -> None:
            job = self.log.flush_job()
            if job is not None:
                try:
                    result = job.run(self.disk)
                except OSError:
                    self.log.postpone_flush()
                    raise
                self.log.complete_flush(result)

        self.step(lambda model: setattr(model, "flushed", end), act)

    def delete_records(self, offset: int) -> None:
        doomed: list[Doomed] = []
        self.step(
            lambda model: setattr(model, "start", offset),
            lambda: doomed.extend(self.log.advance_log_start(offset, self.wall_ms)),
        )
        for one in doomed:
            self.insist(partial(one.remove_job().run, self.disk))

    def retire(self, retention_bytes: int) -> None:
        self.log.configure(replace(CONFIG, retention_bytes=retention_bytes))
        doomed: list[Doomed] = []
        wanted = self.before.start + 1

        def act() -> None:
            doomed.extend(self.log.retire(self.wall_ms))
            if self.log.log_start_offset < wanted:
                raise DiskFull("a segment could not be renamed")

        # where it ends up depends on what could be done at once: it is the log that says
        self.after = copy.deepcopy(self.before)
        self.after.start = self.log.log_start_offset
        self.insist(act)
        self.after.start = self.log.log_start_offset
        self.before = self.after
        for one in doomed:
            self.insist(partial(one.remove_job().run, self.disk))
        self.log.configure(CONFIG)

    def live(self) -> None:
        self.insist(lambda: self.disk.make_dir(DIRECTORY))
        self.insist(lambda: self.disk.sync_dir(""))
        self.open("clean")
        for n in range(4):
            self.append(3, codec=n % 5)
        self.flush()
        for n in range(7):
            if n in (3, 5):
                self.prepare_roll()
            self.append(2, producer=4000 + n % 2)
        self.flush()
        self.prepare_roll()
        for _ in range(4):
            self.append(1, codec=4, producer=4000)
        self.delete_records(self.before.end - 6)
        self.append(5)
        self.write_ahead(3, pieces=2)
        self.flush()
        self.append(2, producer=4001, ahead=True)
        self.append(1)
        self.retire(300)
        self.write_ahead(1, pieces=1)
        self.flush()
        self.append(2, producer=4001)
        self.append(2, ahead=True)
        self.write_ahead(2, pieces=2)
        self.close()
        self.open("clean")
        for _ in range(3):
            self.append(2, producer=4000)
        self.flush()
        self.append(1, producer=4000)


def places(operations: frozenset[Operation]) -> int:
    day = StubbornDay(FaultyDisk(MemoryDisk()))
    day.live()
    return sum(call.operation in operations for call in day.disk.calls)


def check_killed(day: Day, memory: MemoryDisk) -> None:
    check(day, memory.crash("killed"), "killed")


def lived(fault: Fault, memory: MemoryDisk) -> StubbornDay:
    day = StubbornDay(FaultyDisk(memory, [fault]))
    day.first_refusal = lambda: check_killed(day, memory)
    day.live()
    return day


@pytest.mark.parametrize("name", TRANSIENT)
@pytest.mark.parametrize("times", [1, FOR_A_WHILE])
@pytest.mark.parametrize("written", [0, 40])
def test_what_has_run_out_and_comes_back_costs_nothing(name: str, times: int, written: int) -> None:
    code, operations = TRANSIENT[name]
    for number in range((code + times + written) % STRIDE, places(operations), STRIDE):
        fault = Fault(Fail(code, written), operations, skip=number, times=times)
        memory = MemoryDisk()
        try:
            day = lived(fault, memory)
            assert not day.log.is_offline
            check_killed(day, memory)
            # indexes of a segment that could not be made stay while they cannot be removed: a start does it
            is_untidy = times > 1
            judge(day.log, copy.deepcopy(day.before), day.disk, wall_ms=day.wall_ms, is_damaged=is_untidy)
        except Exception as problem:
            raise AssertionError(f"{name} at call {number}, {times} times: {problem!r}") from problem


@pytest.mark.parametrize("name", FINAL)
def test_an_io_error_takes_the_directory_offline_and_loses_nothing(name: str) -> None:
    code, operations = FINAL[name]
    for number in range(0, places(operations), STRIDE):
        memory = MemoryDisk()
        day = StubbornDay(FaultyDisk(memory, [Fault(Fail(code), operations, skip=number)]))
        try:
            with pytest.raises((LogOffline, OSError)):
                day.live()
            assert day.refusals == 0, "an I/O error is not tried again"
            check_killed(day, memory)
        except Exception as problem:
            where = day.disk.calls[-1]
            raise AssertionError(f"{name} at call {number}, {where}: {problem!r}") from problem
