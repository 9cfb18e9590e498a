"""A query with a history reads a lake table up to its ledger and the topic from there, each record once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace
from harness.pyspark_stand_in import ReadAllAvailable, StructType, pyspark_stand_in
from headrace.client.threads.range_reader import DataLost
from headrace.lake.copying import Copier
from headrace.lake.enabling import enable
from headrace.lake.formats import table_at
from headrace.lake.topic import LakeTopic
from headrace.lake.values import ValueFormat
from headrace.spark.errors import InvalidOption
from headrace.spark.history import HistoryTask
from headrace.spark.options import read_options
from headrace.testing import Broker
from headrace.testing.records import Record

RAW = pa.schema(
    [
        *(("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32())),
        *(("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC")), ("timestampType", pa.int32())),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def broker(shared: Broker) -> Broker:
    shared.reset()
    shared.create_topic("clicks", 2, retention_ms=-1)
    return shared


def write(broker: Broker, *numbers: int) -> None:
    """One record to each partition for each number."""
    broker.produce_all(
        "clicks",
        [
            Record(b"v%d" % number, b"k", partition=partition, headers=(("h", b"%d" % number),))
            for number in numbers
            for partition in (0, 1)
        ],
    )


def copy(broker: Broker, table: Path, **more: Any) -> None:
    with headrace.Admin(broker.bootstrap_servers) as admin:
        topic = LakeTopic(admin, {"bootstrap.servers": broker.bootstrap_servers}, "clicks")
        lake = table_at(table)
        enable(lake, topic, **more)
        Copier(lake, topic, offsets_per_commit=2).copy_available()


def trim(broker: Broker, before: int) -> None:
    with headrace.Admin(broker.bootstrap_servers) as admin:
        admin.delete_records({("clicks", 0): before, ("clicks", 1): before})


def options(broker: Broker, table: Path, **more: str) -> dict[str, str]:
    found = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "clicks", **more}
    return {**found, "history": str(table), "includeHeaders": "true"}


def batch(given: dict[str, str]) -> tuple[list[tuple[int, int, bytes]], int]:
    """Partition, offset and value of each row, and how many tasks read the table."""
    with pyspark_stand_in():
        from headrace.spark.source import HeadraceSource

        reader = HeadraceSource(given).reader(StructType(RAW))
        partitions = reader.partitions()
        return rows(reader, partitions), cold(partitions)


def rows(reader: Any, partitions: list[Any]) -> list[tuple[int, int, bytes]]:
    found: list[dict[str, Any]] = []
    for each in partitions:
        for one in reader.read(each):
            assert one.schema == RAW
            found += one.to_pylist()
    assert all(row["topic"] == "clicks" and row["key"] == b"k" for row in found)
    assert all(row["headers"] == [{"key": "h", "value": row["value"][1:]}] for row in found)
    return sorted((row["partition"], row["offset"], row["value"]) for row in found)


def cold(partitions: list[Any]) -> int:
    return sum(isinstance(each.value, HistoryTask) for each in partitions)


def expected(*numbers: int) -> list[tuple[int, int, bytes]]:
    return [(partition, number, b"v%d" % number) for partition in (0, 1) for number in numbers]


def test_a_batch_reads_what_the_topic_no_longer_has(broker: Broker, tmp_path: Path) -> None:
    write(broker, 0, 1, 2, 3, 4)
    copy(broker, tmp_path)
    write(broker, 5, 6)
    trim(broker, 4)
    found, tasks = batch(options(broker, tmp_path))
    assert found == expected(0, 1, 2, 3, 4, 5, 6)
    assert tasks == 2
    some = {
        "startingOffsets": '{"clicks": {"0": 1, "1": 6}}',
        "endingOffsets": '{"clicks": {"0": 4, "1": 7}}',
    }
    found, tasks = batch(options(broker, tmp_path, **some))
    assert found == [(0, 1, b"v1"), (0, 2, b"v2"), (0, 3, b"v3"), (1, 6, b"v6")]
    assert tasks == 1


def test_records_between_table_and_topic_are_a_loss(broker: Broker, tmp_path: Path) -> None:
    write(broker, 0, 1)
    copy(broker, tmp_path)
    write(broker, 2, 3, 4)
    trim(broker, 4)
    with pytest.raises(DataLost, match="Offsets 2 to 3"):
        batch(options(broker, tmp_path))
    found, _ = batch(options(broker, tmp_path, failOnDataLoss="false"))
    assert found == expected(0, 1, 4)


def test_a_stream_begins_in_the_table(broker: Broker, tmp_path: Path) -> None:
    write(broker, 0, 1, 2)
    copy(broker, tmp_path)
    write(broker, 3)
    trim(broker, 3)
    with pyspark_stand_in():
        from headrace.spark.source import HeadraceSource

        reader = HeadraceSource(options(broker, tmp_path)).streamReader(StructType(RAW))
        try:
            start = reader.initialOffset()
            assert {start["clicks"][number] for number in ("0", "1")} == {0}
            middle = {"clicks": {**start["clicks"], "0": 2, "1": 2}}
            first = reader.partitions(start, middle)
            assert (rows(reader, first), cold(first)) == (expected(0, 1), 2)
            end = reader.latestOffset(middle, ReadAllAvailable())
            second = reader.partitions(middle, end)
            assert (rows(reader, second), cold(second)) == (expected(2, 3), 2)
            write(broker, 4)
            third = reader.partitions(end, reader.latestOffset(end, ReadAllAvailable()))
            assert (rows(reader, third), cold(third)) == (expected(4), 0)
        finally:
            reader.stop()


def test_files_are_shared_out_to_tasks_by_their_size(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(broker, 0, 1, 2, 3)
    copy(broker, tmp_path)
    monkeypatch.setattr("headrace.spark.planning.BATCH_BYTES_PER_PARTITION", 1)
    assert batch(options(broker, tmp_path)) == (expected(0, 1, 2, 3), 4)


def test_formats_decode_records_of_the_table_too(broker: Broker, tmp_path: Path) -> None:
    broker.produce_all("clicks", [Record(b'{"n": 7}', partition=0)])
    copy(broker, tmp_path)
    trim(broker, 0)
    schema = pa.schema([("n", pa.int64())])
    with pyspark_stand_in():
        from headrace.spark.source import HeadraceSource

        given = options(broker, tmp_path, valueFormat="json")
        reader = HeadraceSource(given).reader(StructType(schema))
        found = [row for each in reader.partitions() for one in reader.read(each) for row in one.to_pylist()]
    assert found == [{"n": 7}]


def test_a_table_without_all_records_is_refused(broker: Broker, tmp_path: Path) -> None:
    write(broker, 0)
    broker.create_topic("other", 1)
    copy(broker, tmp_path / "raw")
    with pytest.raises(InvalidOption, match="which the query does not read"):
        batch({**options(broker, tmp_path / "raw"), "subscribe": "other"})
    copy(broker, tmp_path / "upsert", upsert=True)
    with pytest.raises(InvalidOption, match="does not have all records"):
        batch(options(broker, tmp_path / "upsert"))
    schema = '{"type": "object", "properties": {"n": {"type": "integer"}}}'
    with headrace.Admin(broker.bootstrap_servers) as admin:
        topic = LakeTopic(admin, {"bootstrap.servers": broker.bootstrap_servers}, "clicks")
        format = ValueFormat("json", schema)
        enable(table_at(tmp_path / "typed"), topic, values=format)
    with pytest.raises(InvalidOption, match="the bytes of all values"):
        batch(options(broker, tmp_path / "typed"))
    broker.delete_topic("clicks")
    broker.create_topic("clicks", 2)
    with pytest.raises(InvalidOption, match="which was deleted"):
        batch(options(broker, tmp_path / "raw"))


@pytest.mark.parametrize(
    ("more", "advice"),
    [
        ({"history": ""}, "name the directory"),
        ({"history": "s3://bucket/table"}, "name the directory"),
        ({"startingTimestamp": "1"}, "use startingOffsets"),
        ({"maxBytesPerTrigger": "1m"}, "use maxOffsetsPerTrigger"),
        ({"kafka.isolation.level": "read_uncommitted"}, "committed records only"),
    ],
)
def test_options_that_do_not_go_with_a_history(more: dict[str, str], advice: str) -> None:
    given = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "clicks", "history": "/lake", **more}
    with pytest.raises(InvalidOption, match=advice):
        read_options(given, is_stream=True)


def test_a_stream_with_a_history_begins_with_it() -> None:
    given = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "clicks", "history": "file:///lake"}
    found = read_options(given, is_stream=True)
    assert (found.history, found.start.everywhere) == ("/lake", -2)
