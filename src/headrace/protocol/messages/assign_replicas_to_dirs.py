"""AssignReplicasToDirs (key 73): a broker reports in which directory each replica lies."""

from __future__ import annotations

from headrace.protocol.notation import INT16, INT32, INT64, UUID, Request, Response, Struct, array, field


class PartitionData(Struct):
    partition_index: int = field(INT32)


class TopicData(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[PartitionData] = field(array(PartitionData))


class DirectoryData(Struct):
    id: bytes = field(UUID)
    topics: list[TopicData] = field(array(TopicData))


class AssignReplicasToDirsRequest(Request, key=73, versions="0", flexible="0+"):
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)
    directories: list[DirectoryData] = field(array(DirectoryData))


class PartitionResult(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class TopicResult(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[PartitionResult] = field(array(PartitionResult))


class DirectoryResult(Struct):
    id: bytes = field(UUID)
    topics: list[TopicResult] = field(array(TopicResult))


class AssignReplicasToDirsResponse(Response, key=73, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    directories: list[DirectoryResult] = field(array(DirectoryResult))
