"""What the tests of the accumulator have in common: a record put in, a batch read back."""

from __future__ import annotations

from typing import Any

from headrace.records.batch import check_crc
from headrace.records.reader import read_rows


def rows_of(batch: Any) -> list[tuple[int, int, bytes | None, bytes | None, Any]]:
    view = bytes(batch.seal(0, None, False))
    return read_rows(view, 0, check_crc(view))


def put(accumulator: Any, value: bytes | bytearray | str | None, **more: Any) -> Any:
    asked = {"key": None, "headers": (), "partition": -1, "timestamp": 1000, "now": 0.0} | more
    return accumulator.append(
        asked["now"], "t", asked["key"], value, asked["headers"], asked["partition"], asked["timestamp"]
    )


def first_candidate(topic_queues: Any) -> Any:
    """A die that gives each queue its turn."""
    topic_queues.turn += 1
    return topic_queues.candidates[(topic_queues.turn - 1) % len(topic_queues.candidates)]
