"""A log on a disk in memory, and short words for what the tests do with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from headrace.records.builder import build_batch, end_marker
from headrace.records.reader import batches
from headrace.storage.config import LogConfig
from headrace.storage.disk import Disk
from headrace.storage.log import Appended, PartitionLog
from headrace.storage.memory_disk import MemoryDisk
from headrace.storage.open_files import OpenFiles
from headrace.storage.recovery import Recovery, Trust

WALL_MS = 1_700_000_000_000


@dataclass
class Scene:
    config: LogConfig = field(default_factory=LogConfig)
    disk: Disk = field(default_factory=MemoryDisk)
    files: OpenFiles = field(default_factory=OpenFiles)
    wall_ms: int = WALL_MS
    log: PartitionLog = field(init=False)

    def open(
        self, trust: Trust = "clean", *, recovery_point: int = 0, log_start: int = 0, **options: Any
    ) -> PartitionLog:
        self.log = PartitionLog.open(
            self.disk,
            "orders-0",
            self.config,
            files=self.files,
            recovery=Recovery(trust, recovery_point, log_start),
            wall_ms=self.wall_ms,
            **options,
        )
        return self.log

    def batch(self, count: int = 1, *, size: int = 10, timestamp: int | None = None, **options: Any) -> bytes:
        first = self.wall_ms if timestamp is None else timestamp
        return build_batch([(first, b"key", bytes(size), ())] * count, **options)

    def append(self, count: int = 1, *, leader_epoch: int = 0, **options: Any) -> Appended:
        return self.send(self.batch(count, **options), leader_epoch=leader_epoch)

    def send(self, batch: bytes, *, leader_epoch: int = 0, from_client: bool = True) -> Appended:
        return self.log.append(
            memoryview(bytearray(batch)),
            wall_ms=self.wall_ms,
            leader_epoch=leader_epoch,
            from_client=from_client,
        )

    def write(
        self, producer_id: int, sequence: int, count: int = 1, *, epoch: int = 0, transactional: bool = False
    ) -> Appended:
        return self.append(
            count,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )

    def end(
        self, producer_id: int, *, committed: bool, epoch: int = 0, coordinator_epoch: int = 0
    ) -> Appended:
        marker = end_marker(
            committed=committed,
            coordinator_epoch=coordinator_epoch,
            producer_id=producer_id,
            producer_epoch=epoch,
            timestamp=self.wall_ms,
        )
        return self.send(marker, from_client=False)

    def flush(self) -> None:
        job = self.log.flush_job()
        if job is not None:
            self.log.complete_flush(job.run(self.disk))

    def bases(self, *, limit: int | None = None) -> list[int]:
        """Base offsets of all batches, read as a consumer would."""
        offset = self.log.log_start_offset
        found: list[int] = []
        limit = self.log.log_end_offset if limit is None else limit
        while True:
            span = self.log.read(offset, max_bytes=1000, limit_offset=limit, at_least_one=True)
            if span is None:
                return found
            for _, header in batches(span.read()):
                found.append(header.base_offset)
                offset = header.next_offset

    def names(self, suffix: str = "") -> list[str]:
        return [name for name in self.disk.list("orders-0") if name.endswith(suffix)]

    def content(self, name: str) -> bytes:
        file = self.disk.open(f"orders-0/{name}")
        try:
            return file.read(0, file.size())
        finally:
            file.close()


@pytest.fixture
def scene() -> Scene:
    return Scene()
