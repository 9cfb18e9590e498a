"""Batches as the accumulator writes them, against the obvious way: all records at once by the builder."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.producer_simulation import NobodyWaits
from headrace.client.producer._accumulator import Accumulator
from headrace.records.batch import HEADER_BYTES
from headrace.records.builder import build_batch

small = st.binary(max_size=40) | st.binary(min_size=120, max_size=140)
names = st.text(max_size=8)
headers = st.lists(st.tuples(names, st.none() | st.binary(max_size=20)), max_size=3).map(tuple)
record = st.tuples(
    st.integers(0, 2_000_000) | st.integers(0, (1 << 63) - 2),  # timestamp
    st.none() | small,  # key
    st.none() | small | st.integers(16_000, 17_000).map(bytes),  # value
    headers,
)


@settings(max_examples=150, deadline=None)
@given(st.lists(record, min_size=1, max_size=200), st.sampled_from([0, 1, 2, 3, 4]))
def test_the_bytes_are_the_builders(rows: list[Any], codec: int) -> None:
    accumulator = Accumulator(
        NobodyWaits(), lambda topic_queues: topic_queues.candidates[0], batch_bytes=1 << 20
    )
    accumulator.request_bytes_max = accumulator.buffer_bytes = 1 << 24
    accumulator.learn("t", [True])
    for timestamp_ms, key, value, carried in rows:
        accumulator.append(0.0, "t", key, value, carried, 0, timestamp_ms)
    (queue,) = accumulator.busy
    places = 0
    for batch in list(queue.waiting):
        batch.identify(7, 1, places)
        expected = build_batch(
            rows[places : places + batch.count],
            codec=codec,
            producer_id=7,
            producer_epoch=1,
            base_sequence=places,
        )
        plain = build_batch(rows[places : places + batch.count])
        assert batch.record_bytes == len(plain) - HEADER_BYTES, "what counts is what is written"
        assert bytes(batch.seal(codec, None, False)) == expected
        places += batch.count
    assert places == len(rows)
