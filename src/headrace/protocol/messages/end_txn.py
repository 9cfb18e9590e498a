"""EndTxn (key 26): a producer commits or aborts its transaction."""

from __future__ import annotations

from headrace.protocol.notation import BOOL, INT16, INT32, INT64, STRING, Request, Response, field


class EndTxnRequest(Request, key=26, versions="0-5", flexible="3+"):
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    committed: bool = field(BOOL)


class EndTxnResponse(Response, key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    producer_id: int = field(INT64, "5+", default=-1, ignorable=True)
    producer_epoch: int = field(INT16, "5+", default=-1, ignorable=True)
