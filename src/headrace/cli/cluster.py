"""`headrace cluster`: the state of brokers, quorum and partitions; transactions and sinks."""

from typing import Any

import click

from headrace.cli.administer import administer
from headrace.cli.client_settings import broker_options
from headrace.cli.cluster_health import (
    AT_MIN_ISR,
    OFFLINE,
    UNDER_MIN_ISR,
    UNDER_REPLICATED,
    ClusterHealth,
    PartitionHealth,
    health_of_partitions,
)
from headrace.cli.sinks import sinks
from headrace.cli.terminal import bytes_text, count_text, print_json, print_table, say
from headrace.cli.transactions import transactions
from headrace.client.admin.cluster import ClusterDescription, Quorum, QuorumReplica
from headrace.client.admin.configs import Resource
from headrace.client.admin.replicas import LogDirectory
from headrace.client.admin.topics import TopicDescription
from headrace.client.errors import ClientError, KafkaError, PartlyFailed, UnsupportedByBroker
from headrace.client.threads.admin import Admin

MIN_ISR = "min.insync.replicas"

# A node that does not answer is a finding, not an error: the rest of the picture should not wait for it.
ANSWER_S_MAX = 3.0

# In the text; --json and the filters show all.
PARTITIONS_SHOWN = 20


@click.group("cluster")
def command() -> None:
    """Show the health, the transactions and the sinks of a cluster."""


command.add_command(transactions)
command.add_command(sinks)


@command.command()
@click.option("--under-replicated", is_flag=True, help="List partitions with replicas that are not in sync.")
@click.option("--under-min-isr", is_flag=True, help="List partitions that refuse acks=all writes.")
@click.option("--at-min-isr", is_flag=True, help="List partitions with exactly min.insync.replicas in sync.")
@click.option("--offline", is_flag=True, help="List partitions without a leader.")
@broker_options
def describe(
    under_replicated: bool,
    under_min_isr: bool,
    at_min_isr: bool,
    offline: bool,
    bootstrap: str,
    timeout: float,
    as_json: bool,
) -> None:
    """Show whether a cluster is healthy: quorum, brokers, and partitions that lack replicas.

    The first line is the verdict: healthy; degraded (everything works, with fewer copies or nodes than
    planned); failing (some reads, writes or changes are not possible). With filters, the command lists only
    the partitions that match at least one of them.
    """
    chosen = {
        state
        for state, is_chosen in (
            (UNDER_REPLICATED, under_replicated),
            (UNDER_MIN_ISR, under_min_isr),
            (AT_MIN_ISR, at_min_isr),
            (OFFLINE, offline),
        )
        if is_chosen
    }
    with administer(bootstrap, timeout) as admin:
        health = _health(admin, timeout)
    if chosen:
        found = [one for one in health.partitions if chosen & set(one.states)]
        if as_json:
            print_json([_partition(one) for one in found])
        elif found:
            _print_partitions(found)
        else:
            say("no such partitions")
    elif as_json:
        print_json(_as_json(health))
    else:
        _print(health)


# --- asking ----------------------------------------------------------------------------------------------


def _health(admin: Admin, timeout: float) -> ClusterHealth:
    quick = admin.within(min(timeout, ANSWER_S_MAX))
    cluster = _cluster(admin)
    live = [broker.broker_id for broker in cluster.brokers if not broker.is_fenced]
    topics = _topics(admin)
    quorum = _quorum(quick)
    adding = _adding(quick) if quorum is not None else {}  # only the quorum's leader knows
    partitions = health_of_partitions(topics, _min_isr(admin, topics), live, adding)
    health = ClusterHealth(cluster.cluster_id, cluster.controller_id, quorum, cluster.brokers, partitions)
    for broker_id in live:
        try:
            health.directories += quick.describe_log_dirs([broker_id])
        except UnsupportedByBroker:
            pass
        except ClientError:
            health.silent_brokers.add(broker_id)
    return health


