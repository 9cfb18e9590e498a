"""Records of `__transaction_state`: one per transactional id, the newest is its state."""

from __future__ import annotations

from headrace.protocol.notation import INT8, INT16, INT32, INT64, STRING, Data, Struct, array, field


class TransactionLogKey(Data, key=0, versions="0"):
    transactional_id: str = field(STRING)


class PartitionsSchema(Struct):
    topic: str = field(STRING)
    partition_ids: list[int] = field(array(INT32))


class TransactionLogValue(Data, key=0, versions="0-1", flexible="1+"):
    producer_id: int = field(INT64)
    previous_producer_id: int = field(INT64, "1+", default=-1, tag=0)
    next_producer_id: int = field(INT64, "1+", default=-1, tag=1)
    producer_epoch: int = field(INT16)
    next_producer_epoch: int = field(INT16, "1+", default=-1, tag=3)
    transaction_timeout_ms: int = field(INT32)
    transaction_status: int = field(INT8)
    transaction_partitions: list[PartitionsSchema] | None = field(array(PartitionsSchema), nullable="0+")
    transaction_last_update_timestamp_ms: int = field(INT64)
    transaction_start_timestamp_ms: int = field(INT64)
    client_transaction_version: int = field(INT16, "1+", tag=2)
