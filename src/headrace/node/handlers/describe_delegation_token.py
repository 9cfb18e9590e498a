"""DescribeDelegationToken, key 41, versions 1–3: the tokens that a client may see, with their secrets.

None asks for all owners, and an empty list for nothing, as in Kafka.
"""

from headrace.machines.security.delegation_tokens import DelegationToken, DelegationTokens, TokenRefused
from headrace.node.authorization import Access, Operation, Resource
from headrace.node.metadata_log import MetadataLog
from headrace.node.routes import Request
from headrace.node.token_requests import TokenRequests
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)


class DescribeDelegationToken:
    def __init__(
        self, metadata: MetadataLog, tokens: DelegationTokens, requests: TokenRequests, access: Access
    ) -> None:
        self._metadata = metadata
        self._tokens = tokens
        self._requests = requests
        self._access = access

    def handle(self, request: Request) -> DescribeDelegationTokenResponse:
        body: DescribeDelegationTokenRequest = request.body
        if not self._requests.allows(request.connection):
            return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)

        def may_describe(token: DelegationToken) -> bool:
            shows = self._access.shows  # nobody is refused: a token is left out of the answer
            return shows(request, Operation.DESCRIBE, Resource.DELEGATION_TOKEN, token.token_id) or shows(
                request, Operation.DESCRIBE_TOKENS, Resource.USER, token.owner
            )

        owners = None
        if body.owners is not None:
            owners = [f"{one.principal_type}:{one.principal_name}" for one in body.owners]
        try:
            found = self._tokens.visible(request.connection.principal, owners, may_describe)
        except TokenRefused as refusal:
            return DescribeDelegationTokenResponse(error_code=refusal.code)
        response = DescribeDelegationTokenResponse(tokens=[self._described(token) for token in found])
        return self._metadata.when_durable(request, response)

    def _described(self, token: DelegationToken) -> DescribedDelegationToken:
        owner_type, _, owner_name = token.owner.partition(":")
        requester_type, _, requester_name = token.requester.partition(":")
        renewers = [renewer.partition(":") for renewer in token.renewers]
        return DescribedDelegationToken(
            principal_type=owner_type,
            principal_name=owner_name,
            token_requester_principal_type=requester_type,
            token_requester_principal_name=requester_name,
            issue_timestamp=token.issued_ms,
            expiry_timestamp=token.expires_ms,
            max_timestamp=token.max_ms,
            token_id=token.token_id,
            hmac=self._tokens.secret(token.token_id),
            renewers=[
                DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
                for kind, _, name in renewers
            ],
        )
