"""SaslHandshake (key 17): client and broker agree on a mechanism."""

from __future__ import annotations

from headrace.protocol.notation import INT16, STRING, Request, Response, array, field


class SaslHandshakeRequest(Request, key=17, versions="0-1"):
    mechanism: str = field(STRING)


class SaslHandshakeResponse(Response, key=17, versions="0-1"):
    error_code: int = field(INT16)
    mechanisms: list[str] = field(array(STRING))
