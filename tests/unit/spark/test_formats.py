"""Tables of Kafka's columns become tables of a query's, without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headrace.spark.decoding import RowDecoder
from headrace.spark.errors import InvalidOption, Undecodable
from headrace.spark.formats import read_formats
from headrace.spark.options import read_options

GOOD, BAD = b'{"ad": "a1", "offset": 7}', b"{no"
SCHEMA = pa.schema([("ad", pa.string()), ("_offset", pa.int64())])


def formats(**given: str) -> Any:
    options = {"kafka.bootstrap.servers": "here:1", "subscribe": "t", **given}
    return read_formats(read_options(options, is_stream=False))


def table(*values: bytes | None) -> pa.Table:
    count = len(values)
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.table(
        {
            "topic": ["t"] * count,
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array([0] * count, pa.timestamp("ms", "UTC")),
            "timestampType": ["create"] * count,
            "key": pa.array([b'{"id": 1}'] * count, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array([[]] * count, headers),
        }
    )


def decoded(*values: bytes | None, schema: pa.Schema = SCHEMA, **given: str) -> list[dict[str, Any]]:
    decoder = RowDecoder(formats(valueFormat="json", **given), schema, {})
    return decoder.decode(table(*values)).select(schema.names).to_pylist()


def test_fields_are_columns_and_kafkas_have_an_underscore():
    assert decoded(GOOD, None) == [{"ad": "a1", "_offset": 0}, {"ad": None, "_offset": 1}]


def test_a_record_that_is_none_fails_by_its_place():
    with pytest.raises(Undecodable, match="offset 1 of partition t-0 cannot be decoded: value: "):
        decoded(GOOD, BAD)


def test_it_may_be_shown_as_nulls_or_left_out():
    assert decoded(BAD, GOOD, mode="PERMISSIVE") == [{"ad": None, "_offset": 0}, {"ad": "a1", "_offset": 1}]
    assert decoded(BAD, GOOD, mode="dropMalformed") == [{"ad": "a1", "_offset": 1}]


def test_a_record_without_a_column_that_must_be_there_is_none():
    inner = pa.struct([pa.field("id", pa.int64(), nullable=False)])
    schema = pa.schema(
        [pa.field("ad", pa.string(), nullable=False), pa.field("user", inner), ("_offset", pa.int64())]
    )
    whole, short = b'{"ad": "a1", "user": {"id": 7}}', b'{"ad": "a1"}'
    bad = (b'{"user": {"id": 7}}', b'{"ad": null}', b'{"ad": "a1", "user": {}}', None, BAD)
    for each in bad:  # alone, and among others
        assert decoded(each, schema=schema, mode="dropMalformed") == []
    shown = decoded(whole, *bad, short, schema=schema, mode="dropMalformed")
    assert shown == [
        {"ad": "a1", "user": {"id": 7}, "_offset": 0},
        {"ad": "a1", "user": None, "_offset": 6},
    ]
    with pytest.raises(
        Undecodable, match=r"offset 1 of partition t-0 .*: ad is missing, but declared NOT NULL"
    ):
        decoded(whole, bad[0], schema=schema)
    with pytest.raises(Undecodable, match=r"user\.id is missing"):
        decoded(bad[2], schema=schema)
    with pytest.raises(InvalidOption, match="column ad is declared NOT NULL, but mode PERMISSIVE"):
        decoded(whole, schema=schema, mode="PERMISSIVE")


def test_nothing_is_decoded_that_nobody_wants():
    assert decoded(BAD, schema=pa.schema([("_offset", pa.int64())])) == [{"_offset": 0}]


def test_a_key_is_a_struct():
    schema = pa.schema([("key", pa.struct([("id", pa.int64())])), ("value", pa.binary())])
    decoder = RowDecoder(formats(keyFormat="json"), schema, {})
    found = decoder.decode(table(BAD)).select(schema.names).to_pylist()
    assert found == [{"key": {"id": 1}, "value": BAD}]
    with pytest.raises(InvalidOption, match="it must be a struct"):
        RowDecoder(formats(keyFormat="json"), pa.schema([("key", pa.binary())]), {})


def test_formats_and_modes_have_names():
    with pytest.raises(InvalidOption, match="valueFormat=xml: must be binary, json, avro, protobuf"):
        formats(valueFormat="xml")
    with pytest.raises(InvalidOption, match="mode=whatever: must be one of FAILFAST"):
        formats(mode="whatever")
    with pytest.raises(InvalidOption, match="valueSubject is missing"):
        formats(valueFormat="avro", subscribe="a,b", **{"schema.registry.url": "http://here"})


def test_subjects_are_named_after_the_topic():
    found = formats(valueFormat="avro", **{"schema.registry.url": "http://here"})
    assert found.value.subject == "t-value"