def _cluster(admin: Admin) -> ClusterDescription:
    try:
        return admin.describe_cluster(include_fenced=True)
    except UnsupportedByBroker:  # an old broker hides its fenced neighbours
        return admin.describe_cluster()


def _topics(admin: Admin) -> list[TopicDescription]:
    """With the eligible leaders, which only a description by name has. A topic may be deleted meanwhile."""
    names = [topic.name for topic in admin.list_topics()]
    try:
        return list(admin.describe_topics(names).values())
    except (KafkaError, PartlyFailed):
        return admin.list_topics()


def _min_isr(admin: Admin, topics: list[TopicDescription]) -> dict[str, int]:
    resources = [Resource.topic(topic.name) for topic in topics]
    try:
        told = admin.describe_configs(resources, [MIN_ISR]) if resources else {}
    except (KafkaError, PartlyFailed):  # no right to see them, or deleted meanwhile
        return {}
    return {resource.name: int(settings[MIN_ISR].value or 1) for resource, settings in told.items()}


def _adding(admin: Admin) -> dict[tuple[str, int], int]:
    try:
        return {(at.topic, at.partition): len(one.adding) for at, one in admin.list_reassignments().items()}
    except ClientError:
        return {}


def _quorum(admin: Admin) -> Quorum | None:
    try:
        return admin.describe_quorum()
    except ClientError:
        return None


# --- output ----------------------------------------------------------------------------------------------


def _print(health: ClusterHealth) -> None:
    say(f"cluster {health.cluster_id} is {health.state}: {health.verdict}", bold=True)
    say()
    _print_quorum(health)
    say()
    rows = [
        (
            broker.broker_id,
            broker.address,
            broker.rack or "-",
            health.state_of(broker),
            health.led_by(broker.broker_id),
            health.replicas_of(broker.broker_id),
        )
        for broker in health.brokers
    ]
    print_table(
        ("BROKER", "ADDRESS", "RACK", "STATE", "LEADS", "REPLICAS"),
        rows,
        right=("BROKER", "LEADS", "REPLICAS"),
    )
    if health.directories:
        say()
        _print_directories(health.directories)
    worrying = [one for one in health.partitions if one.needs_attention]
    if worrying:
        say()
        _print_partitions(worrying[:PARTITIONS_SHOWN])
        left = len(worrying) - PARTITIONS_SHOWN
        if left > 0:
            say(f"and {count_text(left, 'partition')} more; --under-replicated lists all")


def _print_quorum(health: ClusterHealth) -> None:
    quorum = health.quorum
    if quorum is None:
        say("quorum: no leader answered")
        return
    say(
        f"quorum: leader {quorum.leader_id}, epoch {quorum.leader_epoch}, "
        f"high watermark {quorum.high_watermark}"
    )
    silent = {voter.replica_id for voter in health.silent_voters()}
    rows = []
    now_ms = max((voter.last_fetch_ms or 0 for voter in quorum.voters), default=0)  # the leader's own
    for kind, replicas in (("voter", quorum.voters), ("observer", quorum.observers)):
        for replica in replicas:
            role = kind
            if replica.replica_id == quorum.leader_id:
                role = "leader"
            elif kind == "voter" and replica.replica_id in silent:
                role = "voter, silent"
            rows.append(
                (
                    replica.replica_id,
                    role,
                    _end_offset(replica),
                    "-" if replica.log_end_offset < 0 else health.lag(replica),
                    "now" if role == "leader" else _ago(replica.last_fetch_ms, now_ms),
                )
            )
    right = ("NODE", "END OFFSET", "LAG", "LAST FETCH")
    print_table(("NODE", "ROLE", "END OFFSET", "LAG", "LAST FETCH"), rows, right=right)


def _end_offset(replica: QuorumReplica) -> str:
    return "-" if replica.log_end_offset < 0 else str(replica.log_end_offset)


def _ago(moment_ms: int | None, now_ms: int) -> str:
    return "never" if moment_ms is None else f"{(now_ms - moment_ms) / 1000:.1f} s ago"


