"""What a flow's plan reads and does: datasets, sources, state and watermarks.

A plan is the message that Spark Connect sends, as a dictionary (protobuf's JSON form). Nothing is analyzed
and nothing is read for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from headrace.pipelines.sql_files import tables_of

# Operators that keep state between micro-batches, if their input is a stream.
STATEFUL = {
    "aggregate": "aggregation",
    "deduplicate": "deduplication",
    "join": "join",
    "groupMap": "state per group",
    "transformWithStateInPandas": "state per group",
}
SECRETS = ("password", "secret", "token", "keystore", "jaas", "key.pem")


@dataclass(frozen=True, slots=True)
class DatasetRead:
    """A read of another dataset of the graph, or of a table outside it."""

    name: str
    is_stream: bool


@dataclass(frozen=True, slots=True)
class SourceRead:
    """A read of something outside the graph."""

    format: str
    what: str  # topics or path
    is_stream: bool


@dataclass(slots=True)
class PlanFacts:
    datasets: list[DatasetRead] = field(default_factory=list)
    sources: list[SourceRead] = field(default_factory=list)
    state: list[str] = field(default_factory=list)
    watermarks: list[tuple[str, str]] = field(default_factory=list)  # column, delay

    @property
    def reads_stream(self) -> bool:
        return any(one.is_stream for one in self.datasets) or any(one.is_stream for one in self.sources)


def facts_of(plan: dict[str, Any]) -> PlanFacts:
    facts = PlanFacts()
    for kind, node in _nodes(plan):
        match kind:
            case "read":
                _add_read(facts, node)
            case "sql":
                for name, is_stream in tables_of(node.get("query", "")):
                    _add(facts.datasets, DatasetRead(name, is_stream))
            case "withWatermark":
                facts.watermarks.append((node.get("eventTime", "?"), node.get("delayThreshold", "?")))
            case _ if kind in STATEFUL:
                _add(facts.state, STATEFUL[kind])
    return facts


def _nodes(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if isinstance(inner, dict):
                yield name, inner
            yield from _nodes(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _nodes(inner)


def _add_read(facts: PlanFacts, node: dict[str, Any]) -> None:
    is_stream = bool(node.get("isStreaming"))
    table, source = node.get("namedTable"), node.get("dataSource")
    if table is not None:
        _add(facts.datasets, DatasetRead(plain_name(table.get("unparsedIdentifier", "")), is_stream))
    elif source is not None:
        _add(facts.sources, SourceRead(source.get("format", "?"), _what(source), is_stream))


def _what(source: dict[str, Any]) -> str:
    options = {name.lower(): text for name, text in source.get("options", {}).items()}
    for name in ("subscribe", "subscribepattern", "assign", "path", "dbtable"):
        if name in options:
            return str(options[name])
    return ", ".join(source.get("paths", [])) or "?"


def _add(found: list[Any], one: Any) -> None:
    if one not in found:
        found.append(one)


def plain_name(identifier: str) -> str:
    """`default`.`clicks` → clicks: datasets of one pipeline have one database."""
    return identifier.replace("`", "").rpartition(".")[2]
