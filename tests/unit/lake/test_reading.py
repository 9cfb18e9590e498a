"""Rows are read by partition and offset: from the table, from table and topic as one, as records again."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from harness.lake_topic import FIRST_MS, TableOfTopic, TopicInMemory, rows
from headrace.lake.errors import NotALakeTable, RecordsLost, TopicTruncated, WrongTable
from headrace.lake.messages import messages
from headrace.lake.optimizing import Optimizer
from headrace.lake.reading import read_rows
from headrace.lake.stitching import read_stitched
from headrace.lake.table_files import file_rows, table_files, table_schema


@pytest.fixture
def topic() -> TopicInMemory:
    return TopicInMemory()


@pytest.fixture
def table(tmp_path: Path, topic: TopicInMemory, format: str) -> TableOfTopic:
    topic.fill(6)
    table = TableOfTopic(tmp_path / "table", topic, format)
    table.copy(offsets_per_commit=4)
    return table


def places(tables: Iterable[pa.Table]) -> list[tuple[int, int]]:
    return [(row["_partition"], row["_offset"]) for table in tables for row in table.to_pylist()]


@pytest.mark.parametrize("is_compacted", [False, True])
def test_rows_come_in_the_order_of_the_topic(table: TableOfTopic, is_compacted: bool) -> None:
    if is_compacted:
        Optimizer(table.lake).compact()
    snapshot = table.load()
    assert places(read_rows(table.path, snapshot)) == [(at, offset) for at in (0, 1) for offset in range(6)]
    some = read_rows(table.path, snapshot, partitions=[1], start=3, end=5)
    assert places(some) == [(1, 3), (1, 4)]
    assert places(read_rows(table.path, snapshot, start=6)) == []


def test_table_and_topic_are_one(table: TableOfTopic, topic: TopicInMemory) -> None:
    """The seam is where the snapshot ends, also if more was copied since."""
    snapshot = table.load()
    topic.fill(3)
    topic.trim(0, 6)
    table.copy()
    found = read_stitched(table.path, snapshot, topic.as_topic())
    assert places(found) == [(at, offset) for at in (0, 1) for offset in range(9)]
    some = read_stitched(table.path, snapshot, topic.as_topic(), partitions=[1], start=5, end=8)
    assert places(some) == [(1, 5), (1, 6), (1, 7)]


def test_a_gap_between_table_and_topic_is_an_error(table: TableOfTopic, topic: TopicInMemory) -> None:
    snapshot = table.load()
    topic.fill(3)
    topic.trim(0, 7)
    with pytest.raises(RecordsLost, match="offsets 6 to 6 of partition 0"):
        list(read_stitched(table.path, snapshot, topic.as_topic()))
    topic.trim(0, 0)
    topic.cut(1, 4)
    with pytest.raises(TopicTruncated, match="offsets 4 to 5 of partition 1, but topic 'clicks' ends before"):
        list(read_stitched(table.path, snapshot, topic.as_topic()))


def test_rows_are_records_again() -> None:
    one, other = messages(rows(1, {7: b"x", 8: None}), "clicks")
    assert (one.topic, one.partition, one.offset, one.timestamp_ms) == ("clicks", 1, 7, FIRST_MS + 7)
    assert (one.key, one.value, one.headers) == (b"key-7", b"x", (("number", b"7"),))
    assert other.value is None
    table = rows(1, {7: b"x"})
    index = table.column_names.index("_timestamp")
    empty = pa.nulls(1, table.schema.field(index).type)
    (unknown,) = messages(table.set_column(index, table.schema.field(index), empty), "clicks")
    assert unknown.timestamp_ms == -1


def test_files_of_any_table(tmp_path: Path) -> None:
    from deltalake import write_deltalake

    path = tmp_path / "any"
    with pytest.raises(NotALakeTable, match="there is no Delta table at"):
        table_files(path)
    write_deltalake(str(path), pa.table({"x": [1, 2]}))
    (name,) = table_files(path)
    wider = pa.schema([("note", pa.string()), ("x", pa.int64())])
    assert table_schema(path).names == ["x"]
    (found,) = file_rows(path / name, wider)
    assert found.to_pylist() == [{"note": None, "x": 1}, {"note": None, "x": 2}]


def test_a_table_whose_files_have_other_names_for_its_columns_is_not_read(tmp_path: Path) -> None:
    properties = {"delta.enableDeletionVectors": "true"}
    DeltaTable.create(str(tmp_path), pa.schema([("x", pa.int64())]), configuration=properties)
    with pytest.raises(WrongTable, match="lets rows be deleted without a change of their file"):
        table_files(tmp_path)
