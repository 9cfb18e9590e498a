"""Ranges of offsets cut by bytes, for whoever reads a partition with many tasks: an API of Headrace's own."""

from typing import Any, NamedTuple

from headrace.client.admin.asking import (
    Ask,
    ByPartition,
    LeaderOf,
    Operation,
    Outcome,
    Sent,
    as_partition,
    ask_all,
    by_topic,
    failed,
)
from headrace.client.admin.topic_descriptions import describe_topics, topic_id_from
from headrace.client.cluster import TopicPartition
from headrace.protocol.messages.split_ranges import SplitPartition, SplitRangesRequest, SplitTopic


class RangeSplits(NamedTuple):
    """Where to cut a range.

    >>> admin.split_ranges({("orders", 0): (0, 2)}, 1 << 20)["orders", 0].offsets
    []
    """

    offsets: list[int]  # inside of the range, rising
    total_bytes: int  # of the range, roughly
    log_start_offset: int


def split_ranges(
    ranges: ByPartition[tuple[int, int]], bytes_per_split: int | ByPartition[int]
) -> Operation[dict[TopicPartition, RangeSplits]]:
    """Offsets that cut each range, from its first offset to behind its last, into parts of about so many
    bytes, everywhere alike or partition by partition. Only brokers of Headrace know; others raise
    UnsupportedByBroker.

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

    places = {at: LeaderOf(at) for at in wanted}
    return (yield from ask_all(Ask("cutting ranges", places, make, read)))
