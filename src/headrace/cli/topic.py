"""`headrace topic`: create, list, describe, alter, trim and delete topics."""

import sys
import time

import click

from headrace.base.ids import id_text
from headrace.cli.moments import parse_moment
from headrace.cli.options import KEY_VALUE, broker_options
from headrace.cli.ranges import resolve
from headrace.cli.session import connect
from headrace.cli.terminal import bytes_text, count_text, print_json, print_table
from headrace.client.admin import Admin
from headrace.client.client import Client
from headrace.client.cluster import Topic, TopicPartition
from headrace.client.configs import Kind, Operation, Resource, change_settings, get_settings
from headrace.client.errors import KafkaError, UnsupportedByBroker
from headrace.client.offsets import EARLIEST, LATEST, delete_records, list_offsets
from headrace.protocol.errors import ErrorCode


@click.group("topic")
def command() -> None:
    """Create, list, describe, alter, trim and delete topics."""


@command.command()
@click.argument("names", nargs=-1, required=True)
@click.option(
    "--partitions", "-p", type=click.IntRange(min=1), help="How many; else the broker's num.partitions."
)
@click.option("--replication-factor", "-r", type=click.IntRange(min=1), help="Copies of each partition.")
@click.option("--config", "-c", "configs", type=KEY_VALUE, multiple=True, help="A setting of the topic.")
@click.option("--if-not-exists", is_flag=True, help="Succeed when the topic is there already.")
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

    Example: headrace topic create orders -p 6 -c retention.ms=86400000
    """
    created: list[dict[str, object]] = []
    with connect(bootstrap, timeout) as client:
        for name in names:
            is_new = True
            try:
                Admin(client).create_topic(
                    name,
                    partitions=partitions or -1,
                    replication_factor=replication_factor or -1,
                    configs=dict(configs),
                )
            except KafkaError as error:
                if not if_not_exists or error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
                is_new = False
            topic = client.topic(name)
            created.append(_summary(topic) | {"created": is_new})
            if not as_json:
                done = "created" if is_new else "exists already:"
                click.echo(f"{done} {name} with {count_text(len(topic.partitions), 'partition')}")
    if as_json:
        print_json(created)


def _summary(topic: Topic) -> dict[str, object]:
    return {
        "name": topic.name,
        "id": id_text(topic.topic_id),
        "partitions": len(topic.partitions),
        "replication_factor": max((len(partition.replicas) for partition in topic.partitions), default=0),
        "internal": topic.is_internal,
    }


@command.command("list")
@click.option("--internal", is_flag=True, help="The brokers' own topics too.")
@broker_options
def list_topics(internal: bool, bootstrap: str, timeout: float, as_json: bool) -> None:
    """List topics.

    A pipe gets one name per line.
    """
    with connect(bootstrap, timeout) as client:
        topics = [topic for topic in Admin(client).topics() if internal or not topic.is_internal]
    if as_json:
        print_json([_summary(topic) for topic in topics])
    elif not sys.stdout.isatty():
        for topic in topics:
            click.echo(topic.name)
    else:
        rows = [(s["name"], s["partitions"], s["replication_factor"]) for s in map(_summary, topics)]
        print_table(("TOPIC", "PARTITIONS", "REPLICAS"), rows, right=("PARTITIONS", "REPLICAS"))


@command.command()
@click.argument("names", nargs=-1, required=True)
@broker_options
def describe(names: tuple[str, ...], bootstrap: str, timeout: float, as_json: bool) -> None:
    """Show partitions, offsets, sizes and settings of topics."""
    with connect(bootstrap, timeout) as client:
        described = [_description(client, name) for name in names]
    if as_json:
        print_json(described)
        return
    for topic in described:
        _print_description(topic)


def _description(client: Client, name: str) -> dict[str, object]:
    topic = client.topic(name)
    led = [TopicPartition(name, p.index) for p in topic.partitions if p.leader in client.cluster.brokers]
    starts = list_offsets(client, dict.fromkeys(led, EARLIEST))
    ends = list_offsets(client, dict.fromkeys(led, LATEST))
    sizes = _sizes(client)
    partitions = []
    for partition in topic.partitions:
        at = TopicPartition(name, partition.index)
        partitions.append(
            {
                "partition": partition.index,
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch,
                "replicas": partition.replicas,
                "isr": partition.isr,
                "offline": partition.offline,
                "start": starts[at][0] if at in starts else None,
                "end": ends[at][0] if at in ends else None,
                "bytes": sizes.get(at),
            }
        )
    settings = get_settings(client, Resource(Kind.TOPIC, name))
    overrides = {setting.name: setting.value for setting in settings if setting.source == "topic"}
    return _summary(topic) | {"partitions": partitions, "config": overrides}


def _sizes(client: Client) -> dict[TopicPartition, int]:
    """Bytes on disk by partition, the largest of all copies; empty from a broker that does not tell."""
    sizes: dict[TopicPartition, int] = {}
    try:
        directories = Admin(client).log_directories()
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
    click.secho(str(topic["name"]), bold=True)
    click.echo(f"id {topic['id']}, replication factor {topic['replication_factor']}")
    for key, value in settings.items():
        click.echo(f"{key}={value}")
    rows = [
        (
            partition["partition"],
            partition["leader"] if partition["leader"] >= 0 else "none",
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
    click.echo()


@command.command()
@click.argument("name")
@click.option(
    "--partitions", "-p", type=click.IntRange(min=1), help="Raise the number of partitions to this."
)
@click.option("--config", "-c", "configs", type=KEY_VALUE, multiple=True, help="Set a setting.")
@click.option("--unset", "-u", multiple=True, metavar="KEY", help="Put a setting back to its default.")
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
    """Add partitions to a topic, or change its settings."""
    if partitions is None and not configs and not unset:
        raise click.UsageError("Nothing to alter: give --partitions, --config or --unset.")
    changes: dict[str, tuple[Operation, str | None]] = {key: (Operation.SET, value) for key, value in configs}
    changes |= dict.fromkeys(unset, (Operation.DELETE, None))
    with connect(bootstrap, timeout) as client:
        client.topic(name)  # a topic that is not there is said so before anything is changed
        if changes:
            change_settings(client, Resource(Kind.TOPIC, name), changes)
        if partitions is not None:
            Admin(client).grow_topic(name, partitions)
            topic = _once_grown(client, name, partitions)
        else:
            topic = client.topic(name)
    if as_json:
        print_json(_summary(topic))
    else:
        click.echo(f"altered {name}")


def _once_grown(client: Client, name: str, partitions: int) -> Topic:
    """The topic as the broker we ask knows it, which may lag behind the controller a moment."""
    deadline = time.monotonic() + client.timeout_s
    while len((topic := client.topic(name)).partitions) < partitions and time.monotonic() < deadline:
        time.sleep(0.02)
    return topic


@command.command()
@click.argument("name")
@click.option(
    "--before", required=True, metavar="WHERE", help="As --to of consume: an offset, a time, latest."
)
@click.option("--partition", "-p", "partitions", type=click.IntRange(min=0), multiple=True)
@broker_options
def trim(
    name: str, before: str, partitions: tuple[int, ...], bootstrap: str, timeout: float, as_json: bool
) -> None:
    """Delete the oldest records of a topic, up to an offset or a time."""
    try:
        moment = parse_moment(before, wall_ms=time.time_ns() // 1_000_000)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--before") from None
    with connect(bootstrap, timeout) as client:
        chosen = partitions or range(len(client.topic(name).partitions))
        offsets = resolve(client, [TopicPartition(name, partition) for partition in chosen], moment)
        left = delete_records(client, offsets)
    if as_json:
        print_json([{"partition": at.partition, "start": start} for at, start in sorted(left.items())])
    else:
        for at, start in sorted(left.items()):
            click.echo(f"{at} now begins at {start}")


@command.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--if-exists", is_flag=True, help="Succeed when a topic is not there.")
@broker_options
def delete(
    names: tuple[str, ...], yes: bool, if_exists: bool, bootstrap: str, timeout: float, as_json: bool
) -> None:
    """Delete topics and all their records."""
    if not yes and sys.stdin.isatty():
        click.confirm(f"Delete {', '.join(names)} with all records?", abort=True, err=True)
    deleted: list[str] = []
    with connect(bootstrap, timeout) as client:
        for name in names:
            if if_exists and not _exists(client, name):
                continue
            if not if_exists:
                client.topic(name)
            Admin(client).delete_topic(name)
            deleted.append(name)
            if not as_json:
                click.echo(f"deleted {name}")
    if as_json:
        print_json(deleted)


def _exists(client: Client, name: str) -> bool:
    try:
        client.topic(name)
    except KafkaError as error:
        if error.is_unknown_topic:
            return False
        raise
    return True
