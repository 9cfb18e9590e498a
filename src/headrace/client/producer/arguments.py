"""What an application passes to a producer: settings, serializers and partitioner, headers, offsets."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from headrace.client.cluster import TopicPartition
from headrace.client.errors import InvalidInput
from headrace.client.membership.events import CommittedOffset, GroupMembership
from headrace.client.serializers import NotSerializable, Serializer, serializer_for
from headrace.client.settings.configuration import Configuration, given_settings
from headrace.client.settings.keys import producer_keys
from headrace.records._codec import Headers

Encode = Callable[[Any], bytes | None]
# How keys and values become bytes: a Serializer, a function, or a type that has a ready one.
Encoding = Serializer[Any] | Callable[[Any], bytes] | type
Partitioner = Callable[[str, bytes | None, bytes | None, int], int]  # topic, key, value, partition count


class Options(NamedTuple):
    configuration: Configuration
    partitioner: Partitioner | None = None
    encode_key: Encode | None = None  # None: bytes and text go as they are
    encode_value: Encode | None = None


def producer_options(
    config: str | Mapping[str, object] | None,
    settings: Mapping[str, object],
    key_serializer: Encoding | None,
    value_serializer: Encoding | None,
) -> Options:
    """`config` is the bootstrap servers, or settings that `settings` add to or replace."""
    given = given_settings(config, settings)
    partitioner = given.get("partitioner")
    if callable(partitioner):
        del given["partitioner"]
    return Options(
        Configuration(producer_keys(), given),
        partitioner if callable(partitioner) else None,
        _encode(key_serializer),
        _encode(value_serializer),
    )


def _encode(encoding: Encoding | None) -> Encode | None:
    if encoding is None:
        return None
    if isinstance(encoding, Serializer):
        return encoding.to_bytes
    if isinstance(encoding, type):
        return serializer_for(encoding).to_bytes
    return Serializer(encoding, bytes).to_bytes


HeaderValue = bytes | str | None
HeadersGiven = Mapping[str, HeaderValue] | Iterable[tuple[str, HeaderValue]]


def headers_of(given: HeadersGiven) -> Headers:
    pairs = given.items() if isinstance(given, Mapping) else given
    return tuple((_name(name), _value(name, value)) for name, value in pairs)


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise NotSerializable(f"a header's name is {type(name).__name__}: must be str")
    return name


def _value(name: str, value: HeaderValue) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise NotSerializable(f"the value of header {name!r} is {type(value).__name__}: must be bytes or str")


class Member(Protocol):
    """A consumer, as far as a transaction is concerned."""

    def group_metadata(self) -> GroupMembership: ...


Group = str | GroupMembership | Member
Committable = int | CommittedOffset
Offsets = Mapping[TopicPartition, Committable] | Mapping[tuple[str, int], Committable]


def membership_of(group: Group) -> GroupMembership:
    """The membership of a group argument. With only a group id, the broker cannot refuse a member that
    lost its partitions.
    """
    if isinstance(group, str):
        return GroupMembership(group)
    if isinstance(group, GroupMembership):
        return group
    return group.group_metadata()


def offsets_to_commit(offsets: Offsets) -> dict[TopicPartition, CommittedOffset]:
    """An offset is the next one to read, as everywhere; others have its leader epoch and a note beside it."""
    read: dict[TopicPartition, CommittedOffset] = {}
    for (topic, partition), given in offsets.items():
        offset = CommittedOffset(given) if isinstance(given, int) else given
        if offset.offset < 0:
            raise InvalidInput(f"offset {offset.offset} of {topic}-{partition} cannot be committed")
        read[TopicPartition(topic, partition)] = offset
    return read
