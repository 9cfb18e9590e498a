"""Headers: read, checked as a broker must, and rewritten in place."""

import struct
from collections.abc import Callable

import pytest

from headrace.records import batch
from headrace.records.batch import BatchHeader, check_batches, check_crc, check_replicated, read_header
from headrace.records.builder import build_batch, end_marker, rebuild_batch
from headrace.records.compression import Codec
from headrace.records.errors import (
    BadRecords,
    BatchTooLarge,
    CorruptBatch,
    InvalidBatch,
    UnsupportedCodec,
    UnsupportedMagic,
)
from headrace.records.reader import read_rows

MAX = 1 << 20
RECORDS = [(1_000 + index, b"key", b"value %d" % index, ()) for index in range(5)]


def sent(**changes: int) -> memoryview:
    """A good batch of five records with header fields overwritten, under a checksum that is right again."""
    raw = bytearray(build_batch(RECORDS))
    header = read_header(raw)._replace(**changes)
    batch.HEADER.pack_into(raw, 0, *header)
    if "length" not in changes:
        batch.renew_crc(raw, 0)
    return memoryview(raw)


def test_the_header_is_laid_out_as_kafka_documents_it() -> None:
    raw = build_batch(
        RECORDS,
        base_offset=7,
        leader_epoch=8,
        codec=Codec.GZIP,
        producer_id=9,
        producer_epoch=10,
        base_sequence=11,
        transactional=True,
    )
    assert batch.HEADER_BYTES == 61
    assert struct.unpack_from(">q", raw, batch.BASE_OFFSET_AT) == (7,)
    assert struct.unpack_from(">i", raw, batch.LENGTH_AT) == (len(raw) - 12,)
    assert struct.unpack_from(">i", raw, batch.LEADER_EPOCH_AT) == (8,)
    assert raw[batch.MAGIC_AT] == 2
    assert struct.unpack_from(">h", raw, batch.ATTRIBUTES_AT) == (0x11,)
    assert struct.unpack_from(">i", raw, batch.LAST_OFFSET_DELTA_AT) == (4,)
    assert struct.unpack_from(">q", raw, batch.BASE_TIMESTAMP_AT) == (1_000,)
    assert struct.unpack_from(">q", raw, batch.MAX_TIMESTAMP_AT) == (1_004,)
    assert struct.unpack_from(">q", raw, batch.PRODUCER_ID_AT) == (9,)
    assert struct.unpack_from(">h", raw, batch.PRODUCER_EPOCH_AT) == (10,)
    assert struct.unpack_from(">i", raw, batch.BASE_SEQUENCE_AT) == (11,)
    assert struct.unpack_from(">i", raw, batch.COUNT_AT) == (5,)
    header = read_header(raw)
    assert (header.size, header.last_offset, header.next_offset) == (len(raw), 11, 12)
    assert (header.last_sequence, header.codec, header.is_transactional) == (15, Codec.GZIP, True)
    assert (header.is_control, header.is_log_append_time, header.has_producer) == (False, False, True)


def test_sequences_wrap_after_the_largest_int32() -> None:
    raw = build_batch(RECORDS, producer_id=1, producer_epoch=0, base_sequence=0x7FFFFFFE)
    assert read_header(raw).last_sequence == 2
    assert read_header(build_batch(RECORDS)).last_sequence == batch.NO_SEQUENCE


def test_good_batches_back_to_back_pass() -> None:
    first, second = build_batch(RECORDS), build_batch(RECORDS, codec=Codec.ZSTD, base_offset=99)
    headers = check_batches(memoryview(first + second), MAX)
    assert headers == [read_header(first), read_header(second)]
    assert check_batches(memoryview(b""), MAX) == []


@pytest.mark.parametrize("leader_epoch", [-1, 0, 7])
def test_any_leader_epoch_and_any_base_offset_is_taken(leader_epoch: int) -> None:
    """Go clients send 0 or −1, and Kafka does not insist on a base offset of 0."""
    assert check_batches(sent(leader_epoch=leader_epoch, base_offset=55), MAX)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"length": -1}, CorruptBatch),
        ({"length": 48}, CorruptBatch),
        ({"length": 0x7FFFFFFF}, CorruptBatch),
        ({"length": -0x80000000}, CorruptBatch),
        ({"magic": 0}, UnsupportedMagic),
        ({"magic": 1}, UnsupportedMagic),
        ({"magic": 3}, UnsupportedMagic),
        ({"record_count": 0, "last_offset_delta": -1}, InvalidBatch),
        ({"record_count": -5, "last_offset_delta": -6}, InvalidBatch),
        ({"record_count": 5, "last_offset_delta": 5}, InvalidBatch),
        ({"record_count": 5, "last_offset_delta": -1}, InvalidBatch),
        ({"record_count": 0x7FFFFFFF, "last_offset_delta": 0x7FFFFFFE}, InvalidBatch),
        ({"record_count": 0x7FFFFFFF, "last_offset_delta": 0x7FFFFFFE, "attributes": 4}, InvalidBatch),
        ({"attributes": batch.CONTROL}, InvalidBatch),
        ({"attributes": batch.CONTROL | batch.TRANSACTIONAL}, InvalidBatch),
        ({"attributes": batch.TRANSACTIONAL}, InvalidBatch),
        ({"attributes": 5}, UnsupportedCodec),
        ({"attributes": 7}, UnsupportedCodec),
        ({"producer_id": 1, "producer_epoch": 0, "base_sequence": -1}, InvalidBatch),
        ({"producer_id": 1, "producer_epoch": -1, "base_sequence": 0}, InvalidBatch),
        ({"producer_id": -2, "producer_epoch": 0, "base_sequence": 0}, InvalidBatch),
    ],
)
def test_what_a_client_may_not_send_is_refused_by_type(
    changes: dict[str, int], fault: type[BadRecords]
) -> None:
    with pytest.raises(fault) as raised:
        check_batches(sent(**changes), MAX)
    assert raised.type is fault


