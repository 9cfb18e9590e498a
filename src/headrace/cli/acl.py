"""`headrace acl`: list, add and remove access control rules, and explain what they decide."""

from collections.abc import Sequence

import click

from headrace.cli.acl_explain import explain
from headrace.cli.acl_options import (
    PRINCIPAL,
    Resources,
    Right,
    check_operation,
    consumer_rights,
    operation_of,
    permission_of,
    producer_rights,
    resource_options,
    rule_text,
    rules_options,
)
from headrace.cli.administer import administer
from headrace.cli.client_settings import broker_options
from headrace.cli.completers import users as complete_users
from headrace.cli.confirmation import confirm, yes_option
from headrace.cli.terminal import count_text, note, print_json, print_table, say
from headrace.client.admin.acls import Acl, AclFilter, AclPattern, AclPermission, AclResource

HEADINGS = ("RULE", "PERMISSION", "PRINCIPAL", "OPERATION", "RESOURCE", "NAME", "PATTERN", "HOST")


@click.group("acl")
def command() -> None:
    """List, add and remove access control rules; explain what they decide."""


command.add_command(explain)


# --- list ------------------------------------------------------------------------------------------------


@command.command("list")
@click.option(
    "--principal",
    "-p",
    "principals",
    type=PRINCIPAL,
    multiple=True,
    help="Only rules for this principal.",
    shell_complete=complete_users,
)
@resource_options
@broker_options
def list_rules(
    principals: tuple[str, ...], resources: Resources, bootstrap: str, timeout: float, as_json: bool
) -> None:
    """List rules: all, those that hold for a resource, or those of a principal.

    The numbers are those that `acl explain` uses. They change when rules are added or removed.
    """
    with administer(bootstrap, timeout) as admin:
        rules = admin.describe_acls()
    chosen = {
        number: acl
        for number, acl in enumerate(rules, 1)
        if (not principals or acl.principal in principals) and _is_about(acl, resources)
    }
    if as_json:
        print_json([{"rule": number} | _as_json(acl) for number, acl in chosen.items()])
    elif chosen:
        _print_rules(chosen)
    else:
        note("no rules" if not rules else f"none of the {count_text(len(rules), 'rule')} matches")


def _is_about(acl: Acl, resources: Resources) -> bool:
    """Without --prefix: whether it holds for one of the resources."""
    if not resources.named:
        return resources.pattern is AclPattern.LITERAL or acl.pattern is AclPattern.PREFIXED
    if resources.pattern is AclPattern.PREFIXED:
        return acl.pattern is AclPattern.PREFIXED and (acl.resource, acl.name) in resources.named
    return any(acl.resource is kind and _holds(acl, name) for kind, name in resources.named)


def _holds(acl: Acl, name: str) -> bool:
    if acl.pattern is AclPattern.PREFIXED:
        return name.startswith(acl.name)
    return acl.name in (name, "*")


def _print_rules(rules: dict[int, Acl]) -> None:
    print_table(HEADINGS, [(number, *_row(acl)) for number, acl in rules.items()], right=("RULE",))


def _row(acl: Acl) -> tuple[str, ...]:
    return (
        acl.permission.name.lower(),
        acl.principal,
        acl.operation.name.lower(),
        acl.resource.name.lower(),
        acl.name,
        acl.pattern.name.lower(),
        acl.host,
    )


def _as_json(acl: Acl) -> dict[str, object]:
    return {
        "permission": acl.permission.name.lower(),
        "principal": acl.principal,
        "operation": acl.operation.name.lower(),
        "resource": acl.resource.name.lower(),
        "name": acl.name,
        "pattern": acl.pattern.name.lower(),
        "host": acl.host,
    }


# --- add -------------------------------------------------------------------------------------------------


