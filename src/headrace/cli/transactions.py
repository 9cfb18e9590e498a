"""`headrace cluster transactions`: lists and describes transactions, and finds hanging ones."""

import time
from typing import Any

import click

from headrace.base.moments import iso_time
from headrace.cli.administer import administer
from headrace.cli.client_settings import broker_options
from headrace.cli.completers import transactional_ids
from headrace.cli.options import Seconds
from headrace.cli.partitions import partitions_text
from headrace.cli.terminal import print_json, print_table, say
from headrace.client.admin.transactions import OpenTransaction, Transaction
from headrace.client.cluster import TopicPartition

# Kafka's default of transaction.max.timeout.ms: an open transaction that is older was to be aborted long ago.
OLDEST_S = 15 * 60.0


@click.command()
@click.argument("ids", nargs=-1, shell_complete=transactional_ids)
@click.option("--hanging", is_flag=True, help="Find transactions that no coordinator will end.")
@click.option(
    "--older-than",
    type=Seconds(0),
    default=OLDEST_S,
    show_default=True,
    metavar="SECONDS",
    help="With --hanging: time since the last write; at least the broker's transaction.max.timeout.ms.",
)
@broker_options
def transactions(
    ids: tuple[str, ...], hanging: bool, older_than: float, bootstrap: str, timeout: float, as_json: bool
) -> None:
    """List transactional ids, describe the IDS, or find hanging transactions.

    A hanging transaction blocks read_committed consumers of its partition.
    """
    if hanging and ids:
        raise click.UsageError("IDS cannot be used with --hanging: hanging transactions have no known id.")
    with administer(bootstrap, timeout) as admin:
        if hanging:
            before_ms = round((time.time() - older_than) * 1000)
            _tell_hanging(admin.find_hanging_transactions(before_ms=before_ms), as_json=as_json)
        elif ids:
            _tell(list(admin.describe_transactions(ids).values()), as_json=as_json)
        else:
            listed = admin.list_transactions()
            if as_json:
                print_json([one._asdict() for one in listed])
            else:
                print_table(("TRANSACTIONAL ID", "PRODUCER", "STATE", "COORDINATOR"), listed)


def _tell_hanging(found: list[OpenTransaction], *, as_json: bool) -> None:
    if as_json:
        print_json([_flat(one) for one in found])
        return
    if not found:
        say("no hanging transactions")
        return
    rows = [
        (
            one.at.topic,
            one.at.partition,
            one.producer_id,
            one.producer_epoch,
            one.coordinator_epoch,
            one.start_offset,
            iso_time(one.last_timestamp_ms),
        )
        for one in found
    ]
    headings = ("TOPIC", "PARTITION", "PRODUCER", "EPOCH", "COORDINATOR EPOCH", "FIRST OFFSET", "LAST WRITE")
    print_table(headings, rows, right=("PARTITION", "PRODUCER", "EPOCH", "COORDINATOR EPOCH", "FIRST OFFSET"))


def _flat(one: OpenTransaction) -> dict[str, Any]:
    fields = one._asdict()
    at: TopicPartition = fields.pop("at")
    return at._asdict() | fields


def _tell(described: list[Transaction], *, as_json: bool) -> None:
    if as_json:
        print_json(
            [one._asdict() | {"partitions": [at._asdict() for at in one.partitions]} for one in described]
        )
        return
    for one in described:
        say(one.transactional_id, bold=True)
        say(f"{one.state}, coordinator {one.coordinator}")
        say(f"producer {one.producer_id}, epoch {one.producer_epoch}")
        if one.started_ms is not None:
            say(f"began {iso_time(one.started_ms)}, timeout {one.timeout_ms / 1000:g} s")
        if one.partitions:
            say(f"writes to {partitions_text(one.partitions)}")
        say()
