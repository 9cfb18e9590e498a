"""Offsets written and read many at a time are what the general codec writes and reads, in both forms."""

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.interpreted import interpreted
from headrace.protocol import _offset_commits
from headrace.protocol.compiler import codec
from headrace.protocol.coordinator_records import GROUP_RECORDS, Record, decode, encode, encode_batch
from headrace.protocol.coordinator_records.groups import OffsetCommitKey, OffsetCommitValue
from headrace.protocol.coordinator_records.offset_commits import OffsetCommits, TopicColumns
from headrace.protocol.errors import MalformedMessage, ProtocolError, UnencodableMessage
from headrace.records import _codec
from headrace.records.builder import build_batch
from headrace.records.errors import CorruptRecords

INTERPRETED = interpreted("_codec", "_offset_commits").offset_commits
FORMS = pytest.mark.parametrize("form", [_offset_commits, INTERPRETED], ids=["as built", "interpreted"])

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
ids = st.sampled_from([bytes(16), b"0123456789abcdef", b"another topic id"])
names = st.text(max_size=12)
row = st.tuples(int32, int64, int32, st.sampled_from(["", "", "m", "ü" * 70, "long " * 40, "x" * 9_000]))


@st.composite
def commits(draw: st.DrawFn) -> OffsetCommits:
    topics = []
    for _ in range(draw(st.integers(1, 3))):
        rows = draw(st.lists(row, min_size=1, max_size=150))
        columns: Any = [list(column) for column in zip(*rows)]
        topics.append(TopicColumns(draw(names), draw(ids), *columns))
    wall_ms = draw(st.integers(0, 2**62))
    expires_ms = draw(st.just(-1) | st.integers(0, 2**62))
    return OffsetCommits(draw(names), topics, wall_ms, expires_ms)


@FORMS
@settings(max_examples=60, deadline=None)
@given(records=commits())
def test_the_bytes_of_a_commit(form: ModuleType, records: OffsetCommits) -> None:
    wall_ms = records.commit_ms
    expected = build_batch([(wall_ms, *encode(record), ()) for record in records])
    assert encode_batch(records, wall_ms) == expected
    first_delta = 0
    group = records.group.encode()
    for topic in records.topics:
        arguments: Any = (topic.topic_id, *topic[2:], wall_ms, records.expires_ms)
        encoded = form.encode_commits(group, topic.topic.encode(), *arguments, first_delta)
        assert encoded in expected
        first_delta += len(topic.partitions)


@FORMS
@settings(max_examples=60, deadline=None)
@given(records=commits(), slice_records=st.integers(1, 200), skipped=st.integers(0, 20))
def test_a_commit_is_read_again(
    form: ModuleType, records: OffsetCommits, slice_records: int, skipped: int
) -> None:
    """A record of version 1 has no leader epoch and no topic id."""
    expected: dict[tuple[str, str, int], Any] = {}
    for record in list(records)[skipped:]:
        key: Any = record.key
        value: Any = record.value
        at_rest: Any = codec(OffsetCommitValue, 4 if value.expire_timestamp == -1 else 1)
        value = at_rest.decode(at_rest.encode(value))
        expected.pop((key.group, key.topic, key.partition), None)
        expected[key.group, key.topic, key.partition] = committed(value)
    encoded = records.encoded(records.commit_ms)
    found: dict[tuple[str, str, int], Any] = {}
    reader = form.CommitReader(encoded, len(records), 7, records.commit_ms, 7 + skipped)
    while (entries := reader.read(slice_records)) is not None:
        for group, topic, kept in entries:
            assert isinstance(group, str)
            found.update({(group, topic, partition): value for partition, value in kept.items()})
    assert found == expected
    if records.expires_ms == -1 and not skipped:
        kept = {
            (each.group, each.topic, at): of
            for each in records.changes()
            for at, of in each.committed.items()
        }
        assert kept == expected


def committed(value: OffsetCommitValue) -> tuple[Any, ...]:
    return (
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
    )


