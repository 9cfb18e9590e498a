"""DescribeQuorum (key 55): who votes, who observes, and how far each has come."""

from __future__ import annotations

from headrace.protocol.notation import (
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    Request,
    Response,
    Struct,
    array,
    field,
)


class PartitionData(Struct):
    partition_index: int = field(INT32)


class TopicData(Struct):
    topic_name: str = field(STRING)
    partitions: list[PartitionData] = field(array(PartitionData))


class DescribeQuorumRequest(Request, key=55, versions="0-2", flexible="0+"):
    topics: list[TopicData] = field(array(TopicData))


class ReplicaState(Struct):
    replica_id: int = field(INT32)
    replica_directory_id: bytes = field(UUID, "2+")
    log_end_offset: int = field(INT64)
    last_fetch_timestamp: int = field(INT64, "1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = field(INT64, "1+", default=-1, ignorable=True)


class PartitionResult(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, "2+", nullable="2+", ignorable=True)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)
    high_watermark: int = field(INT64)
    current_voters: list[ReplicaState] = field(array(ReplicaState))
    observers: list[ReplicaState] = field(array(ReplicaState))


class TopicResult(Struct):
    topic_name: str = field(STRING)
    partitions: list[PartitionResult] = field(array(PartitionResult))


class Listener(Struct):
    name: str = field(STRING, "2+")
    host: str = field(STRING, "2+")
    port: int = field(UINT16, "2+")


class Node(Struct):
    node_id: int = field(INT32, "2+")
    listeners: list[Listener] = field(array(Listener), "2+")


class DescribeQuorumResponse(Response, key=55, versions="0-2", flexible="0+"):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, "2+", nullable="2+", ignorable=True)
    topics: list[TopicResult] = field(array(TopicResult))
    nodes: list[Node] = field(array(Node), "2+")
