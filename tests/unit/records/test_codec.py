"""The records inside a batch, byte by byte, in both forms of the codec."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from headrace.records.errors import CorruptRecords, InvalidBatch

INT64_MAX = (1 << 63) - 1


def varint(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def body(
    timestamp: bytes = b"\0",
    offset: bytes = b"\0",
    key: bytes = b"\x01",
    value: bytes = b"\x01",
    tail: bytes = b"\0",
) -> bytes:
    """A record without its length, field by field; key and value are null unless given."""
    return b"\0" + timestamp + offset + key + value + tail


def sized(*bodies: bytes) -> bytes:
    return b"".join(varint(len(each)) + each for each in bodies)


MALFORMED = {
    "nothing at all": b"",
    "only a length": b"\x0c",
    "a length that never ends": b"\xff" * 20,
    "a length of six bytes": b"\x8c\x80\x80\x80\x80\x00" + body(),
    "a negative length": varint(-1) + body(),
    "a length below the least": varint(5) + body(),
    "a length beyond the end": varint(7) + body(),
    "a length of 2 GiB": varint(0x7FFFFFFF) + body(),
    "a record cut short": sized(body(key=varint(3) + b"abc"))[:-1],
    "a timestamp of eleven bytes": sized(body(timestamp=b"\x80" * 10 + b"\0")),
    "a timestamp of more than 64 bits": sized(body(timestamp=b"\xff" * 9 + b"\x02")),
    "a timestamp that never ends": sized(body(timestamp=b"\xff" * 9)),
    "a timestamp that overflows": sized(body(timestamp=varint(INT64_MAX))),
    "a negative offset delta": sized(body(offset=varint(-1))),
    "an offset delta above int32": sized(body(offset=b"\x80\x80\x80\x80\x10")),
    "a key length below -1": sized(body(key=varint(-2))),
    "a key beyond the record": sized(body(key=varint(3) + b"a"), body()),
    "a key of 2 GiB": sized(body(key=varint(0x7FFFFFFF))),
    "a value length below -1": sized(body(value=varint(-2))),
    "a value beyond the record": sized(body(value=varint(3)), body()),
    "a value of 2 GiB": sized(body(value=varint(0x7FFFFFFF))),
    "a key that fills the record": sized(body(key=varint(2) + b"ab", value=b"", tail=b"")),
    "a value that fills the record": sized(body(value=varint(3) + b"abc", tail=b"")),
    "no header count": sized(b"\0\0\0\x01\x80\x00"),
    "a negative header count": sized(body(tail=varint(-1))),
    "more headers than bytes": sized(body(tail=varint(2) + b"\0\0")),
    "a million headers": sized(body(tail=varint(1_000_000))),
    "a null header key": sized(body(tail=varint(1) + varint(-1) + b"\0")),
    "a header key beyond the record": sized(body(tail=varint(1) + varint(9) + b"k\0")),
    "a header value length below -1": sized(body(tail=varint(1) + b"\0" + varint(-2))),
    "a header value beyond the record": sized(body(tail=varint(1) + b"\0" + varint(9) + b"v")),
    "bytes after the headers": sized(body(tail=b"\0\0")),
    "bytes after the last record": sized(body()) + b"\0",
    "one record too many": sized(body(), body()),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_records_are_refused_by_every_decoder(
    codec: ModuleType, new_columns: Callable[[], Any], name: str
) -> None:
    records = MALFORMED[name]
    with pytest.raises(CorruptRecords):
        codec.decode_rows(records, 1, 0, 1_000, -1)
    columns = new_columns()
    with pytest.raises(CorruptRecords):
        columns.add(records, 1, 0, 1_000, -1, "t", 0, 0)
    assert columns.row_count == 0
    with pytest.raises(CorruptRecords):
        codec.validate(records, 1, 1_000, False)
    with pytest.raises(CorruptRecords):
        codec.latest(records, 1, 0, 1_000)
    with pytest.raises(CorruptRecords):
        codec.first_from(records, 1, 0, 1_000, INT64_MAX)
    if "overflows" not in name:  # the cleaner does not look at time
        with pytest.raises(CorruptRecords):
            codec.decode_keys(records, 1, 0)


@pytest.mark.parametrize("count", [-1, 2, 1 << 31, 1 << 40])
def test_a_wrong_count_is_refused_before_anything_is_made(
    codec: ModuleType, new_columns: Callable[[], Any], count: int
) -> None:
    with pytest.raises(CorruptRecords):
        codec.decode_rows(sized(body()), count, 0, 0, -1)
    columns = new_columns()
    with pytest.raises(CorruptRecords):
        columns.add(sized(body()), count, 0, 0, -1, "t", 0, 0)
    assert columns.capacity <= 2


@pytest.mark.parametrize("base_offset", [-1, INT64_MAX, INT64_MAX - 0x7FFFFFFE])
def test_offsets_stay_int64(codec: ModuleType, new_columns: Callable[[], Any], base_offset: int) -> None:
    with pytest.raises(CorruptRecords):
        codec.decode_rows(sized(body()), 1, base_offset, 0, -1)
    with pytest.raises(CorruptRecords):
        new_columns().add(sized(body()), 1, base_offset, 0, -1, "t", 0, 0)


def test_an_empty_batch_has_no_rows(codec: ModuleType, new_columns: Callable[[], Any]) -> None:
    """The cleaner leaves such batches to remember a producer's last sequence."""
    assert codec.decode_rows(b"", 0, 5, -1, -1) == []
    assert codec.decode_keys(b"", 0, 5) == []
    assert codec.latest(b"", 0, 5, -1) is None
    assert codec.first_from(b"", 0, 5, -1, 0) is None
    columns = new_columns()
    columns.add(b"", 0, 5, -1, -1, "t", 0, 0)
    assert columns.row_count == 0
    assert codec.encode([], 0) == b""


