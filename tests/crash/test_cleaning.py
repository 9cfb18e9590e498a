"""A pass of compaction cut short at every call that changes the disk: afterwards the log holds the old
segments or the new ones, the older part first, and never a mixture of both within one.
"""

from __future__ import annotations

import os
from dataclasses import replace
from random import Random

import pytest

from harness.batches import ABORT, COMMIT, TRANSACTIONAL, Batch, Row, marker
from harness.compaction import clean, newest, rows
from harness.log_judge import WALL_MS, open_log
from headrace.storage.config import LogConfig
from headrace.storage.faulty_disk import Crash, DiskCrashed, Fault, FaultyDisk
from headrace.storage.log import PartitionLog
from headrace.storage.memory_disk import CrashKind, MemoryDisk
from headrace.storage.recovery import Trust

DIRECTORY = "orders-0"
CONFIG = LogConfig(
    segment_bytes=100_000,
    index_interval_bytes=100,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=0,
)
PRODUCER = 6000
LATER_MS = WALL_MS + 10
ENDS = ("kept", "overwritten", "marker", "nothing kept")
# `make test` crashes at every third call, and begins with another one for each of ENDS; `make fuzz` crashes
# at every call.
STRIDE = 1 if "HEADRACE_FUZZ_CASES" in os.environ else 3


class Writer:
    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.sequence = 0

    def put(self, *pairs: tuple[bytes, bytes | None], is_transactional: bool = False) -> None:
        batch = Batch([Row(WALL_MS, key, value) for key, value in pairs])
        if is_transactional:
            batch = Batch(batch.rows, 0, PRODUCER, 0, self.sequence, TRANSACTIONAL)
            self.sequence += len(pairs)
        self.log.append(batch.sent(), wall_ms=WALL_MS, leader_epoch=0)

    def end(self, kind: int) -> None:
        batch = marker(PRODUCER, 0, WALL_MS, kind).sent()
        self.log.append(batch, wall_ms=WALL_MS, leader_epoch=0, from_client=False)

    def flush(self, disk: MemoryDisk) -> None:
        job = self.log.flush_job()
        assert job is not None
        self.log.complete_flush(job.run(disk))


def written(disk: MemoryDisk, ends: str = "kept") -> PartitionLog:
    """Nine small segments with overwritten keys, tombstones, committed and aborted transactions; two passes
    have been over the first half, so that tombstones and markers there may go. Of each segment's last batch
    something stays, or nothing, or nothing of the whole segment.
    """
    disk.make_dir(DIRECTORY)
    disk.sync_dir("")
    log = open_log(disk, DIRECTORY, CONFIG, "clean")
    writer = Writer(log)
    for number in range(9):
        key = b"key-%d" % (number % 4)
        if ends == "nothing kept" and number:
            writer.put((b"key-0", b"%d" % number))
            writer.put((b"key-0", b"%d again" % number))
            log.roll(WALL_MS)
            writer.flush(disk)
            continue
        writer.put((key, b"%d " % number * 9), (b"only-%d" % number, b"here"))
        writer.put((b"gone-%d" % (number % 3), None if number % 2 else b"there"))
        if number % 3 == 0:
            writer.put((key, b"committed %d" % number), is_transactional=True)
            writer.end(COMMIT)
        if number % 3 == 1:
            writer.put((key, b"aborted %d" % number), is_transactional=True)
        if number % 3 == 2:
            writer.end(ABORT)
        if ends == "overwritten":
            writer.put((b"key-0", b"%d" % number))
        if ends == "marker" and number % 3 != 1:
            writer.put((b"key-0", b"%d" % number), is_transactional=True)
            writer.end(COMMIT)
        log.roll(WALL_MS)
        writer.flush(disk)
        if number in (3, 5):
            log.configure(replace(CONFIG, segment_bytes=300))
            assert clean(log, disk, WALL_MS)
            log.configure(CONFIG)
    return log


def content_of(log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(row.offset, row.key, row.value) for row in rows(log)]


