"""SaslHandshake, key 17, versions 0–1: the mechanism of a login.

Version 0 is advertised, because librdkafka looks for it, and refused: the login behind it has no frames.
"""

from typing import Any

from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.sasl_handshake import SaslHandshakeResponse


class SaslHandshake:
    def handle(self, request: Request) -> Any:
        login = request.connection.login
        if login is None:  # the listener has no logins
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        return login.choose(request)
