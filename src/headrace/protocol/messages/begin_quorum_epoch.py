"""BeginQuorumEpoch (key 53): a new leader of the metadata quorum makes itself known."""

from __future__ import annotations

from headrace.protocol.notation import (
    INT16,
    INT32,
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
    voter_directory_id: bytes = field(UUID, "1+", ignorable=True)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)


class TopicData(Struct):
    topic_name: str = field(STRING)
    partitions: list[PartitionData] = field(array(PartitionData))


class LeaderEndpoint(Struct):
    name: str = field(STRING, "1+")
    host: str = field(STRING, "1+")
    port: int = field(UINT16, "1+")


class BeginQuorumEpochRequest(Request, key=53, versions="0-1", flexible="1+"):
    cluster_id: str | None = field(STRING, nullable="0+", default=None)
    voter_id: int = field(INT32, "1+", default=-1, ignorable=True)
    topics: list[TopicData] = field(array(TopicData))
    leader_endpoints: list[LeaderEndpoint] = field(array(LeaderEndpoint), "1+", ignorable=True)


class PartitionResult(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)


class TopicResult(Struct):
    topic_name: str = field(STRING)
    partitions: list[PartitionResult] = field(array(PartitionResult))


class NodeEndpoint(Struct):
    node_id: int = field(INT32, "1+")
    host: str = field(STRING, "1+")
    port: int = field(UINT16, "1+")


class BeginQuorumEpochResponse(Response, key=53, versions="0-1", flexible="1+"):
    error_code: int = field(INT16)
    topics: list[TopicResult] = field(array(TopicResult))
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "1+", tag=0)
