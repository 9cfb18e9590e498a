"""Arrays of flat structs as columns say what the general codec says, in both forms, also about bad bytes."""

from struct import error as struct_error
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.interpreted import interpreted
from headrace.protocol import _flat_structs
from headrace.protocol.api import APIS, ApiKey, message_types
from headrace.protocol.columns import ROWS_PER_STEP
from headrace.protocol.compiler import codec
from headrace.protocol.errors import MalformedMessage
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

INTERPRETED = interpreted("_flat_structs").flat_structs
FORMS = pytest.mark.parametrize("form", [_flat_structs, INTERPRETED], ids=["as built", "interpreted"])

int32 = st.integers(-(2**31), 2**31 - 1)
partitions = st.lists(
    st.tuples(int32, st.integers(-(2**63), 2**63 - 1), int32, st.none() | st.text(max_size=200)), max_size=20
)
VERSIONS = [
    (key, version)
    for key in (ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT)
    for version in range(APIS[key].first, APIS[key].last + 1)
]


def commit_of(key: ApiKey, topics: list[list[tuple[int, int, int, str | None]]]) -> Any:
    kinds: tuple[Any, Any, Any] = (
        (OffsetCommitRequest, OffsetCommitRequestTopic, OffsetCommitRequestPartition)
        if key == ApiKey.OFFSET_COMMIT
        else (TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic, TxnOffsetCommitRequestPartition)
    )
    request, topic, partition = kinds
    return request(
        group_id="g",
        topics=[
            topic(
                name=f"t{number}",
                partitions=[
                    partition(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=epoch,
                        committed_metadata=metadata,
                    )
                    for index, offset, epoch, metadata in rows
                ],
            )
            for number, rows in enumerate(topics)
        ],
    )


def columns_of(message: Any) -> Any:
    """The general codec's message, its partitions turned into columns."""
    names = [field.name for field in message_fields(message)]
    for topic in message.topics:
        topic.partitions = tuple([getattr(one, name) for one in topic.partitions] for name in names)
    return message


def message_fields(message: Any) -> Any:
    kinds: dict[type, Any] = {
        OffsetCommitRequest: OffsetCommitRequestPartition,
        TxnOffsetCommitRequest: TxnOffsetCommitRequestPartition,
    }
    return kinds[type(message)].__fields__


def outcome(decode: Any, *arguments: Any) -> Any:
    try:
        return decode(*arguments)
    except MalformedMessage:
        return MalformedMessage


def run(steps: Any) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


@pytest.mark.parametrize(("key", "version"), VERSIONS)
@settings(max_examples=30, deadline=None)
@given(
    topics=st.lists(partitions, max_size=3),
    damages=st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255))),
)
def test_a_codec_in_columns(
    key: ApiKey,
    version: int,
    topics: list[list[tuple[int, int, int, str | None]]],
    damages: list[tuple[int, int]],
) -> None:
    message = commit_of(key, topics)
    plain = codec(type(message), version)
    in_columns = codec(type(message), version, in_columns=True)
    encoded = bytearray(plain.encode(message))
    for position, byte in damages:
        encoded[position % len(encoded)] = byte
    for data in (bytes(encoded), bytes(encoded[: len(encoded) // 2])):
        expected = outcome(plain.decode, data)
        if expected is not MalformedMessage:
            expected = columns_of(expected)
        assert outcome(in_columns.decode, data) == expected
        assert outcome(lambda data=data: run(in_columns.decode_steps(data))) == expected


def test_more_structs_than_fit_into_a_step() -> None:
    rows: list[tuple[int, int, int, str | None]]
    rows = [(index, index, -1, "m") for index in range(ROWS_PER_STEP * 2 + 1)]
    message = commit_of(ApiKey.OFFSET_COMMIT, [rows[:1], rows])
    encoded = codec(OffsetCommitRequest, 9).encode(message)
    in_columns = codec(OffsetCommitRequest, 9, in_columns=True)
    steps = in_columns.decode_steps(encoded)
    assert run(steps) == in_columns.decode(encoded)
    assert sum(1 for _ in in_columns.decode_steps(encoded)) == 4


@settings(max_examples=300, deadline=None)
@given(
    data=st.binary(max_size=120),
    position=st.integers(0, 10),
    count=st.integers(0, 8),
    layout=st.lists(st.sampled_from(b"hiqsS"), min_size=1, max_size=4).map(bytes),
    is_flexible=st.booleans(),
)
def test_both_forms_read_the_same(
    data: bytes, position: int, count: int, layout: bytes, is_flexible: bool
) -> None:
    arguments = (data, position, count, layout, is_flexible)
    assert outcome(_flat_structs.read_columns, *arguments) == outcome(INTERPRETED.read_columns, *arguments)


@FORMS
@pytest.mark.parametrize("key", [ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT])
@settings(max_examples=50, deadline=None)
@given(rows=st.lists(st.tuples(int32, st.integers(-(2**15), 2**15 - 1)), max_size=200))
def test_written_columns(form: ModuleType, key: ApiKey, rows: list[tuple[int, int]]) -> None:
    from headrace.protocol.messages.offset_commit import (
        OffsetCommitResponse,
        OffsetCommitResponsePartition,
        OffsetCommitResponseTopic,
    )

    columns: Any = ([index for index, _ in rows], [code for _, code in rows])
    objects = [OffsetCommitResponsePartition(partition_index=index, error_code=code) for index, code in rows]
    _, response = message_types(APIS[key])
    for version in range(APIS[key].first, APIS[key].last + 1):
        in_columns = codec(response, version, in_columns=True)
        plain = codec(OffsetCommitResponse, version) if key == ApiKey.OFFSET_COMMIT else None
        if plain is not None:
            topic = OffsetCommitResponseTopic(name="t", partitions=objects)
            expected = plain.encode(OffsetCommitResponse(topics=[topic]))
            topic = OffsetCommitResponseTopic(name="t", partitions=columns)
            assert in_columns.encode(OffsetCommitResponse(topics=[topic])) == expected
        flexible = in_columns.flexible
        assert form.write_columns(columns, b"ih", flexible) == _flat_structs.write_columns(
            columns, b"ih", flexible
        )


@FORMS
@pytest.mark.parametrize(
    ("columns", "layout"),
    [
        (([2**31],), b"i"),
        (([-(2**31) - 1],), b"i"),
        (([2**15],), b"h"),
        (([-(2**15) - 1],), b"h"),
        (([2**64],), b"i"),
        (([1, 2], [1]), b"ih"),
    ],
)
def test_what_does_not_fit_is_refused(form: ModuleType, columns: Any, layout: bytes) -> None:
    with pytest.raises(struct_error):
        form.write_columns(columns, layout, False)
