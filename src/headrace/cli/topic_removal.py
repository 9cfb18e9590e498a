"""`headrace topic trim` and `headrace topic delete`: records are removed after a preview and with consent."""

import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import click

from headrace.base.moments import Moment, parse_moment
from headrace.cli.administer import administer
from headrace.cli.client_settings import broker_options
from headrace.cli.completers import topics as complete_topics
from headrace.cli.confirmation import confirm, yes_option
from headrace.cli.options import partitions_option
from headrace.cli.suggestions import describe_topic, describe_topics
from headrace.cli.terminal import (
    bytes_text,
    count_text,
    print_json,
    print_table,
    printed_even_if_it_fails,
    say,
)
from headrace.client.admin.offsets import OffsetAt
from headrace.client.admin.topics import TopicDescription
from headrace.client.cluster import TopicPartition
from headrace.client.errors import ClientError, InvalidInput, KafkaError, PartlyFailed, UnsupportedByBroker
from headrace.client.threads.admin import Admin
from headrace.client.threads.ranges import ends_of, resolve

WHOLE_RANGE = 2**62  # bytes of a part when a range is not to be cut


class Cut(NamedTuple):
    """What goes from one partition: the offsets from `start` to before `to`."""

    at: TopicPartition
    start: int
    to: int
    size_bytes: int | None  # about; None where the broker does not tell

    @property
    def records(self) -> int:
        """At most: a compacted log has fewer records than offsets."""
        return max(0, self.to - self.start)


# --- trim ------------------------------------------------------------------------------------------------


