"""Envelope (key 58): a broker forwards a client's request to the controller."""

from __future__ import annotations

from headrace.protocol.notation import BOOL, BYTES, INT16, STRING, Data, Request, Response, field


class EnvelopeRequest(Request, key=58, versions="0", flexible="0+"):
    request_data: bytes = field(BYTES)
    request_principal: bytes | None = field(BYTES, nullable="0+")
    client_host_address: bytes = field(BYTES)


class EnvelopeResponse(Response, key=58, versions="0", flexible="0+"):
    response_data: bytes | None = field(BYTES, nullable="0+", default=None)
    error_code: int = field(INT16)


class DefaultPrincipalData(Data, versions="0", flexible="0+"):
    """Who sent the request, in `request_principal` behind two bytes with the version."""

    type: str = field(STRING)
    name: str = field(STRING)
    token_authenticated: bool = field(BOOL)
