"""What a query's filters say about offsets, so that tasks do not read what would be thrown away.

Spark evaluates every filter itself as well: these only make ranges shorter, and may leave out any that they
do not understand. Times count from below only, since timestamps need not rise with offsets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from headrace.spark.planning import Range


@dataclass(slots=True)
class Bounds:
    """All of them hold for the rows that are wanted."""

    offset_min: int | None = None
    offset_end: int | None = None  # behind the last one
    since_ms: int | None = None
    partitions: frozenset[int] | None = None
    topics: frozenset[str] | None = None
    prefix: str = field(default="", kw_only=True)  # of the columns' names

    def learn(self, filters: Iterable[Any]) -> None:
        """From Spark's filters, by the names of their classes."""
        for each in filters:
            path: tuple[str, ...] = getattr(each, "attribute", ())
            if len(path) != 1 or not path[0].startswith(self.prefix):
                continue
            kind, value = type(each).__name__, getattr(each, "value", None)
            match path[0].removeprefix(self.prefix):
                case "offset":
                    self._learn_offset(kind, value)
                case "timestamp":
                    self._learn_time(kind, value)
                case "partition":
                    self.partitions = _both(self.partitions, kind, value)
                case "topic":
                    self.topics = _both(self.topics, kind, value)

    def _learn_offset(self, kind: str, value: Any) -> None:
        match kind:
            case "EqualTo" | "EqualNullSafe" if isinstance(value, int):
                self._between(value, value + 1)
            case "GreaterThan" if isinstance(value, int):
                self._between(value + 1, None)
            case "GreaterThanOrEqual" if isinstance(value, int):
                self._between(value, None)
            case "LessThan" if isinstance(value, int):
                self._between(None, value)
            case "LessThanOrEqual" if isinstance(value, int):
                self._between(None, value + 1)
            case "In" if value and all(isinstance(one, int) for one in value):
                self._between(min(value), max(value) + 1)

    def _between(self, least: int | None, end: int | None) -> None:
        if least is not None:
            self.offset_min = max(self.offset_min or 0, least)
        if end is not None:
            self.offset_end = end if self.offset_end is None else min(self.offset_end, end)

    def _learn_time(self, kind: str, value: Any) -> None:
        if kind not in ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual"):
            return
        if isinstance(value, datetime) and value.tzinfo is not None:
            since_ms = int(value.timestamp() * 1000)  # rounded down: a row more is no harm
            self.since_ms = max(self.since_ms or 0, since_ms)

    def narrowed(self, ranges: Iterable[Range]) -> list[Range]:
        """What of the ranges may hold rows that are wanted, except for times."""
        found: list[Range] = []
        for each in ranges:
            if self.topics is not None and each.at.topic not in self.topics:
                continue
            if self.partitions is not None and each.at.partition not in self.partitions:
                continue
            start = each.start if self.offset_min is None else max(each.start, self.offset_min)
            end = each.end if self.offset_end is None else min(each.end, self.offset_end)
            if start < end:
                found.append(Range(each.at, start, end))
        return found


def _both(known: frozenset[Any] | None, kind: str, value: Any) -> frozenset[Any] | None:
    if kind in ("EqualTo", "EqualNullSafe"):
        allowed = frozenset([value])
    elif kind == "In":
        allowed = frozenset(value)
    else:
        return known
    return allowed if known is None else known & allowed
