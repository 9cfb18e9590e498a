"""`headrace up`: a development broker in the foreground, in a process of its own."""

import signal
import sys
from pathlib import Path
from typing import NoReturn

import click

from headrace.cli.local_node import LocalNode
from headrace.cli.options import KEY_VALUE, json_option
from headrace.cli.terminal import note, print_json


class Stopped(BaseException):
    """SIGTERM or Ctrl-C arrived."""


@click.command("up")
@click.option("--brokers", type=click.IntRange(min=1), default=1, show_default=True, help="How many nodes.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("headrace-data"),
    show_default=True,
    help="Where the nodes keep everything.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=9092, show_default=True, help="0: any free one."
)
@click.option(
    "--set", "settings", type=KEY_VALUE, multiple=True, help="A broker setting, Kafka's name for it."
)
@json_option
def command(
    brokers: int, data: Path, port: int, settings: tuple[tuple[str, str], ...], as_json: bool
) -> None:
    """Start a development broker; print `ready HOST:PORT` once it serves; stop it with Ctrl-C or SIGTERM.

    The data stays in --data and is there again the next time.
    """
    if brokers > 1:
        raise click.UsageError("Clusters are not there yet: one node is what runs today (--brokers 1).")
    node = LocalNode(data.absolute(), 1, port, dict(settings))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _stop)
    try:
        node.start()
        if as_json:
            print_json({"bootstrap": node.bootstrap, "data": str(data), "pids": [_pid(node)]})
        else:
            click.echo(f"ready {node.bootstrap}")
        sys.stdout.flush()
        _hint(node, port)
        code = node.wait()
    except Stopped:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(
                number, signal.SIG_IGN
            )  # it is being ended in order; once more does not speed it up
        code = node.stop()
        note("stopped; the data is kept")
        click.get_current_context().exit(0 if code == 0 else 1)
    raise click.ClickException(f"the node ended by itself with code {code}; see {node.log_path}.")


def _stop(*_: object) -> NoReturn:
    raise Stopped


def _pid(node: LocalNode) -> int:
    assert node.process is not None
    return node.process.pid


def _hint(node: LocalNode, port: int) -> None:
    bootstrap = "" if port == 9092 else f" -b {node.bootstrap}"
    note(f"data in {node.directory}, log in {node.log_path}; Ctrl-C stops it. In another terminal:")
    note(f"  headrace topic create hello{bootstrap}")
    note(f"  echo world | headrace produce hello{bootstrap}")
    note(f"  headrace consume hello{bootstrap}")
