"""Tables of pyarrow as records: slices share buffers, columns have nulls, and nothing is lost on the way."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow
import pytest

from harness.producer_stage import TOPIC, NobodyWaits, Stage
from headrace.client.errors import InvalidInput
from headrace.client.producing.arrow import slices
from headrace.records._accumulator import Accumulator
from headrace.records.batch import check_crc
from headrace.records.reader import read_rows

ROWS = 300


def accumulator() -> Accumulator:
    made = Accumulator(NobodyWaits(), lambda crossing: crossing.candidates[0], batch_bytes=2000)
    made.learn(TOPIC, [True])
    return made


def taken(table: pyarrow.Table, **columns: Any) -> list[tuple[Any, ...]]:
    """(timestamp, key, value) of all records that the table becomes."""
    made = accumulator()
    for piece in slices(table, **columns):
        count, _ = made.append_columns(
            0.0, TOPIC, 0, piece.row_count, piece.keys, piece.values, piece.timestamps, 77, 0
        )
        assert count == piece.row_count
    found: list[tuple[Any, ...]] = []
    for lane in made.busy:
        for batch in lane.waiting:
            view = bytes(batch.seal(0, None, False))
            found += [row[1:4] for row in read_rows(view, 0, check_crc(view))]
    return found


KEYS = [None if number % 3 == 0 else f"k{number}" for number in range(ROWS)]
VALUES = [None if number % 5 == 0 else b"v" * (number % 40) for number in range(ROWS)]


def expected(first: int, last: int) -> list[tuple[Any, ...]]:
    return [(77, key and key.encode(), value) for key, value in zip(KEYS, VALUES, strict=True)][first:last]


@pytest.mark.parametrize("text", [pyarrow.string(), pyarrow.large_string()])
@pytest.mark.parametrize("binary", [pyarrow.binary(), pyarrow.large_binary()])
def test_text_and_bytes_go_as_they_are(text: Any, binary: Any) -> None:
    table = pyarrow.table({"k": pyarrow.array(KEYS, text), "v": pyarrow.array(VALUES, binary)})
    assert taken(table, key="k", value="v") == expected(0, ROWS)


@pytest.mark.parametrize(("first", "last"), [(0, 0), (1, 2), (5, 13), (8, ROWS), (ROWS - 1, ROWS)])
def test_a_part_of_a_table_is_that_part(first: int, last: int) -> None:
    table = pyarrow.table({"k": KEYS, "v": pyarrow.array(VALUES, pyarrow.binary())})
    assert taken(table.slice(first, last - first), key="k", value="v") == expected(first, last)


def test_a_table_of_many_chunks_keeps_its_order() -> None:
    table = pyarrow.table({"k": KEYS, "v": pyarrow.array(VALUES, pyarrow.binary())})
    chunked = pyarrow.concat_tables([table.slice(start, 7) for start in range(0, ROWS, 7)])
    assert taken(chunked, key="k", value="v") == expected(0, ROWS)


def test_timestamps_come_from_a_column() -> None:
    moments = [datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 1, 999_999, tzinfo=UTC)]
    for kind in (pyarrow.timestamp("us", "UTC"), pyarrow.timestamp("ns", "UTC"), pyarrow.timestamp("ms")):
        column = pyarrow.array(moments, pyarrow.timestamp("us", "UTC")).cast(kind, safe=False)
        table = pyarrow.table({"value": ["a", "b"], "at": column})
        times = [row[0] for row in taken(table, timestamp="at")]
        assert times == [1_767_225_600_000, 1_767_225_601_999]
    table = pyarrow.table({"value": ["a", "b", "c"], "at": [1, 2, 3]}).slice(1)
    assert [row[0] for row in taken(table, timestamp="at")] == [2, 3]


def test_what_cannot_be_written_is_told() -> None:
    table = pyarrow.table({"value": ["a"], "number": [5], "maybe": pyarrow.array([None], pyarrow.int64())})
    with pytest.raises(InvalidInput, match="no column 'x'"):
        taken(table, value="x")
    with pytest.raises(InvalidInput, match="int64; cast it"):
        taken(table, value="number")
    with pytest.raises(InvalidInput, match="neither timestamp"):
        taken(table, timestamp="value")
    with pytest.raises(InvalidInput, match="nulls"):
        taken(table, timestamp="maybe")


def test_a_table_arrives_and_each_batch_tells_when() -> None:
    stage = Stage(linger_s=0.0, batch_bytes=500)
    stage.learn_topic()
    table = pyarrow.table({"value": [f"row {number}" for number in range(ROWS)]})
    heard: list[int] = []
    for piece in slices(table):
        count, batches = stage.accumulator.append_columns(
            stage.now, TOPIC, 0, piece.row_count, piece.keys, piece.values, None, 77, 1
        )
        assert count == ROWS
        assert sum(batch.count for batch in batches) == ROWS
        heard += [batch.count for batch in batches]
    stage.settle()
    assert stage.values(1) == [b"row %d" % number for number in range(ROWS)]
    assert len(heard) > 1
