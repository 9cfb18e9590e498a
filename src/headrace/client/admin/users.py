"""What brokers store about users: SCRAM passwords, delegation tokens and quotas."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from headrace.client.admin.operation import (
    ANY,
    CONTROLLER,
    Ask,
    Operation,
    Outcome,
    Sent,
    as_list,
    ask_all,
    ask_one,
    check,
    draw,
    failed,
    settled,
)
from headrace.client.errors import InvalidInput
from headrace.machines.security import scram
from headrace.protocol.messages import alter_client_quotas as altering
from headrace.protocol.messages import describe_client_quotas as describing
from headrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headrace.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from headrace.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from headrace.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from headrace.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from headrace.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest

ITERATIONS = 8192  # Kafka takes 4096 to 16384
STRONGEST = scram.SHA_512.name


class ScramCredential(NamedTuple):
    """A SCRAM credential of a user: mechanism and iterations.

    >>> ScramCredential("SCRAM-SHA-512", 8192).iterations
    8192
    """

    mechanism: str
    iterations: int


def describe_users(names: Iterable[str] | None = None) -> Operation[dict[str, list[ScramCredential]]]:
    """Some users, or all, with the mechanisms for which they have passwords.

    >>> admin.describe_users()  # doctest: +SKIP
    """
    users = None if names is None else [UserName(name=name) for name in as_list(names)]

    def read(answer: Any) -> dict[str, list[ScramCredential]]:
        check(answer.error_code, answer.error_message, subject="users")
        outcome: Outcome[str, list[ScramCredential]] = {}
        for told in answer.results:
            error = failed(told.error_code, told.error_message, subject=f"user {told.user!r}")
            outcome[told.user] = error or sorted(
                ScramCredential(_mechanism_name(one.mechanism), one.iterations)
                for one in told.credential_infos
            )
        return settled(outcome)

    request = DescribeUserScramCredentialsRequest(users=users)
    return (yield from ask_one("describing users", ANY, lambda _: request, read))


def set_password(
    user: str, password: str, *, mechanism: str = STRONGEST, iterations: int = ITERATIONS
) -> Operation[None]:
    """Sets the password of a user for a mechanism.

    >>> admin.set_password("ada", "analytical engine")  # doctest: +SKIP
    """
    known = _mechanism(mechanism)
    salt = yield from draw(scram.SALT_BYTES)
    credential = ScramCredentialUpsertion(
        name=user,
        mechanism=known.id,
        iterations=iterations,
        salt=salt,
        salted_password=scram.salt_password(known, password, salt, iterations),
    )

    def make(_: list[str], __: int) -> AlterUserScramCredentialsRequest:
        return AlterUserScramCredentialsRequest(upsertions=[credential])

    yield from ask_all(Ask(f"setting a password of {user!r}", {user: CONTROLLER}, make, _altered))


def delete_passwords(users: str | Iterable[str], *, mechanism: str = STRONGEST) -> Operation[None]:
    """Deletes the passwords of users for a mechanism.

    >>> admin.delete_passwords(["ada"])  # doctest: +SKIP
    """
    number = _mechanism(mechanism).id

    def make(names: list[str], _: int) -> AlterUserScramCredentialsRequest:
        return AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name=name, mechanism=number) for name in names]
        )

    targets = dict.fromkeys(as_list(users), CONTROLLER)
    yield from ask_all(Ask("deleting passwords", targets, make, _altered))


def _altered(answer: Any, _: Sent[str]) -> Outcome[str, bool]:
    return {
        told.user: failed(told.error_code, told.error_message, subject=f"user {told.user!r}") or True
        for told in answer.results
    }


def _mechanism(name: str) -> scram.Mechanism:
    if name not in scram.MECHANISMS:
        raise InvalidInput(f"mechanism={name!r}: must be one of {', '.join(scram.MECHANISMS)}")
    return scram.MECHANISMS[name]


def _mechanism_name(number: int) -> str:
    known = scram.MECHANISMS_BY_ID.get(number)
    return known.name if known is not None else f"unknown {number}"


BROKERS_CHOICE = -1
AT_ONCE = -1


class DelegationToken(NamedTuple):
    """A token: `token_id` is its user name, `hmac` its secret.

    >>> DelegationToken("id", b"secret", "User:ada", "User:ada", 0, 1, 2, []).owner
    'User:ada'
    """

    token_id: str
    hmac: bytes
    owner: str  # as "User:ada"
    requester: str
    issued_ms: int
    expires_ms: int
    expires_ms_max: int  # renewals end here
    renewers: list[str]

    def __repr__(self) -> str:
        """Without the secret."""
        return f"DelegationToken({self.token_id!r}, [hidden], {self.owner!r}, expires_ms={self.expires_ms})"


def create_token(
    *, owner: str | None = None, renewers: Iterable[str] = (), lifetime_ms: int = BROKERS_CHOICE
) -> Operation[DelegationToken]:
    """Creates a token for the client's own user or for another owner; the renewers may renew it.

    >>> admin.create_token(renewers=["User:scheduler"])  # doctest: +SKIP
    """
    others = list(renewers)
    owner_type, owner_name = (None, None) if owner is None else _principal(owner)
    request = CreateDelegationTokenRequest(
        owner_principal_type=owner_type,
        owner_principal_name=owner_name,
        renewers=[
            CreatableRenewers(principal_type=kind, principal_name=name)
            for kind, name in map(_principal, others)
        ],
        max_lifetime_ms=lifetime_ms,
    )

    def read(answer: Any) -> DelegationToken:
        check(answer.error_code, subject="a delegation token")
        return DelegationToken(
            answer.token_id,
            answer.hmac,
            f"{answer.principal_type}:{answer.principal_name}",
            f"{answer.token_requester_principal_type}:{answer.token_requester_principal_name}",
            answer.issue_timestamp_ms,
            answer.expiry_timestamp_ms,
            answer.max_timestamp_ms,
            others,
        )

    return (yield from ask_one("creating a delegation token", CONTROLLER, lambda _: request, read))


def renew_token(hmac: bytes, period_ms: int = BROKERS_CHOICE) -> Operation[int]:
    """Renews a token for a time, by default that of the broker's setting; returns when it expires.

    >>> admin.renew_token(token.hmac)  # doctest: +SKIP
    """
    request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
    return (yield from ask_one("renewing a token", CONTROLLER, lambda _: request, _expiry))


def expire_token(hmac: bytes, after_ms: int = AT_ONCE) -> Operation[int]:
    """Lets a token expire at once, or after a time; returns when it expires.

    >>> admin.expire_token(token.hmac)  # doctest: +SKIP
    """
    request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=after_ms)
    return (yield from ask_one("ending a token", CONTROLLER, lambda _: request, _expiry))


def _expiry(answer: Any) -> int:
    check(answer.error_code, subject="the delegation token")
    return int(answer.expiry_timestamp_ms)


def describe_tokens(owners: Iterable[str] | None = None) -> Operation[list[DelegationToken]]:
    """The tokens of some owners, or all that the client is authorized to see.

    >>> admin.describe_tokens(["User:ada"])  # doctest: +SKIP
    """
    asked = None
    if owners is not None:
        asked = [
            DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
            for kind, name in map(_principal, owners)
        ]

    def read(answer: Any) -> list[DelegationToken]:
        check(answer.error_code, subject="delegation tokens")
        return [
            DelegationToken(
                told.token_id,
                told.hmac,
                f"{told.principal_type}:{told.principal_name}",
                f"{told.token_requester_principal_type}:{told.token_requester_principal_name}",
                told.issue_timestamp,
                told.expiry_timestamp,
                told.max_timestamp,
                [f"{one.principal_type}:{one.principal_name}" for one in told.renewers],
            )
            for told in answer.tokens
        ]

    request = DescribeDelegationTokenRequest(owners=asked)
    return (yield from ask_one("describing tokens", ANY, lambda _: request, read))


def _principal(text: str) -> tuple[str, str]:
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise InvalidInput(f"{text!r} is not a principal: write it as User:{text or 'name'}")
    return kind, name


# As a name: whoever has no quota of his own. Kafka's names are never empty.
EVERYBODY_ELSE: Final = ""

_EXACT, _DEFAULT = 0, 1
_KINDS = {"user": "user", "client_id": "client-id", "ip": "ip"}
_FIELDS = {kind: field for field, kind in _KINDS.items()}


class QuotaEntity(NamedTuple):
    """The entity that a quota limits: a user, a client id, both together, or an address; "" is the default.

    >>> print(QuotaEntity(user="ada", client_id=""))
    user 'ada', default client-id
    """

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def __str__(self) -> str:
        return ", ".join(
            f"{kind} {name!r}" if name else f"default {kind}" for kind, name in self.parts().items()
        )

    def parts(self) -> dict[str, str]:
        """By Kafka's names of the kinds; those that are given."""
        given = {_KINDS[field]: name for field, name in self._asdict().items()}
        return {kind: name for kind, name in given.items() if name is not None}


