"""What group and transaction coordinators write into their topics, in Kafka's own shapes.

A record's key is an int16 that says what the record is, then the key's body; its value is an int16 version,
then the body in that version; a null value is a tombstone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, TypeAlias

from headrace.protocol.compiler import codec
from headrace.protocol.coordinator_records import groups, sinks, transactions
from headrace.protocol.coordinator_records.offset_commits import CommittedTopic
from headrace.protocol.coordinator_records.record import CompactRecords
from headrace.protocol.coordinator_records.record import Record as Record
from headrace.protocol.notation import Data
from headrace.protocol.versioned import version_of
from headrace.records.builder import batch_of, build_batch

# What the machine of groups replays: a record, or several at once.
Change: TypeAlias = Record | CommittedTopic

Kinds = dict[int, tuple[type[Data], type[Data]]]

GROUP_RECORDS: Kinds = {
    key.KEY: (key, value)
    for key, value in (
        (groups.LegacyOffsetCommitKey, groups.LegacyOffsetCommitValue),
        (groups.OffsetCommitKey, groups.OffsetCommitValue),
        (groups.GroupMetadataKey, groups.GroupMetadataValue),
        (groups.ConsumerGroupMetadataKey, groups.ConsumerGroupMetadataValue),
        (groups.ConsumerGroupPartitionMetadataKey, groups.ConsumerGroupPartitionMetadataValue),
        (groups.ConsumerGroupMemberMetadataKey, groups.ConsumerGroupMemberMetadataValue),
        (groups.ConsumerGroupTargetAssignmentMetadataKey, groups.ConsumerGroupTargetAssignmentMetadataValue),
        (groups.ConsumerGroupTargetAssignmentMemberKey, groups.ConsumerGroupTargetAssignmentMemberValue),
        (groups.ConsumerGroupCurrentMemberAssignmentKey, groups.ConsumerGroupCurrentMemberAssignmentValue),
        (groups.ConsumerGroupRegularExpressionKey, groups.ConsumerGroupRegularExpressionValue),
    )
}

TRANSACTION_RECORDS: Kinds = {
    transactions.TransactionLogKey.KEY: (transactions.TransactionLogKey, transactions.TransactionLogValue)
}

SINK_RECORDS: Kinds = {
    sinks.SinkKey.KEY: (sinks.SinkKey, sinks.SinkValue),
    sinks.SinkProducerKey.KEY: (sinks.SinkProducerKey, sinks.SinkProducerValue),
}

# The version in which a value is written: what Kafka 4.3 writes. Every version is read.
WRITTEN_VERSIONS: dict[type[Data], int] = {
    groups.OffsetCommitValue: 4,
    groups.GroupMetadataValue: 3,
    transactions.TransactionLogValue: 1,
    sinks.SinkValue: 1,
}


def written_version(value: Data) -> int:
    if type(value) is groups.OffsetCommitValue and value.expire_timestamp != -1:
        return 1  # the only one with a place for it
    return WRITTEN_VERSIONS.get(type(value), 0)


def encode(record: Record) -> tuple[bytes, bytes | None]:
    """The key and value of the record as they stand in the log."""
    key, value = record
    kind = type(key)
    head, encode_body = _writer(kind, 0, kind.KEY)
    encoded_key = head + encode_body(key)
    if value is None:
        return encoded_key, None
    version = written_version(value)
    head, encode_body = _writer(type(value), version, version)
    return encoded_key, head + encode_body(value)


def encode_batch(
    records: Iterable[Record], timestamp: int, producer_id: int = -1, producer_epoch: int = -1
) -> bytes:
    """All records in one batch; with a producer, as part of its transaction."""
    is_transactional = producer_id >= 0
    if isinstance(records, CompactRecords):
        return batch_of(
            records.encoded(timestamp),
            len(records),
            timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=is_transactional,
        )
    return build_batch(
        [(timestamp, *encode(record), ()) for record in records],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=is_transactional,
    )


def changes(records: Iterable[Record]) -> Iterable[Any]:
    """What a machine replays once they are appended."""
    return records.changes() if isinstance(records, CompactRecords) else records


@cache
def _writer(kind: type[Data], version: int, number: int) -> tuple[bytes, Callable[[Data], bytes]]:
    """The two bytes before a body, and what writes the body: a commit may have a hundred records."""
    return number.to_bytes(2, "big"), codec(kind, version).encode


def decode(kinds: Kinds, key: bytes | memoryview, value: bytes | memoryview | None) -> Record | None:
    """The record, or None for a kind that we do not know: share and streams groups have theirs, and newer
    brokers may have more. MalformedMessage for bytes that are not a record.
    """
    found = kinds.get((key[0] << 8) | key[1] if len(key) > 1 else version_of(key))
    if found is None:
        return None
    key_kind, value_kind = found
    decoded_key = _reader(key_kind, 0)(key, 2)
    if value is None:
        return Record(decoded_key, None)
    version = (value[0] << 8) | value[1] if len(value) > 1 else version_of(value)
    return Record(decoded_key, _reader(value_kind, version)(value, 2))


@cache
def _reader(kind: type[Data], version: int) -> Callable[[bytes | memoryview, int], Data]:
    """What reads a body: a coordinator may have a million of them to load."""
    return codec(kind, version).decode
