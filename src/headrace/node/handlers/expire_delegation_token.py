"""ExpireDelegationToken, key 40, versions 1–2: a token ends, at once or after a while."""

from headrace.machines.metadata.controller.delegation_tokens import ended
from headrace.machines.security.delegation_tokens import DelegationTokens, TokenRefused
from headrace.node.error_codes import FAULTS, code_of
from headrace.node.metadata_log import MetadataLog
from headrace.node.routes import Request
from headrace.node.waiting import Parked
from headrace.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


class ExpireDelegationToken:
    def __init__(self, metadata: MetadataLog, tokens: DelegationTokens) -> None:
        self._metadata = metadata
        self._tokens = tokens

    def handle(self, request: Request) -> ExpireDelegationTokenResponse | Parked:
        body: ExpireDelegationTokenRequest = request.body
        principal, secret = request.connection.principal, bytes(body.hmac)
        try:
            expiry = self._tokens.expire(principal, secret, body.expiry_time_period_ms, request.now.wall_ms)
            request.token_id = expiry.token_id
            offset = self._metadata.propose(request.now, ended(expiry))
        except TokenRefused as refusal:
            return ExpireDelegationTokenResponse(error_code=refusal.code)
        except FAULTS as fault:
            return ExpireDelegationTokenResponse(error_code=code_of(fault))
        response = ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry.expires_ms)
        return self._metadata.when_known(request, offset, response)
