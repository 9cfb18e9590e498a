"""Tables with typed columns: each record is a row or a dead letter, and `verify` knows both."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.typed_lake import TypedLake
from headrace.lake.dead_letters import DeadLetterTable
from headrace.lake.enabling import enable
from headrace.lake.errors import BadRecord, WrongTable
from headrace.lake.formats import table_at
from headrace.lake.messages import json_rows
from headrace.lake.optimizing import Optimizer
from headrace.lake.reading import read_rows
from headrace.lake.stitching import read_stitched
from headrace.lake.typed_rows import table_decoder
from headrace.lake.values import ValueDecoder, ValueFormat
from headrace.machines.lake.ledger import Span
from headrace.schemas import Registry, RegistryUnreachable, Schema, SchemaType, SchemaUnknown
from headrace.schemas.wire import framed

JSON = json.dumps(
    {
        "type": "object",
        "properties": {
            "user": {"type": "string"},
            "count": {"type": "integer"},
            "at": {"type": "string", "format": "date-time"},
        },
    }
)


class Schemas(Registry):
    """A registry in memory, which may be down."""

    def __init__(self, *schemas: str | Schema) -> None:
        super().__init__("http://127.0.0.1:1")
        self.held = {number: _schema(each) for number, each in enumerate(schemas, 1)}
        self.is_down = False

    def schema(self, id: int) -> Schema:
        if self.is_down:
            raise RegistryUnreachable("no registry answers")
        if id not in self.held:
            raise SchemaUnknown(f"there is no schema {id}")
        return self.held[id]


def _schema(text: str | Schema) -> Schema:
    return text if isinstance(text, Schema) else Schema(text, SchemaType.AVRO)


def record(**fields: Any) -> str:
    shown = [{"name": name, "type": kind} for name, kind in fields.items()]
    return json.dumps({"type": "record", "name": "Click", "fields": shown})


def avro(registry: Schemas, id: int, **values: Any) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, json.loads(registry.held[id].text), values)
    return framed(id, out.getvalue())


@pytest.fixture
def lake(tmp_path: Path, format: str) -> TypedLake:
    return TypedLake(tmp_path, ValueFormat("json", JSON), table_format=format)


WithSchemas = Callable[..., tuple[TypedLake, Schemas]]


@pytest.fixture
def with_avro(tmp_path: Path, format: str) -> WithSchemas:
    """A table of values with ids of these schemas."""

    def make(*schemas: str | Schema) -> tuple[TypedLake, Schemas]:
        registry = Schemas(*schemas)
        return TypedLake(tmp_path, ValueFormat("registry"), registry, format), registry

    return make


def test_fields_are_columns_and_bad_records_are_dead_letters(lake: TypedLake) -> None:
    send = lake.memory.send
    send(b'{"user": "ada", "count": 1, "more": 2}')
    send(b"garbage")
    send(None)  # a tombstone
    send(b'{"user": "bob", "at": "9999-12-31T23:59:59Z"}', None)
    send(b'{"count": "many"}')
    send(b"{}" + b" " * (10 << 20))  # 10 MB
    send(b"")
    copied = lake.copy(offsets_per_commit=2)
    assert (copied.rows, copied.dead_letters) == (4, 3)
    assert lake.rows("user", "count", "_tombstone", "_key") == [
        (0, "ada", 1, None, b"k"),
        (2, None, None, True, b"k"),
        (3, "bob", None, None, None),
        (5, None, None, None, b"k"),
    ]
    assert [(offset, value) for offset, value, _ in lake.dead()] == [
        (1, b"garbage"),
        (4, b'{"count": "many"}'),
        (6, b""),
    ]
    assert all(reason for *_, reason in lake.dead())
    report = lake.verify()
    assert report.findings == []
    assert (report.rows, report.dead_letters, report.compared, report.missing_offsets) == (4, 3, 7, 0)
    assert lake.copy().rows == 0
    assert lake.memory.commits[-1] == ("lake-clicks", {0: 7})


def test_without_a_place_for_dead_letters_a_bad_record_stops_the_copy(lake: TypedLake) -> None:
    lake.memory.send(b'{"count": 1}')
    lake.memory.send(b"garbage")
    with pytest.raises(BadRecord, match="offset 1 of partition clicks-0"):
        lake.copy(dead=False)
    assert lake.lake.load().ledger == {}
    assert lake.copy().dead_letters == 1  # the place was added later
    assert lake.verify().is_clean


def test_producers_add_widen_and_rename_fields(with_avro: WithSchemas) -> None:
    lake, registry = with_avro(
        record(user="string", count="int", share="float"),
        record(user="string", count="long", share="double", city=["null", "string"]),
        record(name="string", count="int"),  # narrowed, and user has another name
        record(user="string", count="string"),  # another type
    )
    send = lake.memory.send
    send(avro(registry, 1, user="ada", count=1, share=0.5))
    lake.copy()
    send(avro(registry, 2, user="bob", count=1 << 40, share=0.1, city="Rome"))
    send(avro(registry, 1, user="cyd", count=3, share=1.5))
    send(avro(registry, 3, name="dan", count=4))
    send(avro(registry, 4, user="eve", count="5"))
    send(framed(99, b"?"))  # no schema has this id
    send(b"not framed")
    copied = lake.copy()
    assert (copied.rows, copied.dead_letters) == (3, 3)
    assert lake.rows("user", "count", "share", "city", "name") == [
        (0, "ada", 1, 0.5, None, None),
        (1, "bob", 1 << 40, 0.1, "Rome", None),
        (2, "cyd", 3, 1.5, None, None),
        (3, None, 4, None, None, "dan"),
    ]
    reasons = {offset: reason for offset, _, reason in lake.dead()}
    assert "column count of the rows is string, that of the table is int64" in reasons[4]
    assert "there is no schema 99" in reasons[5]
    report = lake.verify()
    assert report.findings == []
    assert report.rows + report.dead_letters == 7
    assert Optimizer(lake.lake).compact().compacted > 1
    report = lake.verify()
    assert report.findings == []
    assert report.dead_letters == 3


def test_fields_inside_structures_are_added_and_may_be_missing(with_avro: WithSchemas) -> None:
    def click(**fields: Any) -> str:
        inner = {"type": "record", "name": "Place", "fields": json.loads(record(**fields))["fields"]}
        return record(place=inner, places={"type": "array", "items": "Place"})

    lake, registry = with_avro(click(city="string", number="int"), click(number="long", zip="int"))
    first, second = {"city": "Oslo", "number": 1}, {"number": 1 << 40, "zip": 7}
    lake.memory.send(avro(registry, 1, place=first, places=[first]))
    lake.copy()
    lake.memory.send(avro(registry, 2, place=second, places=[second, second]))
    lake.memory.send(avro(registry, 1, place=first, places=[]))
    assert lake.copy().dead_letters == 0
    older, newer = {**first, "zip": None}, {"city": None, **second}
    assert [(place, places) for _, place, places in lake.rows("place", "places")] == [
        (older, [older]),
        (newer, [newer, newer]),
        (older, []),
    ]
    assert lake.verify().findings == []
    assert Optimizer(lake.lake).compact().compacted > 1
    assert lake.verify().findings == []


def test_a_registry_that_is_down_is_an_error_and_not_a_dead_letter(with_avro: WithSchemas) -> None:
    lake, registry = with_avro(record(count="int"))
    lake.memory.send(avro(registry, 1, count=1))
    registry.is_down = True
    with pytest.raises(RegistryUnreachable):
        lake.copy()
    assert lake.lake.load().ledger == {}
    assert lake.dead() == []
    registry.is_down = False
    assert lake.copy().rows == 1
    assert lake.verify().is_clean


def test_the_dead_letters_decide_after_a_kill_between_the_two_commits(with_avro: WithSchemas) -> None:
    """Meanwhile the registry got the schema: the record stays a dead letter, and is not a row as well."""
    lake, registry = with_avro(record(count="int"), record(count="int", more="int"))
    lake.memory.send(avro(registry, 1, count=1))
    late = avro(registry, 2, count=2, more=3)
    lake.memory.send(late)
    schema = registry.held.pop(2)
    copier = lake.copier()

    def killed(*_: object) -> Any:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lake.lake, "commit", killed)
        with pytest.raises(KeyboardInterrupt):
            copier.copy_available()
    assert lake.lake.load().ledger == {}
    assert [offset for offset, *_ in lake.dead()] == [1]
    registry.held[2] = schema
    lake.memory.send(late)
    copied = lake.copy()
    assert (copied.rows, copied.dead_letters) == (2, 1)
    assert [offset for offset, *_ in lake.rows("count")] == [0, 2]
    assert lake.verify().findings == []


def test_of_two_copiers_with_other_opinions_the_first_to_commit_decides(with_avro: WithSchemas) -> None:
    lake, registry = with_avro(record(count="int"))
    lake.memory.send(avro(registry, 1, count=1))
    slow = lake.copier()
    commit = slow.commit_dead_letters
    is_first = True

    def late(*given: Any) -> bool:
        nonlocal is_first
        if is_first:
            is_first = False
            schema = registry.held.pop(1)
            assert lake.copy().dead_letters == 1  # the other copier does not find the schema
            registry.held[1] = schema
        return commit(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slow, "commit_dead_letters", late)
        assert slow.copy_available().rows == 0
    assert lake.rows() == []
    assert len(lake.dead()) == 1
    assert lake.verify().findings == []


def test_a_record_that_was_a_row_before_does_not_become_a_dead_letter(with_avro: WithSchemas) -> None:
    lake, registry = with_avro(record(count="int"))
    lake.memory.send(avro(registry, 1, count=1))
    copier = lake.copier()
    todo_snapshot = lake.lake.load()
    dead = DeadLetterTable(table_at(lake.dead_path))
    dead.begin()
    assert dead.commit(todo_snapshot.ledger, [Span(0, 0, 1)])  # decided: no dead letter
    registry.held.pop(1)
    with pytest.raises(BadRecord, match="although it could be before"):
        copier.copy_available()


def test_a_decision_in_the_middle_of_a_range_is_kept(lake: TypedLake) -> None:
    """A kill between the two commits, at the end of the topic; then the table is begun at its start."""
    for _ in range(3):
        lake.memory.send(b"garbage")
        lake.memory.send(b'{"count": 1}')
    lake.copier()
    dead = DeadLetterTable(table_at(lake.dead_path))
    dead.begin()
    assert dead.commit({}, [Span(0, 3, 4)])  # the record at 3 is a row
    copied = lake.copy()
    assert (copied.rows, copied.dead_letters) == (3, 3)
    assert [offset for offset, *_ in lake.dead()] == [0, 2, 4]
    assert lake.verify().findings == []


def test_backfill_brings_rows_and_dead_letters(lake: TypedLake) -> None:
    for number in range(4):
        lake.memory.send(b'{"count": %d}' % number)
        lake.memory.send(b"garbage")
    lake.copy(from_end=True)
    lake.memory.send(b'{"count": 9}')
    lake.copy()
    copied = lake.copier(offsets_per_commit=3).backfill()
    assert (copied.rows, copied.dead_letters) == (4, 4)
    report = lake.verify()
    assert report.findings == []
    assert (report.rows, report.dead_letters) == (5, 4)


# --- planted faults --------------------------------------------------------------------------------------


@pytest.fixture
def filled(lake: TypedLake) -> TypedLake:
    for number in range(4):
        lake.memory.send(b'{"count": %d}' % number)
        lake.memory.send(b"garbage %d" % number)
    lake.copy()
    assert lake.verify().is_clean
    return lake


def _rewrite(path: Path, change: Any) -> None:
    (file,) = path.glob("headrace-*.parquet")
    table = pq.read_table(file)
    footer = pq.read_metadata(file).metadata
    pq.write_table(change(table).replace_schema_metadata(footer), file)


def test_a_dead_letter_that_is_removed_is_found(filled: TypedLake) -> None:
    _rewrite(filled.dead_path, lambda table: table.slice(1))
    assert {"rows_missing", "dead_letters_differ"} <= filled.faults()


def test_a_dead_letter_that_is_changed_is_found(filled: TypedLake) -> None:
    index = 5

    def change(table: pa.Table) -> pa.Table:
        return table.set_column(index, "_value", pa.array([b"other"] * 4, pa.binary()))

    _rewrite(filled.dead_path, change)
    assert {"rows_changed", "dead_letters_differ"} <= filled.faults()
    assert "record_differs" in filled.faults(full=True)


def test_a_table_of_dead_letters_that_is_gone_is_found(filled: TypedLake) -> None:
    filled.dead_path.rename(filled.dead_path.with_name("elsewhere"))
    assert filled.faults() == {"dead_letters_differ"}


def test_dead_letters_that_lost_a_file_are_found(filled: TypedLake) -> None:
    next(filled.dead_path.glob("headrace-*.parquet")).unlink()
    assert {"file_missing", "dead_letters_differ"} <= filled.faults()


def test_a_typed_value_that_is_changed_is_found(filled: TypedLake) -> None:
    def change(table: pa.Table) -> pa.Table:
        at = table.column_names.index("count")
        return table.set_column(at, "count", pa.array([7, 7, 7, 7], pa.int64()))

    _rewrite(filled.path, change)
    assert filled.faults() >= {"rows_changed"}
    assert filled.faults(full=True) >= {"record_differs"}


def test_a_record_that_the_topic_does_not_have_as_a_dead_letter_is_found(filled: TypedLake) -> None:
    filled.memory.partitions[0].records[1] = b"other garbage"
    assert filled.faults(full=True) == {"record_differs"}


# --- changes of the table --------------------------------------------------------------------------------


def test_a_newer_schema_adds_columns(lake: TypedLake) -> None:
    lake.memory.send(b'{"count": 1}')
    lake.copy()
    wider = json.loads(JSON)
    wider["properties"]["city"] = {"type": "string"}
    lake.format = ValueFormat("json", json.dumps(wider))
    lake.memory.send(b'{"count": 2, "city": "Oslo"}')
    lake.copy()
    assert lake.rows("count", "city") == [(0, 1, None), (1, 2, "Oslo")]
    assert lake.verify().findings == []
    del wider["properties"]["user"]
    with pytest.raises(WrongTable, match="lacks user"):
        enable(lake.lake, lake.topic, values=ValueFormat("json", json.dumps(wider)))
    with pytest.raises(WrongTable, match="made for values of format json"):
        enable(lake.lake, lake.topic, values=ValueFormat("registry"))


def test_a_column_that_the_user_added_is_null_in_new_rows(filled: TypedLake) -> None:
    filled.lake.add_columns(pa.schema([("note", pa.string())]))
    filled.memory.send(b'{"count": 9}')
    filled.copy()
    assert filled.rows("count", "note")[-1] == (8, 9, None)
    assert filled.verify().findings == []


def test_wrong_places_for_dead_letters_are_refused(lake: TypedLake, tmp_path: Path, format: str) -> None:
    lake.copy()
    with pytest.raises(WrongTable, match="leave the path out"):
        enable(lake.lake, lake.topic, dead_letters=tmp_path / "other")
    with pytest.raises(WrongTable, match="dead letters of another one"):
        enable(table_at(lake.dead_path), lake.topic)
    raw = table_at(tmp_path / "raw", format)
    with pytest.raises(WrongTable, match="only tables with typed columns"):
        enable(raw, lake.topic, dead_letters=tmp_path / "other")
    with pytest.raises(WrongTable, match="made for the values' bytes"):
        enable(raw, lake.topic, values=lake.format)
    more = table_at(tmp_path / "more", format)
    with pytest.raises(WrongTable, match="directory of their own"):
        enable(more, lake.topic, values=lake.format, dead_letters=tmp_path / "more")
    with pytest.raises(WrongTable, match="another table"):
        enable(more, lake.topic, values=lake.format, dead_letters=lake.path)


def test_a_registry_is_needed_for_ids() -> None:
    with pytest.raises(WrongTable, match="name the registry's address"):
        ValueDecoder(ValueFormat("registry"))
    with pytest.raises(WrongTable, match="field _offset has the name of another column"):
        ValueDecoder(ValueFormat("avro", record(_offset="int")))


# --- reading ---------------------------------------------------------------------------------------------


def test_rows_are_read_as_json_and_the_topic_continues_them(filled: TypedLake) -> None:
    filled.memory.send(b'{"count": 9, "at": "9999-12-31T23:59:59Z"}')
    filled.memory.send(b"garbage")
    snapshot = filled.lake.load()
    decoder = table_decoder(snapshot, None)
    assert decoder is not None
    read = read_stitched(filled.path, snapshot, filled.topic, decoder=decoder)
    found = [json.loads(line) for rows in read for line in json_rows(rows)]
    assert [(row["_offset"], row["count"]) for row in found] == [(0, 0), (2, 1), (4, 2), (6, 3), (8, 9)]
    assert found[-1]["at"].startswith("9999-12-31 23:59:59")
    dead = table_at(filled.dead_path).load()
    (rows,) = read_rows(filled.dead_path, dead)
    assert rows["_offset"].to_pylist() == [1, 3, 5, 7]


def test_the_bytes_can_be_kept(tmp_path: Path, format: str) -> None:
    lake = TypedLake(tmp_path, ValueFormat("json", JSON, keeps_value=True), table_format=format)
    lake.memory.send(b'{"count": 1, "more": [2]}')
    lake.copy()
    assert lake.rows("count", "_value") == [(0, 1, b'{"count": 1, "more": [2]}')]
    assert lake.verify().findings == []


PROTO = (
    'syntax = "proto3"; message Click { string user = 1; int32 count = 2; } message Buy { double price = 1; }'
)


def test_protobuf_messages_of_one_schema_have_their_own_columns(with_avro: WithSchemas) -> None:
    from headrace.schemas.protobuf import ProtobufFile, message_class

    lake, _ = with_avro(Schema(PROTO, SchemaType.PROTOBUF))
    file = ProtobufFile(PROTO, ())
    click = message_class(file.message("Click"))(user="ada", count=1)
    buy = message_class(file.message("Buy"))(price=2.5)
    lake.memory.send(framed(1, b"\x00" + click.SerializeToString()))
    lake.memory.send(framed(1, b"\x02\x02" + buy.SerializeToString()))
    lake.memory.send(framed(1, b""))
    copied = lake.copy()
    assert (copied.rows, copied.dead_letters) == (2, 1)
    assert lake.rows("user", "count", "price") == [(0, "ada", 1, None), (1, None, None, 2.5)]
    assert lake.verify().findings == []


def test_ids_in_headers_are_found(with_avro: WithSchemas) -> None:
    lake, registry = with_avro(record(count="int"))
    value = avro(registry, 1, count=5)
    headers = [{"key": "__value_schema_id", "value": value[:5]}]
    lake.memory.send(value[5:], headers=headers)
    lake.memory.send(value)
    assert lake.copy().rows == 2
    assert lake.rows("count") == [(0, 5), (1, 5)]
