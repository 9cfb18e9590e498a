"""Options of `headrace acl` that name principals, operations and resources, and the rules they make."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias, TypeVar

import click

from headrace.cli.completers import groups as complete_groups
from headrace.cli.completers import topics as complete_topics
from headrace.cli.completers import transactional_ids as complete_transactional_ids
from headrace.cli.completers import users as complete_users
from headrace.cli.options import OneOf
from headrace.client.admin.acls import Acl, AclOperation, AclPattern, AclPermission, AclResource
from headrace.machines.security.acl_rules import CLUSTER_NAME, OPERATIONS, Operation, ResourceType

F = TypeVar("F", bound=Callable[..., Any])

Right: TypeAlias = tuple[AclResource, str, AclOperation]

USER = "User"
DELEGATION_TOKEN = AclResource.DELEGATION_TOKEN
OPERATION_NAMES = tuple(
    operation.name.lower().replace("_", "-") for operation in Operation if operation > Operation.ANY
)


class Principal(click.ParamType[str]):
    """`User:alice`, or `alice` for short."""

    name = "principal"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> str:
        text = str(value)
        kind, colon, name = text.partition(":")
        if not text or (colon and not (kind and name)):
            self.fail(f"{text!r} is not a principal; write User:NAME", parameter, context)
        return text if colon else f"{USER}:{text}"


PRINCIPAL = Principal()
OPERATION = OneOf(*OPERATION_NAMES)


def operation_of(name: str) -> AclOperation:
    return AclOperation[name.upper().replace("-", "_")]


class Resources(NamedTuple):
    """The resources that the options of a command name: types with names."""

    named: tuple[tuple[AclResource, str], ...]
    pattern: AclPattern

    def of(self, kind: AclResource) -> list[str]:
        return [name for one, name in self.named if one is kind]


def resource_options(function: F) -> F:
    """Options for resources; the command gets one argument `resources`."""

    def made(*arguments: Any, **values: Any) -> Any:
        named = [
            (kind, name)
            for kind, key in (
                (AclResource.TOPIC, "topics"),
                (AclResource.GROUP, "groups"),
                (AclResource.TRANSACTIONAL_ID, "transactional_ids"),
                (AclResource.DELEGATION_TOKEN, "tokens"),
                (AclResource.USER, "owners"),
            )
            for name in values.pop(key)
        ]
        if values.pop("cluster"):
            named.append((AclResource.CLUSTER, CLUSTER_NAME))
        if any(not name for _, name in named):
            raise click.UsageError("A name is empty. `*` means all names.")
        is_prefix = values.pop("is_prefix")
        if is_prefix and any(kind in (AclResource.CLUSTER, DELEGATION_TOKEN) for kind, _ in named):
            raise click.UsageError("--prefix works with names of topics, groups, ids and users only.")
        pattern = AclPattern.PREFIXED if is_prefix else AclPattern.LITERAL
        return function(*arguments, resources=Resources(tuple(named), pattern), **values)

    made.__name__, made.__doc__ = function.__name__, function.__doc__
    made.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    for option in (
        click.option("--prefix", "is_prefix", is_flag=True, help="The names are prefixes of names."),
        click.option("--user", "owners", multiple=True, help="A user as owner of delegation tokens."),
        click.option("--delegation-token", "tokens", multiple=True, help="A delegation token, by its id."),
        click.option("--cluster", is_flag=True, help="The cluster itself."),
        click.option(
            "--transactional-id",
            "transactional_ids",
            multiple=True,
            help="A transactional id.",
            shell_complete=complete_transactional_ids,
        ),
        click.option(
            "--group", "-g", "groups", multiple=True, help="A group.", shell_complete=complete_groups
        ),
        click.option(
            "--topic",
            "-t",
            "topics",
            multiple=True,
            help="A topic; `*` means all, in quotes. May be repeated, as the other names.",
            shell_complete=complete_topics,
        ),
    ):
        made = option(made)
    return made  # type: ignore[return-value]


def rules_options(function: F) -> F:
    """--allow, --deny, --operation, --host."""
    for option in (
        click.option("--host", "hosts", multiple=True, metavar="ADDRESS", help="Only from this address."),
        click.option("--operation", "-o", "operations", type=OPERATION, multiple=True, help="An operation."),
        click.option(
            "--deny",
            "denied",
            type=PRINCIPAL,
            multiple=True,
            help="Deny this principal; overrides all rules that allow.",
            shell_complete=complete_users,
        ),
        click.option(
            "--allow",
            "allowed",
            type=PRINCIPAL,
            multiple=True,
            help="Allow this principal, such as User:alice (short: alice), or `User:*` for all.",
            shell_complete=complete_users,
        ),
    ):
        function = option(function)
    return function


def producer_rights(resources: Resources, *, idempotent: bool) -> Iterator[Right]:
    """As kafka-acls has them."""
    for name in resources.of(AclResource.TOPIC):
        for operation in (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE):
            yield AclResource.TOPIC, name, operation
    for name in resources.of(AclResource.TRANSACTIONAL_ID):
        for operation in (AclOperation.WRITE, AclOperation.DESCRIBE):
            yield AclResource.TRANSACTIONAL_ID, name, operation
    if idempotent:
        yield AclResource.CLUSTER, CLUSTER_NAME, AclOperation.IDEMPOTENT_WRITE


def consumer_rights(resources: Resources) -> Iterator[Right]:
    for name in resources.of(AclResource.TOPIC):
        for operation in (AclOperation.READ, AclOperation.DESCRIBE):
            yield AclResource.TOPIC, name, operation
    for name in resources.of(AclResource.GROUP):
        yield AclResource.GROUP, name, AclOperation.READ


def check_operation(kind: AclResource, operation: AclOperation) -> None:
    """UsageError if nothing of this kind can be done with that operation: such a rule would mean nothing."""
    possible = [AclOperation[each.name] for each in OPERATIONS[ResourceType(kind)]]
    if operation is AclOperation.ALL or operation in possible:
        return
    names = ", ".join(sorted(each.name.lower().replace("_", "-") for each in (*possible, AclOperation.ALL)))
    raise click.UsageError(
        f"--operation {operation.name.lower().replace('_', '-')}: not an operation on a "
        f"{kind.name.lower().replace('_', ' ')}. Possible are {names}."
    )


def rule_text(acl: Acl) -> str:
    """allow User:alice to write topic orders."""
    where = "" if acl.host == "*" else f" from {acl.host}"
    verb = acl.permission.name.lower()
    everything = acl.operation is AclOperation.ALL
    act = "do everything with" if everything else _words(acl.operation)
    return f"{verb} {acl.principal} to {act} {resource_text(acl)}{where}"


def resource_text(acl: Acl) -> str:
    kind = _words(acl.resource)
    if acl.resource is AclResource.CLUSTER:
        return "the cluster"
    if acl.pattern is AclPattern.PREFIXED:
        return f"{kind}s {acl.name}*"
    return f"all {kind}s" if acl.name == "*" else f"{kind} {acl.name}"


def _words(told: AclResource | AclOperation) -> str:
    return told.name.lower().replace("_", " ")


def permission_of(*, is_denial: bool) -> AclPermission:
    return AclPermission.DENY if is_denial else AclPermission.ALLOW