def _print_directories(directories: list[LogDirectory]) -> None:
    print_table(
        ("BROKER", "LOG DIRECTORY", "PARTITIONS", "SIZE", "FREE", "STATE"),
        [
            (
                directory.broker_id,
                directory.path,
                len(directory.partition_bytes),
                bytes_text(sum(directory.partition_bytes.values())),
                bytes_text(directory.usable_bytes),
                "online" if directory.error is None else directory.error.name,
            )
            for directory in directories
        ],
        right=("BROKER", "PARTITIONS", "SIZE", "FREE"),
    )


def _print_partitions(partitions: list[PartitionHealth]) -> None:
    print_table(
        ("TOPIC", "PARTITION", "LEADER", "REPLICAS", "ISR", "MIN ISR", "ELR", "STATE"),
        [
            (
                one.topic,
                one.described.partition,
                "-" if one.described.leader is None else one.described.leader,
                _ids(one.described.replicas),
                _ids(one.described.isr),
                one.min_isr,
                _ids(one.described.eligible_leaders),
                ", ".join(one.states),
            )
            for one in partitions
        ],
        right=("PARTITION", "LEADER", "MIN ISR"),
    )


def _ids(ids: list[int]) -> str:
    return ",".join(map(str, ids)) or "-"


def _as_json(health: ClusterHealth) -> dict[str, Any]:
    return {
        "cluster_id": health.cluster_id,
        "controller": health.controller_id,
        "state": health.state,
        "verdict": health.verdict,
        "quorum": None if health.quorum is None else _quorum_json(health, health.quorum),
        "brokers": [
            {
                "id": broker.broker_id,
                "host": broker.address.host,
                "port": broker.address.port,
                "rack": broker.rack,
                "state": health.state_of(broker),
                "fenced": broker.is_fenced,
                "leads": health.led_by(broker.broker_id),
                "replicas": health.replicas_of(broker.broker_id),
                "log_dirs": [
                    {
                        "path": directory.path,
                        "error": directory.error and directory.error.name,
                        "partitions": len(directory.partition_bytes),
                        "bytes": sum(directory.partition_bytes.values()),
                        "usable_bytes": directory.usable_bytes,
                        "total_bytes": directory.total_bytes,
                    }
                    for directory in health.directories
                    if directory.broker_id == broker.broker_id
                ],
            }
            for broker in health.brokers
        ],
        "partitions": {
            "total": len(health.partitions),
            "under_replicated": health.count(UNDER_REPLICATED),
            "under_min_isr": health.count(UNDER_MIN_ISR),
            "at_min_isr": health.count(AT_MIN_ISR),
            "offline": health.count(OFFLINE),
        },
        "worrying_partitions": [_partition(one) for one in health.partitions if one.needs_attention],
    }


def _quorum_json(health: ClusterHealth, quorum: Quorum) -> dict[str, Any]:
    def told(replica: QuorumReplica) -> dict[str, Any]:
        return {
            "id": replica.replica_id,
            "directory_id": replica.directory_id,
            "log_end_offset": replica.log_end_offset,
            "lag": health.lag(replica),
            "last_fetch_ms": replica.last_fetch_ms,
            "last_caught_up_ms": replica.last_caught_up_ms,
        }

    return {
        "leader": quorum.leader_id,
        "epoch": quorum.leader_epoch,
        "high_watermark": quorum.high_watermark,
        "voters": [told(voter) for voter in quorum.voters],
        "observers": [told(observer) for observer in quorum.observers],
    }


def _partition(one: PartitionHealth) -> dict[str, Any]:
    described = one.described
    return {
        "topic": one.topic,
        "partition": described.partition,
        "leader": described.leader,
        "leader_epoch": described.leader_epoch,
        "replicas": described.replicas,
        "isr": described.isr,
        "min_isr": one.min_isr,
        "elr": described.eligible_leaders,
        "last_known_elr": described.last_known_eligible_leaders,
        "offline_replicas": described.offline,
        "states": [state.lower().replace(" ", "_").replace("-", "_") for state in one.states],
    }
