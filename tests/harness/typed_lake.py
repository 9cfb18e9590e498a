"""A table with typed columns and its dead letters, of a topic in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.lake_topic import TopicInMemory
from harness.outsider import read_outside
from headrace.lake.copying import Copied, Copier
from headrace.lake.dead_letters import dead_letters_of
from headrace.lake.enabling import enable
from headrace.lake.formats import table_at
from headrace.lake.report import Report
from headrace.lake.typed_rows import TypedRows
from headrace.lake.values import ValueDecoder, ValueFormat
from headrace.lake.verifying import verify
from headrace.schemas import Registry


class TypedLake:
    def __init__(
        self, path: Path, format: ValueFormat, registry: Registry | None = None, table_format: str = "delta"
    ) -> None:
        self.path = path / "table"
        self.dead_path = path / "dead"
        self.lake = table_at(self.path, table_format)
        self.memory = TopicInMemory(1)
        self.topic = self.memory.as_topic()
        self.format = format
        self.registry = registry

    def copier(self, *, dead: bool = True, **more: Any) -> Copier:
        snapshot = enable(
            self.lake, self.topic, values=self.format, dead_letters=self.dead_path if dead else None
        )
        decoder = ValueDecoder(self.format, self.registry)
        typed = TypedRows(self.lake, decoder, dead_letters_of(self.lake, snapshot))
        return Copier(self.lake, self.topic, typed=typed, **more)

    def copy(self, *, dead: bool = True, **more: Any) -> Copied:
        return self.copier(dead=dead, **more).copy_available()

    def verify(self, *, full: bool = True) -> Report:
        decoder = ValueDecoder(self.format, self.registry)
        return verify(
            self.path, self.lake.load(), self.topic if full else None, decoder=decoder if full else None
        )

    def faults(self, *, full: bool = False) -> set[str]:
        return {str(found.fault) for found in self.verify(full=full).findings}

    def rows(self, *names: str) -> list[tuple[Any, ...]]:
        found = read_outside(self.path).select(["_offset", *names]).to_pylist()
        return sorted(tuple(row.values()) for row in found)

    def dead(self) -> list[tuple[int, bytes, str]]:
        found = read_outside(self.dead_path).to_pylist()
        return sorted((row["_offset"], row["_value"], row["_reason"]) for row in found)
