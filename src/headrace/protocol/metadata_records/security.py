"""Metadata records about access rules, SCRAM logins and delegation tokens."""

from __future__ import annotations

from headrace.protocol.notation import BYTES, INT8, INT32, INT64, STRING, UUID, Data, array, field


class AccessControlEntryRecord(Data, key=18, versions="0", flexible="0+"):
    id: bytes = field(UUID)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    pattern_type: int = field(INT8)
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class RemoveAccessControlEntryRecord(Data, key=19, versions="0", flexible="0+"):
    id: bytes = field(UUID)


class UserScramCredentialRecord(Data, key=11, versions="0", flexible="0+"):
    name: str = field(STRING)
    mechanism: int = field(INT8)
    salt: bytes = field(BYTES)
    stored_key: bytes = field(BYTES)
    server_key: bytes = field(BYTES)
    iterations: int = field(INT32)


class RemoveUserScramCredentialRecord(Data, key=22, versions="0", flexible="0+"):
    name: str = field(STRING)
    mechanism: int = field(INT8)


class DelegationTokenRecord(Data, key=10, versions="0", flexible="0+"):
    owner: str = field(STRING)
    requester: str = field(STRING)
    renewers: list[str] = field(array(STRING))
    issue_timestamp: int = field(INT64)
    max_timestamp: int = field(INT64)
    expiration_timestamp: int = field(INT64)
    token_id: str = field(STRING)


class RemoveDelegationTokenRecord(Data, key=26, versions="0", flexible="0+"):
    token_id: str = field(STRING)
