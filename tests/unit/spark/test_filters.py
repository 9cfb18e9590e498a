"""Filters make ranges shorter, never too short."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.client.cluster import TopicPartition
from headrace.spark.filters import Bounds
from headrace.spark.ranges import Range

A, B = TopicPartition("a", 0), TopicPartition("b", 1)
ALL = [Range(A, 0, 100), Range(B, 50, 60)]


@dataclass
class Filter:
    attribute: tuple[str, ...]
    value: Any = None


def made(kind: str, name: str, value: Any = None) -> Any:
    """As Spark's filters are: told apart by the names of their classes."""
    return type(kind, (Filter,), {})((name,), value)


def narrowed(*filters: Any) -> list[Range]:
    bounds = Bounds()
    bounds.add(filters)
    return bounds.narrow(ALL)


@pytest.mark.parametrize(
    ("kind", "value", "start", "end"),
    [
        ("EqualTo", 55, 55, 56),
        ("GreaterThan", 55, 56, 60),
        ("GreaterThanOrEqual", 55, 55, 60),
        ("LessThan", 55, 50, 55),
        ("LessThanOrEqual", 55, 50, 56),
        ("In", (57, 52), 52, 58),
    ],
)
def test_offsets(kind, value, start, end):
    assert narrowed(made(kind, "offset", value))[-1] == Range(B, start, end)


def test_all_filters_hold():
    assert narrowed(made("GreaterThan", "offset", 10), made("LessThan", "offset", 12)) == [Range(A, 11, 12)]
    assert narrowed(made("GreaterThan", "offset", 10), made("GreaterThan", "offset", 5))[0] == Range(
        A, 11, 100
    )
    assert narrowed(made("LessThan", "offset", 0)) == []


def test_partitions_and_topics():
    assert narrowed(made("EqualTo", "partition", 1)) == [ALL[1]]
    assert narrowed(made("In", "topic", ("a", "c"))) == [ALL[0]]
    assert narrowed(made("In", "topic", ("a", "c")), made("EqualTo", "partition", 1)) == []


def test_what_is_not_understood_changes_nothing():
    nested = Filter(("value", "offset"), 5)
    assert (
        narrowed(made("Not", "offset"), made("IsNotNull", "offset"), made("EqualTo", "key", b"x"), nested)
        == ALL
    )
    assert narrowed(made("GreaterThan", "partition", 0)) == ALL


def test_times_count_from_below():
    bounds = Bounds()
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    bounds.add([made("LessThan", "timestamp", moment)])
    assert bounds.since_ms is None
    bounds.add(
        [
            made("GreaterThan", "timestamp", moment),
            made("GreaterThan", "timestamp", moment.replace(year=2030, tzinfo=None)),
        ]
    )
    assert bounds.since_ms == moment.timestamp() * 1000
    assert bounds.narrow(ALL) == ALL


def test_prefixed_columns():
    bounds = Bounds(prefix="_")
    bounds.add([made("EqualTo", "partition", 0), made("EqualTo", "_partition", 1)])
    assert bounds.narrow(ALL) == [ALL[1]]
