"""Partitions by key as Java has them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner import murmur2 as kafkas_murmur2

from headrace.client.producer._accumulator import murmur2, partition_for_key


# the vectors of Kafka's own UtilsTest, as signed numbers there
@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_to_the_bit(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFFFFFF


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=64))
def test_murmur2_agrees_with_another_client(key: bytes) -> None:
    assert murmur2(key) == kafkas_murmur2(key) & 0xFFFFFFFF


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=20), st.integers(1, 1000))
def test_a_key_lands_inside(key: bytes, partitions: int) -> None:
    assert 0 <= partition_for_key(key, partitions) < partitions
