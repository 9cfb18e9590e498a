"""`headrace tenant`: a prefix of names with its users, rules, quotas and number of partitions.

A tenant `blue` owns all topics, groups and transactional ids whose names begin with `blue.`. It is an entry
of the setting `headrace.tenants`, which limits its partitions, and rules of its users for the prefix.
"""

from typing import Any

import click

from headrace.cli.acl_options import PRINCIPAL
from headrace.cli.administer import administer
from headrace.cli.client_settings import broker_options
from headrace.cli.completers import quota_values
from headrace.cli.completers import tenants as complete_tenants
from headrace.cli.completers import users as complete_users
from headrace.cli.confirmation import confirm, yes_option
from headrace.cli.options import KEY_VALUE
from headrace.cli.quota import parse_quota, value_text
from headrace.cli.suggestions import closest
from headrace.cli.terminal import count_text, note, print_json, print_table, say
from headrace.client.admin.acls import Acl, AclFilter, AclOperation, AclPattern, AclPermission, AclResource
from headrace.client.admin.configs import Append, Resource, Subtract
from headrace.client.admin.users import QuotaEntity
from headrace.client.errors import InvalidInput
from headrace.client.threads.admin import Admin
from headrace.machines.configs.values import InvalidConfig
from headrace.machines.metadata.controller.tenants import SEPARATOR, TENANTS_KEY, parse_tenants

OWNED = (AclResource.TOPIC, AclResource.GROUP, AclResource.TRANSACTIONAL_ID)


@click.group("tenant")
def command() -> None:
    """Create, list, describe and remove tenants: prefixes of names with users, rules, quotas and a limit.

    The tenant `blue` owns the topics, groups and transactional ids whose names begin with `blue.`.
    """


# --- create ----------------------------------------------------------------------------------------------


