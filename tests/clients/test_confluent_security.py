"""confluent-kafka's admin: access rules and users."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from harness.wait import WAIT_S, eventually


def rule(name: str, pattern: ResourcePatternType) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC, name, pattern, "User:ada", "*", AclOperation.READ, AclPermissionType.ALLOW
    )


RULE = rule("orders", ResourcePatternType.LITERAL)
ANYTHING: Any = None  # its types do not say that a filter need not name everything
EVERYTHING = AclBindingFilter(
    ResourceType.ANY,
    ANYTHING,
    ResourcePatternType.ANY,
    ANYTHING,
    ANYTHING,
    AclOperation.ANY,
    AclPermissionType.ANY,
)


def code_of(future: object) -> int:
    """Of the error that the future fails with; 0: it does not."""
    try:
        future.result(WAIT_S)  # type: ignore[attr-defined]
    except KafkaException as failed:
        return int(failed.args[0].code())
    return 0


def test_access_rules_without_an_authorizer(admin: AdminClient) -> None:
    disabled = KafkaError.SECURITY_DISABLED
    assert code_of(admin.create_acls([RULE])[RULE]) == disabled
    assert admin.describe_acls(EVERYTHING).result(WAIT_S) == []  # librdkafka does not tell this error
    assert code_of(admin.delete_acls([EVERYTHING])[EVERYTHING]) == disabled


def test_access_rules(guarded: str) -> None:
    admin = AdminClient({"bootstrap.servers": guarded, "log_level": 2})
    prefixed = rule("pay", ResourcePatternType.PREFIXED)
    nameless = rule("", ResourcePatternType.LITERAL)

    def found(which: AclBindingFilter) -> list[AclBinding]:
        return sorted(admin.describe_acls(which).result(WAIT_S), key=str)

    created = admin.create_acls([RULE, prefixed, nameless])
    assert [code_of(created[one]) for one in (RULE, prefixed)] == [0, 0]
    assert code_of(created[nameless]) == KafkaError.INVALID_REQUEST
    eventually(lambda: found(EVERYTHING), sorted([RULE, prefixed], key=str))
    assert code_of(admin.create_acls([RULE])[RULE]) == 0, "it is there already"
    matching = AclBindingFilter(
        ResourceType.TOPIC,
        "payments",
        ResourcePatternType.MATCH,
        ANYTHING,
        ANYTHING,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    assert found(matching) == [prefixed]
    deleted = admin.delete_acls([matching, EVERYTHING])
    assert deleted[matching].result(WAIT_S) == [prefixed]
    assert sorted(deleted[EVERYTHING].result(WAIT_S), key=str) == sorted([RULE, prefixed], key=str)
    eventually(lambda: found(EVERYTHING), [])


SHA_512 = ScramMechanism.SCRAM_SHA_512


def upsertion(user: str, iterations: int = 4096) -> UserScramCredentialUpsertion:
    return UserScramCredentialUpsertion(user, ScramCredentialInfo(SHA_512, iterations), b"secret")


def described(admin: AdminClient, *users: str) -> Any:
    """Futures by user, or one future for all users; its type says neither."""
    return admin.describe_user_scram_credentials(list(users) or None)


def test_users(admin: AdminClient, name: str) -> None:
    user, nobody = name, f"{name}-nobody"

    def credentials() -> list[tuple[ScramMechanism, int]]:
        infos = described(admin, user)[user].result(WAIT_S).scram_credential_infos
        return [(one.mechanism, one.iterations) for one in infos]

    altered = admin.alter_user_scram_credentials([upsertion(user, 8192)])
    assert code_of(altered[user]) == 0
    eventually(lambda: code_of(described(admin, user)[user]), 0)
    assert credentials() == [(SHA_512, 8192)]
    assert user in described(admin).result(WAIT_S)
    altered = admin.alter_user_scram_credentials(
        [upsertion(user), UserScramCredentialDeletion(nobody, SHA_512)]
    )
    assert code_of(altered[user]) == 0
    assert code_of(altered[nobody]) == KafkaError.RESOURCE_NOT_FOUND
    eventually(credentials, [(SHA_512, 4096)])
    altered = admin.alter_user_scram_credentials([UserScramCredentialDeletion(user, SHA_512)])
    assert code_of(altered[user]) == 0
    missing = KafkaError.RESOURCE_NOT_FOUND
    eventually(lambda: code_of(described(admin, user)[user]), missing)


def test_passwords_that_are_too_easy_or_too_hard(admin: AdminClient, name: str) -> None:
    for iterations in (4095, 16_385):
        altered = admin.alter_user_scram_credentials([upsertion(name, iterations)])
        assert code_of(altered[name]) == KafkaError.UNACCEPTABLE_CREDENTIAL


def test_a_user_who_is_named_twice(admin: AdminClient, name: str) -> None:
    altered = admin.alter_user_scram_credentials(
        [upsertion(name), UserScramCredentialDeletion(name, SHA_512)]
    )
    assert code_of(altered[name]) == KafkaError.RESOURCE_NOT_FOUND  # a deletion that fails comes first
    altered = admin.alter_user_scram_credentials([upsertion(name), upsertion(name, 8192)])
    assert code_of(altered[name]) == KafkaError.DUPLICATE_RESOURCE
