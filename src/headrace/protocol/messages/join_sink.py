"""JoinSink (key 30010, Headrace's own): an attempt to write one task's part of a batch of a sink begins, or
goes on: asked again it gets the same answer, and the batch more time.
"""

from __future__ import annotations

from headrace.protocol.notation import BOOL, INT16, INT32, INT64, STRING, Request, Response, field


class JoinSinkRequest(Request, key=30010, versions="0", flexible="0+"):
    app_id: str = field(STRING)
    query_id: str = field(STRING)
    run_id: str = field(STRING)
    batch_id: int = field(INT64)
    task: int = field(INT32)
    attempt: int = field(INT64)
    timeout_ms: int = field(INT32)
    producer_id: int = field(INT64, default=-1)  # of an attempt that asks for more time
    producer_epoch: int = field(INT16, default=-1)
    is_passing: bool = field(BOOL)  # nobody will write to it another time: its ledger may be forgotten


class JoinSinkResponse(Response, key=30010, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    committed_batch_id: int = field(INT64, default=-1)
    producer_id: int = field(INT64, default=-1)
    producer_epoch: int = field(INT16, default=-1)
