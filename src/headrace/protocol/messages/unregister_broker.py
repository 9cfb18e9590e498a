"""UnregisterBroker (key 64): a broker leaves for good."""

from __future__ import annotations

from headrace.protocol.notation import INT16, INT32, STRING, Request, Response, field


class UnregisterBrokerRequest(Request, key=64, versions="0", flexible="0+"):
    broker_id: int = field(INT32)


class UnregisterBrokerResponse(Response, key=64, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