@command.command()
@rules_options
@click.option(
    "--producer",
    "is_producer",
    is_flag=True,
    help="What a producer needs: write, describe and create the --topic, write and describe the "
    "--transactional-id.",
)
@click.option("--idempotent", is_flag=True, help="With --producer: idempotent-write on the cluster, too.")
@click.option(
    "--consumer",
    "is_consumer",
    is_flag=True,
    help="What a consumer needs: read and describe the --topic, read the --group.",
)
@resource_options
@broker_options
def add(
    allowed: tuple[str, ...],
    denied: tuple[str, ...],
    operations: tuple[str, ...],
    hosts: tuple[str, ...],
    is_producer: bool,
    idempotent: bool,
    is_consumer: bool,
    resources: Resources,
    bootstrap: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Add rules. A rule that is there already stays.

    \b
    headrace acl add --allow alice --operation write --topic orders
    headrace acl add --allow bob --consumer --topic orders. --prefix --group bob
    headrace acl add --deny mallory --operation all --topic '*' --host 10.0.0.7
    """
    if not allowed and not denied:
        raise click.UsageError("Nobody is named: give --allow or --deny.")
    rights = _rights(resources, operations, is_producer, idempotent, is_consumer)
    rules = [
        Acl(
            kind,
            name,
            principal,
            operation,
            permission_of(is_denial=is_denial),
            AclPattern.LITERAL if kind is AclResource.CLUSTER else resources.pattern,
            host,
        )
        for is_denial, principals in ((False, allowed), (True, denied))
        for principal in dict.fromkeys(principals)
        for host in dict.fromkeys(hosts or ("*",))
        for kind, name, operation in rights
    ]
    with administer(bootstrap, timeout) as admin:
        admin.create_acls(rules)
    if as_json:
        print_json([_as_json(acl) for acl in rules])
        return
    for acl in rules:
        say(f"added: {rule_text(acl)}")


def _rights(
    resources: Resources,
    operations: Sequence[str],
    is_producer: bool,
    idempotent: bool,
    is_consumer: bool,
) -> list[Right]:
    if idempotent and not is_producer:
        raise click.UsageError("--idempotent works only with --producer.")
    if not (is_producer or is_consumer):
        return _single_rights(resources, operations)
    if operations:
        raise click.UsageError("--producer and --consumer name the operations: --operation cannot be added.")
    if not resources.of(AclResource.TOPIC):
        raise click.UsageError("--producer and --consumer need a --topic.")
    if is_consumer and not resources.of(AclResource.GROUP):
        raise click.UsageError("--consumer needs a --group.")
    possible = {AclResource.TOPIC}
    rights: list[Right] = []
    if is_producer:
        possible |= {AclResource.TRANSACTIONAL_ID}
        rights += producer_rights(resources, idempotent=idempotent)
    if is_consumer:
        possible |= {AclResource.GROUP}
        rights += consumer_rights(resources)
    if others := {kind for kind, _ in resources.named} - possible:
        names = ", ".join(sorted(kind.name.lower().replace("_", "-") for kind in others))
        raise click.UsageError(f"--producer and --consumer make no rules for --{names}.")
    return list(dict.fromkeys(rights))


def _single_rights(resources: Resources, operations: Sequence[str]) -> list[Right]:
    if not operations:
        raise click.UsageError("No operation is named: give --operation, --producer or --consumer.")
    if not resources.named:
        raise click.UsageError("No resource is named: give --topic, --group, --cluster or another one.")
    rights = [
        (kind, name, operation_of(operation))
        for kind, name in resources.named
        for operation in dict.fromkeys(operations)
    ]
    for kind, _, operation in rights:
        check_operation(kind, operation)
    return rights


# --- remove ----------------------------------------------------------------------------------------------


@command.command()
@rules_options
@click.option(
    "--principal",
    "-p",
    "principals",
    type=PRINCIPAL,
    multiple=True,
    help="Rules for this principal, whether they allow or deny.",
    shell_complete=complete_users,
)
@click.option("--all", "every", is_flag=True, help="All rules.")
@resource_options
@yes_option
@broker_options
def remove(
    allowed: tuple[str, ...],
    denied: tuple[str, ...],
    operations: tuple[str, ...],
    hosts: tuple[str, ...],
    principals: tuple[str, ...],
    every: bool,
    resources: Resources,
    yes: bool,
    bootstrap: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Remove the rules that match all that is given, after showing them and asking.

    Names match exactly: `--topic orders` removes rules for this name, and `--topic orders --prefix` those for
    the prefix.

    Example: headrace acl remove --principal alice --topic orders
    """
    wanted = {(principal, AclPermission.ALLOW) for principal in allowed}
    wanted |= {(principal, AclPermission.DENY) for principal in denied}
    wanted |= {(each, permission) for each in principals for permission in AclPermission}
    if not (wanted or operations or hosts or resources.named or every):
        raise click.UsageError("Nothing is chosen. To remove all rules, give --all.")
    chosen_operations = set(map(operation_of, operations))
    with administer(bootstrap, timeout) as admin:
        found = {
            number: acl
            for number, acl in enumerate(admin.describe_acls(), 1)
            if (not wanted or (acl.principal, acl.permission) in wanted)
            and (not chosen_operations or acl.operation in chosen_operations)
            and (not hosts or acl.host in hosts)
            and _is_named(acl, resources)
        }
        if found:
            if not as_json and not yes:
                _print_rules(found)
            confirm(f"Remove {'this rule' if len(found) == 1 else f'these {len(found)} rules'}?", yes=yes)
            removed = admin.delete_acls(map(_exactly, found.values()))
        else:
            removed = []
    if as_json:
        print_json([_as_json(acl) for acl in removed])
        return
    for acl in removed:
        say(f"removed: {rule_text(acl)}")
    if not removed:
        say("no rule matches; nothing was removed")


def _is_named(acl: Acl, resources: Resources) -> bool:
    if resources.pattern is AclPattern.PREFIXED and acl.pattern is not AclPattern.PREFIXED:
        return False
    if not resources.named:
        return True
    return acl.pattern is resources.pattern and (acl.resource, acl.name) in resources.named


def _exactly(acl: Acl) -> AclFilter:
    """Only this rule: nothing else is removed than what was shown."""
    return AclFilter(
        acl.resource, acl.name, acl.principal, acl.operation, acl.permission, acl.pattern, acl.host
    )
