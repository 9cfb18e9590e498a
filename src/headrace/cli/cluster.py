"""`headrace cluster`: who is there."""

from collections import Counter

import click

from headrace.cli.administer import administer
from headrace.cli.client_settings import broker_options
from headrace.cli.sinks import sinks
from headrace.cli.terminal import bytes_text, print_json, print_table
from headrace.cli.transactions import transactions
from headrace.client.admin.cluster import ClusterDescription
from headrace.client.admin.replicas import LogDirectory
from headrace.client.errors import UnsupportedByBroker


@click.group("cluster")
def command() -> None:
    """Show the brokers, the transactions and the sinks of a cluster."""


command.add_command(transactions)
command.add_command(sinks)


@command.command()
@broker_options
def describe(bootstrap: str, timeout: float, as_json: bool) -> None:
    """Show brokers, their addresses and log directories."""
    with administer(bootstrap, timeout) as admin:
        cluster = admin.describe_cluster()
        try:
            directories = admin.describe_log_dirs()
        except UnsupportedByBroker:
            directories = []
        led = Counter(
            partition.leader
            for topic in admin.list_topics()
            for partition in topic.partitions
            if partition.leader is not None
        )
    if as_json:
        print_json(_as_json(cluster, directories, led))
        return
    click.echo(f"cluster {cluster.cluster_id}, controller {cluster.controller_id}")
    rows = [
        (broker.broker_id, broker.address, broker.rack or "-", led[broker.broker_id])
        for broker in cluster.brokers
    ]
    print_table(("BROKER", "ADDRESS", "RACK", "LEADS"), rows, right=("BROKER", "LEADS"))
    if directories:
        click.echo()
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


def _as_json(
    cluster: ClusterDescription, directories: list[LogDirectory], led: Counter[int]
) -> dict[str, object]:
    return {
        "cluster_id": cluster.cluster_id,
        "controller": cluster.controller_id,
        "brokers": [
            {
                "id": broker.broker_id,
                "host": broker.address.host,
                "port": broker.address.port,
                "rack": broker.rack,
                "leads": led[broker.broker_id],
                "log_dirs": [
                    {
                        "path": directory.path,
                        "error": directory.error and directory.error.name,
                        "partitions": len(directory.partition_bytes),
                        "bytes": sum(directory.partition_bytes.values()),
                        "usable_bytes": directory.usable_bytes,
                        "total_bytes": directory.total_bytes,
                    }
                    for directory in directories
                    if directory.broker_id == broker.broker_id
                ],
            }
            for broker in cluster.brokers
        ],
    }
