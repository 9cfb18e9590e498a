"""Unsigned varints up to 32 bits, and nothing beyond."""

from __future__ import annotations

import pytest

from headrace.protocol.errors import MalformedMessage, UnencodableMessage
from headrace.protocol.varint import decode_varint, encode_varint, skip_tags


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (16383, "ff7f"), (2**32 - 1, "ffffffff0f")],
)
def test_both_ways(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    for buffer in (bytes.fromhex("aa" + encoded), memoryview(bytes.fromhex("aa" + encoded))):
        assert decode_varint(buffer, 1) == (value, 1 + len(encoded) // 2)


def test_padded_varint_is_read() -> None:
    """Kafka 4.3.1 takes a zero in two bytes as well."""
    assert decode_varint(b"\x80\x00", 0) == (0, 2)


@pytest.mark.parametrize("encoded", ["", "80", "ffffffff", "8080808080", "808080808000", "ffffffff10"])
def test_too_short_too_long_too_large(encoded: str) -> None:
    with pytest.raises(MalformedMessage):
        decode_varint(bytes.fromhex(encoded), 0)


def test_value_above_32_bits_is_our_fault() -> None:
    with pytest.raises(UnencodableMessage):
        encode_varint(2**32)


def test_tags_that_nobody_knows_are_stepped_over() -> None:
    assert skip_tags(b"\x01\x02zz\x09\x00rest", 0, 2) == 6


@pytest.mark.parametrize(
    ("count", "tags"),
    [(2, "0100 0100"), (2, "0200 0100"), (1, "0105 00"), (9, "0100"), (0xFF, "ffffff0f 0100"), (1, "01")],
    ids=["twice", "descending", "beyond-the-end", "too-many", "far-too-many", "cut"],
)
def test_tags_that_lie_are_malformed(count: int, tags: str) -> None:
    with pytest.raises(MalformedMessage):
        skip_tags(bytes.fromhex(tags), 0, count)
