"""A day in a log's life, and what must be true of its disk after it was cut short."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

from harness.batches import Batch, Row
from harness.log_judge import WALL_MS, judge, open_log, prefix_that_is
from harness.log_model import LogModel
from headrace.storage.config import LogConfig
from headrace.storage.faulty_disk import FaultyDisk
from headrace.storage.memory_disk import CrashKind, MemoryDisk
from headrace.storage.recovery import Trust

DIRECTORY = "orders-0"

CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=100, retention_ms=-1)

PRODUCER = 4000
PIECE_BYTES = 70  # of batches that are written ahead


class Day:
    """What was done, as the one who did it knows: `before` the step under way, and `after` it."""

    def __init__(self, disk: FaultyDisk) -> None:
        self.disk = disk
        self.before = LogModel()
        self.after = LogModel()
        self.wall_ms = WALL_MS
        self.sequence = 0

    def step(self, change: Callable[[LogModel], None], act: Callable[[], None]) -> None:
        self.after = copy.deepcopy(self.before)
        change(self.after)
        act()
        self.before = self.after

    def live(self) -> None:
        self.disk.make_dir(DIRECTORY)
        self.disk.sync_dir("")
        self.open("clean")
        for n in range(4):
            self.append(3, codec=n % 5)
        self.flush()
        for n in range(7):
            if n == 3:
                self.prepare_roll()
            self.append(2, producer=PRODUCER + n % 2)
        self.flush()
        self.prepare_roll()
        for _ in range(4):
            self.append(1, codec=4, producer=PRODUCER)
        self.delete_records(self.before.end - 6)
        self.append(5)
        self.flush()
        self.write_ahead(2, pieces=2)
        self.prepare_roll()
        self.truncate()
        self.append(2, producer=PRODUCER + 1)
        self.write_ahead(3, pieces=1)
        self.append(1, ahead=True)
        self.append(2, producer=PRODUCER + 1, ahead=True)
        self.retire(300)
        self.flush()
        self.append(2, producer=PRODUCER + 1)
        self.write_ahead(2, pieces=2)
        self.close()
        self.open("clean")
        for _ in range(3):
            self.append(2, producer=PRODUCER)
        self.write_ahead(1, pieces=1)
        self.flush()
        self.retire_after_flush()
        self.append(1)
        self.write_ahead(4, pieces=2)
        self.append(1, producer=PRODUCER)

    def open(self, trust: Trust) -> None:
        self.log = open_log(
            self.disk,
            DIRECTORY,
            CONFIG,
            trust,
            recovery_point=self.before.flushed,
            log_start=self.before.start,
            wall_ms=self.wall_ms,
        )

    def append(self, count: int, *, codec: int = 0, producer: int = -1, ahead: bool = False) -> None:
        self.wall_ms += 10
        rows = [Row(self.wall_ms + n, b"key", b"value %d" % n * 8) for n in range(count)]
        batch = Batch(rows, codec)
        if producer >= 0:
            known = self.before.producers().get(producer)
            newest = known[-1].batch if known else None
            sequence = newest.base_sequence + len(newest.rows) if newest else 0
            batch = Batch(rows, codec, producer, 0, sequence)
        sent = batch.sent()

        def act() -> None:
            while ahead and not self._write_piece(sent):
                pass
            self.log.append(sent, wall_ms=self.wall_ms, leader_epoch=0)

        self.step(lambda model: void(model.append(batch, 0)), act)

    def write_ahead(self, count: int, *, pieces: int) -> None:
        """Some pieces of a batch that is never appended."""
        batch = Batch([Row(self.wall_ms, b"key", b"never appended" * 4) for _ in range(count)], 0).sent()

        def act() -> None:
            for _ in range(pieces):
                self._write_piece(batch)

        self.step(lambda model: None, act)

    def _write_piece(self, batch: memoryview) -> bool:
        return self.log.write_ahead(batch, wall_ms=self.wall_ms, leader_epoch=0, piece_bytes=PIECE_BYTES)

    def flush(self) -> None:
        end = self.before.end

        def act() -> None:
            job = self.log.flush_job()
            if job is not None:
                self.log.complete_flush(job.run(self.disk))

        self.step(lambda model: setattr(model, "flushed", end), act)

    def prepare_roll(self) -> None:
        """The files of the next segment, which come before it."""

        def act() -> None:
            self.log.complete_next_segment(self.log.next_segment_job().run(self.disk))

        self.step(lambda model: None, act)

    def delete_records(self, offset: int) -> None:
        def act() -> None:
            doomed = self.log.advance_log_start(offset, self.wall_ms)
            for one in doomed:
                one.remove_job().run(self.disk)

        self.step(lambda model: setattr(model, "start", offset), act)

    def retire_after_flush(self) -> None:
        """All segments are to go, but none before the snapshot that stands for it was flushed, as in a
        node.
        """
        self.log.configure(replace(CONFIG, retention_ms=0))
        self.wall_ms += 1000
        doomed = self.log.retire(self.wall_ms, may_wait=True)
        assert not doomed, "this snapshot is not durable yet"
        self.flush()
        self.after = copy.deepcopy(self.before)
        self.after.start = self.before.end
        for one in self.log.finish_retiring(self.wall_ms):
            one.remove_job().run(self.disk)
        assert self.log.log_start_offset == self.after.start
        self.before = self.after
        self.log.configure(CONFIG)

    def truncate(self) -> None:
        end = self.before.batches[-1].base
        self.step(lambda model: model.cut(end), lambda: self.log.truncate_to(end))

    def retire(self, retention_bytes: int) -> None:
        self.log.configure(replace(CONFIG, retention_bytes=retention_bytes))
        doomed = self.log.retire(self.wall_ms)
        self.after = copy.deepcopy(self.before)
        self.after.start = self.log.log_start_offset
        assert self.after.start > self.before.start, "this day is to see retention at work"
        for one in doomed:
            one.remove_job().run(self.disk)
        self.before = self.after
        self.log.configure(CONFIG)

    def close(self) -> None:
        end = self.before.end

        def act() -> None:
            self.log.close(clean=True)
            job = self.log.flush_job()
            if job is not None:
                job.run(self.disk)

        self.step(lambda model: setattr(model, "flushed", end), act)


def void(_: object) -> None:
    """Of what a step returns, the judge takes no note."""


def check(day: Day, disk: MemoryDisk, kind: CrashKind) -> None:
    start = max(day.before.start, 0)
    log = open_log(
        disk,
        DIRECTORY,
        CONFIG,
        kind,
        recovery_point=min(day.before.flushed, day.after.flushed),
        log_start=start,
        wall_ms=day.wall_ms,
    )
    for model in (day.before, day.after):
        kept = prefix_that_is(log, model.batches)
        if kept is not None and (kind == "lost" or kept == model.batches):
            break
    else:
        raise AssertionError(f"the log holds {log.log_start_offset} to {log.log_end_offset}, no prefix")
    least = min(day.before.flushed, day.after.flushed)
    assert log.log_end_offset >= least, f"{least} were flushed, {log.log_end_offset} are left"
    found = copy.deepcopy(model)
    found.batches = kept
    found.start = log.log_start_offset
    judge(log, found, disk, wall_ms=day.wall_ms)