def test_every_byte_under_the_checksum_is_guarded() -> None:
    good = build_batch(RECORDS[:1])
    for position in range(batch.CRC_AT, len(good)):
        raw = bytearray(good)
        raw[position] ^= 0x40
        with pytest.raises(CorruptBatch):
            check_batches(memoryview(raw), MAX)
        with pytest.raises(CorruptBatch):
            check_crc(raw)


def test_a_batch_cut_anywhere_is_corrupt() -> None:
    good = build_batch(RECORDS[:1])
    for size in range(1, len(good)):
        for check in (lambda view: check_batches(view, MAX), check_replicated):
            with pytest.raises(CorruptBatch):
                check(memoryview(good)[:size])


def test_bytes_after_the_last_batch_are_corrupt() -> None:
    for tail in (b"\0", build_batch(RECORDS)[:60], bytes(61)):
        with pytest.raises(CorruptBatch):
            check_batches(memoryview(build_batch(RECORDS) + tail), MAX)


def test_size_is_bounded_by_the_topic_and_asked_before_the_checksum() -> None:
    raw = build_batch(RECORDS)
    assert check_batches(memoryview(raw), len(raw))
    with pytest.raises(BatchTooLarge):
        check_batches(memoryview(raw), len(raw) - 1)
    with pytest.raises(BatchTooLarge):
        check_batches(memoryview(raw[:-1] + b"?"), len(raw) - 1)


def test_a_record_count_must_fit_the_bytes() -> None:
    """Eight records at the least take 56 bytes: a count of nine in that room is a lie."""
    raw = bytearray(build_batch([(0, None, None, ())] * 8))
    assert len(raw) == batch.HEADER_BYTES + 8 * batch.RECORD_BYTES_MIN
    assert check_batches(memoryview(raw), MAX)
    batch.HEADER.pack_into(raw, 0, *read_header(raw)._replace(record_count=9, last_offset_delta=8))
    batch.renew_crc(raw, 0)
    with pytest.raises(InvalidBatch):
        check_batches(memoryview(raw), MAX)


def test_compressed_records_may_take_less_than_seven_bytes_each() -> None:
    raw = build_batch([(0, None, b"same" * 25, ())] * 10_000, codec=Codec.ZSTD)
    assert len(raw) < 10_000 * batch.RECORD_BYTES_MIN
    assert check_batches(memoryview(raw), MAX)[0].record_count == 10_000


def test_a_batch_that_shrinks_ten_thousandfold_is_no_bomb() -> None:
    raw = build_batch([(0, None, bytes(MAX), ())] * 10, codec=Codec.ZSTD)
    assert len(raw) < 10 * MAX / 10_000
    (header,) = check_batches(memoryview(raw), MAX)
    assert [row[3] for row in read_rows(raw, 0, header)] == [bytes(MAX)] * 10


def test_followers_take_what_only_brokers_write() -> None:
    marker = end_marker(
        committed=True, coordinator_epoch=1, producer_id=4, producer_epoch=0, timestamp=5, base_offset=3
    )
    compacted = rebuild_batch([], base_offset=10, last_offset_delta=9, leader_epoch=2)
    headers = check_replicated(memoryview(marker + compacted))
    assert [header.next_offset for header in headers] == [4, 20]
    with pytest.raises(InvalidBatch):
        check_batches(memoryview(marker), MAX)


def test_a_place_in_the_log_leaves_the_checksum_right() -> None:
    raw = bytearray(b"before" + build_batch(RECORDS))
    batch.assign(raw, 6, 0x0102030405060708, 77)
    header = check_crc(raw, 6)
    assert (header.base_offset, header.leader_epoch) == (0x0102030405060708, 77)
    assert header._replace(base_offset=0, leader_epoch=-1) == read_header(build_batch(RECORDS))


@pytest.mark.parametrize("codec", list(Codec))
def test_append_time_goes_for_all_records(codec: Codec) -> None:
    raw = bytearray(build_batch(RECORDS, codec=codec))
    batch.assign_log_append_time(memoryview(raw), 0, 5_000)
    header = check_crc(raw)
    assert (header.is_log_append_time, header.max_timestamp, header.base_timestamp) == (True, 5_000, 1_000)
    assert [row[1] for row in read_rows(raw, 0, header)] == [5_000] * 5


@pytest.mark.parametrize("reading", [read_header, batch.batch_size, check_crc, batch.crc_of])
def test_reading_works_on_bytes_bytearrays_and_views(reading: Callable[..., BatchHeader | int]) -> None:
    raw = build_batch(RECORDS)
    assert reading(raw) == reading(bytearray(raw)) == reading(memoryview(raw)) == reading(b"xyz" + raw, 3)
