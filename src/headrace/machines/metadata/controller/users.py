"""Decision about SCRAM credentials of users, and the answer about those that there are.

A user may be named once in a request, whatever the mechanism, as in Kafka: of two changes nobody could tell
which one counts. Only what proves the knowledge of a password is stored, never the salted password.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from headrace.base.randomness import Randomness
from headrace.machines.metadata.controller.decision import (
    RECORDS_MAX,
    TOO_LARGE,
    MetadataDecision,
    Refusal,
)
from headrace.machines.metadata.image import ClusterImage
from headrace.machines.metadata.security_image import (
    NOBODY,
    NOBODYS_MECHANISM,
    SecurityImage,
    credential_record,
)
from headrace.machines.security.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MECHANISMS_BY_ID,
    SALT_BYTES,
    Credential,
    Mechanism,
    credential_from_salted,
)
from headrace.protocol.errors import ErrorCode
from headrace.protocol.metadata_records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from headrace.protocol.notation import Data


@dataclass(slots=True)
class CredentialDeletion:
    user: str
    mechanism: int


@dataclass(slots=True)
class CredentialUpsertion:
    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes = field(repr=False)


@dataclass(slots=True)
class AlteredUser:
    user: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(slots=True)
class DescribedUser:
    user: str
    credentials: list[tuple[int, int]] = field(default_factory=list)  # mechanisms and their iterations
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


def alter_credentials(
    image: ClusterImage,
    deletions: Sequence[CredentialDeletion],
    upsertions: Sequence[CredentialUpsertion],
    rng: Randomness,
) -> MetadataDecision[list[AlteredUser]]:
    """Refusal: too many of them."""
    asked: list[CredentialDeletion | CredentialUpsertion] = [*deletions, *upsertions]
    changes: dict[str, Data] = {}
    refused: dict[str, AlteredUser] = {}
    for change in asked:
        user = change.user
        if user in refused:
            continue
        try:
            if changes.pop(user, None) is not None:
                raise Refusal(
                    ErrorCode.DUPLICATE_RESOURCE,
                    "A user credential cannot be altered twice in the same request",
                )
            changes[user] = _record(image.security, change)
        except Refusal as refusal:
            refused[user] = AlteredUser(user, refusal.code, refusal.message)
    has_users = any(isinstance(record, UserScramCredentialRecord) for record in changes.values())
    secret = [new_secret(rng)] if has_users and image.security.nobody is None else []
    if len(secret) + len(changes) > RECORDS_MAX:
        raise Refusal(ErrorCode.POLICY_VIOLATION, TOO_LARGE)
    altered = [AlteredUser(user) for user in changes]
    return MetadataDecision([*altered, *refused.values()], [*secret, *changes.values()])


def missing_secret(security: SecurityImage, rng: Randomness) -> list[Data]:
    """What has to be decided where there are users: a log of an earlier version, or first users that were
    written before the cluster's first start, have no secret.
    """
    return [new_secret(rng)] if security.nobody is None else []


def new_secret(rng: Randomness) -> UserScramCredentialRecord:
    """A random credential that nobody can log in with: its stored key is the hash of nothing known."""
    size = MECHANISMS_BY_ID[NOBODYS_MECHANISM].digest_bytes
    credential = Credential(
        rng.randbytes(SALT_BYTES), rng.randbytes(size), rng.randbytes(size), ITERATIONS_MIN
    )
    return credential_record(NOBODY, NOBODYS_MECHANISM, credential)


def _record(security: SecurityImage, change: CredentialDeletion | CredentialUpsertion) -> Data:
    mechanism = _mechanism(change)
    if isinstance(change, CredentialDeletion):
        if (change.user, change.mechanism) not in security.credentials:
            raise Refusal(
                ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
            )
        return RemoveUserScramCredentialRecord(name=change.user, mechanism=change.mechanism)
    if change.iterations < ITERATIONS_MIN:
        raise Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > ITERATIONS_MAX:
        raise Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    try:
        credential = credential_from_salted(mechanism, change.salted_password, change.salt, change.iterations)
    except ValueError as wrong:
        raise Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, str(wrong)) from None
    return credential_record(change.user, change.mechanism, credential)


def _mechanism(change: CredentialDeletion | CredentialUpsertion) -> Mechanism:
    if not change.user:
        raise Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = MECHANISMS_BY_ID.get(change.mechanism)
    if mechanism is None:
        raise Refusal(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return mechanism


def describe_users(security: SecurityImage, names: Iterable[str] | None) -> list[DescribedUser]:
    """Some users, or all, without what could help to guess a password."""
    found: dict[str, DescribedUser] = {}
    if names is None:
        for user, mechanism in sorted(security.credentials):
            one = found.setdefault(user, DescribedUser(user))
            one.credentials.append((mechanism, security.credentials[user, mechanism].iterations))
        return list(found.values())
    for user in names:
        found[user] = _twice(user) if user in found else _described(security, user)
    return list(found.values())


def _described(security: SecurityImage, user: str) -> DescribedUser:
    credentials = [
        (mechanism, security.credentials[user, mechanism].iterations)
        for mechanism in sorted(MECHANISMS_BY_ID)
        if (user, mechanism) in security.credentials
    ]
    if credentials:
        return DescribedUser(user, credentials)
    message = f"Attempt to describe a user credential that does not exist: {user}"
    return DescribedUser(user, error=ErrorCode.RESOURCE_NOT_FOUND, message=message)


def _twice(user: str) -> DescribedUser:
    message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
    return DescribedUser(user, error=ErrorCode.DUPLICATE_RESOURCE, message=message)
