"""Offsets of partitions by timestamp or at the ends; deletion of records; ranges of offsets split by bytes.

Each leader gets one request for all its partitions.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import IntEnum
from typing import Any, NamedTuple

from headrace.client.admin.operation import (
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
    failed,
    settled,
)
from headrace.client.admin.topics import describe_topics, topic_id_from
from headrace.client.cluster import TopicPartition
from headrace.client.errors import InvalidInput
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.protocol.messages.split_ranges import SplitPartition, SplitRangesRequest, SplitTopic

ISOLATION_LEVELS = {"read_uncommitted": 0, "read_committed": 1}


class OffsetAt(IntEnum):
    """The ends of a partition, instead of a timestamp.

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
    """For each partition, the first offset with at least this timestamp, or one of the ends.

    A timestamp is a datetime with a time zone, or milliseconds since 1970. With read_committed the end is the
    last stable offset.

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

    targets = {at: LeaderOf(at) for at in moments}
    return (yield from ask(Ask("listing offsets", targets, make, read, unknown_s=unknown_s)))


def delete_records(before: ByPartition[int]) -> Operation[dict[TopicPartition, int]]:
    """Deletes the records before the given offsets, -1 meaning all; returns the first offset that is left.

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

    targets = {at: LeaderOf(at) for at in ends}
    return (yield from ask_all(Ask("deleting records", targets, make, read, unknown_s=HEARSAY_S)))


def _timestamp_ms(when: When) -> int:
    if not isinstance(when, datetime):
        return int(when)
    if when.tzinfo is None:
        raise InvalidInput(f"{when} has no time zone; datetime.astimezone() adds the local one")
    return round(when.timestamp() * 1000)


def _isolation(name: str) -> int:
    if name not in ISOLATION_LEVELS:
        raise InvalidInput(f"isolation_level={name!r}: must be one of {', '.join(ISOLATION_LEVELS)}")
    return ISOLATION_LEVELS[name]


class RangeSplits(NamedTuple):
    """The offsets at which a range is split.

    >>> admin.split_ranges({("orders", 0): (0, 2)}, 1 << 20)["orders", 0].offsets
    []
    """

    offsets: list[int]  # inside the range, ascending
    total_bytes: int  # of the range, roughly
    log_start_offset: int


def split_ranges(
    ranges: ByPartition[tuple[int, int]], bytes_per_split: int | ByPartition[int]
) -> Operation[dict[TopicPartition, RangeSplits]]:
    """Offsets that split each range (first offset, offset after the last) into parts of about so many bytes;
    the size is one number, or one for each partition. Only Headrace's brokers support it; with others it
    raises UnsupportedByBroker.

    >>> admin.split_ranges({("orders", 0): (0, 2)}, 1 << 20)["orders", 0].log_start_offset
    0
    """
    wanted = {as_partition(at): bounds for at, bounds in ranges.items()}
    if isinstance(bytes_per_split, int):
        sizes = dict.fromkeys(wanted, bytes_per_split)
    else:
        sizes = {as_partition(at): size for at, size in bytes_per_split.items()}
    topics = yield from describe_topics(sorted({at.topic for at in wanted}))
    ids = {name: topic_id_from(topic.topic_id) for name, topic in topics.items()}
    names = {topic_id: name for name, topic_id in ids.items()}

    def asked(at: TopicPartition) -> SplitPartition:
        start, end = wanted[at]
        return SplitPartition(
            partition_index=at.partition, start_offset=start, end_offset=end, bytes_per_split=sizes[at]
        )

    def make(partitions: list[TopicPartition], _: int) -> SplitRangesRequest:
        return SplitRangesRequest(
            topics=[
                SplitTopic(topic_id=ids[topic], partitions=list(map(asked, its)))
                for topic, its in by_topic(partitions).items()
            ]
        )

    def read(answer: Any, _: Sent[TopicPartition]) -> Outcome[TopicPartition, RangeSplits]:
        outcome: Outcome[TopicPartition, RangeSplits] = {}
        for topic in answer.topics:
            for told in topic.partitions:
                at = TopicPartition(names.get(topic.topic_id, ""), told.partition_index)
                error = failed(told.error_code, subject=f"partition {at}")
                outcome[at] = error or RangeSplits(
                    told.split_offsets, told.total_bytes, told.log_start_offset
                )
        return outcome

    targets = {at: LeaderOf(at) for at in wanted}
    return (yield from ask_all(Ask("cutting ranges", targets, make, read)))
