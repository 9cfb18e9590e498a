"""Any records survive the way into a batch and out of it: both forms of the codec, rows and columns."""

from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.interpreted import interpreted
from headrace.records import _codec, reader
from headrace.records._columns import ByteColumn, Columns
from headrace.records.batch import check_batches, check_crc, read_header
from headrace.records.builder import Record, build_batch
from headrace.records.compression import Codec
from headrace.records.fetched import Fetched

FORMS = pytest.mark.parametrize(
    "codec", [_codec, interpreted("_codec").codec], ids=["as built", "interpreted"]
)

timestamps = st.one_of(st.integers(-1, (1 << 63) - 2), st.integers(1_700_000_000_000, 1_700_000_100_000))
payloads = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=9), payloads), max_size=3).map(tuple)
records = st.lists(st.tuples(timestamps, payloads, payloads, headers), min_size=1, max_size=80)


@FORMS
@settings(max_examples=80, deadline=None)
@given(rows=records, base_offset=st.integers(0, 1 << 62))
def test_rows(codec: ModuleType, rows: list[Record], base_offset: int) -> None:
    base_timestamp = rows[0][0]
    encoded = codec.encode(rows, base_timestamp)
    expected = [(base_offset + index, *row) for index, row in enumerate(rows)]
    assert codec.decode_rows(encoded, len(rows), base_offset, base_timestamp, -1) == expected
    assert codec.encode_at(expected, base_offset, base_timestamp) == encoded
    assert codec.validate(encoded, len(rows), base_timestamp, False) == max(row[0] for row in rows)


@FORMS
@settings(max_examples=60, deadline=None)
@given(rows=records, gaps=st.lists(st.integers(1, 1 << 24), min_size=80, max_size=80))
def test_rows_with_gaps(codec: ModuleType, rows: list[Record], gaps: list[int]) -> None:
    offsets = [sum(gaps[: index + 1]) for index in range(len(rows))]
    expected = [(offset, *row) for offset, row in zip(offsets, rows, strict=True)]
    encoded = codec.encode_at(expected, 0, rows[0][0])
    assert codec.decode_rows(encoded, len(rows), 0, rows[0][0], -1) == expected
    assert codec.decode_keys(encoded, len(rows), 0) == [
        (offset, key, value is None) for offset, _, key, value, _ in expected
    ]


@FORMS
@settings(max_examples=60, deadline=None)
@given(rows=records, target=timestamps)
def test_time_look_ups_against_a_plain_search(codec: ModuleType, rows: list[Record], target: int) -> None:
    encoded = codec.encode(rows, rows[0][0])
    times = [row[0] for row in rows]
    late_enough = [(offset, time) for offset, time in enumerate(times) if time >= target]
    assert codec.first_from(encoded, len(rows), 0, times[0], target) == (
        late_enough[0] if late_enough else None
    )
    assert codec.latest(encoded, len(rows), 0, times[0]) == (times.index(max(times)), max(times))


@settings(max_examples=80, deadline=None)
@given(
    rows=records,
    codec=st.sampled_from(Codec),
    base_offset=st.integers(0, 1 << 62),
    producer=st.none()
    | st.tuples(st.integers(0, 1 << 62), st.integers(0, 32767), st.integers(0, (1 << 31) - 1)),
    transactional=st.booleans(),
)
def test_batches(
    rows: list[Record],
    codec: Codec,
    base_offset: int,
    producer: tuple[int, int, int] | None,
    transactional: bool,
) -> None:
    producer_id, producer_epoch, base_sequence = producer or (-1, -1, -1)
    transactional = transactional and producer is not None
    raw = build_batch(
        rows,
        base_offset=base_offset,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
    )
    (header,) = check_batches(memoryview(raw), len(raw))
    assert header == check_crc(raw) == read_header(raw)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (
        producer_id,
        producer_epoch,
        base_sequence,
    )
    assert (header.is_transactional, header.codec, header.size) == (transactional, codec, len(raw))
    expected = [(base_offset + index, *row) for index, row in enumerate(rows)]
    assert reader.read_rows(raw, 0, header) == expected

    columns = Columns()
    assert Fetched("t", 0, raw, 0).take_columns(columns)
    count = len(expected)
    assert columns.row_count == count
    assert list(columns.offsets)[:count] == [row[0] for row in expected]
    assert list(columns.timestamps)[:count] == [row[1] for row in expected]
    assert plain(columns.keys, count) == [row[2] for row in expected]
    assert plain(columns.values, count) == [row[3] for row in expected]
    headers = zip(
        plain(columns.header_keys, columns.header_count), plain(columns.header_values, columns.header_count)
    )
    told = [(key.decode("utf-8", "surrogateescape"), value) for key, value in headers if key is not None]
    places = list(columns.header_places)
    assert [tuple(told[places[row] : places[row + 1]]) for row in range(count)] == [
        row[4] for row in expected
    ]


def plain(column: ByteColumn, count: int) -> list[bytes | None]:
    """A column read the slow way; one that has no nulls has no bits to be asked for."""
    return [
        bytes(column.data[column.places[index] : column.places[index + 1]])
        if not column.null_count or column.bits[index // 8] >> index % 8 & 1
        else None
        for index in range(count)
    ]
