"""`headrace group`: lists, describes, resets and deletes consumer groups, and shows their lag."""

import sys
from collections.abc import Sequence

import click

from headrace.cli.administer import administer
from headrace.cli.client_settings import broker_options
from headrace.cli.completers import groups as complete_groups
from headrace.cli.completers import topics as complete_topics
from headrace.cli.confirmation import confirm, yes_option
from headrace.cli.group_reset import reset
from headrace.cli.options import OneOf
from headrace.cli.partitions import PARTITIONS, Chosen, partitions_text
from headrace.cli.suggestions import suggesting_groups
from headrace.cli.terminal import (
    count_text,
    number_text,
    print_json,
    print_table,
    printed_even_if_it_fails,
    say,
)
from headrace.client.admin.group_offsets import PartitionLag, total_lag
from headrace.client.admin.groups import Group, Member
from headrace.client.cluster import TopicPartition
from headrace.client.errors import InvalidInput
from headrace.client.threads.admin import Admin

# All that Kafka has, so that groups of every kind and every broker can be looked for.
GROUP_STATES = (
    "Stable",
    "Empty",
    "Dead",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "NotReady",
)
GROUP_TYPES = ("classic", "consumer", "share", "streams")


@click.group("group")
def command() -> None:
    """List, describe, reset and delete consumer groups, and show their lag."""


command.add_command(reset)


# --- list ------------------------------------------------------------------------------------------------


@command.command("list")
@click.option(
    "--state",
    "states",
    type=OneOf(*GROUP_STATES),
    multiple=True,
    help="Only groups in this state; may be repeated.",
)
@click.option(
    "--type",
    "types",
    type=OneOf(*GROUP_TYPES),
    multiple=True,
    help="Only groups of this type; may be repeated.",
)
@broker_options
def list_groups(
    states: tuple[str, ...], types: tuple[str, ...], bootstrap: str, timeout: float, as_json: bool
) -> None:
    """List groups.

    In a pipe it prints one name per line.
    """
    with administer(bootstrap, timeout) as admin:
        groups = [
            group
            for group in admin.list_groups()
            if _is_one_of(group.state, states) and _is_one_of(group.type, types)
        ]
    if as_json:
        print_json([group._asdict() for group in groups])
    elif not sys.stdout.isatty():
        for group in groups:
            say(group.group)
    else:
        print_table(
            ("GROUP", "TYPE", "STATE", "PROTOCOL"),
            [(group.group, group.type or "?", group.state or "?", group.protocol_type) for group in groups],
        )


def _is_one_of(value: str, wanted: tuple[str, ...]) -> bool:
    return not wanted or value.lower() in {each.lower() for each in wanted}  # brokers differ in case


# --- describe --------------------------------------------------------------------------------------------


@command.command()
@click.argument("names", nargs=-1, required=True, shell_complete=complete_groups)
@broker_options
def describe(names: tuple[str, ...], bootstrap: str, timeout: float, as_json: bool) -> None:
    """Show the state of groups, and their members with their partitions."""
    with administer(bootstrap, timeout) as admin, suggesting_groups(admin, names):
        groups = list(admin.describe_groups(names).values())
    if as_json:
        print_json([_group_as_json(group) for group in groups])
        return
    for group in groups:
        _print_group(group)


def _print_group(group: Group) -> None:
    say(group.group, bold=True)
    facts = [f"{group.type} group", group.state, f"coordinator {group.coordinator}"]
    if group.protocol_type and group.protocol_type != "consumer":
        facts.append(f"protocol {group.protocol_type}")
    if group.assignor:
        facts.append(f"assignor {group.assignor}")
    if group.epoch is not None:
        facts.append(f"epoch {group.epoch}")
    say(", ".join([*facts, count_text(len(group.members), "member")]))
    if group.members:
        rows = [
            (
                member.member_id,
                member.client_id,
                member.host,
                member.instance_id or "-",
                _assignment_text(member),
            )
            for member in group.members
        ]
        print_table(("MEMBER", "CLIENT", "HOST", "INSTANCE", "PARTITIONS"), rows)
    say()


def _assignment_text(member: Member) -> str:
    if member.assignment is None:
        return "?"
    text = partitions_text(member.assignment) or "-"
    if member.target is not None and member.target != member.assignment:
        text += f" → {partitions_text(member.target) or '-'}"
    return text


