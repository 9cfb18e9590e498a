"""PartitionLog against a plain list: whatever is done to it, it holds what the list holds.

Restarts are of all kinds: clean, after kill -9 (all that was written is there), after the loss of the
machine (all that was flushed is there, and of the rest a prefix). Offsets keep their values, repeats of
idempotent batches are recognized across all of it, and the files stay in order.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from harness.batches import Batch, Row
from harness.log_judge import content
from harness.log_model import LogModel, Stored, file_faults
from headrace.storage.config import LogConfig
from headrace.storage.errors import OffsetOutOfRange, OutOfOrderSequence, StaleProducerEpoch
from headrace.storage.log import PartitionLog
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.open_files import OpenFiles
from headrace.storage.recovery import Recovery, Trust
from headrace.storage.segment_removal import Doomed

DIRECTORY = "orders-0"
START_MS = 1_700_000_000_000
PRODUCERS = (1000, 1001, 1002)

values = st.binary(max_size=60)
codecs = st.sampled_from([0, 0, 0, 1, 2, 3, 4])
fractions = st.floats(0, 1)


class LogMachine(RuleBasedStateMachine):
    @initialize(segment_bytes=st.sampled_from([400, 700, 2_000]), interval=st.sampled_from([0, 100, 4096]))
    def begin(self, segment_bytes: int, interval: int) -> None:
        self.disk = MemoryDisk()
        self.disk.make_dir(DIRECTORY)
        self.disk.sync_dir("")
        self.files = OpenFiles(4)
        self.model = LogModel()
        self.config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=interval, retention_ms=-1)
        self.wall_ms = START_MS
        self.epoch = 0
        self.sequences: dict[int, tuple[int, int]] = {}  # producer: epoch, next sequence
        self.earlier: list[list[Stored]] = []  # what the log was before cuts that are not flushed yet
        self.highest_start = 0
        self.open("clean")
        self.append(Batch(self.rows([b"first"], 0)))
        self.flush()

    def open(self, trust: Trust) -> None:
        recovery = Recovery(trust, self.model.flushed, self.model.start)
        self.log = PartitionLog.open(
            self.disk,
            DIRECTORY,
            self.config,
            files=self.files,
            recovery=recovery,
            wall_ms=self.wall_ms,
        )

    def offset_at(self, fraction: float) -> int:
        return self.model.start + round(fraction * (self.model.end - self.model.start))

    def edge_at(self, fraction: float) -> int:
        """Where a batch ends, as high watermarks do."""
        edges = [self.model.start] + [stored.end for stored in self.model.from_offset(self.model.start)]
        return edges[round(fraction * (len(edges) - 1))]

    # --- writing ----------------------------------------------------------------------------------

    @rule(payload=st.lists(values, min_size=1, max_size=4), codec=codecs, age=st.integers(-50, 50))
    def append_plain(self, payload: list[bytes], codec: int, age: int) -> None:
        self.append(Batch(self.rows(payload, age), codec))

    @rule(
        payload=st.lists(values, min_size=1, max_size=3),
        codec=codecs,
        producer=st.sampled_from(PRODUCERS),
        bump=st.sampled_from([0, 0, 0, 0, 1]),
    )
    def append_idempotent(self, payload: list[bytes], codec: int, producer: int, bump: int) -> None:
        epoch, sequence = self.sequences.get(producer, (0, 0))
        if bump:
            epoch, sequence = epoch + 1, 0
        self.append(Batch(self.rows(payload, 0), codec, producer, epoch, sequence))
        self.sequences[producer] = (epoch, sequence + len(payload))

    def rows(self, payload: list[bytes], age: int) -> list[Row]:
        self.wall_ms += 7
        return [Row(self.wall_ms + age + n, b"k" if n % 2 else None, v) for n, v in enumerate(payload)]

    def append(self, batch: Batch) -> None:
        expected = self.model.append(batch, self.epoch)
        done = self.log.append(batch.sent(), wall_ms=self.wall_ms, leader_epoch=self.epoch)
        assert (done.base_offset, done.last_offset) == (expected.base, expected.end - 1)
        assert not done.is_duplicate
        assert done.log_start_offset == self.model.start

    @rule(pick=fractions)
    def append_again(self, pick: float) -> None:
        """A producer that missed its answer sends once more: the first offset is told, nothing is written."""
        known = [stored for batches in self.model.producers().values() for stored in batches]
        if not known:
            return
        first = known[round(pick * (len(known) - 1))]
        done = self.log.append(first.batch.sent(), wall_ms=self.wall_ms, leader_epoch=self.epoch)
        assert done.is_duplicate
        assert (done.base_offset, done.last_offset) == (first.base, first.end - 1)

    @rule(producer=st.sampled_from(PRODUCERS), gap=st.integers(1, 3))
    def refuse_gap(self, producer: int, gap: int) -> None:
        if producer not in self.model.producers():
            return
        epoch, sequence = self.sequences[producer]
        with pytest.raises(OutOfOrderSequence):
            self.log.append(
                Batch(self.rows([b"gap"], 0), 0, producer, epoch, sequence + gap).sent(),
                wall_ms=self.wall_ms,
                leader_epoch=self.epoch,
            )

    @rule(producer=st.sampled_from(PRODUCERS))
    def refuse_old_epoch(self, producer: int) -> None:
        if producer not in self.model.producers() or self.sequences[producer][0] == 0:
            return
        epoch, sequence = self.sequences[producer]
        with pytest.raises(StaleProducerEpoch):
            self.log.append(
                Batch(self.rows([b"old"], 0), 0, producer, epoch - 1, sequence).sent(),
                wall_ms=self.wall_ms,
                leader_epoch=self.epoch,
            )

    @rule()
    def flush(self) -> None:
        job = self.log.flush_job()
        if job is not None:
            self.log.complete_flush(job.run(self.disk))
        self.model.flushed = self.model.end
        self.earlier.clear()
        assert self.log.flushed_offset == self.model.end

    @rule(more=st.integers(0, 2))
    def append_while_a_flush_runs(self, more: int) -> None:
        job = self.log.flush_job()
        end = self.model.end
        for _ in range(more):
            self.append(Batch(self.rows([b"meanwhile"], 0)))
        if job is not None:
            self.log.complete_flush(job.run(self.disk))
        self.model.flushed = max(self.model.flushed, end)
        assert self.log.flushed_offset >= end
        assert self.log.flushed_offset <= self.model.end

    @rule(more=st.integers(0, 2))
    def prepare_a_roll(self, more: int) -> None:
        """A job creates the files of the next segment, while others append."""
        job = self.log.next_segment_job()
        for _ in range(more):
            self.append(Batch(self.rows([b"meanwhile" * 20], 0)))
        self.log.complete_next_segment(job.run(self.disk))

    # --- cutting ----------------------------------------------------------------------------------

    @rule(fraction=fractions)
    def truncate(self, fraction: float) -> None:
        """To where a batch begins, as a follower does; above the log start."""
        edges = [stored.end for stored in self.model.from_offset(self.model.start)]
        if not edges:
            return
        edge = edges[round(fraction * (len(edges) - 1))]
        self.earlier.append(list(self.model.batches))
        self.log.truncate_to(edge)
        self.model.cut(edge)
        self.forget_sequences()

    @rule(fraction=fractions)
    def truncate_while_a_flush_runs(self, fraction: float) -> None:
        self.log.checkpoint(self.wall_ms)
        job = self.log.flush_job()
        self.truncate(fraction)
        if job is not None:
            self.log.complete_flush(job.run(self.disk))

    def forget_sequences(self) -> None:
        self.sequences = {}
        for stored in self.model.batches:
            batch = stored.batch
            if batch.producer_id >= 0:
                following = batch.base_sequence + len(batch.rows)
                self.sequences[batch.producer_id] = (batch.producer_epoch, following)

    @rule(fraction=fractions)
    def delete_records(self, fraction: float) -> None:
        offset = self.offset_at(fraction)
        doomed = self.log.advance_log_start(offset, self.wall_ms)
        self.model.start = max(self.model.start, offset)
        self.remove(doomed)

    @rule(retention_bytes=st.sampled_from([0, 400, 1500]), flushes=st.integers(0, 2))
    def retire_after_flushes(self, retention_bytes: int, flushes: int) -> None:
        """Segments go when the snapshot that stands for them was flushed."""
        self.configure(retention_bytes=retention_bytes)
        self.remove(self.log.retire(self.wall_ms, may_wait=True))
        for _ in range(flushes):
            self.flush()
            self.remove(self.log.finish_retiring(self.wall_ms))
        assert self.model.start <= self.log.log_start_offset <= self.model.end
        self.model.start = self.log.log_start_offset
        self.configure(retention_bytes=-1)

    @rule(retention_ms=st.sampled_from([-1, 20, 100]), retention_bytes=st.sampled_from([-1, 0, 400, 1500]))
    def retire(self, retention_ms: int, retention_bytes: int) -> None:
        self.configure(retention_ms=retention_ms, retention_bytes=retention_bytes)
        before = self.log.log_start_offset
        doomed = self.log.retire(self.wall_ms)
        start = self.log.log_start_offset
        assert before <= start <= self.model.end
        gone = [stored for stored in self.model.from_offset(before) if stored.end <= start]
        if retention_ms >= 0:
            old = [all(row.timestamp < self.wall_ms - retention_ms for row in s.batch.rows) for s in gone]
        else:
            old = [False] * len(gone)
        young = [stored for stored, is_old in zip(gone, old, strict=True) if not is_old]
        if young:
            # what is not too old went because of the size: at least so much was left behind it
            behind = sum(len(stored.data) for stored in self.model.from_offset(young[-1].end))
            assert 0 <= retention_bytes <= behind
        self.model.start = start
        self.configure(retention_ms=-1, retention_bytes=-1)
        self.remove(doomed)

    def remove(self, doomed: list[Doomed]) -> None:
        for one in doomed:
            one.remove_job().run(self.disk)

    def configure(self, **changes: Any) -> None:
        self.config = replace(self.config, **changes)
        self.log.configure(self.config)

    @rule(segment_bytes=st.sampled_from([400, 600, 2_000]), segment_ms=st.sampled_from([10, 10_000_000]))
    def change_config(self, segment_bytes: int, segment_ms: int) -> None:
        self.configure(segment_bytes=segment_bytes, segment_ms=segment_ms)

    @rule()
    def become_leader_again(self) -> None:
        self.epoch += 1
        self.log.assign_epoch(self.epoch)

    # --- restarting -------------------------------------------------------------------------------

    @rule()
    def stop_and_start(self) -> None:
        self.log.close(clean=True)
        job = self.log.flush_job()
        if job is not None:
            job.run(self.disk)
        self.model.flushed = self.model.end
        self.earlier.clear()
        self.files = OpenFiles(4)
        self.open("clean")

    @rule()
    def kill_and_start(self) -> None:
        self.disk = self.disk.crash("killed")
        self.files = OpenFiles(4)
        self.open("killed")

    @rule(seed=st.integers(0, 1 << 30))
    def lose_machine_and_start(self, seed: int) -> None:
        self.disk = self.disk.crash("lost", Random(seed))
        self.files = OpenFiles(4)
        self.open("lost")
        assert self.model.flushed <= self.log.log_end_offset
        self.model.batches = self.survivors()
        self.model.flushed = min(self.model.flushed, self.model.end)
        self.earlier.clear()
        self.forget_sequences()
        if not self.model.batches:
            self.append(Batch(self.rows([b"first again"], 0)))
            self.flush()

    def survivors(self) -> list[Stored]:
        """What a lost host left: all of it from one history, and all that was flushed."""
        start, end = self.log.log_start_offset, self.log.log_end_offset
        assert start == self.model.start
        if self.model.flushed < start == end and not self.log.producers():
            self.model.origin = start  # what was deleted on request reached beyond what is left
            return []
        # an unflushed cut may not have happened, but then wholly: never a mixture of before and after
        for batches in [self.model.batches, *self.earlier]:
            kept = [stored for stored in batches if stored.end <= end]
            if (kept[-1].end if kept else self.model.origin) == end and content(self.log) == self.bytes_of(
                kept
            ):
                return kept
        raise AssertionError(f"the log holds {start} to {end}, which is not a prefix of what was written")

    # --- reading ----------------------------------------------------------------------------------

    def bytes_of(self, batches: list[Stored]) -> bytes:
        return b"".join(stored.data for stored in batches if stored.end > self.model.start)

    @rule(at=fractions, limit=fractions, max_bytes=st.integers(0, 1500), at_least_one=st.booleans())
    def read(self, at: float, limit: float, max_bytes: int, at_least_one: bool) -> None:
        offset, limit_offset = self.offset_at(at), self.offset_at(limit)
        span = self.log.read(
            offset, max_bytes=max_bytes, limit_offset=limit_offset, at_least_one=at_least_one
        )
        expected = [s for s in self.model.from_offset(offset) if s.end <= limit_offset]
        fits = bool(expected) and (at_least_one or len(expected[0].data) <= max_bytes)
        if not fits:
            assert span is None
            return
        assert span is not None
        data = span.read()
        assert b"".join(s.data for s in expected).startswith(data)
        sizes = [len(expected[0].data)]
        for stored in expected[1:]:
            sizes.append(sizes[-1] + len(stored.data))
        assert len(data) in sizes, "batches are whole"
        assert len(data) <= max(max_bytes, sizes[0])

    @rule(beyond=st.integers(1, 5))
    def refuse_reading_outside(self, beyond: int) -> None:
        for offset in (self.model.start - beyond, self.model.end + beyond):
            with pytest.raises(OffsetOutOfRange):
                self.log.read(offset, max_bytes=100, limit_offset=self.model.end, at_least_one=True)

    @rule(at=fractions, limit=fractions, shift=st.integers(-60, 60))
    def find_timestamp(self, at: float, limit: float, shift: int) -> None:
        limit_offset = self.edge_at(limit)
        rows = self.model.visible_rows(limit_offset)
        timestamp = rows[round(at * (len(rows) - 1))].timestamp + shift if rows else self.wall_ms
        found = self.log.offset_for_timestamp(timestamp, limit_offset)
        expected = next((row for row in rows if row.timestamp >= timestamp), None)
        if expected is None:
            assert found is None
        else:
            assert found is not None
            assert (found.offset, found.timestamp) == (expected.offset, expected.timestamp)

    @precondition(lambda self: hasattr(self, "log"))
    @invariant()
    def ends_agree(self) -> None:
        log, model = self.log, self.model
        assert (log.log_start_offset, log.log_end_offset) == (model.start, model.end)
        assert log.flushed_offset >= model.flushed
        assert log.flushed_offset <= model.end
        assert self.highest_start <= log.log_start_offset or log.log_start_offset == model.end
        self.highest_start = log.log_start_offset

    @rule()
    def everything_is_there(self) -> None:
        assert content(self.log) == self.bytes_of(self.model.batches)
        found = self.log.max_timestamp(self.model.end)
        rows = self.model.visible_rows(self.model.end)
        if rows:
            newest = max(row.timestamp for row in rows)
            assert found is not None
            assert found.timestamp == newest
        assert file_faults(self.disk, DIRECTORY) == []

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.everything_is_there()


LogMachine.TestCase.settings = settings(
    max_examples=200,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestLogAgainstList = LogMachine.TestCase
