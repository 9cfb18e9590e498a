"""What a producer may be made with."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from headrace.client.membership.events import CommittedOffset, GroupMembership
from headrace.client.producer.arguments import headers_of, membership_of, offsets_to_commit, producer_options
from headrace.client.serializers import JSON, NotSerializable
from headrace.client.settings.configuration import InvalidSetting

SERVERS = "localhost:9092"


def test_settings_come_as_text_as_a_mapping_and_by_keyword() -> None:
    for options in (
        producer_options(SERVERS, {"linger_ms": 20}, None, None),
        producer_options({"bootstrap.servers": SERVERS, "linger.ms": "20"}, {}, None, None),
        producer_options(None, {"bootstrap_servers": SERVERS, "linger_ms": 20}, None, None),
    ):
        assert options.configuration["linger.ms"] == 20
        assert options.configuration["bootstrap.servers"] == [SERVERS]


def test_a_misspelt_setting_is_told_with_the_one_that_was_meant() -> None:
    with pytest.raises(InvalidSetting, match="did you mean linger_ms"):
        producer_options(SERVERS, {"linger_mss": 20}, None, None)


def test_a_partitioner_is_a_name_or_a_function() -> None:
    def always_first(topic: str, key: bytes | None, value: bytes | None, count: int) -> int:
        return 0

    assert producer_options(SERVERS, {"partitioner": always_first}, None, None).partitioner is always_first
    assert producer_options(SERVERS, {"partitioner": "round_robin"}, None, None).partitioner is None
    with pytest.raises(InvalidSetting, match="partitioner"):
        producer_options(SERVERS, {"partitioner": "rnd"}, None, None)


@dataclass
class PartitionSequences:
    item: str


@pytest.mark.parametrize(
    ("encoding", "value", "expected"),
    [
        (JSON, {"a": 1}, b'{"a":1}'),
        (dict, {"a": 1}, b'{"a":1}'),
        (PartitionSequences, PartitionSequences("tea"), b'{"item":"tea"}'),
        (str.upper, "tea", "TEA"),
    ],
)
def test_an_encoding_is_a_serializer_a_type_or_a_function(
    encoding: object, value: object, expected: object
) -> None:
    encode = producer_options(SERVERS, {}, None, encoding).encode_value  # type: ignore[arg-type]
    assert encode is not None
    assert encode(value) == expected
    assert encode(None) is None


def test_what_an_encoding_cannot_write_is_told() -> None:
    encode = producer_options(SERVERS, {}, str.encode, None).encode_key
    assert encode is not None
    with pytest.raises(NotSerializable, match="int cannot be serialized"):
        encode(5)


def test_headers_are_pairs_or_a_mapping_of_bytes_or_text() -> None:
    assert headers_of({"a": b"1", "b": "ü", "c": None}) == (("a", b"1"), ("b", "ü".encode()), ("c", None))
    assert headers_of([("a", b"1"), ("a", b"2")]) == (("a", b"1"), ("a", b"2"))
    with pytest.raises(NotSerializable, match="header 'a' is int"):
        headers_of({"a": 1})  # type: ignore[arg-type]
    with pytest.raises(NotSerializable, match="name is bytes"):
        headers_of([(b"a", b"1")])  # type: ignore[list-item]


def test_a_group_is_named_or_asked_who_it_is() -> None:
    class Reader:
        def group_metadata(self) -> GroupMembership:
            return GroupMembership("g", 5, "m")

    assert membership_of("g") == GroupMembership("g")
    assert membership_of(GroupMembership("g", 3, "m")) == GroupMembership("g", 3, "m")
    assert membership_of(Reader()) == GroupMembership("g", 5, "m")


def test_offsets_are_numbers_or_carry_more() -> None:
    given: dict[tuple[str, int], int | CommittedOffset] = {
        ("t", 0): 5,
        ("t", 1): CommittedOffset(6, 2, "note"),
    }
    read = offsets_to_commit(given)
    assert read == {("t", 0): CommittedOffset(5), ("t", 1): CommittedOffset(6, 2, "note")}