def test_the_smallest_record_takes_seven_bytes(codec: ModuleType) -> None:
    assert codec.encode([(5, None, None, ())], 5) == sized(body())
    assert codec.decode_rows(sized(body()), 1, 7, 5, -1) == [(7, 5, None, None, ())]


@pytest.mark.parametrize("base", [0, 1, -1, INT64_MAX, -INT64_MAX - 1])
@pytest.mark.parametrize(
    "delta", [0, 1, -1, 63, 64, -64, -65, 8191, 8192, 1 << 40, INT64_MAX, -INT64_MAX - 1]
)
def test_timestamps_are_exact_to_the_ends_of_int64(codec: ModuleType, base: int, delta: int) -> None:
    records = sized(body(timestamp=varint(delta)))
    if -INT64_MAX - 1 <= base + delta <= INT64_MAX:
        assert codec.decode_rows(records, 1, 0, base, -1)[0][1] == base + delta
        assert codec.latest(records, 1, 0, base) == (0, base + delta)
        assert codec.validate(records, 1, base, False) == base + delta
    else:
        with pytest.raises(CorruptRecords):
            codec.decode_rows(records, 1, 0, base, -1)


def test_time_look_ups_give_the_record_and_its_own_timestamp(codec: ModuleType) -> None:
    """Timestamps need not be in order: the first record that is late enough counts, the first latest too."""
    times = [1_000, 1_400, 900, 1_900, 1_200, 1_900]
    records = codec.encode([(time, None, None, ()) for time in times], 1_000)
    assert codec.first_from(records, 6, 50, 1_000, 0) == (50, 1_000)
    assert codec.first_from(records, 6, 50, 1_000, 1_001) == (51, 1_400)
    assert codec.first_from(records, 6, 50, 1_000, 1_500) == (53, 1_900)
    assert codec.first_from(records, 6, 50, 1_000, 1_901) is None
    assert codec.latest(records, 6, 50, 1_000) == (53, 1_900)


def test_a_cleaned_batch_keeps_its_gaps(codec: ModuleType) -> None:
    rows = [(12, 5, b"a", b"1", ()), (17, 3, b"b", None, (("h", b"x"),)), (300, 9, b"c", b"", ())]
    records = codec.encode_at(rows, 10, 5)
    assert codec.decode_rows(records, 3, 10, 5, -1) == rows
    assert codec.decode_keys(records, 3, 10) == [(12, b"a", False), (17, b"b", True), (300, b"c", False)]
    with pytest.raises(InvalidBatch, match="offset delta 2"):
        codec.validate(records, 3, 5, False)


@pytest.mark.parametrize("offset", [9, 10 + (1 << 31)])
def test_offsets_out_of_reach_are_not_written(codec: ModuleType, offset: int) -> None:
    with pytest.raises(ValueError):
        codec.encode_at([(offset, 0, None, None, ())], 10, 0)


@pytest.mark.parametrize(("timestamp", "base"), [(-2, 0), (0, -2), (INT64_MAX, -1)])
def test_timestamps_out_of_reach_are_not_written(codec: ModuleType, timestamp: int, base: int) -> None:
    with pytest.raises(ValueError):
        codec.encode([(timestamp, None, None, ())], base)


def test_validation_asks_for_consecutive_offsets_and_for_keys(codec: ModuleType) -> None:
    keyed = codec.encode([(1, b"", None, ()), (9, b"k", b"v", ()), (4, b"k", b"v", ())], 1)
    assert codec.validate(keyed, 3, 1, True) == 9
    keyless = codec.encode([(1, b"k", None, ()), (2, None, b"v", ())], 1)
    assert codec.validate(keyless, 2, 1, False) == 2
    with pytest.raises(InvalidBatch, match="no key"):
        codec.validate(keyless, 2, 1, True)


def test_header_keys_that_are_not_utf8_survive(codec: ModuleType) -> None:
    records = sized(body(tail=varint(1) + varint(2) + b"\xff\xfe" + varint(-1)))
    rows = codec.decode_rows(records, 1, 0, 0, -1)
    assert codec.encode_at(rows, 0, 0) == records


def test_ten_thousand_headers_are_read(codec: ModuleType) -> None:
    headers = tuple((f"h{index}", None if index % 2 else b"v") for index in range(10_000))
    records = codec.encode([(0, b"k", b"v", headers)], 0)
    assert codec.decode_rows(records, 1, 0, 0, -1)[0][4] == headers


@pytest.mark.parametrize("position", [-1, 4, 100])
def test_headers_are_only_read_inside_the_bytes(codec: ModuleType, position: int) -> None:
    with pytest.raises(CorruptRecords):
        codec.decode_headers(b"\0\0\0", position, 1)
