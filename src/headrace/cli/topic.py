"""`headrace topic`: create, list, describe, alter, trim and delete topics."""

import sys

import click

from headrace.base.quantities import setting_text
from headrace.cli.administer import administer
from headrace.cli.client_settings import broker_options
from headrace.cli.client_warnings import warn
from headrace.cli.completers import topic_keys, topic_settings
from headrace.cli.completers import topics as complete_topics
from headrace.cli.options import SETTING
from headrace.cli.suggestions import describe_topic, describe_topics
from headrace.cli.terminal import (
    bytes_text,
    count_text,
    print_json,
    print_table,
    printed_even_if_it_fails,
    say,
)
from headrace.cli.topic_removal import delete, trim
from headrace.client.admin.configs import Resource
from headrace.client.admin.offsets import OffsetAt
from headrace.client.admin.topics import TopicDescription
from headrace.client.cluster import TopicPartition
from headrace.client.errors import KafkaError, UnsupportedByBroker
from headrace.client.threads.admin import Admin
from headrace.client.threads.ranges import ends_of
from headrace.protocol.errors import ErrorCode

NOBODY = -1  # leads a partition that has no leader, as Kafka tells it


@click.group("topic")
def command() -> None:
    """Create, list, describe, alter, trim and delete topics."""


command.add_command(trim)
command.add_command(delete)


