"""The requests that an attacker, too, has to write properly: produce, fetch, and where a log ends."""

from __future__ import annotations

from typing import Any

from chaos.bombs import MEGABYTE
from chaos.hostile_batches import Batch, record
from chaos.peer import Peer, encoded
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

PLAIN = "plain"


def produce_request(topic: str, records: bytes | None, acks: int = -1) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=records)
    return ProduceRequest(
        acks=acks, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )


def produce(peer: Peer, topic: str, records: bytes | None, *, version: int = 9, acks: int = -1) -> int:
    """The partition's error code."""
    answer = peer.ask(produce_request(topic, records, acks), version)
    return int(answer.responses[0].partition_responses[0].error_code)


def log_end(peer: Peer, topic: str) -> int:
    asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
    answer = peer.ask(ListOffsetsRequest(replica_id=-1, topics=[asked]), 1)
    return int(answer.topics[0].partitions[0].offset)


def fetch(peer: Peer, topic: FetchTopic, *, version: int = 4, **fields: Any) -> Any:
    asked = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": MEGABYTE, "session_epoch": -1} | fields
    return peer.ask(FetchRequest(topics=[topic], **asked), version)


def of_plain(**fields: Any) -> FetchTopic:
    asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": MEGABYTE} | fields
    return FetchTopic(topic=PLAIN, partitions=[FetchPartition(**asked)])


def fill(peer: Peer, topic: str, size: int) -> None:
    batch = Batch(record(bytes(4 * MEGABYTE))).encoded()
    for _ in range(size // len(batch) + 1):
        assert produce(peer, topic, batch) == ErrorCode.NONE


def ask_without_reading(peer: Peer, topic: str, times: int) -> None:
    """Long answers, all of them wanted at once."""
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2**31 - 1)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=2**31 - 1,
        topics=[FetchTopic(topic=topic, partitions=[asked])],
    )
    peer.send(encoded(request, 4) * times)
