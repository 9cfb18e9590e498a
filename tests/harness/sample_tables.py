"""Tables of all kinds in both formats, small, with the values that readers stumble over."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa

from harness.lake_topic import TableOfTopic, TopicInMemory
from harness.typed_lake import TypedLake
from headrace.lake.copying import Copier
from headrace.lake.derived import DerivedTable
from headrace.lake.enabling import enable
from headrace.lake.formats import table_at
from headrace.lake.optimizing import Optimizer
from headrace.lake.values import ValueFormat
from headrace.schemas import Registry, Schema, SchemaType, SchemaUnknown
from headrace.schemas.wire import framed

PLACE = {"type": "record", "name": "Place", "fields": [{"name": "city", "type": ["null", "string"]}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "place", "type": PLACE},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "paid", "type": "boolean"},
    ],
}
WIDER = json.loads(json.dumps(ORDER))
WIDER["fields"][0]["type"] = "long"
WIDER["fields"][4]["type"]["fields"].append({"name": "zip", "type": "int", "default": 0})
WIDER["fields"].append({"name": "score", "type": "double", "default": 0.5})


class Schemas(Registry):
    """A registry in memory."""

    def __init__(self, *schemas: dict[str, Any]) -> None:
        super().__init__("http://127.0.0.1:1")
        self.held = dict(enumerate(schemas, 1))

    def schema(self, id: int) -> Schema:
        if id not in self.held:
            raise SchemaUnknown(f"there is no schema {id}")
        return Schema(json.dumps(self.held[id]), SchemaType.AVRO)

    def encoded(self, number: int, **fields: Any) -> bytes:
        data = BytesIO()
        fastavro.schemaless_writer(data, self.held[number], fields)
        return framed(number, data.getvalue())


def make_tables(directory: Path, format: str) -> dict[str, Path]:
    """Make one of each kind; return where they are."""
    raw = _raw(directory / "raw", format)
    compacted = _raw(directory / "compacted", format)
    Optimizer(table_at(compacted)).compact()
    (directory / "typed").mkdir()
    typed = _typed(directory / "typed", format)
    return {
        "raw": raw,
        "compacted": compacted,
        "typed": typed.path,
        "dead letters": typed.dead_path,
        "upserts": _upserts(directory / "upserts", format),
        "results": _results(directory / "results", format),
    }


def _raw(path: Path, format: str) -> Path:
    topic = TopicInMemory(2)
    topic.fill(5)
    topic.send(None)
    topic.send(b"", None)
    topic.send(b"\xff\x00\xfe", b"", [{"key": "empty", "value": b""}, {"key": "none", "value": None}])
    topic.send(b"x" * 100_000, b"k", [])
    TableOfTopic(path, topic, format).copy(offsets_per_commit=2)
    return path


def _typed(path: Path, format: str) -> TypedLake:
    schemas = Schemas(ORDER, WIDER)
    lake = TypedLake(path, ValueFormat("registry"), schemas, format)
    moment = dt.datetime(9999, 12, 31, 23, 59, 59, 999_000, dt.UTC)
    common = {"price": Decimal("1234567890.12"), "day": dt.date(1969, 12, 31), "at": moment, "paid": True}
    lake.memory.send(
        schemas.encoded(1, id=-1, place={"city": "Köln"}, tags=["a", ""], counts={"x": 1}, **common)
    )
    lake.memory.send(b"garbage")
    lake.copy()
    more: dict[str, Any] = {"place": {"city": None, "zip": 50667}, "tags": [], "counts": {}, "score": 0.1}
    lake.memory.send(schemas.encoded(2, id=1 << 40, **more, **common))
    lake.memory.send(None)
    lake.memory.send(framed(9, b"unknown"))
    lake.copy()
    return lake


def _upserts(path: Path, format: str) -> Path:
    memory = TopicInMemory(1)
    lake = table_at(path, format)
    enable(lake, memory.as_topic(), upsert=True)
    copier = Copier(lake, memory.as_topic())
    for numbers in (range(5), range(3, 8)):
        for number in numbers:
            memory.send(b"%d-%d" % (number, numbers.start), b"key-%d" % number)
        memory.send(None, b"key-%d" % numbers.start)
        copier.copy_available()
    return path


def _results(path: Path, format: str) -> Path:
    inner = pa.struct([("n", pa.int32())])
    wider = pa.struct([("n", pa.int64()), ("s", pa.string())])
    batches = [
        {"x": pa.array([1, None], pa.int32()), "f": pa.array([0.5, None], pa.float32())},
        {"x": pa.array([1 << 40], pa.int64()), "f": pa.array([0.1], pa.float64())},
        {"l": pa.array([[{"n": 1}], None, []], pa.list_(pa.field("element", inner)))},
        {"l": pa.array([[{"n": 1 << 40, "s": "ü"}]], pa.list_(pa.field("element", wider)))},
    ]
    table = DerivedTable(path, format)
    for number, columns in enumerate(batches):
        rows = pa.table(columns)
        schema = table.prepare(rows.schema)
        table.commit(table.write(schema, iter(rows.to_batches())), schema, "app", number)
    return path