def _group_as_json(group: Group) -> dict[str, object]:
    return group._asdict() | {
        "members": [
            member._asdict() | {"assignment": _as_json(member.assignment), "target": _as_json(member.target)}
            for member in group.members
        ]
    }


def _as_json(partitions: Sequence[TopicPartition] | None) -> list[dict[str, object]] | None:
    return None if partitions is None else [at._asdict() for at in partitions]


# --- lag -------------------------------------------------------------------------------------------------


@command.command()
@click.argument("names", nargs=-1, shell_complete=complete_groups)
@broker_options
def lag(names: tuple[str, ...], bootstrap: str, timeout: float, as_json: bool) -> None:
    """Show the lag of groups: per partition for the NAMES; without NAMES, one line per group."""
    with administer(bootstrap, timeout) as admin, suggesting_groups(admin, names):
        lags = admin.lag_of_groups(names or None)
        described = list(admin.describe_groups(lags).values())
    if as_json:
        print_json([_lag_as_json(group, lags[group.group]) for group in described])
    elif names:
        for group in described:
            _print_lag(group, lags[group.group])
    else:
        print_table(
            ("GROUP", "STATE", "MEMBERS", "PARTITIONS", "LAG"),
            [
                (
                    group.group,
                    group.state,
                    len(group.members),
                    len(lags[group.group]),
                    total_lag(lags[group.group]),
                )
                for group in described
            ],
            right=("MEMBERS", "PARTITIONS", "LAG"),
        )


def _print_lag(group: Group, lags: list[PartitionLag]) -> None:
    say(group.group, bold=True)
    say(f"{group.state}, {count_text(len(group.members), 'member')}, lag {total_lag(lags):,}")
    if lags:
        rows = [
            (
                lag.at.topic,
                lag.at.partition,
                number_text(lag.committed),
                number_text(lag.end),
                number_text(lag.lag),
                lag.client_id or "-",
                lag.member or "-",
            )
            for lag in lags
        ]
        headings = ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "CLIENT", "MEMBER")
        print_table(headings, rows, right=("PARTITION", "COMMITTED", "END", "LAG"))
    say()


def _lag_as_json(group: Group, lags: list[PartitionLag]) -> dict[str, object]:
    return {
        "group": group.group,
        "type": group.type,
        "state": group.state,
        "members": len(group.members),
        "lag": total_lag(lags),
        "partitions": [
            {
                **lag.at._asdict(),
                "committed": lag.committed,
                "end": lag.end,
                "lag": lag.lag,
                "member": lag.member,
                "client_id": lag.client_id,
            }
            for lag in lags
        ],
    }


# --- delete ----------------------------------------------------------------------------------------------


@command.command()
@click.argument("names", nargs=-1, required=True, shell_complete=complete_groups)
@click.option(
    "--topic",
    "-t",
    "topics",
    type=PARTITIONS,
    multiple=True,
    help="Only the offsets of this topic, or of some partitions of it; the group stays.",
    shell_complete=complete_topics,
)
@yes_option
@broker_options
def delete(
    names: tuple[str, ...],
    topics: tuple[Chosen, ...],
    yes: bool,
    bootstrap: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Delete groups without members, or only their offsets of some topics, after a confirmation."""
    what = f"the offsets of {', '.join(topic for topic, _ in topics)} in " if topics else ""
    deleted: list[str] = []
    with (
        printed_even_if_it_fails(deleted, as_json=as_json),
        administer(bootstrap, timeout) as admin,
        suggesting_groups(admin, names),
    ):
        if not topics:
            admin.describe_groups(names)  # before anybody is asked: one may not exist
        confirm(f"Delete {what}{'group' if len(names) == 1 else 'groups'} {', '.join(names)}?", yes=yes)
        for name in names:
            if topics:
                admin.delete_group_offsets(name, _remembered(admin, name, topics))
            else:
                admin.delete_group(name)
            deleted.append(name)
            if not as_json:
                say(f"deleted {'offsets of ' if topics else ''}{name}")


def _remembered(admin: Admin, name: str, topics: Sequence[Chosen]) -> list[TopicPartition]:
    """The chosen partitions for which the group has offsets; the topic itself may no longer exist."""
    committed = admin.list_group_offsets(name)
    chosen = [
        at
        for topic, indexes in topics
        for at in sorted(committed)
        if at.topic == topic and (not indexes or at.partition in indexes)
    ]
    if not chosen:
        names = ", ".join(topic for topic, _ in topics)
        raise InvalidInput(f"group {name!r} has no committed offsets of {names}")
    return chosen
