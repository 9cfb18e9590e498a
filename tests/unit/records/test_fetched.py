"""What a fetch brought: the offsets around it, control batches, aborted transactions, damage, columns."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.client.consumer.arrow import table_of
from headrace.records._columns import Columns
from headrace.records.batch import COUNT_AT, CRC_AT, HEADER_BYTES, MAGIC_AT, read_header, renew_crc
from headrace.records.builder import build_batch, end_marker, rebuild_batch
from headrace.records.errors import CorruptBatch, CorruptRecords, UnsupportedMagic
from headrace.records.fetched import Fetched


def batch(base_offset: int, count: int = 2, producer_id: int = -1) -> bytes:
    """Records whose values are their offsets; of a transaction if there is a producer."""
    transaction: dict[str, Any] = {
        "producer_id": producer_id,
        "producer_epoch": 0,
        "base_sequence": 0,
        "transactional": True,
    }
    return build_batch(
        [(1, None, b"%d" % offset, ()) for offset in range(base_offset, base_offset + count)],
        base_offset=base_offset,
        **(transaction if producer_id >= 0 else {}),
    )


def marker(base_offset: int, producer_id: int, *, committed: bool) -> bytes:
    return end_marker(
        committed=committed,
        coordinator_epoch=0,
        producer_id=producer_id,
        producer_epoch=0,
        timestamp=1,
        base_offset=base_offset,
    )


def offsets(source: Fetched, count: int = 100) -> list[int]:
    return [message.offset for message in source.take_messages(count)]


def test_nothing_came() -> None:
    source = Fetched("t", 0, b"", 7)
    assert (source.next_offset, source.end_offset, source.is_spent, source.size) == (7, 7, True, 0)
    assert source.take_messages(1) == []
    assert source.take_columns(Columns())


def test_a_batch_that_was_cut_off_is_left_for_the_next_fetch() -> None:
    source = Fetched("t", 0, batch(0) + batch(2)[:-1], 0)
    assert source.end_offset == 2
    assert offsets(source) == [0, 1]
    assert source.is_spent


def test_the_position_steps_over_what_compaction_took() -> None:
    thin = rebuild_batch([(5, 1, b"k", b"v", ())], base_offset=4, last_offset_delta=9, leader_epoch=0)
    empty = rebuild_batch([], base_offset=14, last_offset_delta=5, leader_epoch=0)
    source = Fetched("t", 0, thin + empty, 4)
    assert source.record_count == 1
    assert offsets(source, 1) == [5]
    assert source.next_offset == 14
    assert not source.is_spent
    assert source.take_messages(1) == []
    assert (source.next_offset, source.is_spent) == (20, True)


def test_offsets_come_with_the_epochs_of_their_leaders() -> None:
    older = build_batch([(1, None, b"v", ())] * 2, base_offset=0, leader_epoch=4)
    newer = build_batch([(1, None, b"v", ())] * 2, base_offset=2, leader_epoch=6)
    source = Fetched("t", 0, older + newer, 0)
    assert (source.next_epoch, source.end_epoch) == (-1, 6)
    told = []
    while not source.is_spent:
        source.take_messages(1)
        told.append((source.next_offset, source.next_epoch))
    assert told == [(1, 4), (2, 4), (3, 6), (4, 6)]


def test_detached_bytes_are_its_own() -> None:
    answer = bytearray(batch(0))
    source = Fetched("t", 0, memoryview(answer), 0)
    source.detach()
    answer[:] = bytes(len(answer))
    assert offsets(source) == [0, 1]


def test_control_batches_and_aborted_transactions_are_stepped_over() -> None:
    """Producer 1 aborts, commits and aborts again between the lines of producer 2 and of none."""
    log = b"".join(
        (
            batch(0, producer_id=1),
            batch(2, producer_id=2),
            batch(4),
            marker(6, 1, committed=False),
            batch(7, 1, producer_id=1),
            marker(8, 1, committed=True),
            marker(9, 2, committed=True),
            batch(10, producer_id=1),
            marker(12, 1, committed=False),
            batch(13, 1, producer_id=1),
        )
    )
    committed = [2, 3, 4, 5, 7, 13]
    source = Fetched("t", 0, log, 0, aborted=[(10, 1), (0, 1)])
    assert offsets(source) == committed
    assert source.next_offset == 14
    columns = Columns()
    assert Fetched("t", 0, log, 0, aborted=[(0, 1), (10, 1)]).take_columns(columns)
    assert table_of(columns)["offset"].to_pylist() == committed
    uncommitted = Fetched("t", 0, log, 0)
    assert offsets(uncommitted) == [0, 1, 2, 3, 4, 5, 7, 10, 11, 13]


def test_a_wrong_checksum_is_found_once_its_batch_is_wanted() -> None:
    damaged = bytearray(batch(0) + batch(2))
    damaged[len(batch(0)) + CRC_AT] ^= 1
    source = Fetched("t", 0, damaged, 0)
    assert offsets(source) == [0, 1]
    assert (source.next_offset, source.is_spent) == (2, False)
    for _ in range(2):
        with pytest.raises(CorruptBatch, match="offset 2"):
            source.take_messages(1)
    unchecked = Fetched("t", 0, damaged, 0, check_crcs=False)
    assert offsets(unchecked) == [0, 1, 2, 3]


def test_a_batch_that_is_none_is_told_when_it_is_the_first() -> None:
    strange = bytearray(batch(2))
    strange[MAGIC_AT] = 1
    with pytest.raises(UnsupportedMagic):
        Fetched("t", 0, strange, 2)
    source = Fetched("t", 0, batch(0) + strange, 0)
    assert offsets(source) == [0, 1]
    assert (source.end_offset, source.is_spent) == (2, True)


def test_columns_say_when_they_are_full() -> None:
    source = Fetched("t", 0, batch(0) + batch(2), 0)
    assert offsets(source, 1) == [0]

    class Full:
        row_count = 0

        def has_room(self, size: int) -> bool:
            return False

    assert not source.take_columns(Full())  # type: ignore[arg-type]
    assert source.next_offset == 1
    columns = Columns()
    assert source.take_columns(columns)
    assert table_of(columns)["value"].to_pylist() == [b"1", b"2", b"3"]


def test_no_memory_is_spent_on_what_a_header_claims() -> None:
    """Two billion records in one batch would take 100 GB of columns."""
    liar = bytearray(batch(0))
    liar[COUNT_AT : COUNT_AT + 4] = b"\x7f\xff\xff\xff"
    renew_crc(liar, 0)
    columns = Columns()
    with pytest.raises(CorruptRecords):
        Fetched("t", 0, liar, 0).take_columns(columns)
    assert columns.capacity < 100


def test_columns_have_32_bits() -> None:
    columns = Columns()
    assert columns.has_room((1 << 31) - 1)
    assert not columns.has_room(1 << 31)
    raw = batch(0)
    columns.add(raw[HEADER_BYTES:], 2, 0, 1, -1, "t", 0, 0)
    assert not columns.has_room((1 << 31) - 1)
    assert read_header(raw).record_count == columns.row_count


def test_the_columns_of_a_table() -> None:
    stamped = build_batch([(1, b"k", None, ())], base_offset=1, append_time=1_700_000_000_123)
    bare = build_batch([(-1, None, b"v", (("\udcff", None), ("h", b"x")))])
    columns = Columns()
    assert Fetched("ours", 2, bare + stamped, 0).take_columns(columns)
    assert Fetched("theirs", 0, batch(9, 1), 9).take_columns(columns)
    table = table_of(columns)
    table.validate(full=True)
    assert [str(field.type) for field in table.schema] == [
        "dictionary<values=string, indices=int32, ordered=0>",
        "int32",
        "int64",
        "timestamp[ms, tz=UTC]",
        "dictionary<values=string, indices=int8, ordered=0>",
        "binary",
        "binary",
        "list<item: struct<key: string not null, value: binary> not null>",
    ]
    first, second, third = table.to_pylist()
    assert first["timestamp"] is None
    assert first["headers"] == [{"key": "\ufffd", "value": None}, {"key": "h", "value": b"x"}]
    assert (second["topic"], second["partition"], second["offset"]) == ("ours", 2, 1)
    assert (second["key"], second["value"], second["headers"]) == (b"k", None, [])
    assert second["timestamp"].timestamp() == 1_700_000_000.123
    assert [row["timestamp_type"] for row in (first, second)] == ["create_time", "log_append_time"]
    assert (third["topic"], third["partition"], third["offset"], third["value"]) == ("theirs", 0, 9, b"9")


def test_a_table_without_rows_has_the_same_columns() -> None:
    empty, full = Columns(), Columns()
    assert Fetched("t", 0, batch(0), 0).take_columns(full)
    assert table_of(empty).schema == table_of(full).schema
    assert table_of(empty).num_rows == 0
