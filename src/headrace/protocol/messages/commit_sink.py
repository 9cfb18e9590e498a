"""CommitSink (key 30011, Headrace's own): exactly these attempts make up the batch, all others abort."""

from __future__ import annotations

from headrace.protocol.notation import INT16, INT32, INT64, STRING, Request, Response, Struct, array, field


class CommittedAttempt(Struct):
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)


class CommitSinkRequest(Request, key=30011, versions="0", flexible="0+"):
    app_id: str = field(STRING)
    query_id: str = field(STRING)
    run_id: str = field(STRING)
    batch_id: int = field(INT64)
    attempts: list[CommittedAttempt] = field(array(CommittedAttempt))


class CommitSinkResponse(Response, key=30011, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
