"""Records of `__sink_sessions`, which only Headrace has: one per sink, the newest is its state."""

from __future__ import annotations

from headrace.protocol.notation import BOOL, INT8, INT16, INT32, INT64, STRING, Data, Struct, array, field

# What a produce request of an attempt has before the sink's name as its transactional id.
TRANSACTIONAL_ID_PREFIX = "__sink_sessions/"


class SinkKey(Data, key=0, versions="0"):
    app_id: str = field(STRING)


class SinkPartitions(Struct):
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class SinkAttempt(Struct):
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    task: int = field(INT32)
    attempt: int = field(INT64)
    status: int = field(INT8)
    topics: list[SinkPartitions] = field(array(SinkPartitions))


class SpareProducer(Struct):
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)


class SinkValue(Data, key=0, versions="0", flexible="0+"):
    query_id: str = field(STRING)
    run_id: str = field(STRING)
    past_run_ids: list[str] = field(array(STRING))
    committed_batch_id: int = field(INT64)
    batch_id: int = field(INT64)
    attempts: list[SinkAttempt] = field(array(SinkAttempt))
    spare_producers: list[SpareProducer] = field(array(SpareProducer))
    timeout_ms: int = field(INT32)
    updated_ms: int = field(INT64)
    is_passing: bool = field(BOOL)
