"""`headrace cluster sinks`: lists and resets the sinks of exactly-once writers such as Spark."""

import click

from headrace.base.moments import iso_time
from headrace.cli.administer import administer
from headrace.cli.client_settings import broker_options
from headrace.cli.completers import sinks as complete_sinks
from headrace.cli.confirmation import confirm, yes_option
from headrace.cli.terminal import print_json, print_table, say


@click.group()
def sinks() -> None:
    """Show and reset the sinks that are written to exactly once."""


@sinks.command("list")
@broker_options
def list_command(bootstrap: str, timeout: float, as_json: bool) -> None:
    """List sinks with their committed and current batches."""
    with administer(bootstrap, timeout) as admin:
        found = admin.list_sinks()
    if as_json:
        print_json([sink._asdict() for sink in found])
        return
    rows = [
        (
            sink.app_id,
            sink.query_id,
            "-" if sink.committed_batch_id is None else sink.committed_batch_id,
            "-" if sink.batch_id is None else sink.batch_id,
            sink.open_attempts,
            sink.ending_attempts,
            iso_time(sink.updated_ms),
        )
        for sink in found
    ]
    headings = ("SINK", "QUERY", "COMMITTED", "WRITING", "ATTEMPTS", "ENDING", "LAST CHANGE")
    print_table(headings, rows, right=("COMMITTED", "WRITING", "ATTEMPTS", "ENDING"))


@sinks.command()
@click.argument("app_id", shell_complete=complete_sinks)
@yes_option
@broker_options
def reset(app_id: str, yes: bool, bootstrap: str, timeout: float, as_json: bool) -> None:
    """Reset a sink, so that another query may use its name.

    The broker aborts its open attempts and deletes the number of its last committed batch. Records that were
    written stay. If a query writes a batch again, its records are duplicated.
    """
    confirm(f"Reset sink {app_id}? A query that writes the same batches again duplicates them.", yes=yes)
    with administer(bootstrap, timeout) as admin:
        admin.reset_sink(app_id)
    if as_json:
        print_json(app_id)
    else:
        say(f"reset {app_id}")