def describe_quotas(which: QuotaEntity | None = None) -> Operation[dict[QuotaEntity, dict[str, float]]]:
    """The quotas of exactly this entity, or all, by Kafka's keys such as `producer_byte_rate`.

    >>> admin.describe_quotas(QuotaEntity(user="ada"))  # doctest: +SKIP
    """
    components = [
        describing.ComponentData(
            entity_type=kind, match_type=_EXACT if name else _DEFAULT, match=name or None
        )
        for kind, name in (which.parts() if which is not None else {}).items()
    ]
    request = describing.DescribeClientQuotasRequest(components=components, strict=which is not None)

    def read(answer: Any) -> dict[QuotaEntity, dict[str, float]]:
        check(answer.error_code, answer.error_message, subject="quotas")
        return {
            _entity(told.entity): {one.key: one.value for one in told.values} for told in answer.entries or ()
        }

    return (yield from ask_one("describing quotas", ANY, lambda _: request, read))


def alter_quotas(
    changes: Mapping[QuotaEntity, Mapping[str, float | None]], *, validate_only: bool = False
) -> Operation[None]:
    """Sets quotas, or removes them with None; other keys keep their values.

    >>> admin.alter_quotas({QuotaEntity(user="ada"): {"producer_byte_rate": 1e6}})  # doctest: +SKIP
    """

    def make(entities: list[QuotaEntity], _: int) -> altering.AlterClientQuotasRequest:
        return altering.AlterClientQuotasRequest(
            entries=[
                altering.EntryData(
                    entity=[
                        altering.EntityData(entity_type=kind, entity_name=name or None)
                        for kind, name in entity.parts().items()
                    ],
                    ops=[
                        altering.OpData(key=key, value=value or 0.0, remove=value is None)
                        for key, value in changes[entity].items()
                    ],
                )
                for entity in entities
            ],
            validate_only=validate_only,
        )

    def read(answer: Any, _: Sent[QuotaEntity]) -> Outcome[QuotaEntity, bool]:
        outcome: Outcome[QuotaEntity, bool] = {}
        for told in answer.entries:
            entity = _entity(told.entity)
            outcome[entity] = failed(told.error_code, told.error_message, subject=str(entity)) or True
        return outcome

    yield from ask_all(Ask("changing quotas", dict.fromkeys(changes, CONTROLLER), make, read))


def _entity(told: list[Any]) -> QuotaEntity:
    """Kinds that we do not know are left out."""
    names = {_FIELDS[one.entity_type]: one.entity_name or "" for one in told if one.entity_type in _FIELDS}
    return QuotaEntity(**names)
