"""Filter pushdown: bounds on topic, partition, offset and timestamp from a batch query's filters.

Spark evaluates every filter itself as well. These bounds only shorten the ranges that tasks read, and may
ignore any filter that they do not understand. Of timestamps only lower bounds are used, because timestamps
need not rise with offsets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from headrace.spark.ranges import Range


@dataclass(slots=True)
class Bounds:
    """Every row that the query wants satisfies all of them."""

    offset_min: int | None = None
    offset_end: int | None = None  # exclusive
    since_ms: int | None = None
    partitions: frozenset[int] | None = None
    topics: frozenset[str] | None = None
    prefix: str = field(default="", kw_only=True)  # of Kafka's columns

    def add(self, filters: Iterable[Any]) -> None:
        """Add Spark's filters, which are recognized by the names of their classes."""
        for each in filters:
            path: tuple[str, ...] = getattr(each, "attribute", ())
            if len(path) != 1 or not path[0].startswith(self.prefix):
                continue
            kind, value = type(each).__name__, getattr(each, "value", None)
            match path[0].removeprefix(self.prefix):
                case "offset":
                    self._add_offset(kind, value)
                case "timestamp":
                    self._add_timestamp(kind, value)
                case "partition":
                    self.partitions = _intersection(self.partitions, kind, value)
                case "topic":
                    self.topics = _intersection(self.topics, kind, value)

    def _add_offset(self, kind: str, value: Any) -> None:
        match kind:
            case "EqualTo" | "EqualNullSafe" if isinstance(value, int):
                self._add_offsets(value, value + 1)
            case "GreaterThan" if isinstance(value, int):
                self._add_offsets(value + 1, None)
            case "GreaterThanOrEqual" if isinstance(value, int):
                self._add_offsets(value, None)
            case "LessThan" if isinstance(value, int):
                self._add_offsets(None, value)
            case "LessThanOrEqual" if isinstance(value, int):
                self._add_offsets(None, value + 1)
            case "In" if value and all(isinstance(one, int) for one in value):
                self._add_offsets(min(value), max(value) + 1)

    def _add_offsets(self, least: int | None, end: int | None) -> None:
        if least is not None:
            self.offset_min = max(self.offset_min or 0, least)
        if end is not None:
            self.offset_end = end if self.offset_end is None else min(self.offset_end, end)

    def _add_timestamp(self, kind: str, value: Any) -> None:
        if kind not in ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual"):
            return
        if isinstance(value, datetime) and value.tzinfo is not None:
            since_ms = int(value.timestamp() * 1000)  # rounded down: Spark drops the extra rows
            self.since_ms = max(self.since_ms or 0, since_ms)

    def narrow(self, ranges: Iterable[Range]) -> list[Range]:
        """Shorten the ranges by all bounds except the timestamp."""
        found: list[Range] = []
        for each in ranges:
            if self.topics is not None and each.partition.topic not in self.topics:
                continue
            if self.partitions is not None and each.partition.partition not in self.partitions:
                continue
            start = each.start if self.offset_min is None else max(each.start, self.offset_min)
            end = each.end if self.offset_end is None else min(each.end, self.offset_end)
            if start < end:
                found.append(Range(each.partition, start, end))
        return found


def _intersection(known: frozenset[Any] | None, kind: str, value: Any) -> frozenset[Any] | None:
    if kind in ("EqualTo", "EqualNullSafe"):
        allowed = frozenset([value])
    elif kind == "In":
        allowed = frozenset(value)
    else:
        return known
    return allowed if known is None else known & allowed
