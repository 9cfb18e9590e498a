"""One poll of a member: all its partitions in one fetch, as a read_committed consumer shows them."""

from typing import NamedTuple

from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.simulator.clients.committed import committed_rows
from headrace.simulator.clients.consumer import FETCH, end_of
from headrace.simulator.clients.member import Step
from headrace.simulator.clients.simulated_client import Ask
from headrace.simulator.clients.topics import Topic
from headrace.simulator.history import PartitionKey

READ_COMMITTED = 1


class Poll(NamedTuple):
    rows: dict[PartitionKey, list[tuple[int, bytes]]]  # of partitions that had any
    ends: dict[PartitionKey, int]  # where to read on


def polled(topic: Topic, positions: dict[PartitionKey, int]) -> Step:
    partitions = [
        FetchPartition(partition=key.number, fetch_offset=offset, partition_max_bytes=1_500)
        for key, offset in positions.items()
    ]
    request = FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=10_000,
        isolation_level=READ_COMMITTED,
        topics=[FetchTopic(topic=topic.name, partitions=partitions)],
    )
    answer = yield Ask(FETCH, 12, request)
    poll = Poll({}, dict(positions))
    for told in answer.responses if answer is not None else ():
        for data in told.partitions:
            key = topic.keys[data.partition_index]
            if data.error_code == ErrorCode.NONE and data.records:
                rows = committed_rows(data, positions[key])
                if rows:
                    poll.rows[key] = rows
                poll.ends[key] = max(positions[key], end_of(data.records))
    return poll
