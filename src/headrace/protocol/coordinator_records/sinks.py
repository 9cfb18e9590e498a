"""Records of `__sink_sessions`, which only Headrace has: one for a sink, and one for each of its producers.

Before version 1 the sink's record had its producers in it, and replaced all that was said before.
"""

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


class SinkValue(Data, key=0, versions="0-1", flexible="0+"):
    query_id: str = field(STRING)
    run_id: str = field(STRING)
    past_run_ids: list[str] = field(array(STRING))
    committed_batch_id: int = field(INT64)
    batch_id: int = field(INT64)
    attempts: list[SinkAttempt] | None = field(array(SinkAttempt), "0", default=None, ignorable=True)
    spare_producers: list[SpareProducer] | None = field(
        array(SpareProducer), "0", default=None, ignorable=True
    )
    timeout_ms: int = field(INT32)
    updated_ms: int = field(INT64)
    is_passing: bool = field(BOOL)


class SinkProducerKey(Data, key=1, versions="0"):
    app_id: str = field(STRING)
    producer_id: int = field(INT64)


class SinkProducerValue(Data, key=1, versions="0", flexible="0+"):
    """A producer of the sink: with an attempt, or a spare one, which has no task."""

    producer_epoch: int = field(INT16)
    status: int = field(INT8)
    task: int = field(INT32)
    attempt: int = field(INT64)
    topics: list[SinkPartitions] = field(array(SinkPartitions))
    updated_ms: int = field(INT64)
