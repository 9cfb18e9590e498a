"""Offsets of partitions, by their ends or by time, and the deletion of what lies before one. Leaders are
asked, each once for all its partitions.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import IntEnum
from typing import Any, NamedTuple

from headrace.client.admin.asking import (
    HEARSAY_S,
    Ask,
    ByPartition,
    LeaderOf,
    Operation,
    Outcome,
    Sent,
    as_partition,
    ask,
    ask_all,
    by_partition,
    by_topic,
    settled,
)
from headrace.client.cluster import TopicPartition
from headrace.client.errors import InvalidInput
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

ISOLATION_LEVELS = {"read_uncommitted": 0, "read_committed": 1}


class OffsetAt(IntEnum):
    """The ends of a partition, in place of a time.

    >>> int(OffsetAt.EARLIEST)
    -2
    """

    LATEST = -1  # behind the last record
    EARLIEST = -2
    MAX_TIMESTAMP = -3  # the record with the latest timestamp
    EARLIEST_LOCAL = -4  # on the broker's own disk, with tiered storage
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


class ListedOffset(NamedTuple):
    """An offset that was found.

    >>> admin.list_offsets({("orders", 0): OffsetAt.LATEST})["orders", 0].offset
    2
    """

    offset: int | None  # None: no record is that late
    timestamp_ms: int | None  # of the record itself; the ends have none
    leader_epoch: int | None


When = int | datetime | OffsetAt


def list_offsets(
    wanted: ByPartition[When], *, isolation_level: str = "read_uncommitted"
) -> Operation[dict[TopicPartition, ListedOffset]]:
    """For each partition the first offset whose record is at least as late as a time, or one of the ends.

    A time is a datetime with its zone or milliseconds since 1970. With read_committed the end is where open
    transactions begin.

    >>> ends = admin.list_offsets({("orders", 0): OffsetAt.LATEST, ("orders", 1): OffsetAt.LATEST})
    >>> {partition.partition: end.offset for partition, end in ends.items()}
    {0: 2, 1: 0}
    """
    moments = {as_partition(at): _timestamp_ms(when) for at, when in wanted.items()}
    level = _isolation(isolation_level)
    return settled((yield from offsets_at(moments, level, unknown_s=HEARSAY_S)))


def offsets_at(
    moments: Mapping[TopicPartition, int], isolation: int = 0, *, unknown_s: float = 0.0
) -> Operation[Outcome[TopicPartition, ListedOffset]]:
    """Each partition with its offset or its error."""

    def make(partitions: list[TopicPartition], timeout_ms: int) -> ListOffsetsRequest:
        topics = [
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(partition_index=at.partition, timestamp=moments[at]) for at in asked
                ],
            )
            for topic, asked in by_topic(partitions).items()
        ]
        return ListOffsetsRequest(
            replica_id=-1, isolation_level=isolation, topics=topics, timeout_ms=timeout_ms
        )

    def value(told: Any) -> ListedOffset:
        return ListedOffset(
            told.offset if told.offset >= 0 else None,
            told.timestamp if told.timestamp >= 0 else None,
            told.leader_epoch if told.leader_epoch >= 0 else None,
        )

    def read(answer: Any, _: Sent[TopicPartition]) -> Outcome[TopicPartition, ListedOffset]:
        return by_partition(answer.topics, value)

    places = {at: LeaderOf(at) for at in moments}
    return (yield from ask(Ask("listing offsets", places, make, read, unknown_s=unknown_s)))


def delete_records(before: ByPartition[int]) -> Operation[dict[TopicPartition, int]]:
    """Deletes the records before the given offsets, -1 meaning all; the first offset left of each.

    >>> admin.delete_records({("orders", 2): -1})
    {TopicPartition(topic='orders', partition=2): 0}
    """
    ends = {as_partition(at): offset for at, offset in before.items()}

    def make(partitions: list[TopicPartition], timeout_ms: int) -> DeleteRecordsRequest:
        topics = [
            DeleteRecordsTopic(
                name=topic,
                partitions=[
                    DeleteRecordsPartition(partition_index=at.partition, offset=ends[at]) for at in asked
                ],
            )
            for topic, asked in by_topic(partitions).items()
        ]
        return DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)

    def read(answer: Any, _: Sent[TopicPartition]) -> Outcome[TopicPartition, int]:
        return by_partition(answer.topics, lambda told: int(told.low_watermark))

    places = {at: LeaderOf(at) for at in ends}
    return (yield from ask_all(Ask("deleting records", places, make, read, unknown_s=HEARSAY_S)))


def _timestamp_ms(when: When) -> int:
    if not isinstance(when, datetime):
        return int(when)
    if when.tzinfo is None:
        raise InvalidInput(f"{when} has no time zone; datetime.astimezone() gives it the local one")
    return round(when.timestamp() * 1000)


def _isolation(name: str) -> int:
    if name not in ISOLATION_LEVELS:
        raise InvalidInput(f"isolation_level is one of {', '.join(ISOLATION_LEVELS)}, not {name!r}")
    return ISOLATION_LEVELS[name]
