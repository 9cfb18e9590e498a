"""Logs that are written, stopped and packed in any order, with one damage at rest in the middle of it.

Whatever is damaged and however the log is opened again: every batch that is whole is read at its offset, and
no offset that a damaged batch had is given to other records unless the damage looks like a torn write.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from harness.log_directories import open_log_directory
from headrace.records.builder import build_batch
from headrace.records.errors import BadRecords
from headrace.records.reader import batches, read_rows
from headrace.storage.config import LogConfig
from headrace.storage.errors import DamagedBatch, DamagedLog
from headrace.storage.log import PartitionLog
from headrace.storage.log_directory import LogDirectory
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.open_files import OpenFiles

WALL_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(16, 32))
KEY = ("t", 0)
SEEDS = int(os.environ.get("HEADRACE_FUZZ_CASES", "150"))
FOUND = (6, 281, 326, 1812, 2448, 2614, 2659)  # histories that went wrong once

Rows = tuple[int, list[bytes | None]]  # the last offset, and the values


class Unknowable(Exception):
    """Nobody can tell any more where the log ends: it refuses, or takes the damage for a torn write."""


class History:
    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(seed)
        self.config = LogConfig(
            segment_bytes=rng.choice([600, 2000, 10**6]),
            index_interval_bytes=rng.choice([50, 200, 4096]),
            retention_ms=-1,
            flush_messages=rng.choice([1, 2**63 - 1]),
            sealed_compression_type=rng.choice(["zstd", "", ""]),
        )
        self.disk = MemoryDisk()
        self.boots = 1
        self.acknowledged: dict[int, Rows] = {}
        self.end_offset = 0
        self.damaged: set[int] = set()  # base offsets
        self.directory: LogDirectory
        self.log: PartitionLog
        self.open()

    def open(self) -> None:
        self.directory = open_log_directory(
            self.disk,
            "data",
            node_id=1,
            cluster_id="cluster",
            directory_id_if_new=bytes(range(16)),
            boot_id=f"boot-{self.boots}",
            files=OpenFiles(),
        )
        try:
            self.log = self.directory.open_log(*KEY, TOPIC_ID, self.config, WALL_MS)
        except DamagedLog as refusal:
            raise Unknowable from refusal

    def step(self) -> None:
        steps = [self.append] * 5 + [self.flush, self.checkpoint, self.kill, self.stop, self.lose]
        self.rng.choice([*steps, self.recompress, self.damage])()
        self.check()

    def append(self) -> None:
        for _ in range(self.rng.randrange(1, 8)):
            number = len(self.acknowledged)
            value = b"%d" % number * self.rng.randrange(1, 30) + b"\2" * self.rng.randrange(60)
            rows = [(WALL_MS, b"k", value, ())] * self.rng.randrange(1, 4)
            batch = memoryview(bytearray(build_batch(rows)))
            appended = self.log.append(batch, wall_ms=WALL_MS, leader_epoch=0)
            assert appended.base_offset >= self.end_offset
            self.acknowledged[appended.base_offset] = (appended.last_offset, [row[2] for row in rows])
            self.end_offset = appended.last_offset + 1

    def flush(self) -> None:
        job = self.log.flush_job()
        if job is not None:
            self.log.complete_flush(job.run(self.disk))

    def checkpoint(self) -> None:
        self.log.checkpoint(WALL_MS)
        self.directory.checkpoint({KEY: self.log.log_end_offset})

    def recompress(self) -> None:
        job = self.log.recompress_job()
        if job is not None:
            self.log.complete_recompression(job.run(self.disk))

    # --- ends --------------------------------------------------------------------------------------------

    def kill(self) -> None:
        self.disk = self.disk.crash("killed")
        self.open()
        if self.log.log_end_offset < self.end_offset:
            cut = {base for base in self.acknowledged if base >= self.log.log_end_offset}
            assert cut <= self.damaged
            raise Unknowable
        assert self.log.log_end_offset == self.end_offset

    def stop(self) -> None:
        self.directory.close_clean({KEY: self.log.log_end_offset})
        self.boots += self.rng.randrange(2)
        self.kill()

    def lose(self) -> None:
        """After a flush, so that nothing may be missing but what was damaged, and what lies behind that above
        the recovery point.
        """
        self.flush()
        self.boots += 1
        self.disk = self.disk.crash("lost", self.rng)
        self.open()
        if self.log.log_end_offset < self.end_offset:
            assert self.damaged
            assert max(self.damaged) >= self.log.log_end_offset
            raise Unknowable
        assert self.log.log_end_offset == self.end_offset

    def damage(self) -> None:
        """Once. The log is opened again then: what is damaged while it is open is another matter."""
        if self.damaged:
            return
        rng = self.rng
        names = sorted(name for name in self.disk.list("t-0") if name.endswith(".log"))
        path = f"t-0/{rng.choice(names)}" if names else ""
        size = self.disk.open(path).size() if names else 0
        if not size:
            return
        first = rng.randrange(size)
        count = min(size - first, rng.choice([1, 1, 4, 20, 100]))
        for position, header in batches(self.disk.open(path).read(0, size)):
            if position < first + count and position + header.size > first:
                self.damaged.add(header.base_offset)
        for position in range(first, first + count):
            self.disk.flip(path, position, rng.randrange(1, 256))
        self.kill()

    # --- reading -----------------------------------------------------------------------------------------

    def check(self) -> None:
        """Read as a patient consumer does, who goes on behind what cannot be read."""
        found: dict[int, Rows] = {}
        offset = 0
        while offset < self.log.log_end_offset:
            offset = max(self.read(offset, found), offset + 1)
        assert found.keys() <= self.acknowledged.keys()
        for base, rows in self.acknowledged.items():
            if base not in self.damaged:
                assert found.get(base) == rows

    def read(self, offset: int, found: dict[int, Rows]) -> int:
        end = self.log.log_end_offset
        max_bytes = self.rng.choice([1, 300, 10**6])
        try:
            span = self.log.read(offset, max_bytes=max_bytes, limit_offset=end, at_least_one=True)
        except DamagedBatch:
            return offset + 1
        data = span.read() if span is not None else b""
        try:
            for position, header in batches(data):
                if header.base_offset > offset or header.last_offset >= end:
                    break  # its offset is damaged: it is outside of the checksum
                values = [row[3] for row in read_rows(data, position, header)]
                found[header.base_offset] = (header.last_offset, values)
                offset = max(offset, header.next_offset)
        except BadRecords:
            return offset
        return offset


@pytest.mark.parametrize("seed", sorted({*FOUND, *range(SEEDS)}))
def test_a_damage_in_any_history_costs_only_what_it_hit(seed: int) -> None:
    history = History(seed)
    try:
        for _ in range(history.rng.randrange(5, 25)):
            history.step()
    except Unknowable:
        return
