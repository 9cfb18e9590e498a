"""Partitions by key as Java has them, and the sticky partition."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner import murmur2 as kafkas_murmur2

from harness.producer_simulation import NobodyWaits
from headrace.client.producer._accumulator import Accumulator, murmur2, partition_for_key
from headrace.client.producer.partitioner import StickyPartitioner


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


def _sticky_choices(partitions: int, rng: random.Random, *, is_adaptive: bool) -> set[int]:
    """Partitions that 200 records without a key go to, in batches of one record."""
    accumulator = Accumulator(NobodyWaits(), StickyPartitioner(rng, is_adaptive=is_adaptive), batch_bytes=100)
    accumulator.learn("t", [True] * partitions)
    for _ in range(200):
        accumulator.append(1.0, "t", None, bytes(100), (), -1, 1)
    return {queue.partition for queue in accumulator.busy}


class _NoNumbers(random.Random):
    def randrange(self, *bounds: object) -> int:
        raise AssertionError("there was nothing to choose")


@pytest.mark.parametrize("is_adaptive", [True, False])
def test_the_sticky_partition_is_drawn_only_among_several(is_adaptive: bool) -> None:
    """A draw for each batch.size bytes is a cost for each record, and a topic often has one partition."""
    assert _sticky_choices(3, random.Random(7), is_adaptive=is_adaptive) == {0, 1, 2}
    assert _sticky_choices(1, _NoNumbers(), is_adaptive=is_adaptive) == {0}
