"""States of transactions read many at a time are what the general decoder reads, in both forms."""

from types import ModuleType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.interpreted import interpreted
from headrace.machines.transactions.transaction import State, Transaction, recorded
from headrace.protocol import _transaction_states
from headrace.protocol.compiler import codec
from headrace.protocol.coordinator_records import TRANSACTION_RECORDS, decode, encode
from headrace.protocol.coordinator_records.transactions import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from headrace.protocol.errors import ProtocolError
from headrace.records.batch import CONTROL, TRANSACTIONAL, assign, renew_crc
from headrace.records.builder import build_batch
from headrace.records.compression import Codec
from headrace.records.errors import BadRecords
from headrace.records.reader import batches, read_rows

INTERPRETED = interpreted("_codec", "_transaction_states").transaction_states
FORMS = pytest.mark.parametrize("form", [_transaction_states, INTERPRETED], ids=["as built", "interpreted"])
STATES = tuple(State)

int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.sampled_from(["", "a", "b", "ü", "n" * 200]) | st.text(max_size=8)
topics = st.builds(PartitionsSchema, topic=names, partition_ids=st.lists(int32, max_size=4))
many = st.builds(PartitionsSchema, topic=names, partition_ids=st.lists(int32, min_size=130, max_size=140))
values = st.builds(
    TransactionLogValue,
    producer_id=int64,
    previous_producer_id=st.just(-1) | int64,
    next_producer_id=st.just(-1) | int64,
    producer_epoch=int16,
    next_producer_epoch=st.just(-1) | int16,
    transaction_timeout_ms=int32,
    transaction_status=st.integers(0, 7),
    transaction_partitions=st.none() | st.lists(topics, max_size=3) | st.lists(many, max_size=2),
    transaction_last_update_timestamp_ms=int64,
    transaction_start_timestamp_ms=int64,
    client_transaction_version=st.just(0) | int16,
)
Row = tuple[bytes | None, bytes | None]


def row_of(name: str, value: TransactionLogValue | None, version: int = 1) -> Row:
    key = b"\0\0" + codec(TransactionLogKey, 0).encode(TransactionLogKey(transactional_id=name))
    if value is None:
        return key, None
    if version == 0:
        value = TransactionLogValue(
            producer_id=value.producer_id,
            producer_epoch=value.producer_epoch,
            transaction_timeout_ms=value.transaction_timeout_ms,
            transaction_status=value.transaction_status,
            transaction_partitions=value.transaction_partitions,
            transaction_last_update_timestamp_ms=value.transaction_last_update_timestamp_ms,
            transaction_start_timestamp_ms=value.transaction_start_timestamp_ms,
        )
    return key, version.to_bytes(2, "big") + codec(TransactionLogValue, version).encode(value)


rows = st.builds(row_of, names, values, st.integers(0, 1)) | st.builds(row_of, names, st.none())


@st.composite
def damaged_rows(draw: st.DrawFn) -> Row:
    """Some bytes are others, some are missing or too many."""
    row = list(draw(rows))
    part = draw(st.integers(0, 1))
    chosen = row[part]
    if chosen is None:
        return None, draw(st.none() | st.binary(max_size=4))
    spoiled = bytearray(chosen)
    for _ in range(draw(st.integers(0, 3))):
        spoiled[draw(st.integers(0, len(spoiled) - 1))] = draw(st.integers(0, 255))
    spoiled += draw(st.sampled_from([b"", b"", b"\0", b"\1\7\1a"]))
    row[part] = bytes(spoiled[: len(spoiled) - draw(st.integers(0, 3))])
    return row[0], row[1]


@st.composite
def logs(draw: st.DrawFn, records: Any) -> bytes:
    """Batches of every kind, in the order of their offsets, the last one cut off at times."""
    offset = draw(st.integers(0, 5))
    log = b""
    for _ in range(draw(st.integers(1, 5))):
        some = draw(st.lists(records, min_size=1, max_size=6))
        batch = bytearray(
            build_batch(
                [(5, key, value, draw(st.just(()) | st.just((("h", b"v"),)))) for key, value in some],
                codec=draw(st.sampled_from([Codec.NONE, Codec.NONE, Codec.NONE, Codec.GZIP])),
            )
        )
        assign(batch, 0, offset, 0)
        if draw(st.integers(0, 9)) == 0:
            batch[22] |= draw(st.sampled_from([TRANSACTIONAL, CONTROL]))
            renew_crc(batch, 0)
        log += bytes(batch)
        offset += len(some) + draw(st.integers(0, 2))
    return log[: len(log) - draw(st.sampled_from([0, 0, 0, 1, 40, 100]))]


def said(offset: int, key: bytes | None, value: bytes | None) -> Any:
    """What the general decoder says about a record: its state, the id of a tombstone, or nothing of use."""
    try:
        record = None if key is None else decode(TRANSACTION_RECORDS, key, value)
    except ProtocolError as fault:
        return offset, str(fault)
    if record is None:
        return None
    known: Any = record.key
    if record.value is None:
        return known.transactional_id
    state: Any = record.value
    if not 0 <= state.transaction_status < len(STATES):
        return offset, "no such state"
    return recorded(known.transactional_id, state)


