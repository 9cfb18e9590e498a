"""AddOffsetsToTxn (key 25): a group's offsets join an open transaction."""

from __future__ import annotations

from headrace.protocol.notation import INT16, INT32, INT64, STRING, Request, Response, field


class AddOffsetsToTxnRequest(Request, key=25, versions="0-4", flexible="3+"):
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    group_id: str = field(STRING)


class AddOffsetsToTxnResponse(Response, key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
