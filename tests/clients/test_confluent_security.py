"""confluent-kafka's admin: access rules and users."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from harness.wait import WAIT_S

RULE = AclBinding(
    ResourceType.TOPIC,
    "orders",
    ResourcePatternType.LITERAL,
    "User:ada",
    "*",
    AclOperation.READ,
    AclPermissionType.ALLOW,
)
EVERYTHING = AclBindingFilter(
    ResourceType.ANY,
    None,
    ResourcePatternType.ANY,
    None,
    None,
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
