"""A topic and its table, as tests use them: copy, look, verify."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace
from harness.outsider import read_outside
from headrace.lake.copying import Copied, Copier
from headrace.lake.enabling import enable
from headrace.lake.formats import table_at
from headrace.lake.report import Report
from headrace.lake.table import Snapshot
from headrace.lake.topic import LakeTopic
from headrace.lake.verifying import verify
from headrace.machines.lake.ledger import Held

Fill = Callable[..., None]


class Lake:
    def __init__(
        self, path: Path, topic: str, admin: headrace.Admin, bootstrap: str, format: str = "delta"
    ) -> None:
        self.path = path
        self.admin = admin
        self.format = format
        self.lake = table_at(path, format)
        self.topic = LakeTopic(admin, {"bootstrap.servers": bootstrap}, topic)

    def copier(self, **more: Any) -> Copier:
        enable(self.lake, self.topic)
        return Copier(self.lake, self.topic, **more)

    def copy(self, **more: Any) -> Copied:
        return self.copier(**more).copy_available()

    def load(self) -> Snapshot:
        return self.lake.load()

    @property
    def ledger(self) -> dict[int, Held]:
        return self.load().ledger

    def rows(self) -> list[tuple[int, int, bytes | None]]:
        """Partition, offset and value of every row, as any reader sees them."""
        found = read_outside(self.path).select(["_partition", "_offset", "_value"]).to_pylist()
        return sorted((row["_partition"], row["_offset"], row["_value"]) for row in found)

    def verify(self, *, full: bool = True) -> Report:
        return verify(self.path, self.load(), self.topic if full else None)

    def faults(self, *, full: bool = False) -> set[str]:
        return {str(found.fault) for found in self.verify(full=full).findings}


def all_rows(count: int, partitions: int = 2) -> list[tuple[int, int, bytes | None]]:
    """What a table has of a topic that `fill` filled."""
    return [
        (partition, number, b"value-%d" % number)
        for partition in range(partitions)
        for number in range(count)
    ]
