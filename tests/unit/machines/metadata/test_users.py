"""Decisions about SCRAM credentials."""

from __future__ import annotations

import pytest

from headrace.machines.metadata.controller import users
from headrace.machines.metadata.controller.decision import Refusal
from headrace.machines.metadata.controller.users import (
    AlteredUser,
    CredentialDeletion,
    CredentialUpsertion,
    DescribedUser,
    describe_users,
)
from headrace.machines.metadata.security_image import credential_record
from headrace.machines.security.scram import SHA_256, SHA_512, credential_from_password, salt_password
from headrace.protocol.errors import ErrorCode
from unit.machines.metadata.cluster import Cluster

TWICE = "A user credential cannot be altered twice in the same request"
DUPLICATE, MISSING = ErrorCode.DUPLICATE_RESOURCE, ErrorCode.RESOURCE_NOT_FOUND
UNACCEPTABLE = ErrorCode.UNACCEPTABLE_CREDENTIAL


def upsertion(user: str = "ada", mechanism: int = SHA_512.id, iterations: int = 4096) -> CredentialUpsertion:
    return CredentialUpsertion(user, mechanism, iterations, b"salt", bytes(64 if mechanism == 2 else 32))


def alter(cluster: Cluster, *changes: CredentialDeletion | CredentialUpsertion) -> list[AlteredUser]:
    deletions = [one for one in changes if isinstance(one, CredentialDeletion)]
    upsertions = [one for one in changes if isinstance(one, CredentialUpsertion)]
    return cluster.apply(cluster.controller.alter_credentials(deletions, upsertions))


def codes(altered: list[AlteredUser]) -> dict[str, ErrorCode]:
    return {one.user: one.error for one in altered}


def test_a_salted_password_becomes_the_credential_of_the_password() -> None:
    cluster = Cluster()
    salted = salt_password(SHA_256, "engine", b"salt", 4096)
    alter(cluster, CredentialUpsertion("ada", SHA_256.id, 4096, b"salt", salted))
    expected = credential_from_password(SHA_256, "engine", b"salt", 4096)
    assert cluster.image.security.credentials == {("ada", SHA_256.id): expected}


def test_the_mechanisms_of_a_user_are_apart() -> None:
    cluster = Cluster()
    alter(cluster, upsertion())
    alter(cluster, upsertion(mechanism=SHA_256.id, iterations=8192))
    alter(cluster, upsertion(iterations=5000))
    security = cluster.image.security
    assert describe_users(security, None) == [DescribedUser("ada", [(SHA_256.id, 8192), (SHA_512.id, 5000)])]
    alter(cluster, CredentialDeletion("ada", SHA_512.id))
    assert describe_users(security, ["ada"]) == [DescribedUser("ada", [(SHA_256.id, 8192)])]


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (upsertion(iterations=4095), UNACCEPTABLE, "Too few iterations"),
        (upsertion(iterations=16_385), UNACCEPTABLE, "Too many iterations"),
        (upsertion(user=""), UNACCEPTABLE, "Username must not be empty"),
        (upsertion(mechanism=0), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (CredentialDeletion("ada", 3), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (CredentialDeletion("", 1), UNACCEPTABLE, "Username must not be empty"),
        (
            CredentialDeletion("ada", SHA_256.id),
            MISSING,
            "Attempt to delete a user credential that does not exist",
        ),
    ],
)
def test_what_is_refused(
    change: CredentialDeletion | CredentialUpsertion, code: ErrorCode, message: str
) -> None:
    cluster = Cluster()
    alter(cluster, upsertion())
    before = dict(cluster.image.security.credentials)
    assert alter(cluster, change, upsertion("bob")) == [
        AlteredUser("bob"),
        AlteredUser(change.user, code, message),
    ]
    assert cluster.image.security.credentials == {**before, ("bob", 2): before["ada", 2]}


@pytest.mark.parametrize(("salt", "salted"), [(b"", bytes(64)), (b"salt", b""), (b"salt", bytes(32))])
def test_a_credential_with_which_nobody_could_log_in(salt: bytes, salted: bytes) -> None:
    (altered,) = alter(Cluster(), CredentialUpsertion("ada", SHA_512.id, 4096, salt, salted))
    assert altered.error is UNACCEPTABLE


