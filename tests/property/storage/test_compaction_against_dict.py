"""A compacted log against a plain list of what was written: whatever happened in whatever order, a reader of
the log ends up with the newest committed value of each key, every record it meets is one that was written
there, and a reader that takes less than delete.retention.ms misses no deletion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.batches import ABORT, COMMIT, CONTROL, HEADER, TRANSACTIONAL, Batch, Row, marker, rows_of, split
from harness.compaction import Keyed, clean, rows
from harness.log_judge import WALL_MS, open_log
from headrace.storage.config import LogConfig
from headrace.storage.memory_disk import MemoryDisk

DIRECTORY = "orders-0"
RETENTION_MS = 50
CONFIG = LogConfig(
    segment_bytes=700,
    index_interval_bytes=120,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=RETENTION_MS,
    retention_ms=-1,
)
PRODUCERS = (5000, 5001)
KEYS = (b"a", b"b", b"c")

pairs = st.lists(st.tuples(st.sampled_from(KEYS), st.booleans()), min_size=1, max_size=3)
producer = st.sampled_from(PRODUCERS)
operation = st.one_of(
    st.tuples(st.just("put"), pairs, st.integers(0, 4)),
    st.tuples(st.just("transact"), producer, pairs),
    st.tuples(st.just("idempotent"), pairs),
    st.tuples(st.just("end"), producer, st.sampled_from([COMMIT, ABORT])),
    st.tuples(st.just("roll")),
    st.tuples(st.just("wait"), st.integers(1, 30)),
    st.tuples(st.just("clean"), st.sampled_from([1, 400])),
    st.tuples(st.just("clean"), st.just(1 << 20)),
    st.tuples(st.just("reopen"), st.booleans()),
    st.tuples(st.just("start reading"), st.floats(0, 1)),
    st.tuples(st.just("finish reading")),
    st.tuples(st.just("delete"), st.floats(0, 0.2)),
)


Pairs = Sequence[tuple[bytes, bool]]  # key, and whether it is deleted


@dataclass
class Written:
    row: Row
    producer: int  # -1: not in a transaction
    is_committed: bool | None  # None: not known yet


@dataclass
class Reader:
    """Somebody who reads the log in two goes, with read_committed."""

    started_ms: int
    offset: int = 0
    state: Keyed = field(default_factory=dict)


class Story:
    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.disk.make_dir(DIRECTORY)
        self.wall_ms = WALL_MS
        self.written: dict[int, Written] = {}
        self.end = 0
        self.start = 0
        self.sequences = dict.fromkeys((*PRODUCERS, 4000), 0)
        self.open: dict[int, int] = {}  # producer: first offset of its transaction
        self.reader: Reader | None = None
        self.log = open_log(self.disk, DIRECTORY, CONFIG, "clean")

    # --- what may happen -----------------------------------------------------------------------------------

    def put(self, pairs: Pairs, codec: int) -> None:
        self._append(pairs, codec=codec)

    def idempotent(self, pairs: Pairs) -> None:
        self._append(pairs, producer=4000)

    def transact(self, producer: int, pairs: Pairs) -> None:
        self.open.setdefault(producer, self.end)
        self._append(pairs, producer=producer, attributes=TRANSACTIONAL)

    def _append(self, pairs: Pairs, *, codec: int = 0, producer: int = -1, attributes: int = 0) -> None:
        stored = [
            Row(self.wall_ms + n, key, None if is_deleted else b"%d of %s" % (self.end + n, key) * 3)
            for n, (key, is_deleted) in enumerate(pairs)
        ]
        batch = Batch(stored, codec)
        if producer >= 0:
            batch = Batch(stored, codec, producer, 0, self.sequences[producer], attributes)
            self.sequences[producer] += len(pairs)
        appended = self.log.append(batch.sent(), wall_ms=self.wall_ms, leader_epoch=0)
        assert (appended.base_offset, appended.is_duplicate) == (self.end, False)
        for row in stored:
            is_committed = None if attributes else True
            self.written[self.end] = Written(replace(row, offset=self.end), producer, is_committed)
            self.end += 1

    def end_transaction(self, producer: int, kind: int) -> None:
        if self.open.pop(producer, None) is None:
            return
        batch = marker(producer, 0, self.wall_ms, kind).sent()
        self.log.append(batch, wall_ms=self.wall_ms, leader_epoch=0, from_client=False)
        self.end += 1
        for one in self.written.values():
            if one.producer == producer and one.is_committed is None:
                one.is_committed = kind == COMMIT

    def roll(self) -> None:
        self.log.roll(self.wall_ms)

    def wait(self, ms: int) -> None:
        if self.reader is not None and self.wall_ms + ms - self.reader.started_ms >= RETENTION_MS:
            self.finish_reading()
        self.wall_ms += ms

    def clean(self, map_bytes: int) -> None:
        self.roll()
        job = self.log.flush_job()
        if job is not None:
            self.log.complete_flush(job.run(self.disk))
        clean(self.log, self.disk, self.wall_ms, map_bytes=map_bytes)

    def reopen(self, forgets_snapshots: bool) -> None:
        dirty, flushed = self.log.first_dirty_offset, self.log.flushed_offset
        self.disk = self.disk.crash("killed")
        if forgets_snapshots and not self.start:  # else they alone know what was deleted
            for name in self.disk.list(DIRECTORY):
                if name.endswith(".snapshot"):
                    self.disk.remove(f"{DIRECTORY}/{name}")
        self.log = open_log(
            self.disk,
            DIRECTORY,
            CONFIG,
            "killed",
            recovery_point=flushed,
            log_start=self.start,
            wall_ms=self.wall_ms,
        )
        self.log.first_dirty_offset = dirty

    def delete(self, share: float) -> None:
        """DeleteRecords; whoever reads may come too late for what was there."""
        offset = int(self.stable_end * share)
        if offset > self.start:
            self.start = offset
            for doomed in self.log.advance_log_start(offset, self.wall_ms):
                doomed.remove_job().run(self.disk)
            self.reader = None

    def start_reading(self, share: float) -> None:
        self.finish_reading()
        self.reader = Reader(self.wall_ms, self.start)
        self._read(self.reader, self.start + int((self.stable_end - self.start) * share))

    def finish_reading(self) -> None:
        reader, self.reader = self.reader, None
        if reader is not None:
            self._read(reader, self.stable_end)
            assert reader.state == self.newest()

    def _read(self, reader: Reader, limit: int) -> None:
        """One fetch after the other, each of one segment at most."""
        while reader.offset < limit:
            span = self.log.read(reader.offset, max_bytes=400, limit_offset=limit, at_least_one=True)
            if span is None:
                return
            data = split(span.read())
            last = HEADER.unpack_from(data[-1])
            aborted = self.log.aborted_transactions(reader.offset, last[0] + last[6] + 1)
            for batch in data:
                self._read_batch(reader, batch, aborted)

    @staticmethod
    def _read_batch(reader: Reader, batch: bytes, aborted: list[tuple[int, int]]) -> None:
        base, _, _, _, _, attributes, delta, _, _, producer = HEADER.unpack_from(batch)[:10]
        stored = rows_of(batch)
        if attributes & CONTROL:
            if stored and stored[0].key == b"\0\0\0\0":
                aborted[:] = [one for one in aborted if one[0] != producer or one[1] > base]
        elif not (
            attributes & TRANSACTIONAL and any(one[0] == producer and one[1] <= base for one in aborted)
        ):
            for row in stored:
                if row.offset >= reader.offset and row.value is None:
                    reader.state.pop(row.key or b"", None)
                elif row.offset >= reader.offset:
                    reader.state[row.key or b""] = row.value or b""
        reader.offset = base + delta + 1

    # --- what must be true ---------------------------------------------------------------------------------

    @property
    def stable_end(self) -> int:
        return min([self.end, *self.open.values()])

    def newest(self) -> Keyed:
        state: Keyed = {}
        for offset, one in self.written.items():
            if offset < self.start or offset >= self.stable_end or not one.is_committed:
                continue
            key = one.row.key or b""
            if one.row.value is None:
                state.pop(key, None)
            else:
                state[key] = one.row.value
        return state

    def judge(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        assert log.last_stable_offset(self.end) == max(self.stable_end, self.start)
        for row in rows(log):
            assert row == self.written[row.offset].row
        reader = Reader(self.wall_ms, self.start)
        self._read(reader, self.stable_end)
        assert reader.state == self.newest()
        found = rows(log, with_control=True)
        for row in found:
            at_or_after = log.offset_for_timestamp(row.timestamp, self.end)
            assert at_or_after is not None
            visible = [one for one in found if one.timestamp >= row.timestamp]
            assert (at_or_after.offset, at_or_after.timestamp) == (visible[0].offset, visible[0].timestamp)
        largest = log.max_timestamp(self.end)
        if found:
            top = max(found, key=lambda row: row.timestamp)
            assert largest is not None
            assert (largest.offset, largest.timestamp) == (top.offset, top.timestamp)


ACTS: dict[str, Callable[..., None]] = {
    "put": Story.put,
    "transact": Story.transact,
    "idempotent": Story.idempotent,
    "end": Story.end_transaction,
    "roll": Story.roll,
    "wait": Story.wait,
    "clean": Story.clean,
    "reopen": Story.reopen,
    "start reading": Story.start_reading,
    "finish reading": Story.finish_reading,
    "delete": Story.delete,
}


def told(operations: Iterable[tuple[Any, ...]]) -> None:
    story = Story()
    for name, *arguments in operations:
        ACTS[name](story, *arguments)
    story.finish_reading()
    story.judge()
    for producer in list(story.open):
        story.end_transaction(producer, COMMIT)
    for _ in range(3):
        story.clean(1 << 20)
        story.wait(RETENTION_MS)
        story.judge()
    story.reopen(True)
    story.judge()
    keys = [one.key for one in rows(story.log)]
    assert len(keys) == len(set(keys)), "after the last pass there is one record of each key"


@settings(max_examples=40, deadline=None)
@given(st.lists(operation, min_size=30, max_size=90))
def test_any_story_ends_with_the_newest_values(operations: list[tuple[Any, ...]]) -> None:
    told(operations)


def random_steps(rng: Random) -> Iterator[tuple[Any, ...]]:
    """A long story in which everything comes often enough to meet everything else."""
    for _ in range(80):
        pairs = tuple((rng.choice(KEYS), rng.random() < 0.4) for _ in range(rng.randint(1, 3)))
        producer = rng.choice(PRODUCERS)
        stories: dict[tuple[Any, ...], float] = {
            ("put", pairs, rng.randrange(5)): 3,
            ("transact", producer, pairs): 3,
            ("idempotent", pairs): 1,
            ("end", producer, rng.choice([COMMIT, ABORT])): 2,
            ("roll",): 1,
            ("wait", rng.randint(1, 30)): 2,
            ("clean", rng.choice([1, 400])): 1,
            ("clean", 1 << 20): 2,
            ("reopen", rng.random() < 0.5): 0.5,
            ("start reading", rng.random()): 2,
            ("finish reading",): 1,
            ("delete", rng.random() / 4): 0.2,
        }
        yield rng.choices(list(stories), list(stories.values()))[0]


def test_random_stories() -> None:
    for seed in range(150):
        try:
            told(random_steps(Random(seed)))
        except Exception as problem:
            raise AssertionError(f"seed {seed}: {problem!r}") from problem
