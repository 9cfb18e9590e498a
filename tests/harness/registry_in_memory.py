"""A schema registry over a log in memory."""

from __future__ import annotations

import json
from typing import Any

from headrace.machines.schema_registry.records import Record
from headrace.machines.schema_registry.registry import Registry
from headrace.server.registry_rest import answer


class RegistryInMemory:
    """A registry over a log, as the server keeps it."""

    def __init__(self) -> None:
        self.log: list[Record] = []
        self.registry = Registry()

    def ask(self, method: str, target: str, body: Any = None) -> tuple[int, Any]:
        data = b"" if body is None else json.dumps(body).encode()
        before = repr(self.registry.state())
        found = answer(self.registry, method, target, data)
        assert repr(self.registry.state()) == before, "deciding changes nothing"
        for record in found.records:
            self.log.append(record)
            self.registry.replay(record)
        self.registry.check()
        return found.status, json.loads(found.body)

    def rebuilt(self, log: list[Record] | None = None) -> Registry:
        registry = Registry()
        for record in self.log if log is None else log:
            registry.replay(record)
        return registry

    def restart_from(self, log: list[Record]) -> None:
        self.log = log
        self.registry = self.rebuilt()

    def compacted(self) -> list[Record]:
        """What compaction leaves: the last record of each key, tombstones gone too."""
        last = {record.key: number for number, record in enumerate(self.log)}
        return [
            record
            for number, record in enumerate(self.log)
            if last[record.key] == number and record.value is not None
        ]
