"""JSON, Avro and Protobuf as typed columns, and what becomes of records that are none."""

from __future__ import annotations

import io
import json

import fastavro
import pytest
from pyspark.errors import PySparkException

import headrace
from headrace.schemas.dead_letters import read_dead_letter

CLICK = {"ad": "a1", "price": 2.5, "timestamp": "2026-01-01T00:00:00Z", "user": {"id": 7}}


@pytest.fixture
def clicks(new_topic, producer):
    """A topic with two clicks."""
    topic = new_topic()
    for number in range(2):
        producer.send(
            topic, json.dumps({**CLICK, "user": {"id": number}}).encode(), b'{"shard": %d}' % number
        )
    producer.flush()
    return topic


@pytest.fixture
def with_a_bad_one(clicks, producer):
    producer.send(clicks, b"{broken", b"k")
    producer.flush()
    return clicks


def test_json_shows_its_columns_on_its_own(read, clicks):
    frame = read(clicks, valueFormat="json")
    assert frame.columns[:4] == ["ad", "price", "timestamp", "user"]
    assert frame.columns[4:] == ["_key", "_topic", "_partition", "_offset", "_timestamp", "_timestampType"]
    types = dict(frame.dtypes)
    assert (types["ad"], types["price"], types["user"]) == ("string", "double", "struct<id:bigint>")
    first = frame.orderBy("_offset").first()
    assert (first.ad, first.price, first.user.id, first._offset, first._timestampType) == ("a1", 2.5, 0, 0, 0)
    assert frame.where("_offset = 1 and user.id = 1").count() == 1


def test_a_declared_schema_is_obeyed(read, clicks):
    frame = read(clicks, valueFormat="json", schema="price decimal(5, 2), _offset bigint, missing string")
    rows = frame.orderBy("_offset").collect()
    assert [(str(row.price), row._offset, row.missing) for row in rows] == [
        ("2.50", 0, None),
        ("2.50", 1, None),
    ]


def test_what_a_query_does_not_want_is_not_decoded(read, with_a_bad_one):
    frame = read(with_a_bad_one, valueFormat="json", keyFormat="json", schema="_offset bigint, _topic string")
    assert sorted(row._offset for row in frame.collect()) == [0, 1, 2]


def test_a_key_is_a_struct(read, clicks):
    frame = read(clicks, keyFormat="json").orderBy("offset")
    assert dict(frame.dtypes)["key"] == "struct<shard:bigint>"
    assert [row.key.shard for row in frame.collect()] == [0, 1]


def test_what_cannot_be_decoded_fails_unless_said_otherwise(read, with_a_bad_one):
    schema = "ad string, _offset bigint"
    with pytest.raises(
        PySparkException, match=rf"offset 2 of partition {with_a_bad_one}-0 cannot be decoded"
    ):
        read(with_a_bad_one, valueFormat="json", schema=schema).collect()
    shown = read(with_a_bad_one, valueFormat="json", mode="PERMISSIVE", schema=schema).orderBy("_offset")
    assert [row.ad for row in shown.collect()] == ["a1", "a1", None]
    assert read(with_a_bad_one, valueFormat="json", mode="DROPMALFORMED", schema=schema).count() == 2


def test_dead_letters_have_a_topic_of_their_own(read, with_a_bad_one, new_topic, servers):
    letters = new_topic(prefix="letters")
    frame = read(
        with_a_bad_one, valueFormat="json", deadLetterTopic=letters, schema="ad string, _offset bigint"
    )
    assert frame.count() == 2
    with headrace.Consumer(servers) as consumer:
        consumer.assign({(letters, 0): 0})
        message = consumer.poll(30)[0]
    letter = read_dead_letter(message.key, message.value, message.headers)
    assert (letter.topic, letter.partition, letter.offset) == (with_a_bad_one, 0, 2)
    assert (letter.key, letter.value) == (b"k", b"{broken")


def test_avro_without_a_registry(read, new_topic, producer):
    schema = {"type": "record", "name": "Click", "fields": [{"name": "ad", "type": "string"}]}
    topic = new_topic()
    data = io.BytesIO()
    fastavro.schemaless_writer(data, schema, {"ad": "a1"})
    producer.send(topic, data.getvalue())
    producer.flush()
    frame = read(topic, valueFormat="avro", valueSchema=json.dumps(schema))
    assert [row.ad for row in frame.collect()] == ["a1"]


def test_an_empty_topic_says_nothing_about_its_columns(read, new_topic):
    with pytest.raises(PySparkException, match="cannot be inferred"):
        read(new_topic(), valueFormat="json").collect()
