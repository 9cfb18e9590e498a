"""AlterPartition (key 56): a leader reports which replicas are in sync."""

from __future__ import annotations

from headrace.protocol.notation import (
    INT8,
    INT16,
    INT32,
    INT64,
    UUID,
    Request,
    Response,
    Struct,
    array,
    field,
)


class BrokerState(Struct):
    broker_id: int = field(INT32, "3+")
    broker_epoch: int = field(INT64, "3+", default=-1)


class PartitionData(Struct):
    partition_index: int = field(INT32)
    leader_epoch: int = field(INT32)
    new_isr: list[int] = field(array(INT32), "0-2")
    new_isr_with_epochs: list[BrokerState] = field(array(BrokerState), "3+")
    leader_recovery_state: int = field(INT8, "1+")
    partition_epoch: int = field(INT32)


class TopicData(Struct):
    topic_id: bytes = field(UUID, "2+", ignorable=True)
    partitions: list[PartitionData] = field(array(PartitionData))


class AlterPartitionRequest(Request, key=56, versions="2-3", flexible="0+"):
    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)
    topics: list[TopicData] = field(array(TopicData))


class PartitionResult(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)
    isr: list[int] = field(array(INT32))
    leader_recovery_state: int = field(INT8, "1+", ignorable=True)
    partition_epoch: int = field(INT32)


class TopicResult(Struct):
    topic_id: bytes = field(UUID, "2+", ignorable=True)
    partitions: list[PartitionResult] = field(array(PartitionResult))


class AlterPartitionResponse(Response, key=56, versions="2-3", flexible="0+"):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    topics: list[TopicResult] = field(array(TopicResult))
