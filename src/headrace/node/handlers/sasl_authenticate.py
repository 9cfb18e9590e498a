"""SaslAuthenticate, key 36, versions 0–2: one step of a login."""

from typing import Any

from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateResponse


class SaslAuthenticate:
    def handle(self, request: Request) -> Any:
        login = request.connection.login
        if login is None:
            return SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message="This listener has no logins"
            )
        return login.authenticate(request)
