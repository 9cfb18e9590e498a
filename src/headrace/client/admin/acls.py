"""Access control lists: create, describe and delete them."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from headrace.client.admin.operation import (
    ANY,
    CONTROLLER,
    Ask,
    Operation,
    Outcome,
    Sent,
    Told,
    ask_all,
    ask_one,
    check,
    failed,
    settled,
)
from headrace.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from headrace.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from headrace.protocol.messages.describe_acls import DescribeAclsRequest

# The codes are Kafka's. A node has enumerations of those that it checks (node/authorization.py), because the
# client knows no broker, and ANY and UNKNOWN of a filter mean nothing there.


class AclResource(Told):
    """The type of resource that a rule is about.

    >>> AclResource.TOPIC.name
    'TOPIC'
    """

    UNKNOWN = 0
    ANY = 1  # in a filter
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPattern(Told):
    """Whether a rule's name matches exactly, or as a prefix.

    >>> AclPattern.PREFIXED.name
    'PREFIXED'
    """

    UNKNOWN = 0
    ANY = 1  # in a filter: whatever was said
    MATCH = 2  # in a filter: everything that holds for the name
    LITERAL = 3  # the name "*" means all
    PREFIXED = 4


class AclOperation(Told):
    """The operation that a rule allows or denies.

    >>> AclOperation.READ.name
    'READ'
    """

    UNKNOWN = 0
    ANY = 1  # in a filter
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(Told):
    """Whether a rule allows or denies; a rule that denies overrides all that allow.

    >>> AclPermission.ALLOW.name
    'ALLOW'
    """

    UNKNOWN = 0
    ANY = 1  # in a filter
    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    """One rule.

    >>> rule = Acl(AclResource.TOPIC, "orders", "User:ada", AclOperation.READ)
    >>> rule.permission.name, rule.pattern.name, rule.host
    ('ALLOW', 'LITERAL', '*')
    """

    resource: AclResource
    name: str
    principal: str  # as "User:ada"
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    pattern: AclPattern = AclPattern.LITERAL
    host: str = "*"

    def __str__(self) -> str:
        return (
            f"{self.permission.name.lower()} {self.principal} {self.operation.name.lower()} on "
            f"{self.resource.name.lower()} {self.name!r} ({self.pattern.name.lower()}) from {self.host}"
        )


class AclFilter(NamedTuple):
    """A filter for rules; a field that is not set matches anything.

    >>> AclFilter(AclResource.TOPIC, "orders").principal is None
    True
    """

    resource: AclResource = AclResource.ANY
    name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY
    pattern: AclPattern = AclPattern.ANY
    host: str | None = None


EVERYTHING = AclFilter()


def create_acls(acls: Iterable[Acl]) -> Operation[None]:
    """Creates rules; a rule that exists already stays as it is.

    >>> admin.create_acls([Acl(AclResource.TOPIC, "orders", "User:ada", AclOperation.READ)])
    ... # doctest: +SKIP
    """

    def make(asked: list[Acl], _: int) -> CreateAclsRequest:
        return CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=acl.resource,
                    resource_name=acl.name,
                    resource_pattern_type=acl.pattern,
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission,
                )
                for acl in asked
            ]
        )

    def read(answer: Any, sent: Sent[Acl]) -> Outcome[Acl, bool]:
        # the answer names nobody: it is in the order of the question
        return {
            acl: failed(told.error_code, told.error_message, subject=str(acl)) or True
            for acl, told in zip(sent.subjects, answer.results)
        }

    yield from ask_all(Ask("creating ACLs", dict.fromkeys(acls, CONTROLLER), make, read))


def describe_acls(which: AclFilter = EVERYTHING) -> Operation[list[Acl]]:
    """The rules that match a filter; without a filter, all rules.

    >>> admin.describe_acls(AclFilter(principal="User:ada"))  # doctest: +SKIP
    """
    request = DescribeAclsRequest(
        resource_type_filter=which.resource,
        resource_name_filter=which.name,
        pattern_type_filter=which.pattern,
        principal_filter=which.principal,
        host_filter=which.host,
        operation=which.operation,
        permission_type=which.permission,
    )

    def read(answer: Any) -> list[Acl]:
        check(answer.error_code, answer.error_message, subject="ACLs")
        return sorted(
            Acl(
                AclResource(resource.resource_type),
                resource.resource_name,
                told.principal,
                AclOperation(told.operation),
                AclPermission(told.permission_type),
                AclPattern(resource.pattern_type),
                told.host,
            )
            for resource in answer.resources
            for told in resource.acls
        )

    return (yield from ask_one("describing ACLs", ANY, lambda _: request, read))


def delete_acls(filters: Iterable[AclFilter]) -> Operation[list[Acl]]:
    """Deletes the rules that match any of the filters; returns them.

    >>> admin.delete_acls([AclFilter(AclResource.TOPIC, "orders")])  # doctest: +SKIP
    """

    def make(asked: list[AclFilter], _: int) -> DeleteAclsRequest:
        return DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=which.resource,
                    resource_name_filter=which.name,
                    pattern_type_filter=which.pattern,
                    principal_filter=which.principal,
                    host_filter=which.host,
                    operation=which.operation,
                    permission_type=which.permission,
                )
                for which in asked
            ]
        )

    def read(answer: Any, sent: Sent[AclFilter]) -> Outcome[AclFilter, list[Acl]]:
        outcome: Outcome[AclFilter, list[Acl]] = {}
        for which, told in zip(sent.subjects, answer.filter_results):
            error = failed(told.error_code, told.error_message, subject="ACLs")
            outcome[which] = error or list(settled(dict(map(_deleted, told.matching_acls))))
        return outcome

    found = yield from ask_all(Ask("deleting ACLs", dict.fromkeys(filters, CONTROLLER), make, read))
    return sorted({acl for deleted in found.values() for acl in deleted})


def _deleted(told: Any) -> tuple[Acl, Any]:
    acl = Acl(
        AclResource(told.resource_type),
        told.resource_name,
        told.principal,
        AclOperation(told.operation),
        AclPermission(told.permission_type),
        AclPattern(told.pattern_type),
        told.host,
    )
    return acl, failed(told.error_code, told.error_message, subject=str(acl)) or True
