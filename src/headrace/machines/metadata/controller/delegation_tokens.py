"""Decisions about delegation tokens: made, renewed, ended, and removed when they have expired."""

from headrace.machines.metadata.controller.decision import RECORDS_MAX, MetadataDecision
from headrace.machines.metadata.security_image import token_record
from headrace.machines.security.delegation_tokens import DelegationToken, DelegationTokens, Expiry
from headrace.protocol.metadata_records import RemoveDelegationTokenRecord


def written(token: DelegationToken) -> MetadataDecision[DelegationToken]:
    """A new token, or one with a new end."""
    return MetadataDecision(token, [token_record(token)])


def ended(expiry: Expiry) -> MetadataDecision[int]:
    """The reply is when it ends."""
    if expiry.token is not None:
        return MetadataDecision(expiry.expires_ms, [token_record(expiry.token)])
    return MetadataDecision(expiry.expires_ms, [RemoveDelegationTokenRecord(token_id=expiry.token_id)])


def remove_expired(tokens: DelegationTokens, now_ms: int) -> MetadataDecision[list[str]]:
    """As many at once as fit into one batch; the reply are their ids."""
    ids = tokens.expired(now_ms)[:RECORDS_MAX]
    return MetadataDecision(ids, [RemoveDelegationTokenRecord(token_id=token_id) for token_id in ids])