def expected(log: bytes, from_offset: int) -> tuple[list[Any], int, str]:
    """Everything in the log, and where and how it ends."""
    found: list[Any] = []
    offset = from_offset
    try:
        for position, header in batches(log):
            if header.last_offset < offset:
                continue
            if header.is_control or header.is_transactional:
                found.append(header.attributes)
            else:
                for at, _, key, value, _ in read_rows(log, position, header):
                    if at >= offset:
                        found.append(said(at, key, value))
            offset = header.last_offset + 1
    except BadRecords as fault:
        return found, offset, str(fault)
    return found, offset, ""


def read(form: ModuleType, log: bytes, from_offset: int, items: int) -> tuple[list[Any], int, str]:
    """The same as the loader reads it."""
    found: list[Any] = []
    offset = from_offset
    position = 0
    try:
        while True:
            reader = form.StateReader(log, position, offset, Transaction, STATES)
            while (entries := reader.read(items)) is not None:
                for entry in entries:
                    if type(entry) is dict:
                        assert all(name == state.transactional_id for name, state in entry.items())
                        found.append(entry)
                    elif type(entry) is list:
                        found += entry
                    else:
                        assert not is_usual(*entry[1:])
                        found.append(said(*entry))
                offset = reader.next_offset
            rest = next(batches(log, reader.position), None)
            if rest is None:
                return found, offset, ""
            position, header = rest
            if header.last_offset >= offset:
                is_unusual = bool(header.is_control or header.is_transactional)
                if is_unusual:
                    found.append(header.attributes)
                else:
                    rows = read_rows(log, position, header)
                    assert header.codec, "an ordinary batch is not for the general decoder"
                    found += [said(at, key, value) for at, _, key, value, _ in rows if at >= offset]
                offset = header.last_offset + 1
            position += header.size
    except BadRecords as fault:
        return found, offset, str(fault)


def is_usual(key: bytes | None, value: bytes | None) -> bool:
    """What must not be left to the general decoder: it would be slow, and nobody would notice."""
    if key is None:
        return False
    try:
        record = decode(TRANSACTION_RECORDS, key, value)
    except ProtocolError:
        return False
    if record is None:
        return False
    if record.value is None:
        return True
    state: Any = record.value
    return state.transaction_status in range(8) and encode(record) == (key, value)


def in_turn(found: list[Any]) -> list[Any]:
    """One dict for all states between other things, as a load would leave them."""
    merged: list[Any] = []
    for each in found:
        states = each if type(each) is dict else {each[0]: each} if type(each) is Transaction else None
        if states is None:
            merged.append(each)
        elif merged and type(merged[-1]) is dict:
            merged[-1].update(states)
        else:
            merged.append(dict(states))
    return merged


def ordered(found: list[Any]) -> list[Any]:
    """With the order in which dicts were filled, and the types of what is in them."""
    return [
        [(name, type(state), *map(type, state), state) for name, state in each.items()]
        if type(each) is dict
        else each
        for each in in_turn(found)
    ]


@FORMS
@settings(max_examples=80, deadline=None)
@given(log=logs(rows), from_offset=st.integers(0, 12), items=st.integers(1, 300))
def test_a_log_is_read_as_the_general_decoder_reads_it(
    form: ModuleType, log: bytes, from_offset: int, items: int
) -> None:
    found, offset, fault = read(form, log, from_offset, items)
    wanted, wanted_offset, wanted_fault = expected(log, from_offset)
    assert ordered(found) == ordered(wanted)
    assert (offset, fault) == (wanted_offset, wanted_fault)


@FORMS
@settings(max_examples=100, deadline=None)
@given(log=logs(rows | damaged_rows()), items=st.integers(1, 300))
def test_so_is_a_log_with_malformed_records(form: ModuleType, log: bytes, items: int) -> None:
    found, offset, fault = read(form, log, 0, items)
    wanted, wanted_offset, wanted_fault = expected(log, 0)
    assert ordered(found) == ordered(wanted)
    assert (offset, fault) == (wanted_offset, wanted_fault)


@FORMS
@settings(max_examples=100, deadline=None)
@given(
    log=logs(rows),
    damages=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=3),
    has_sum=st.booleans(),
)
def test_so_is_a_log_with_damaged_batches(
    form: ModuleType, log: bytes, damages: list[tuple[int, int]], has_sum: bool
) -> None:
    """At the damage both stop. What was read of the damaged batch does not count: the load has failed."""
    spoiled = bytearray(log)
    for position, byte in damages:
        spoiled[position % len(spoiled)] = byte
    if has_sum:
        try:
            for position, _ in batches(bytes(spoiled), check=False):
                renew_crc(spoiled, position)
        except BadRecords:
            pass
    found, offset, fault = read(form, bytes(spoiled), 0, 7)
    wanted, wanted_offset, wanted_fault = expected(bytes(spoiled), 0)
    assert (offset, fault) == (wanted_offset, wanted_fault)
    if not fault:
        assert ordered(found) == ordered(wanted)