def test_the_bounds_of_iterations() -> None:
    cluster = Cluster()
    assert codes(alter(cluster, upsertion("a", 1, 4096), upsertion("b", 1, 16_384))) == {
        "a": ErrorCode.NONE,
        "b": ErrorCode.NONE,
    }


@pytest.mark.parametrize(
    "changes",
    [
        [upsertion(), upsertion(mechanism=SHA_256.id)],
        [upsertion(), upsertion(), upsertion()],
        [CredentialDeletion("ada", SHA_512.id), upsertion(mechanism=SHA_256.id)],
        [CredentialDeletion("ada", SHA_512.id), CredentialDeletion("ada", SHA_512.id)],
    ],
)
def test_a_user_is_altered_once_in_a_request(
    changes: list[CredentialDeletion | CredentialUpsertion],
) -> None:
    cluster = Cluster()
    alter(cluster, upsertion(iterations=5000))
    assert alter(cluster, *changes) == [AlteredUser("ada", DUPLICATE, TWICE)]
    assert describe_users(cluster.image.security, None) == [DescribedUser("ada", [(SHA_512.id, 5000)])]


def test_too_many_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "RECORDS_MAX", 2)
    cluster = Cluster()
    with pytest.raises(Refusal, match="excessively large"):
        alter(cluster, *(upsertion(f"u{number}") for number in range(3)))
    assert cluster.image.security.credentials == {}


def test_users_that_are_asked_for() -> None:
    cluster = Cluster()
    alter(cluster, upsertion("ada"), upsertion("bob"))
    described = describe_users(cluster.image.security, ["bob", "cy", "ada", "ada"])
    assert [(one.user, one.error, one.message) for one in described] == [
        ("bob", ErrorCode.NONE, ""),
        ("cy", MISSING, "Attempt to describe a user credential that does not exist: cy"),
        (
            "ada",
            DUPLICATE,
            "Cannot describe SCRAM credentials for the same user twice in a single request: ada",
        ),
    ]


class TestSecret:
    """What the salts of users that do not exist are made from."""

    def test_it_comes_with_the_first_user_and_stays(self) -> None:
        cluster = Cluster()
        assert cluster.image.security.nobody is None
        alter(cluster, upsertion("ada"))
        secret = cluster.image.security.nobody
        assert secret is not None
        assert len(set(secret.server_key)) > 8
        alter(cluster, upsertion("bob"), CredentialDeletion("ada", SHA_512.id))
        alter(cluster, CredentialDeletion("bob", SHA_512.id))
        alter(cluster, upsertion("cy"))
        assert cluster.image.security.nobody == secret

    def test_another_cluster_has_another_one(self) -> None:
        one, other = Cluster(), Cluster()
        other.rng.seed(8)
        for cluster in (one, other):
            alter(cluster, upsertion())
        assert one.image.security.nobody != other.image.security.nobody

    def test_it_is_no_user(self) -> None:
        cluster = Cluster()
        alter(cluster, upsertion())
        security = cluster.image.security
        assert set(security.credentials) == {("ada", SHA_512.id)}
        assert [one.user for one in describe_users(security, None)] == ["ada"]
        assert [one.error for one in describe_users(security, [""])] == [MISSING]
        assert codes(alter(cluster, CredentialDeletion("", SHA_512.id))) == {"": UNACCEPTABLE}
        assert codes(alter(cluster, upsertion(""))) == {"": UNACCEPTABLE}
        assert security.nobody is not None

    def test_a_request_without_a_new_user_brings_none(self) -> None:
        cluster = Cluster()
        alter(cluster, CredentialDeletion("ada", SHA_512.id), upsertion("bob", iterations=1))
        assert cluster.image.security.nobody is None

    def test_users_that_no_request_created_get_one_from_the_next_controller(self) -> None:
        cluster = Cluster()
        assert cluster.controller.missing_secret() == []
        credential = credential_from_password(SHA_256, "engine", b"salt", 4096)
        cluster.image.replay(credential_record("ada", SHA_256.id, credential))
        first, *more = cluster.controller.missing_secret()
        assert not more
        cluster.image.replay(first)
        assert cluster.image.security.nobody is not None
        assert cluster.controller.missing_secret() == []
