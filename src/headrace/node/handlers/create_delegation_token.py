"""CreateDelegationToken, key 38, versions 1–3: a token with which others may act for a user."""

from headrace.base.randomness import Randomness
from headrace.machines.metadata.controller.delegation_tokens import written
from headrace.machines.security.delegation_tokens import USER_PREFIX, DelegationTokens, TokenRefused
from headrace.node.authorization import Access, Operation, Resource
from headrace.node.error_codes import FAULTS, code_of
from headrace.node.metadata_log import MetadataLog
from headrace.node.routes import Request
from headrace.node.waiting import Parked
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)


class CreateDelegationToken:
    def __init__(
        self, metadata: MetadataLog, tokens: DelegationTokens, access: Access, rng: Randomness
    ) -> None:
        self._metadata = metadata
        self._tokens = tokens
        self._access = access
        self._rng = rng

    def handle(self, request: Request) -> CreateDelegationTokenResponse | Parked:
        body: CreateDelegationTokenRequest = request.body
        requester = request.connection.principal
        owner = requester
        if body.owner_principal_name:
            owner = f"{body.owner_principal_type}:{body.owner_principal_name}"
        response = answer(owner, requester)
        if owner != requester and not self._access.allows(
            request, Operation.CREATE_TOKENS, Resource.USER, owner
        ):
            response.error_code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
            return response
        renewers = [f"{one.principal_type}:{one.principal_name}" for one in body.renewers]
        if not all(renewer.startswith(USER_PREFIX) for renewer in renewers):
            response.error_code = ErrorCode.INVALID_PRINCIPAL_TYPE
            return response
        try:
            token = self._tokens.create(
                requester,
                owner=owner,
                renewers=renewers,
                lifetime_ms=body.max_lifetime_ms,
                now_ms=request.now.wall_ms,
                rng=self._rng,
            )
            offset = self._metadata.propose(request.now, written(token))
        except TokenRefused as refusal:
            response.error_code = refusal.code
            return response
        except FAULTS as fault:
            response.error_code = code_of(fault)
            return response
        response.issue_timestamp_ms = token.issued_ms
        response.expiry_timestamp_ms = token.expires_ms
        response.max_timestamp_ms = token.max_ms
        response.token_id = token.token_id
        response.hmac = self._tokens.secret(token.token_id)
        return self._metadata.when_known(request, offset, response)


def answer(owner: str, requester: str) -> CreateDelegationTokenResponse:
    owner_type, _, owner_name = owner.partition(":")
    requester_type, _, requester_name = requester.partition(":")
    return CreateDelegationTokenResponse(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
    )
