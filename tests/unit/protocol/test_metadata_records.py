"""The frame around a metadata record."""

from __future__ import annotations

import pytest

from headrace.protocol.errors import MalformedMessage, UnsupportedVersion
from headrace.protocol.metadata_records import RECORD_TYPES, TopicRecord, decode_record, encode_record

TOPIC = TopicRecord(name="orders", topic_id=b"i" * 16)


def test_frame() -> None:
    encoded = encode_record(TOPIC, 0)
    assert encoded == b"\1\2\0" + b"\7orders" + b"i" * 16 + b"\0"
    assert decode_record(encoded) == TOPIC


def test_every_kraft_record_is_there() -> None:
    assert sorted(RECORD_TYPES) == [*range(6), *range(7, 13), 14, 15, *range(17, 29)]


@pytest.mark.parametrize(
    "value", [b"", b"\1", b"\2\2\0", b"\0\2\0"], ids=["empty", "cut", "frame-2", "frame-0"]
)
def test_broken_frame_is_malformed(value: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_record(value)


@pytest.mark.parametrize("value", [b"\1\x7f\0", b"\1\2\1"], ids=["key", "version"])
def test_record_of_the_future_is_unsupported(value: bytes) -> None:
    with pytest.raises(UnsupportedVersion):
        decode_record(value)


def test_garbage_behind_the_record_is_malformed() -> None:
    with pytest.raises(MalformedMessage):
        decode_record(encode_record(TOPIC, 0) + b"\0")