@FORMS
def test_a_value_that_is_cut_anywhere_is_handed_on(form: ModuleType) -> None:
    whole = TransactionLogValue(
        producer_id=1,
        previous_producer_id=2,
        next_producer_id=3,
        next_producer_epoch=4,
        producer_epoch=5,
        transaction_status=State.ONGOING,
        transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[6, 7])],
        client_transaction_version=2,
    )
    for version in (0, 1):
        if version == 0:
            whole = TransactionLogValue(
                producer_id=1,
                transaction_status=State.ONGOING,
                transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[6, 7])],
            )
        key, value = row_of("id", whole, version)
        assert value is not None
        for size in range(len(value)):
            batch = build_batch([(5, key, value[:size], ())])
            reader = form.StateReader(batch, 0, 0, Transaction, STATES)
            assert reader.read(100) == [(0, key, value[:size])]
            assert reader.read(100) is None
            assert (reader.position, reader.next_offset) == (len(batch), 1)


@FORMS
def test_a_state_that_does_not_exist_is_handed_on(form: ModuleType) -> None:
    for number in (8, 127, -1):
        key, value = row_of("id", TransactionLogValue(transaction_status=number))
        batch = build_batch([(5, key, value, ())])
        assert form.StateReader(batch, 0, 0, Transaction, STATES).read(1) == [(0, key, value)]


@FORMS
def test_partitions_count_as_work(form: ModuleType) -> None:
    """So that a call takes as long with large transactions as with small ones."""
    places = [PartitionsSchema(topic="t", partition_ids=list(range(50)))]
    value = TransactionLogValue(transaction_status=State.ONGOING, transaction_partitions=places)
    batch = build_batch([(5, *row_of(f"id-{number}", value), ()) for number in range(5)])
    reader = form.StateReader(batch, 0, 0, Transaction, STATES)
    sizes = []
    while (entries := reader.read(100)) is not None:
        sizes.append((reader.items, [len(entry) for entry in entries]))
    assert sizes == [(102, [2]), (102, [2]), (51, [1])]


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=200), position=st.integers(0, 20))
@example(data=b"", position=0)
def test_both_forms_read_the_same_of_anything(data: bytes, position: int) -> None:
    position = min(position, len(data))
    outcomes = []
    for form in (_transaction_states, INTERPRETED):
        reader = form.StateReader(data, position, 0, Transaction, STATES)
        entries: list[Any] = []
        while (more := reader.read(3)) is not None:
            entries += more
        outcomes.append((entries, reader.position, reader.next_offset))
    assert outcomes[0] == outcomes[1]


@FORMS
def test_what_cannot_be_asked(form: ModuleType) -> None:
    for position in (-1, 3):
        with pytest.raises(ValueError, match="position"):
            form.StateReader(b"ab", position, 0, Transaction, STATES)
    with pytest.raises(ValueError, match="states"):
        form.StateReader(b"ab", 0, 0, Transaction, STATES[:2])


HEAD = bytes(8) + bytes(2) + bytes(4) + b"\1"  # producer, epoch, timeout, state
TIMES = bytes(16)
NONE, ONE = b"\xff\xff\xff\xff", b"\0\0\0\1"


@FORMS
@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"\0\0" + HEAD + b"\xff\xff\xff\xfe" + TIMES, id="so many topics"),
        pytest.param(b"\0\0" + HEAD + ONE + b"\0\1t" + NONE + TIMES, id="no array of partitions"),
        pytest.param(b"\0\0" + HEAD + ONE + b"\xff\xff" + ONE + ONE + TIMES, id="no topic"),
        pytest.param(b"\0\1" + HEAD + b"\2\2t\0\0" + TIMES + b"\0", id="no compact array of partitions"),
        pytest.param(b"\0\1" + HEAD + b"\2\0\1\0" + TIMES + b"\0", id="no compact topic"),
        pytest.param(b"\0\1" + HEAD + b"\2\2t\1\1\7\1a" + TIMES + b"\0", id="a tag of the topic"),
        pytest.param(b"\0\1" + HEAD + b"\0" + TIMES + b"\2\2\2\0\2\2\2\0\3", id="a tag twice"),
        pytest.param(b"\0\1" + HEAD + b"\0" + TIMES + b"\2\3\2\0\1\2\2\0\2", id="tags in disorder"),
        pytest.param(b"\0\1" + HEAD + b"\0" + TIMES + b"\2\2\2\0\2\7\1a", id="a tag that nobody knows"),
        pytest.param(b"\0\1" + HEAD + b"\x80\0" + TIMES + b"\0", id="a long varint"),
        pytest.param(b"\0\2" + HEAD + b"\0" + TIMES + b"\0", id="a version of the future"),
    ],
)
def test_unusual_values(form: ModuleType, value: bytes) -> None:
    key, _ = row_of("id", None)
    usual = row_of("id", TransactionLogValue())
    batch = build_batch([(5, *usual, ()), (5, key, value, ()), (5, *usual, ())])
    assert ordered(read(form, batch, 0, 9)[0]) == ordered(expected(batch, 0)[0])
