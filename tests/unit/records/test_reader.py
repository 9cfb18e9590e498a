"""Batches opened: walking a buffer, rows, columns, look-ups."""

from typing import Any

import pytest

from headrace.client.consumer.arrow import table_of
from headrace.records import reader
from headrace.records._columns import Columns
from headrace.records.batch import HEADER, BatchHeader, check_crc, read_header, renew_crc
from headrace.records.builder import (
    ABORT,
    COMMIT,
    build_batch,
    control_kind,
    end_marker,
    rebuild_batch,
)
from headrace.records.compression import Codec
from headrace.records.errors import (
    BadCompression,
    CorruptBatch,
    CorruptRecords,
    DecompressionBomb,
    InvalidBatch,
    UnsupportedMagic,
)
from headrace.records.fetched import Fetched

RECORDS = [
    (100, b"a", b"one", ()),
    (300, None, b"", (("trace", b"1"), ("none", None))),
    (200, b"", None, ()),
]
ROWS = [(40 + index, *record) for index, record in enumerate(RECORDS)]


def batch(codec: int = 0, **fields: Any) -> tuple[bytes, BatchHeader]:
    raw = build_batch(RECORDS, base_offset=40, codec=codec, **fields)
    return raw, read_header(raw)


def test_batches_are_walked_to_the_last_whole_one() -> None:
    """Fetch may cut the last batch off; what is left of it is not an error."""
    first, second = batch(Codec.GZIP)[0], batch()[0]
    buffer = first + second
    assert [at for at, _ in reader.batches(buffer)] == [0, len(first)]
    assert [at for at, _ in reader.batches(buffer, len(first))] == [len(first)]
    for cut in (1, 30, len(second) - 61, len(second) - 1):
        assert [at for at, _ in reader.batches(memoryview(buffer)[:-cut])] == [0]


def test_walking_stops_at_a_wrong_checksum_or_length() -> None:
    first, second = batch()[0], bytearray(batch()[0])
    second[-1] ^= 1
    walk = reader.batches(first + second)
    assert next(walk)[0] == 0
    with pytest.raises(CorruptBatch):
        next(walk)
    assert len(list(reader.batches(first + second, check=False))) == 2
    second[8:12] = bytes(4)  # would walk in circles
    with pytest.raises(CorruptBatch):
        list(reader.batches(first + second, check=False))
    second[16] = 1
    with pytest.raises(UnsupportedMagic):
        list(reader.batches(first + second, check=False))


def columns_of(raw: bytes) -> Columns:
    columns = Columns()
    assert Fetched("t", 0, raw, 0).take_columns(columns)
    return columns


@pytest.mark.parametrize("codec", list(Codec))
def test_rows_keys_and_columns_tell_the_same(codec: Codec) -> None:
    raw, header = batch(codec)
    assert reader.read_rows(raw, 0, header) == ROWS
    assert reader.read_rows(memoryview(b"12345" + raw), 5, header) == ROWS
    assert reader.read_keys(raw, 0, header) == [(40, b"a", False), (41, None, False), (42, b"", True)]
    columns = columns_of(raw)
    assert columns.row_count == 3
    assert list(columns.offsets)[:3] == [40, 41, 42]
    assert list(columns.timestamps)[:3] == [100, 300, 200]
    keys, values = columns.keys, columns.values
    assert (list(keys.places)[:4], bytes(keys.data[: keys.used])) == ([0, 1, 1, 1], b"a")
    assert (keys.bits[0] & 7, keys.null_count) == (0b101, 1)
    assert (list(values.places)[:4], bytes(values.data[: values.used])) == ([0, 3, 3, 3], b"one")
    assert (values.bits[0] & 7, values.null_count) == (0b011, 1)
    assert columns.header_count == 2
    assert [
        tuple((header["key"], header["value"]) for header in row)
        for row in table_of(columns)["headers"].to_pylist()
    ] == [row[4] for row in ROWS]


