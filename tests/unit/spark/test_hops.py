"""How many files a micro-batch passes: what a reader has to open to follow one. The numbers only fall.

The rule and the lists are in docs/ARCHITECTURE.md, "Files that a micro-batch passes". Here a micro-batch is
planned, read, written and committed, on a broker in memory, and every file that ran must be in the list.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import pyarrow as pa
import pytest

import headrace
from harness.pyspark_stand_in import ReadAllAvailable, StructType, pyspark_stand_in
from headrace.testing import Broker

ROOT = str(Path(headrace.__file__).parent) + "/"
PAGE = Path(__file__).parents[3] / "docs/ARCHITECTURE.md"

# The rest of the client is one entry: every program that has a producer, a consumer or an admin passes it.
COUNTED = ("spark/", "schemas/", "client/admin/")
COUNTED_OF_CLIENT = {
    "client/consumer/arrow.py",
    "client/producer/arrow.py",
    "client/producer/sink_attempt.py",
}
THE_CLIENT = "the client"
# All files of the client that run, counted or not: 27 and 41, and one that run only after a passing error.
OF_CLIENT_MAX = {"planning": 28, "task": 42}

RAW = pa.schema(
    [
        *(("key", pa.binary()), ("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32())),
        *(("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC")), ("timestampType", pa.int32())),
    ]
)
NUMBER = pa.schema([pa.field("number", pa.int64(), nullable=False)])
AVRO = {
    "valueFormat": "avro",
    "valueSchema": '{"type": "record", "name": "R", "fields": [{"name": "number", "type": "long"}]}',
}
T = TypeVar("T")


class Trace:
    """The files that ran, in this thread and in those that began meanwhile."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.files: set[str] = set()

    def run(self, work: Callable[[], T]) -> T:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        try:
            return work()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(ROOT):
            self.files.add(name.removeprefix(ROOT))

    def counted(self) -> set[str]:
        of_client = {name for name in self.files if name.startswith("client/")}
        assert "client/network/sockets.py" in of_client, "brokers were asked"
        assert len(of_client) <= OF_CLIENT_MAX[self.what], sorted(of_client)
        own = {name for name in self.files if name.startswith(COUNTED)} | of_client & COUNTED_OF_CLIENT
        return own | {THE_CLIENT}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(topics={"in": 2, "out": 2}) as broker:
        yield broker


def micro_batch(
    broker: Broker, formats: dict[str, str], read: pa.Schema, written: pa.Table
) -> tuple[set[str], set[str]]:
    """What passes beside Spark's driver, and what in its tasks."""
    planning, task = Trace("planning"), Trace("task")
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    with pyspark_stand_in():
        from headrace.spark.source import HeadraceSource

        writer: Any = planning.run(
            lambda: HeadraceSource({**servers, **formats, "topic": "in"}).streamWriter(
                StructType(written.schema), False
            )
        )
        result = task.run(lambda: writer.write(iter(written.to_batches())))
        planning.run(lambda: writer.commit([result], 0))

        def plan() -> tuple[Any, list[Any]]:
            options = {**servers, **formats, "subscribe": "in", "startingOffsets": "earliest"}
            reader = HeadraceSource(options).streamReader(StructType(read))
            try:
                start = reader.initialOffset()
                end = reader.latestOffset(start, ReadAllAvailable())
                reader.latestOffset(end, ReadAllAvailable())
                return reader, list(reader.partitions(start, end))
            finally:
                reader.stop()

        reader, partitions = planning.run(plan)
        rows = task.run(lambda: [row for each in partitions for row in reader.read(each)])
    assert sum(batch.num_rows for batch in rows) == written.num_rows
    return planning.counted(), task.counted()


def listed(heading: str) -> set[str]:
    """The files of one paragraph of the page."""
    found = re.search(rf"^- \*\*{heading}[^*]*\*\*(.*?)(?=^- |^\n[^ ]|\Z)", PAGE.read_text(), re.M | re.S)
    assert found is not None, heading
    names = set(re.findall(r"`([\w/]+\.py)`", found.group(1)))
    return names | ({THE_CLIENT} if "and the client" in found.group(1) else set())


def test_a_micro_batch_of_bytes(broker: Broker) -> None:
    table = pa.table({"key": [b"a", b"b"], "value": [b"1", b"2"]})
    planning, task = micro_batch(broker, {}, RAW, table)
    assert planning == listed("Plan and commit")
    assert task == listed("Read and write")
    assert len(planning) <= 24
    assert len(task) <= 9


def test_a_format_adds_few(broker: Broker) -> None:
    table = pa.Table.from_arrays([pa.array([1, 2])], schema=NUMBER)
    planning, task = micro_batch(broker, AVRO, NUMBER, table)
    added = (planning | task) - listed("Plan and commit") - listed("Read and write")
    assert added == listed("With a format")
