"""SaslAuthenticate (key 36): one step of the chosen mechanism."""

from __future__ import annotations

from headrace.protocol.notation import BYTES, INT16, INT64, STRING, Request, Response, field


class SaslAuthenticateRequest(Request, key=36, versions="0-2", flexible="2+"):
    auth_bytes: bytes = field(BYTES)


class SaslAuthenticateResponse(Response, key=36, versions="0-2", flexible="2+"):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    auth_bytes: bytes = field(BYTES)
    session_lifetime_ms: int = field(INT64, "1+", ignorable=True)
