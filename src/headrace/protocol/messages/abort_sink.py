"""AbortSink (key 30012, Headrace's own): all that a run has written and not committed never counts."""

from __future__ import annotations

from headrace.protocol.notation import INT16, INT32, STRING, Request, Response, field


class AbortSinkRequest(Request, key=30012, versions="0", flexible="0+"):
    app_id: str = field(STRING)
    query_id: str = field(STRING)
    run_id: str = field(STRING)


class AbortSinkResponse(Response, key=30012, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