@command.command()
@click.argument("names", nargs=-1, required=True)
@click.option(
    "--partitions",
    "-p",
    type=click.IntRange(min=1),
    help="Number of partitions.  [default: the broker's num.partitions]",
)
@click.option(
    "--replication-factor", "-r", type=click.IntRange(min=1), help="Number of replicas of each partition."
)
@click.option(
    "--config",
    "-c",
    "configs",
    type=SETTING,
    multiple=True,
    help="A setting of the topic, such as retention.ms=7d or segment.bytes=64MiB.",
    shell_complete=topic_settings,
)
@click.option("--if-not-exists", is_flag=True, help="Succeed when the topic exists already.")
@broker_options
def create(
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[tuple[str, str], ...],
    if_not_exists: bool,
    bootstrap: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Create topics.

    Example: headrace topic create orders -p 6 -c retention.ms=7d
    """
    created: list[dict[str, object]] = []
    with printed_even_if_it_fails(created, as_json=as_json), administer(bootstrap, timeout) as admin:
        for name in names:
            is_new = True
            try:
                admin.create_topic(
                    name,
                    partitions=partitions or -1,
                    replication_factor=replication_factor or -1,
                    configs=dict(configs),
                )
            except KafkaError as error:
                if not if_not_exists or error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
                is_new = False
            topic = admin.describe_topic(name)
            created.append(_summary(topic) | {"created": is_new})
            if not as_json:
                done = "created" if is_new else "exists already:"
                say(f"{done} {name} with {count_text(len(topic.partitions), 'partition')}")


def _summary(topic: TopicDescription) -> dict[str, object]:
    return {
        "name": topic.name,
        "id": topic.topic_id,
        "partitions": len(topic.partitions),
        "replication_factor": topic.replication_factor,
        "internal": topic.is_internal,
    }


@command.command("list")
@click.option("--internal", is_flag=True, help="Show internal topics, too.")
@broker_options
def list_topics(internal: bool, bootstrap: str, timeout: float, as_json: bool) -> None:
    """List topics.

    In a pipe it prints one name per line.
    """
    with administer(bootstrap, timeout) as admin:
        topics = admin.list_topics(internal=internal)
    if as_json:
        print_json([_summary(topic) for topic in topics])
    elif not sys.stdout.isatty():
        for topic in topics:
            say(topic.name)
    else:
        rows = [(s["name"], s["partitions"], s["replication_factor"]) for s in map(_summary, topics)]
        print_table(("TOPIC", "PARTITIONS", "REPLICAS"), rows, right=("PARTITIONS", "REPLICAS"))


@command.command()
@click.argument("names", nargs=-1, required=True, shell_complete=complete_topics)
@broker_options
def describe(names: tuple[str, ...], bootstrap: str, timeout: float, as_json: bool) -> None:
    """Show partitions, offsets, sizes and settings of topics."""
    with administer(bootstrap, timeout) as admin:
        described = [_description(admin, topic) for topic in describe_topics(admin, names).values()]
    if as_json:
        print_json(described)
        return
    for topic in described:
        _print_description(topic)


def _description(admin: Admin, topic: TopicDescription) -> dict[str, object]:
    led = [TopicPartition(topic.name, one.partition) for one in topic.partitions if one.leader is not None]
    starts = ends_of(admin, led, OffsetAt.EARLIEST)
    ends = ends_of(admin, led)
    sizes = _sizes(admin)
    partitions = []
    for partition in topic.partitions:
        at = TopicPartition(topic.name, partition.partition)
        partitions.append(
            {
                "partition": partition.partition,
                "leader": NOBODY if partition.leader is None else partition.leader,
                "leader_epoch": partition.leader_epoch,
                "replicas": partition.replicas,
                "isr": partition.isr,
                "offline": partition.offline,
                "start": starts.get(at),
                "end": ends.get(at),
                "bytes": sizes.get(at),
            }
        )
    settings = admin.describe_config(Resource.topic(topic.name)).values()
    overrides = {setting.name: setting.value for setting in settings if setting.source == "topic"}
    return _summary(topic) | {"partitions": partitions, "config": overrides}


def _sizes(admin: Admin) -> dict[TopicPartition, int]:
    """Bytes on disk by partition, the largest of all copies; empty from a broker that does not tell."""
    sizes: dict[TopicPartition, int] = {}
    try:
        directories = admin.describe_log_dirs()
    except UnsupportedByBroker:
        return {}
    for directory in directories:
        for at, size in directory.partition_bytes.items():
            sizes[at] = max(size, sizes.get(at, 0))
    return sizes


def _print_description(topic: dict[str, object]) -> None:
    partitions = topic["partitions"]
    settings = topic["config"]
    assert isinstance(partitions, list)
    assert isinstance(settings, dict)
    say(str(topic["name"]), bold=True)
    say(f"id {topic['id']}, replication factor {topic['replication_factor']}")
    for key, value in settings.items():
        say(f"{key}={setting_text(key, value)}")
    rows = [
        (
            partition["partition"],
            "none" if partition["leader"] == NOBODY else partition["leader"],
            ",".join(map(str, partition["replicas"])),
            ",".join(map(str, partition["isr"])),
            "?" if partition["start"] is None else partition["start"],
            "?" if partition["end"] is None else partition["end"],
            bytes_text(-1 if partition["bytes"] is None else partition["bytes"]),
        )
        for partition in partitions
    ]
    headings = ("PARTITION", "LEADER", "REPLICAS", "ISR", "START", "END", "SIZE")
    print_table(headings, rows, right=("PARTITION", "LEADER", "START", "END", "SIZE"))
    say()


@command.command()
@click.argument("name", shell_complete=complete_topics)
@click.option(
    "--partitions", "-p", type=click.IntRange(min=1), help="Raise the number of partitions to this."
)
@click.option(
    "--config",
    "-c",
    "configs",
    type=SETTING,
    multiple=True,
    help="A setting of the topic, such as retention.ms=7d.",
    shell_complete=topic_settings,
)
@click.option(
    "--unset",
    "-u",
    multiple=True,
    metavar="KEY",
    help="Reset a setting to its default.",
    shell_complete=topic_keys,
)
@broker_options
def alter(
    name: str,
    partitions: int | None,
    configs: tuple[tuple[str, str], ...],
    unset: tuple[str, ...],
    bootstrap: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Add partitions to a topic, or change its settings.

    After partitions were added, new records with a key may go to another partition than the earlier records
    with that key. The number of partitions cannot be reduced.
    """
    if partitions is None and not configs and not unset:
        raise click.UsageError("Nothing to alter: give --partitions, --config or --unset.")
    changes: dict[str, str | None] = {**dict(configs), **dict.fromkeys(unset)}
    with administer(bootstrap, timeout) as admin:
        before = describe_topic(admin, name)  # first: the topic may not exist
        if changes:
            admin.alter_config(Resource.topic(name), changes)
        if partitions is not None:
            admin.create_partitions({name: partitions})
        topic = admin.describe_topic(name)
    if len(topic.partitions) > len(before.partitions):
        warn(
            f"{name} had {count_text(len(before.partitions), 'partition')} and now has "
            f"{len(topic.partitions)}: new records with a key may go to another partition than the earlier "
            "records with that key.",
            as_json=as_json,
        )
    if as_json:
        print_json(_summary(topic))
    else:
        say(f"altered {name}")
