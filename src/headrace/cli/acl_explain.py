"""`headrace acl explain`: whether a principal may do something, and the rule that decides it.

The same authorizer decides here and in a broker; the rules come from the broker. Two of its settings do not:
no broker tells its super users and `allow.everyone.if.no.acl.found`.
"""

import click

from headrace.cli.acl_options import (
    OPERATION,
    PRINCIPAL,
    Resources,
    check_operation,
    operation_of,
    resource_options,
    rule_text,
)
from headrace.cli.administer import administer
from headrace.cli.client_settings import broker_options
from headrace.cli.completers import users as complete_users
from headrace.cli.terminal import note, print_json, say
from headrace.client.admin.acls import Acl, AclOperation, AclPattern, AclResource
from headrace.client.errors import KafkaError
from headrace.machines.security.acl_rules import CLUSTER_NAME, AclRule, host_text
from headrace.machines.security.acls import Authorizer, Explanation
from headrace.protocol.errors import ErrorCode

ANY_HOST = "*"  # as an address: one for which no rule is made


@click.command()
@click.argument("principal", type=PRINCIPAL, shell_complete=complete_users)
@click.argument("operation", type=OPERATION)
@resource_options
@click.option(
    "--host",
    default=ANY_HOST,
    metavar="ADDRESS",
    help="From this address. Without it, rules for single addresses do not count.",
)
@click.option(
    "--super-user",
    "super_users",
    type=PRINCIPAL,
    multiple=True,
    help="One of the broker's super.users, which no broker tells; may be repeated.",
)
@click.option(
    "--allow-everyone",
    is_flag=True,
    help="The broker has allow.everyone.if.no.acl.found=true, which no broker tells.",
)
@broker_options
def explain(
    principal: str,
    operation: str,
    resources: Resources,
    host: str,
    super_users: tuple[str, ...],
    allow_everyone: bool,
    bootstrap: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Tell whether PRINCIPAL may do OPERATION on a resource, and which rule decides.

    The exit code is 0 for both answers.

    Example: headrace acl explain alice write --topic orders
    """
    asked = operation_of(operation)
    if not resources.named:
        raise click.UsageError("No resource is named: give --topic, --group, --cluster or another one.")
    if resources.pattern is AclPattern.PREFIXED:
        raise click.UsageError("--prefix: a question is about one resource, by its whole name.")
    if asked is AclOperation.ALL:
        raise click.UsageError("all is not one operation: ask for one, such as read or write.")
    for kind, _ in resources.named:
        check_operation(kind, asked)
    with administer(bootstrap, timeout) as admin:
        try:
            rules = admin.describe_acls()
        except KafkaError as error:
            if error.code != ErrorCode.SECURITY_DISABLED:
                raise
            rules = None
    answers = [
        _answer(rules, principal, host, asked, kind, name, super_users, allow_everyone)
        for kind, name in resources.named
    ]
    if as_json:
        print_json(answers)
        return
    for answer in answers:
        who = f"{principal}" + ("" if host == ANY_HOST else f" from {host}")
        what = f"{operation} {_resource(answer)}"
        say(f"may {who} {what}? {'yes' if answer['allowed'] else 'no'}: {answer['reason']}")
    if host == ANY_HOST and any(acl.host != ANY_HOST for acl in rules or ()):
        note("Rules for single addresses were left out; --host ADDRESS asks for an address.")


def _answer(
    rules: list[Acl] | None,
    principal: str,
    host: str,
    operation: AclOperation,
    kind: AclResource,
    name: str,
    super_users: tuple[str, ...],
    allow_everyone: bool,
) -> dict[str, object]:
    about = {"principal": principal, "operation": operation.name.lower(), "resource": kind.name.lower()}
    about |= {"name": name, "host": host}
    if rules is None:
        reason = "the broker has no authorizer, so everybody may do everything"
        return about | {"allowed": True, "rule": None, "text": None, "reason": reason}
    numbers = {_rule(acl): number for number, acl in enumerate(rules, 1)}
    authorizer = Authorizer(super_users, allow_if_no_rule=allow_everyone)
    for rule, number in numbers.items():
        authorizer.add(number.to_bytes(8), rule)
    authorizer.loaded()
    found = _explain(authorizer, principal, host_text(host), operation, kind, name)
    # brokers do not tell who is one: without this, the answer about an administrator would be wrong
    unless = "" if found.is_allowed or super_users else f" (unless {principal} is one of super.users)"
    if found.rule is None:
        reason = _reason(found, unless)
        return about | {"allowed": found.is_allowed, "rule": None, "text": None, "reason": reason}
    number = numbers[found.rule]
    text = rule_text(rules[number - 1])
    verb = "allows" if found.is_allowed else "denies"
    return about | {
        "allowed": found.is_allowed,
        "rule": number,
        "text": text,
        "reason": f"rule {number} {verb} it: {text}{unless}",
    }


def _explain(
    authorizer: Authorizer, principal: str, host: str, operation: AclOperation, kind: AclResource, name: str
) -> Explanation:
    """As a broker asks: for topics that are created and deleted the cluster first, and an idempotent producer
    needs a right to write to any topic (KIP-679).
    """
    if kind is AclResource.TOPIC and operation in (AclOperation.CREATE, AclOperation.DELETE):
        of_all = authorizer.explain(principal, host, operation, AclResource.CLUSTER, CLUSTER_NAME)
        if of_all.rule is not None and of_all.is_allowed:
            return of_all
    found = authorizer.explain(principal, host, operation, kind, name)
    if (
        operation is AclOperation.IDEMPOTENT_WRITE
        and not found.is_allowed
        and authorizer.allows_any(principal, host, AclOperation.WRITE, AclResource.TOPIC)
    ):
        return Explanation(True, f"{principal} may write to a topic, and so may write idempotently")
    return found


def _reason(found: Explanation, unless: str) -> str:
    reason = found.reason + unless
    if not found.is_allowed and found.reason.startswith("no rule is about"):
        return f"{reason}. If the broker has allow.everyone.if.no.acl.found=true: yes"
    return reason


def _rule(acl: Acl) -> AclRule:
    return AclRule(
        int(acl.resource),
        acl.name,
        int(acl.pattern),
        acl.principal,
        acl.host,
        int(acl.operation),
        int(acl.permission),
    )


def _resource(answer: dict[str, object]) -> str:
    if answer["resource"] == "cluster":
        return "the cluster"
    return f"{str(answer['resource']).replace('_', ' ')} {answer['name']}"