def test_columns_without_nulls_have_no_bitmap() -> None:
    table = table_of(columns_of(build_batch([(1, b"k", b"v", ())] * 9)))
    for name in ("key", "value"):
        (chunk,) = table[name].chunks
        validity, _, data = chunk.buffers()
        assert validity is None
        assert data.to_pybytes() == name[:1].encode() * 9


def test_append_time_replaces_every_timestamp() -> None:
    raw, header = batch(append_time=777)
    assert [row[1] for row in reader.read_rows(raw, 0, header)] == [777] * 3
    assert list(columns_of(raw).timestamps)[:3] == [777] * 3
    assert reader.first_from(raw, 0, header, 777) == (40, 777)
    assert reader.first_from(raw, 0, header, 778) is None
    assert reader.latest(raw, 0, header) == (40, 777)


@pytest.mark.parametrize("codec", list(Codec))
def test_times_are_looked_up_per_record(codec: Codec) -> None:
    raw, header = batch(codec)
    assert reader.first_from(raw, 0, header, 101) == (41, 300)
    assert reader.first_from(raw, 0, header, 301) is None
    assert reader.latest(raw, 0, header) == (41, 300)


def test_validation_opens_the_batch() -> None:
    raw, header = batch(Codec.LZ4)
    assert reader.validate_records(raw, 0, header, keys_required=False) == 300
    with pytest.raises(InvalidBatch):
        reader.validate_records(raw, 0, header, keys_required=True)


def test_a_codec_bit_that_lies_is_refused() -> None:
    raw = bytearray(batch()[0])
    for codec in Codec:
        if codec:
            HEADER.pack_into(raw, 0, *read_header(raw)._replace(attributes=int(codec)))
            renew_crc(raw, 0)
            with pytest.raises(BadCompression):
                reader.read_rows(raw, 0, check_crc(raw))


def test_a_count_that_lies_is_refused() -> None:
    raw, header = batch(Codec.ZSTD)
    for count in (2, 4, 1 << 30, -1):
        for read in (reader.read_rows, reader.read_keys):
            with pytest.raises(CorruptRecords):
                read(raw, 0, header._replace(record_count=count))


def test_bombs_are_refused_when_opened() -> None:
    raw = build_batch([(0, None, bytes(1 << 20), ())], codec=Codec.ZSTD)
    with pytest.raises(DecompressionBomb):
        reader.open_records(raw, 0, read_header(raw), bytes_max=1 << 19)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_cleaner_rebuilds_what_is_left(codec: Codec) -> None:
    raw, header = batch(codec, producer_id=5, producer_epoch=1, base_sequence=9)
    left = [row for row in reader.read_rows(raw, 0, header) if row[2] is not None]
    cleaned = rebuild_batch(
        left,
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        leader_epoch=3,
        codec=header.codec,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
    after = check_crc(cleaned)
    assert reader.read_rows(cleaned, 0, after) == left
    assert (after.record_count, after.last_offset, after.last_sequence) == (2, 42, 11)
    assert after.max_timestamp == 200


def test_an_end_marker_is_a_control_batch_of_one_record() -> None:
    for committed, kind in ((True, COMMIT), (False, ABORT)):
        raw = end_marker(
            committed=committed,
            coordinator_epoch=6,
            producer_id=5,
            producer_epoch=2,
            timestamp=99,
            base_offset=8,
        )
        header = check_crc(raw)
        assert (header.attributes, header.record_count, header.next_offset) == (0x30, 1, 9)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 2, -1)
        ((offset, timestamp, key, value, _),) = reader.read_rows(raw, 0, header)
        assert (offset, timestamp, control_kind(key)) == (8, 99, kind)
        assert value == bytes([0, 0, 0, 0, 0, 6])


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\1"])
def test_a_strange_control_key_is_no_known_kind(key: bytes | None) -> None:
    assert control_kind(key) == -1
