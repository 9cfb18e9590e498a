"""Vote (key 52): a candidate asks the voters of the metadata quorum for their votes."""

from __future__ import annotations

from headrace.protocol.notation import (
    BOOL,
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
    replica_epoch: int = field(INT32)
    replica_id: int = field(INT32)
    replica_directory_id: bytes = field(UUID, "1+", ignorable=True)
    voter_directory_id: bytes = field(UUID, "1+", ignorable=True)
    last_offset_epoch: int = field(INT32)
    last_offset: int = field(INT64)
    pre_vote: bool = field(BOOL, "2+")


class TopicData(Struct):
    topic_name: str = field(STRING)
    partitions: list[PartitionData] = field(array(PartitionData))


class VoteRequest(Request, key=52, versions="0-2", flexible="0+"):
    cluster_id: str | None = field(STRING, nullable="0+", default=None)
    voter_id: int = field(INT32, "1+", default=-1, ignorable=True)
    topics: list[TopicData] = field(array(TopicData))


class PartitionResult(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)
    vote_granted: bool = field(BOOL)


class TopicResult(Struct):
    topic_name: str = field(STRING)
    partitions: list[PartitionResult] = field(array(PartitionResult))


class NodeEndpoint(Struct):
    node_id: int = field(INT32, "1+")
    host: str = field(STRING, "1+")
    port: int = field(UINT16, "1+")


class VoteResponse(Response, key=52, versions="0-2", flexible="0+"):
    error_code: int = field(INT16)
    topics: list[TopicResult] = field(array(TopicResult))
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "1+", tag=0)
