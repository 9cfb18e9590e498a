"""Heartbeat (key 12): a member of a classic group says that it is still here."""

from __future__ import annotations

from headrace.protocol.notation import INT16, INT32, STRING, Request, Response, field


class HeartbeatRequest(Request, key=12, versions="0-4", flexible="4+"):
    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "3+", nullable="3+", default=None)


class HeartbeatResponse(Response, key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: int = field(INT32, "1+", ignorable=True)
    error_code: int = field(INT16)
