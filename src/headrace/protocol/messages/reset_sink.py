"""ResetSink (key 30014, Headrace's own): a sink forgets its ledger, and the next query may take its name."""

from __future__ import annotations

from headrace.protocol.notation import INT16, INT32, STRING, Request, Response, field


class ResetSinkRequest(Request, key=30014, versions="0", flexible="0+"):
    app_id: str = field(STRING)


class ResetSinkResponse(Response, key=30014, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