@click.command()
@click.argument("name", shell_complete=complete_topics)
@click.option(
    "--before",
    required=True,
    metavar="WHERE",
    help="Delete the records before this, as for consume --to: an offset, a time, latest.",
)
@partitions_option
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@yes_option
@broker_options
def trim(
    name: str,
    before: str,
    partitions: tuple[int, ...],
    dry_run: bool,
    yes: bool,
    bootstrap: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Delete the oldest records of a topic, up to an offset or a time.

    Shows what it would delete from each partition, and asks for confirmation.

    Example: headrace topic trim orders --before -7d
    """
    try:
        moment = parse_moment(before, wall_ms=time.time_ns() // 1_000_000)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--before") from None
    with administer(bootstrap, timeout) as admin:
        cuts = _cuts(admin, _chosen(admin, name, partitions), moment)
        due = [cut for cut in cuts if cut.records]
        if not as_json:
            _print_cuts(cuts)
        if due and not dry_run:
            count = count_text(sum(cut.records for cut in due), "record")
            confirm(f"Delete {count} of {name}?", yes=yes)
            admin.delete_records({cut.at: cut.to for cut in due})
    if as_json:
        print_json([_cut_as_json(cut, is_done=not dry_run) for cut in cuts])
    elif not due:
        say(f"nothing to delete: {name} has no records before {before}")
    elif dry_run:
        say("nothing was deleted; without --dry-run the command deletes these records")
    else:
        for cut in due:
            say(f"{cut.at} now begins at offset {cut.to}")


def _chosen(admin: Admin, name: str, partitions: Sequence[int]) -> list[TopicPartition]:
    count = len(describe_topic(admin, name).partitions)
    for partition in partitions:
        if partition >= count:
            raise InvalidInput(
                f"topic {name!r} has no partition {partition}: it has partitions 0 to {count - 1}"
            )
    return [TopicPartition(name, partition) for partition in sorted(set(partitions)) or range(count)]


def _cuts(admin: Admin, partitions: Sequence[TopicPartition], moment: Moment) -> list[Cut]:
    wanted = resolve(admin, partitions, moment)
    starts = ends_of(admin, partitions, OffsetAt.EARLIEST)
    ends = ends_of(admin, partitions)
    for at in partitions:
        if wanted[at] > ends[at]:  # told before anything is deleted elsewhere
            raise InvalidInput(
                f"partition {at} has no offset {wanted[at]}: it has offsets {starts[at]} to {ends[at]}; "
                "nothing was deleted. Choose partitions with --partition, or use --before latest"
            )
    ranges = {at: (starts[at], wanted[at]) for at in partitions if starts[at] < wanted[at]}
    sizes = _range_sizes(admin, ranges)
    return [Cut(at, starts[at], max(starts[at], wanted[at]), sizes.get(at)) for at in partitions]


def _range_sizes(admin: Admin, ranges: dict[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
    """Bytes of the ranges, roughly; nothing from brokers other than Headrace's."""
    if not ranges:
        return {}
    try:
        found = admin.split_ranges(ranges, WHOLE_RANGE)
    except (UnsupportedByBroker, KafkaError, PartlyFailed):
        return {}
    return {at: told.total_bytes for at, told in found.items()}


def _print_cuts(cuts: list[Cut]) -> None:
    rows = [(cut.at.partition, cut.start, cut.to, cut.records, _size_text(cut)) for cut in cuts]
    headings = ("PARTITION", "FROM", "TO", "RECORDS", "SIZE")
    print_table(headings, rows, right=headings)


def _size_text(cut: Cut) -> str:
    if not cut.records:
        return "-"
    return "?" if cut.size_bytes is None else f"~{bytes_text(cut.size_bytes)}"


def _cut_as_json(cut: Cut, *, is_done: bool) -> dict[str, object]:
    return {
        "partition": cut.at.partition,
        "from": cut.start,
        "to": cut.to,
        "records": cut.records,
        "bytes": 0 if not cut.records else cut.size_bytes,
        "deleted": is_done and cut.records > 0,
    }


# --- delete ----------------------------------------------------------------------------------------------


@click.command()
@click.argument("names", nargs=-1, required=True, shell_complete=complete_topics)
@click.option("--if-exists", is_flag=True, help="Succeed when a topic does not exist.")
@yes_option
@broker_options
def delete(
    names: tuple[str, ...], if_exists: bool, yes: bool, bootstrap: str, timeout: float, as_json: bool
) -> None:
    """Delete topics and all their records, after a confirmation."""
    deleted: list[str] = []
    with printed_even_if_it_fails(deleted, as_json=as_json), administer(bootstrap, timeout) as admin:
        found = _existing(admin, names) if if_exists else describe_topics(admin, names)
        if found and not yes:
            confirm(_question(admin, list(found.values())), yes=yes)
        for name in found:
            try:
                admin.delete_topic(name)
            except KafkaError as error:
                if not if_exists or not error.is_unknown_topic:
                    raise
                continue
            deleted.append(name)
            if not as_json:
                say(f"deleted {name}")


def _existing(admin: Admin, names: Sequence[str]) -> dict[str, TopicDescription]:
    try:
        return admin.describe_topics(names)
    except PartlyFailed as error:
        _refuse_all_but_unknown(error.failures.values())
        return {name: error.results[name] for name in names if name in error.results}
    except KafkaError as error:
        _refuse_all_but_unknown([error])
        return {}


def _refuse_all_but_unknown(errors: Iterable[ClientError]) -> None:
    for error in errors:
        if not isinstance(error, KafkaError) or not error.is_unknown_topic:
            raise error


def _question(admin: Admin, topics: list[TopicDescription]) -> str:
    """Names the number of partitions and records that would be lost, if the broker tells it."""
    told = []
    for topic in topics:
        facts = [count_text(len(topic.partitions), "partition")]
        try:
            facts.append(count_text(_records(admin, topic), "record"))
        except ClientError:  # whoever may delete a topic need not be allowed to read it
            pass
        told.append(f"{topic.name} ({', '.join(facts)})")
    return f"Delete {', '.join(told)}?"


def _records(admin: Admin, topic: TopicDescription) -> int:
    led = [TopicPartition(topic.name, one.partition) for one in topic.partitions if one.leader is not None]
    starts, ends = ends_of(admin, led, OffsetAt.EARLIEST), ends_of(admin, led)
    return sum(ends[at] - starts[at] for at in led if at in starts and at in ends)
