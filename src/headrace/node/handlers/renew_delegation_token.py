"""RenewDelegationToken, key 39, versions 1–2: a token counts for longer."""

from headrace.machines.metadata.controller.delegation_tokens import written
from headrace.machines.security.delegation_tokens import DelegationTokens, TokenRefused
from headrace.node.error_codes import FAULTS, code_of
from headrace.node.metadata_log import MetadataLog
from headrace.node.routes import Request
from headrace.node.waiting import Parked
from headrace.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


class RenewDelegationToken:
    def __init__(self, metadata: MetadataLog, tokens: DelegationTokens) -> None:
        self._metadata = metadata
        self._tokens = tokens

    def handle(self, request: Request) -> RenewDelegationTokenResponse | Parked:
        body: RenewDelegationTokenRequest = request.body
        principal, secret = request.connection.principal, bytes(body.hmac)
        try:
            token = self._tokens.renew(principal, secret, body.renew_period_ms, request.now.wall_ms)
            request.token_id = token.token_id
            offset = self._metadata.propose(request.now, written(token))
        except TokenRefused as refusal:
            return RenewDelegationTokenResponse(error_code=refusal.code)
        except FAULTS as fault:
            return RenewDelegationTokenResponse(error_code=code_of(fault))
        response = RenewDelegationTokenResponse(expiry_timestamp_ms=token.expires_ms)
        return self._metadata.when_known(request, offset, response)