@command.command()
@click.argument("name")
@click.option(
    "--user",
    "users",
    type=PRINCIPAL,
    multiple=True,
    help="May do everything with the names of the tenant; may be repeated.",
    shell_complete=complete_users,
)
@click.option("--partitions", type=click.IntRange(min=0), help="How many its topics may have together.")
@click.option(
    "--quota",
    "quotas",
    type=KEY_VALUE,
    multiple=True,
    help="A quota for each of the users, such as producer_byte_rate=10MB; may be repeated.",
    shell_complete=quota_values,
)
@broker_options
def create(
    name: str,
    users: tuple[str, ...],
    partitions: int | None,
    quotas: tuple[tuple[str, str], ...],
    bootstrap: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Create a tenant. For one that exists: add users, or change its limits.

    The users need not exist yet: `headrace user add` gives them passwords.

    Example: headrace tenant create blue --user alice --partitions 100 --quota producer_byte_rate=10MB
    """
    entry = name if partitions is None else f"{name}:{partitions}"
    _check_name(name, entry)
    if quotas and not users:
        raise click.UsageError("--quota needs --user: quotas are for users.")
    values = {key: parse_quota(key, text, QuotaEntity(user="")) for key, text in quotas}
    with administer(bootstrap, timeout) as admin:
        before = _entries(admin)
        admin.describe_acls(AclFilter(AclResource.TOPIC, name))  # an error if there is no authorizer
        old = [one for one in before if one.partition(":")[0] == name]
        is_new = not old
        # the old limit may also be left of a change that was interrupted
        if is_new or (partitions is not None and old != [entry]):
            _change_entries(admin, [*before, entry], [one for one in old if one != entry])
        if users:
            admin.create_acls(_rule(kind, name, user) for user in users for kind in OWNED)
        if values:
            admin.alter_quotas({QuotaEntity(user=_user(one)): values for one in users})
        told = _describe(admin, name)
    if as_json:
        print_json(told | {"created": is_new})
    else:
        say(f"{'created' if is_new else 'changed'} tenant {name}: {_summary(told)}")


def _check_name(name: str, entry: str) -> None:
    try:
        is_name = list(parse_tenants([entry])) == [name]
    except InvalidConfig:
        is_name = False
    if not is_name:
        raise click.UsageError(f"{name!r}: use letters, digits and - in the name of a tenant.")


def _rule(kind: AclResource, name: str, principal: str) -> Acl:
    return Acl(kind, name + SEPARATOR, principal, AclOperation.ALL, pattern=AclPattern.PREFIXED)


def _user(principal: str) -> str:
    return principal.partition(":")[2]


def _entries(admin: Admin) -> list[str]:
    """The entries of the setting, of all brokers or of the file of this one."""
    broker = admin.list_brokers()[0].broker_id
    found = admin.describe_config(Resource.broker(broker), [TENANTS_KEY]).get(TENANTS_KEY)
    if found is None:
        raise InvalidInput("tenants need brokers of Headrace: these have no setting headrace.tenants")
    return [one.strip() for one in (found.value or "").split(",") if one.strip()]


def _change_entries(admin: Admin, present: list[str], removed: list[str]) -> None:
    """`present` are all, with new ones: the setting of all brokers takes the place of that of their files.
    Of two limits the lower one counts, so there is always one.
    """
    admin.alter_config(Resource.all_brokers(), {TENANTS_KEY: Append(",".join(present))})
    if removed:
        admin.alter_config(Resource.all_brokers(), {TENANTS_KEY: Subtract(",".join(removed))})


# --- list and describe -------------------------------------------------------------------------------------


@command.command("list")
@broker_options
def list_tenants(bootstrap: str, timeout: float, as_json: bool) -> None:
    """List tenants with their users and partitions."""
    with administer(bootstrap, timeout) as admin:
        tenants = [_describe(admin, name) for name in tenant_names(admin)]
    if as_json:
        print_json(tenants)
    elif tenants:
        rows = [
            (
                one["tenant"],
                ", ".join(user["principal"] for user in one["users"]) or "-",
                len(one["topics"]),
                one["partitions"],
                "-" if one["partitions_max"] is None else one["partitions_max"],
            )
            for one in tenants
        ]
        headings = ("TENANT", "USERS", "TOPICS", "PARTITIONS", "AT MOST")
        print_table(headings, rows, right=headings[2:])
    else:
        note("no tenants")


@command.command()
@click.argument("name", shell_complete=complete_tenants)
@broker_options
def describe(name: str, bootstrap: str, timeout: float, as_json: bool) -> None:
    """Show users, quotas, topics and partitions of a tenant."""
    with administer(bootstrap, timeout) as admin:
        _check_exists(admin, name)
        told = _describe(admin, name)
    if as_json:
        print_json(told)
        return
    say(name, bold=True)
    say(f"names that begin with {told['prefix']}; {_summary(told)}")
    if told["users"]:
        rows = [
            (
                user["principal"],
                ", ".join(f"{key} {value_text(key, value)}" for key, value in user["quotas"].items()) or "-",
            )
            for user in told["users"]
        ]
        print_table(("USER", "QUOTAS"), rows)
    if told["topics"]:
        print_table(("TOPIC", "PARTITIONS"), list(told["topics"].items()), right=("PARTITIONS",))


def _describe(admin: Admin, name: str) -> dict[str, Any]:
    prefix = name + SEPARATOR
    rules = _rules(admin, name)
    quotas = admin.describe_quotas()
    names = [topic.name for topic in admin.list_topics() if topic.name.startswith(prefix)]
    topics = (
        {one: len(topic.partitions) for one, topic in admin.describe_topics(names).items()} if names else {}
    )
    return {
        "tenant": name,
        "prefix": prefix,
        "partitions": sum(topics.values()),
        "partitions_max": parse_tenants(_entries(admin)).get(name),
        "topics": dict(sorted(topics.items())),
        "users": [
            {"principal": one, "quotas": quotas.get(QuotaEntity(user=_user(one)), {})}
            for one in sorted({rule.principal for rule in rules})
        ],
    }


def _rules(admin: Admin, name: str) -> list[Acl]:
    """All rules for exactly the prefix of the tenant."""
    found = admin.describe_acls(AclFilter(name=name + SEPARATOR, pattern=AclPattern.PREFIXED))
    return [rule for rule in found if rule.resource in OWNED]


def _summary(told: dict[str, Any]) -> str:
    limit = told["partitions_max"]
    most = "" if limit is None else f" of at most {limit:,}"
    return (
        f"{count_text(len(told['users']), 'user')}, {count_text(len(told['topics']), 'topic')}, "
        f"{count_text(told['partitions'], 'partition')}{most}"
    )


def tenant_names(admin: Admin) -> list[str]:
    return sorted(parse_tenants(_entries(admin)))


def _check_exists(admin: Admin, name: str) -> None:
    tenants = parse_tenants(_entries(admin))
    if name not in tenants:
        error = InvalidInput(f"there is no tenant {name!r}")
        meant = closest(name, tenants)
        error.advice = (f"Did you mean {meant}? " if meant else "") + "`headrace tenant list` shows all."
        raise error


# --- remove ----------------------------------------------------------------------------------------------


@command.command()
@click.argument("name", shell_complete=complete_tenants)
@yes_option
@broker_options
def remove(name: str, yes: bool, bootstrap: str, timeout: float, as_json: bool) -> None:
    """Remove a tenant: its limit, the rules for its prefix, and the quotas of users who have no other rules.

    Topics with their records, groups and users stay. If the command is interrupted, run it again.
    """
    with administer(bootstrap, timeout) as admin:
        _check_exists(admin, name)
        told = _describe(admin, name)
        rules = _rules(admin, name)
        question = f"Remove tenant {name} with {count_text(len(rules), 'rule')}?"
        if told["topics"]:
            question += f" Its {count_text(len(told['topics']), 'topic')} stay."
        confirm(question, yes=yes)
        # First what its users may do, last what limits them. One rule of each user stays until its quotas are
        # gone: a command that is run again finds the users by their rules.
        last = _last_rules(rules)
        _delete(admin, [one for one in rules if one not in last])
        others = {rule.principal for rule in admin.describe_acls() if rule not in last}
        alone = {
            QuotaEntity(user=_user(user["principal"])): dict.fromkeys(user["quotas"])
            for user in told["users"]
            if user["quotas"] and user["principal"] not in others
        }
        if alone:
            admin.alter_quotas(alone)
        _delete(admin, last)
        entries = _entries(admin)
        _change_entries(admin, entries, [one for one in entries if one.partition(":")[0] == name])
    if as_json:
        print_json({"removed": name, "rules": len(rules), "topics": list(told["topics"])})
    else:
        say(f"removed tenant {name}")


def _last_rules(rules: list[Acl]) -> list[Acl]:
    """One of each user, if possible one that allows little."""

    def harm(rule: Acl) -> tuple[bool, bool]:
        return rule.permission is not AclPermission.DENY, rule.resource is not AclResource.GROUP

    return list({rule.principal: rule for rule in sorted(rules, key=harm, reverse=True)}.values())


def _delete(admin: Admin, rules: list[Acl]) -> None:
    if rules:
        admin.delete_acls(
            AclFilter(
                one.resource, one.name, one.principal, one.operation, one.permission, one.pattern, one.host
            )
            for one in rules
        )
