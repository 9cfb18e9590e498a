"""FetchSnapshot (key 59): a replica of the metadata log reads a snapshot piece by piece."""

from __future__ import annotations

from headrace.protocol.notation import (
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UUID,
    Request,
    Response,
    Struct,
    array,
    field,
)
from headrace.protocol.parts import Records


class SnapshotId(Struct):
    end_offset: int = field(INT64)
    epoch: int = field(INT32)


class PartitionSnapshot(Struct):
    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32)
    snapshot_id: SnapshotId = field(SnapshotId)
    position: int = field(INT64)
    replica_directory_id: bytes = field(UUID, "1+", ignorable=True, tag=0)


class TopicSnapshot(Struct):
    name: str = field(STRING)
    partitions: list[PartitionSnapshot] = field(array(PartitionSnapshot))


class FetchSnapshotRequest(Request, key=59, versions="0-1", flexible="0+"):
    cluster_id: str | None = field(STRING, nullable="0+", default=None, tag=0)
    replica_id: int = field(INT32, default=-1)
    max_bytes: int = field(INT32, default=2147483647)
    topics: list[TopicSnapshot] = field(array(TopicSnapshot))


class LeaderIdAndEpoch(Struct):
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)


class PartitionSnapshotResult(Struct):
    index: int = field(INT32)
    error_code: int = field(INT16)
    snapshot_id: SnapshotId = field(SnapshotId)
    current_leader: LeaderIdAndEpoch | None = field(LeaderIdAndEpoch, tag=0)
    size: int = field(INT64)
    position: int = field(INT64)
    unaligned_records: Records | None = field(RECORDS)


class TopicSnapshotResult(Struct):
    name: str = field(STRING)
    partitions: list[PartitionSnapshotResult] = field(array(PartitionSnapshotResult))


class NodeEndpoint(Struct):
    node_id: int = field(INT32, "1+")
    host: str = field(STRING, "1+")
    port: int = field(UINT16, "1+")


class FetchSnapshotResponse(Response, key=59, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(INT32, ignorable=True)
    error_code: int = field(INT16)
    topics: list[TopicSnapshotResult] = field(array(TopicSnapshotResult))
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "1+", tag=0)
