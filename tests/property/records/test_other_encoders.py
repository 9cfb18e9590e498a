"""kafka-python and aiokafka write and read batches by their own code: theirs and ours hold the same records.

kafka-python comes without the libraries for snappy, lz4 and zstd, so those are aiokafka's to judge.
"""

from typing import Any

import pytest
from aiokafka.record import default_records as aiokafka_records
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record import default_records as kafka_python_records

from headrace.records import reader
from headrace.records.batch import check_batches, read_header
from headrace.records.builder import Record, build_batch, end_marker
from headrace.records.compression import Codec

JUDGES = [
    pytest.param(module, codec, id=f"{name}, {codec.name.lower()}")
    for name, module, codecs in (
        ("kafka-python", kafka_python_records, [Codec.NONE, Codec.GZIP]),
        ("aiokafka", aiokafka_records, list(Codec)),
    )
    for codec in codecs
]

payloads = st.none() | st.binary(max_size=300)
records = st.lists(
    st.tuples(
        st.integers(0, 1 << 45),
        payloads,
        payloads,
        st.lists(st.tuples(st.text(max_size=9), payloads), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=50,
)


def theirs(module: Any, codec: Codec, rows: list[Record], producer: tuple[int, int, int]) -> bytes:
    builder = module.DefaultRecordBatchBuilder(2, int(codec), True, *producer, 1 << 24)
    for offset, (timestamp, key, value, headers) in enumerate(rows):
        assert builder.append(offset, timestamp, key, value, list(headers)) is not None
    return bytes(builder.build())


@pytest.mark.parametrize(("module", "codec"), JUDGES)
@settings(max_examples=30, deadline=None)
@given(rows=records)
def test_we_read_what_they_write(module: Any, codec: Codec, rows: list[Record]) -> None:
    raw = theirs(module, codec, rows, (12, 3, 77))
    (header,) = check_batches(memoryview(raw), 1 << 24)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (12, 3, 77)
    assert header.is_transactional
    assert [row[1:] for row in reader.read_rows(raw, 0, header)] == rows


@pytest.mark.parametrize(("module", "codec"), JUDGES)
@settings(max_examples=30, deadline=None)
@given(rows=records)
def test_they_read_what_we_write(module: Any, codec: Codec, rows: list[Record]) -> None:
    raw = build_batch(rows, codec=codec, base_offset=40, producer_id=12, producer_epoch=3, base_sequence=77)
    batch = module.DefaultRecordBatch(bytearray(raw))
    assert batch.validate_crc()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (12, 3, 77)
    found = [
        (record.offset, record.timestamp, record.key, record.value, tuple(record.headers)) for record in batch
    ]
    assert found == [(40 + index, *row) for index, row in enumerate(rows)]


@pytest.mark.parametrize("module", [kafka_python_records, aiokafka_records], ids=["kafka-python", "aiokafka"])
@settings(max_examples=30, deadline=None)
@given(rows=records)
def test_uncompressed_bytes_are_the_same(module: Any, rows: list[Record]) -> None:
    raw = bytearray(build_batch(rows, producer_id=12, producer_epoch=3, base_sequence=77, transactional=True))
    other = theirs(module, Codec.NONE, rows, (12, 3, 77))
    raw[12:16] = other[12:16]  # the leader epoch before there is a leader: everybody writes what they like
    assert raw == other


def test_they_know_our_end_markers() -> None:
    for committed in (True, False):
        raw = end_marker(
            committed=committed,
            coordinator_epoch=1,
            producer_id=9,
            producer_epoch=2,
            timestamp=5,
            base_offset=70,
        )
        batch = kafka_python_records.DefaultRecordBatch(bytearray(raw))
        assert batch.is_control_batch
        assert batch.is_transactional
        (marker,) = batch
        assert (marker.offset, marker.commit, marker.abort) == (70, committed, not committed)
        assert read_header(raw).last_sequence == -1