def reopened(disk: FaultyDisk | MemoryDisk, trust: Trust, flushed: int, config: LogConfig) -> PartitionLog:
    return open_log(disk, DIRECTORY, config, trust, recovery_point=flushed, wall_ms=LATER_MS)


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("segment_bytes", [100_000, 1_500], ids=["one group", "several groups"])
@pytest.mark.parametrize(
    ("trust", "has_old_recovery_point"), [("killed", False), ("lost", False), ("lost", True)]
)
def test_a_crash_at_every_call(
    segment_bytes: int, trust: CrashKind, has_old_recovery_point: bool, ends: str
) -> None:
    memory = MemoryDisk()
    log = written(memory, ends)
    config = replace(CONFIG, segment_bytes=segment_bytes)
    flushed, old, state = log.flushed_offset, content_of(log), newest(log)
    recovery_point = flushed // 3 if has_old_recovery_point else flushed
    whole = memory.clone()
    done = reopened(whole, "killed", flushed, config)
    done.flushed_offset = flushed
    bases = {int(name[:20]) for name in whole.list(DIRECTORY) if name.endswith(".log")}
    assert clean(done, whole, LATER_MS)
    new = content_of(done)
    left = {int(name[:20]) for name in whole.list(DIRECTORY) if name.endswith(".log")}
    assert len(left) < len(bases)
    assert len(new) < len(old)
    assert newest(done) == state
    allowed = [
        [row for row in new if row[0] < border] + [row for row in old if row[0] >= border] for border in left
    ] + [new]
    for number in range(ENDS.index(ends) % STRIDE, 1000, STRIDE):
        base = memory.clone()
        disk = FaultyDisk(base)
        log = reopened(disk, "killed", flushed, config)
        log.flushed_offset = flushed
        log.first_dirty_offset = 0
        disk.faults = [Fault(Crash(), skip=number)]
        try:
            clean(log, disk, LATER_MS)
        except DiskCrashed:
            for seed in range(1 if trust == "killed" else 4):
                after = base.crash(trust, Random(seed))
                try:
                    check(after, trust, recovery_point, config, allowed, state)
                except Exception as problem:
                    raise AssertionError(f"at {disk.calls[-1]}, seed {seed}: {problem!r}") from problem
        else:
            assert number > 20
            return
    raise AssertionError("it never came to an end")


def check(
    disk: MemoryDisk,
    trust: CrashKind,
    recovery_point: int,
    config: LogConfig,
    allowed: list[list[tuple[int, bytes | None, bytes | None]]],
    state: dict[bytes, bytes],
) -> None:
    log = reopened(disk, trust, recovery_point, config)
    assert content_of(log) in allowed
    assert newest(log) == state
    leftovers = [name for name in disk.list(DIRECTORY) if name.endswith((".cleaned", ".swap", ".deleted"))]
    assert leftovers == []
    again = reopened(disk, trust, recovery_point, config)
    assert content_of(again) == content_of(log)
    again.flushed_offset = again.log_end_offset
    clean(again, disk, LATER_MS)
    assert newest(again) == state
    writer = Writer(again)
    writer.sequence = next(one.last_sequence + 1 for one in again.producers() if one.producer_id == PRODUCER)
    writer.put((b"key-1", b"after"), is_transactional=True)
    writer.end(COMMIT)
    assert newest(again) == state | {b"key-1": b"after"}


@pytest.mark.parametrize("trust", ["killed", "lost"])
def test_a_crash_in_the_pass_after_another(trust: CrashKind) -> None:
    """Nothing is flushed between the two, and the second one writes files that the first has renamed."""
    memory = MemoryDisk()
    log = written(memory)
    flushed, state = log.flushed_offset, newest(log)
    for number in range(1000):
        base = memory.clone()
        disk = FaultyDisk(base)
        log = reopened(disk, "killed", flushed, replace(CONFIG, segment_bytes=600))
        log.flushed_offset = flushed
        log.first_dirty_offset = 0
        assert clean(log, disk, LATER_MS)
        log.configure(CONFIG)
        log.first_dirty_offset = 0
        disk.faults = [Fault(Crash(), skip=number)]
        try:
            assert clean(log, disk, LATER_MS)
        except DiskCrashed:
            for seed in range(1 if trust == "killed" else 6):
                after = reopened(base.crash(trust, Random(seed)), trust, flushed, CONFIG)
                assert newest(after) == state, f"at {disk.calls[-1]}, seed {seed}"
        else:
            assert number > 10
            return


@pytest.mark.parametrize("trust", ["killed", "lost"])
def test_a_crash_in_the_start_after_a_crash(trust: CrashKind) -> None:
    memory = MemoryDisk()
    log = written(memory)
    flushed, state = log.flushed_offset, newest(log)
    job = log.clean_job(LATER_MS, log.log_end_offset)
    assert job is not None
    result = job.run(memory)
    assert result.segments
    found = memory.crash(trust, Random(1))
    assert any(name.endswith(".log.swap") for name in found.list(DIRECTORY))
    for number in range(200):
        base = found.clone()
        try:
            reopened(FaultyDisk(base, [Fault(Crash(), skip=number)]), trust, flushed, CONFIG)
        except DiskCrashed:
            for seed in range(1 if trust == "killed" else 6):
                log = reopened(base.crash(trust, Random(seed)), trust, flushed, CONFIG)
                assert newest(log) == state, f"call {number}, seed {seed}"
                assert len(rows(log)) == result.records_after
        else:
            assert number > 10
            return
