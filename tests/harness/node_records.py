"""Records written to and read from a node."""

from typing import Any

from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.records.builder import build_batch
from headrace.records.reader import batches, read_rows
from headrace.simulator.manual_host import ManualHost


def batch(*values: bytes, timestamp: int = 1_700_000_000_000, **more: Any) -> bytes:
    return build_batch([(timestamp, None, value, ()) for value in values], **more)


def only(response: Any) -> Any:
    (topic,) = response.responses
    (partition,) = topic.partition_responses
    return partition


def fetch(topic: str, offset: int = 0, **more: Any) -> FetchRequest:
    options = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "partition_max_bytes": 1 << 20, **more}
    partition_max_bytes = options.pop("partition_max_bytes")
    return FetchRequest(
        **options,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
                ],
            )
        ],
    )


def values_of(host: ManualHost, topic: str) -> list[bytes | None]:
    response = host.ask(fetch(topic), 11)
    records = bytes(response.responses[0].partitions[0].records)
    return [row[3] for position, header in batches(records) for row in read_rows(records, position, header)]


MANY = 4_000  # partitions: some 50 kB


def look_up(count: int = MANY) -> ListOffsetsRequest:
    asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(count)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=asked)])