records_of_all_versions = st.builds(
    lambda key, value, version: (
        b"\0\1" + codec(OffsetCommitKey, 0).encode(key),
        version.to_bytes(2, "big") + codec(OffsetCommitValue, version).encode(value),
    ),
    st.builds(OffsetCommitKey, group=names, topic=names, partition=int32),
    st.builds(
        OffsetCommitValue,
        offset=int64,
        leader_epoch=int32,
        metadata=st.text(max_size=150),
        commit_timestamp=int64,
        expire_timestamp=int64,
        topic_id=ids,
    ),
    st.integers(0, 4),
)
damaged = st.lists(
    st.tuples(
        records_of_all_versions,
        st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3),
        st.integers(0, 40),  # bytes that are cut off, if the last one is set
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


@FORMS
@settings(max_examples=150, deadline=None)
@given(rows=damaged)
def test_whatever_is_read_says_what_the_general_decoder_says(form: ModuleType, rows: Any) -> None:
    """Damaged or not: it is read as the same, or handed on untouched."""
    written: list[tuple[bytes | None, bytes | None]] = []
    for (key, value), damages, cut, is_cut in rows:
        parts = bytearray(key + value)
        for position, byte in damages:
            parts[position % len(parts)] = byte
        key, value = bytes(parts[: len(key)]), bytes(parts[len(key) :])
        if is_cut:
            key, value = key[: len(key) - cut // 10], value[: max(0, len(value) - cut)]
        written += [(key, value), (key, None), (None, value), (key, value)]
    encoded = _codec.encode([(5, key, value, ()) for key, value in written], 5)
    reader = form.CommitReader(encoded, len(written), 0, 5, 0)
    found: list[Any] = []
    while (entries := reader.read(1)) is not None:
        found += entries
    assert len(found) == len(written)
    for number, (entry, (key, value)) in enumerate(zip(found, written)):
        if isinstance(entry[0], str):
            assert key is not None
            record = decode(GROUP_RECORDS, key, value)
            assert record is not None
            of: Any = record
            assert entry == (of.key.group, of.key.topic, {of.key.partition: committed(of.value)})
        else:
            assert entry == (number, key, value)
            assert not is_usual(key, value)


@FORMS
def test_a_value_that_is_cut_anywhere_is_handed_on(form: ModuleType) -> None:
    value = OffsetCommitValue(offset=1, leader_epoch=2, metadata="m", commit_timestamp=5, topic_id=b"i" * 16)
    key, whole = encode(Record(OffsetCommitKey(group="g", topic="t", partition=3), value))
    assert whole is not None
    for size in range(len(whole)):
        encoded = _codec.encode([(5, key, whole[:size], ())], 5)
        assert form.CommitReader(encoded, 1, 0, 5, 0).read(1) == [(0, key, whole[:size])]


def is_usual(key: bytes | None, value: bytes | None) -> bool:
    """What must not be left to the general decoder: it would be slow, and nobody would notice."""
    if key is None or value is None:
        return False
    try:
        record = decode(GROUP_RECORDS, key, value)
    except (MalformedMessage, ProtocolError):
        return False
    return record is not None and type(record.key) is OffsetCommitKey and encode(record) == (key, value)


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=200), count=st.integers(0, 8))
def test_both_forms_refuse_the_same(data: bytes, count: int) -> None:
    outcomes = []
    for form in (_offset_commits, INTERPRETED):
        try:
            reader = form.CommitReader(data, count, 0, 0, 0)
            entries: list[Any] = []
            while (more := reader.read(3)) is not None:
                entries += more
            outcomes.append(entries)
        except CorruptRecords as fault:
            outcomes.append([str(fault)])
    assert outcomes[0] == outcomes[1]


@FORMS
def test_what_cannot_be_written(form: ModuleType) -> None:
    columns: Any = ([1], [2], [3], ["m" * 40_000])
    with pytest.raises(UnencodableMessage):
        form.encode_commits(b"g" * 40_000, b"t", bytes(16), *columns, 1, -1, 0)
    with pytest.raises(UnencodableMessage):
        form.encode_commits(b"g", b"t", bytes(16), *columns, 1, 5, 0)  # version 1 has short texts only
    with pytest.raises(UnencodableMessage):
        form.encode_commits(b"g", b"t", bytes(16), [1, 2], [2], [3], [""], 1, -1, 0)


@FORMS
def test_partitions_of_topics_that_are_gone(form: ModuleType) -> None:
    one, other = b"0123456789abcdef", b"another topic id"
    kept = {0: (1, -1, "", 5, -1, one), 1: (1, -1, "", 5, -1, other), 2: (1, -1, "", 5, -1, bytes(16))}
    assert form.gone_partitions(kept, None) == [0, 1, 2]
    assert form.gone_partitions(kept, one) == [1]
    assert form.gone_partitions(kept, bytes(bytearray(other))) == [0]


def test_a_commit_reads_like_a_list_of_records() -> None:
    records = OffsetCommits("g", [TopicColumns("t", bytes(16), [3], [4], [5], [None])], 6, -1)
    value = OffsetCommitValue(offset=4, leader_epoch=5, metadata="", commit_timestamp=6)
    assert records == [Record(OffsetCommitKey(group="g", topic="t", partition=3), value)]
    assert len(records) == 1
    assert records != []
