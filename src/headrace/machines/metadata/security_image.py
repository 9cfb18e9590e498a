"""The part of the cluster's image about security: access rules, SCRAM credentials, quotas and tokens.

It is changed by `replay` alone, and each record costs the same, however much there is. The modules of the
values are imported with the first record of their kind: a node without users and rules starts without them.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.machines.metadata.errors import BadMetadata
from headrace.protocol.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    EntityData,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from headrace.protocol.notation import Data

if TYPE_CHECKING:
    from headrace.machines.security.acl_rules import AclRule
    from headrace.machines.security.delegation_tokens import DelegationToken
    from headrace.machines.security.scram import Credential

# The user of a credential that nobody can log in with: no request can name it. Its server key is the secret
# from which decoys are made, what users that do not exist seem to have. As a credential it is a record that
# Kafka's tools read, too.
NOBODY = ""
NOBODYS_MECHANISM = 2  # SCRAM-SHA-512

# Kafka's names of the kinds of clients that have quotas.
USER, CLIENT_ID, IP = "user", "client-id", "ip"


class ClientQuotaEntity(NamedTuple):
    """What a quota is for: a user, a client id, both together, or an address.

    None: it does not matter. "" is the default, for each that has no quota of its own (`quotas.DEFAULT`).
    """

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def parts(self) -> list[tuple[str, str | None]]:
        """Kinds and names as messages and records have them: there, None is the default."""
        named = zip((USER, CLIENT_ID, IP), self, strict=True)
        return [(kind, name or None) for kind, name in named if name is not None]


def entity_order(entity: ClientQuotaEntity) -> list[tuple[str, str]]:
    """In which snapshots, and so hashes, have them."""
    return [(kind, name or "") for kind, name in entity.parts()]


class SecurityImage:
    __slots__ = ("credentials", "credentials_version", "nobody", "quotas", "rule_ids", "rules", "tokens")

    def __init__(self) -> None:
        self.rules: dict[bytes, AclRule] = {}  # by id
        self.rule_ids: dict[AclRule, bytes] = {}  # no rule is there twice
        self.credentials: dict[tuple[str, int], Credential] = {}  # by user and id of the mechanism
        self.credentials_version = 0  # another number after each change of them
        self.nobody: Credential | None = None  # not among the users'
        self.quotas: dict[ClientQuotaEntity, dict[str, float]] = {}  # by key, as producer_byte_rate
        self.tokens: dict[str, DelegationToken] = {}  # by id

    def copy(self) -> "SecurityImage":
        other = SecurityImage()
        other.rules = dict(self.rules)
        other.rule_ids = dict(self.rule_ids)
        other.credentials = dict(self.credentials)
        other.credentials_version = self.credentials_version
        other.nobody = self.nobody
        other.quotas = {entity: dict(values) for entity, values in self.quotas.items()}
        other.tokens = dict(self.tokens)
        return other

    # --- the one way to change ----------------------------------------------------------------------------

    def replay(self, record: Data) -> None:
        REPLAY[type(record)](self, record)

    def _rule(self, record: AccessControlEntryRecord) -> None:
        from headrace.machines.security.acl_rules import AclRule

        rule = AclRule(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )
        if record.id in self.rules or rule in self.rule_ids:
            raise BadMetadata(f"access rule {record.id.hex()} was created twice: {rule}")
        self.rules[record.id] = rule
        self.rule_ids[rule] = record.id

    def _remove_rule(self, record: RemoveAccessControlEntryRecord) -> None:
        rule = self.rules.pop(record.id, None)
        if rule is None:
            raise BadMetadata(f"access rule {record.id.hex()} was removed but never created")
        del self.rule_ids[rule]

    def _credential(self, record: UserScramCredentialRecord) -> None:
        from headrace.machines.security.scram import Credential

        credential = Credential(
            bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations
        )
        if record.name == NOBODY:
            self.nobody = credential
        else:
            self.credentials[record.name, record.mechanism] = credential
            self.credentials_version += 1

    def _remove_credential(self, record: RemoveUserScramCredentialRecord) -> None:
        if record.name == NOBODY:
            self.nobody = None
        elif self.credentials.pop((record.name, record.mechanism), None) is None:
            raise BadMetadata(
                f"user {record.name!r} lost credentials for mechanism {record.mechanism}, but never had them"
            )
        else:
            self.credentials_version += 1

    def _quota(self, record: ClientQuotaRecord) -> None:
        """As in Kafka, a quota that is not there can be removed."""
        entity = entity_of(record)
        if not record.remove:
            self.quotas.setdefault(entity, {})[record.key] = record.value
            return
        values = self.quotas.get(entity, {})
        values.pop(record.key, None)
        if not values:
            self.quotas.pop(entity, None)

    def _token(self, record: DelegationTokenRecord) -> None:
        from headrace.machines.security.delegation_tokens import DelegationToken

        self.tokens[record.token_id] = DelegationToken(
            record.token_id,
            record.owner,
            record.requester,
            tuple(record.renewers),
            record.issue_timestamp,
            record.expiration_timestamp,
            record.max_timestamp,
        )

    def _remove_token(self, record: RemoveDelegationTokenRecord) -> None:
        """As in Kafka, one that is not there can be removed."""
        self.tokens.pop(record.token_id, None)


REPLAY: dict[type[Data], Callable[[SecurityImage, Any], None]] = {
    AccessControlEntryRecord: SecurityImage._rule,
    RemoveAccessControlEntryRecord: SecurityImage._remove_rule,
    UserScramCredentialRecord: SecurityImage._credential,
    RemoveUserScramCredentialRecord: SecurityImage._remove_credential,
    ClientQuotaRecord: SecurityImage._quota,
    DelegationTokenRecord: SecurityImage._token,
    RemoveDelegationTokenRecord: SecurityImage._remove_token,
}


# --- records of a state -----------------------------------------------------------------------------------


def security_records(after: SecurityImage, before: SecurityImage) -> Iterator[Data]:
    """Records that turn one state into another; from an empty one they are a snapshot.

    What is removed comes first: a rule may have come back under another id.
    """
    for rule_id in sorted(before.rules):
        if after.rules.get(rule_id) != before.rules[rule_id]:
            yield RemoveAccessControlEntryRecord(id=rule_id)
    for rule_id in sorted(after.rules):
        if before.rules.get(rule_id) != after.rules[rule_id]:
            yield rule_record(rule_id, after.rules[rule_id])
    if before.nobody is not None and after.nobody is None:
        yield RemoveUserScramCredentialRecord(name=NOBODY, mechanism=NOBODYS_MECHANISM)
    elif after.nobody is not None and after.nobody != before.nobody:
        yield credential_record(NOBODY, NOBODYS_MECHANISM, after.nobody)
    for user, mechanism in sorted(before.credentials.keys() - after.credentials.keys()):
        yield RemoveUserScramCredentialRecord(name=user, mechanism=mechanism)
    for user, mechanism in sorted(after.credentials):
        credential = after.credentials[user, mechanism]
        if before.credentials.get((user, mechanism)) != credential:
            yield credential_record(user, mechanism, credential)
    for entity in sorted(before.quotas.keys() | after.quotas.keys(), key=entity_order):
        old, new = before.quotas.get(entity, {}), after.quotas.get(entity, {})
        for key in sorted(old.keys() | new.keys()):
            if old.get(key) != new.get(key):
                yield quota_record(entity, key, new.get(key))
    for token_id in sorted(before.tokens.keys() - after.tokens.keys()):
        yield RemoveDelegationTokenRecord(token_id=token_id)
    for token_id in sorted(after.tokens):
        if before.tokens.get(token_id) != after.tokens[token_id]:
            yield token_record(after.tokens[token_id])


def rule_record(rule_id: bytes, rule: "AclRule") -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=rule_id,
        resource_type=rule.resource_type,
        resource_name=rule.name,
        pattern_type=rule.pattern_type,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )


def credential_record(user: str, mechanism: int, credential: "Credential") -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        name=user,
        mechanism=mechanism,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )


def quota_record(entity: ClientQuotaEntity, key: str, value: float | None) -> ClientQuotaRecord:
    """None removes the quota."""
    return ClientQuotaRecord(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts()],
        key=key,
        value=value if value is not None else 0.0,
        remove=value is None,
    )


def token_record(token: "DelegationToken") -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issued_ms,
        max_timestamp=token.max_ms,
        expiration_timestamp=token.expires_ms,
        token_id=token.token_id,
    )


def entity_of(record: ClientQuotaRecord) -> ClientQuotaEntity:
    names = {part.entity_type: part.entity_name or "" for part in record.entity}
    entity = ClientQuotaEntity(names.pop(USER, None), names.pop(CLIENT_ID, None), names.pop(IP, None))
    if names:
        raise BadMetadata(f"quota {record.key} is for an unknown kind of client: {', '.join(sorted(names))}")
    return entity
