"""`headrace group reset`: changes the committed offsets of a group without members."""

import time
from collections.abc import Sequence

import click

from headrace.base.moments import Moment, parse_moment
from headrace.cli.administer import administer
from headrace.cli.client_settings import broker_options
from headrace.cli.completers import groups as complete_groups
from headrace.cli.completers import topics as complete_topics
from headrace.cli.partitions import PARTITIONS, Chosen
from headrace.cli.suggestions import describe_topic
from headrace.cli.terminal import count_text, note, number_text, print_json, print_table, say
from headrace.client.admin.group_offsets import Move, planned, shifted
from headrace.client.admin.offsets import OffsetAt
from headrace.client.cluster import TopicPartition
from headrace.client.errors import InvalidInput, KafkaError
from headrace.client.membership.events import CommittedOffset
from headrace.client.threads.admin import Admin
from headrace.client.threads.ranges import ends_of, resolve
from headrace.protocol.errors import ErrorCode


@click.command()
@click.argument("name", shell_complete=complete_groups)
@click.option(
    "--to",
    "where",
    metavar="WHERE",
    help="New position, as for consume --from: earliest, latest, an offset, a time.",
)
@click.option("--by", type=int, metavar="N", help="Move by N records; back if N is negative.")
@click.option(
    "--topic",
    "-t",
    "topics",
    type=PARTITIONS,
    multiple=True,
    help="A topic, or some partitions of it.",
    shell_complete=complete_topics,
)
@click.option("--all-topics", is_flag=True, help="Every topic for which the group has a committed offset.")
@click.option("--execute", is_flag=True, help="Commit the new offsets; without this they are only shown.")
@broker_options
def reset(
    name: str,
    where: str | None,
    by: int | None,
    topics: tuple[Chosen, ...],
    all_topics: bool,
    execute: bool,
    bootstrap: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Show the offsets of a group after a reset; with --execute, commit them.

    The group must have no members. If a partition does not have the offset, the nearest one is used.

    Example: headrace group reset readers --topic orders:0,1 --to -1h --execute
    """
    if (where is None) == (by is None):
        raise click.UsageError("Give either --to WHERE or --by N.")
    if bool(topics) == all_topics:
        raise click.UsageError("Give either --topic TOPIC or --all-topics.")
    moment = None if where is None else _moment(where)
    with administer(bootstrap, timeout) as admin:
        _refuse_active(admin, name)
        committed = admin.list_group_offsets(name)
        partitions = _chosen(admin, topics) if topics else sorted(committed)
        if not partitions:
            raise InvalidInput(f"group {name!r} has no committed offsets; name a topic with --topic")
        moves = _moves(admin, partitions, committed, moment, by)
        if execute:
            admin.alter_group_offsets(name, {move.at: move.after for move in moves})
    if as_json:
        print_json({"group": name, "executed": execute, "partitions": [_move_as_json(m) for m in moves]})
        return
    _print_moves(moves)
    if execute:
        say(f"reset {name} in {count_text(len(moves), 'partition')}")
    else:
        say("nothing was changed; give --execute to commit these offsets")


def _moment(where: str) -> Moment:
    try:
        return parse_moment(where, wall_ms=time.time_ns() // 1_000_000)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--to") from None


def _refuse_active(admin: Admin, name: str) -> None:
    """An offset that is set under living members would be overwritten by their next commit."""
    try:
        group = admin.describe_group(name)
    except KafkaError as error:
        if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return  # a reset may come before the first member
        raise
    if group.is_active:
        members = count_text(len(group.members), "member")
        raise InvalidInput(
            f"group {name!r} is {group.state} with {members}; stop them before you reset the group"
        )


def _chosen(admin: Admin, topics: Sequence[Chosen]) -> list[TopicPartition]:
    chosen: set[TopicPartition] = set()
    for topic, indexes in topics:
        known = range(len(describe_topic(admin, topic).partitions))
        for index in indexes or known:
            if index not in known:
                raise InvalidInput(
                    f"topic {topic!r} has no partition {index}: it has partitions 0 to {known[-1]}"
                )
            chosen.add(TopicPartition(topic, index))
    return sorted(chosen)


def _moves(
    admin: Admin,
    partitions: Sequence[TopicPartition],
    committed: dict[TopicPartition, CommittedOffset],
    moment: Moment | None,
    by: int | None,
) -> list[Move]:
    if moment is not None:
        wanted = resolve(admin, partitions, moment)
    else:
        missing = [at for at in partitions if at not in committed]
        if missing:
            raise InvalidInput(
                f"--by {by}: the group has no committed offset in {missing[0]} to start from; use --to"
            )
        assert by is not None
        wanted = shifted(partitions, committed, by)
    starts = ends_of(admin, partitions, OffsetAt.EARLIEST)
    ends = ends_of(admin, partitions)
    return planned(wanted, committed, starts, ends)


def _print_moves(moves: list[Move]) -> None:
    rows = [
        (move.at.topic, move.at.partition, number_text(move.before), move.after, move.lag) for move in moves
    ]
    headings = ("TOPIC", "PARTITION", "OLD OFFSET", "NEW OFFSET", "NEW LAG")
    print_table(headings, rows, right=("PARTITION", "OLD OFFSET", "NEW OFFSET", "NEW LAG"))
    for move in moves:
        if move.is_clamped:
            note(f"{move.at} has no offset {move.wanted}: it has offsets {move.start} to {move.end}")


def _move_as_json(move: Move) -> dict[str, object]:
    return {
        **move.at._asdict(),
        "before": move.before,
        "wanted": move.wanted,
        "after": move.after,
        "start": move.start,
        "end": move.end,
        "lag": move.lag,
    }
