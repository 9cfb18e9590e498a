"""`headrace up`: a development broker in the foreground, in a process of its own."""

import errno
import signal
import socket
import sys
import time
from pathlib import Path
from typing import NoReturn

import click

from headrace.cli.completers import broker_settings
from headrace.cli.local_node import LocalNode
from headrace.cli.options import SETTING, json_option
from headrace.cli.terminal import note, print_json

# name → what it is; the code of a sample is imported when one is asked for
SAMPLES = {"clicks": "ads that are shown and clicked, in the topics impressions and clicks"}
SAMPLE_RATE = 20.0
HOST = "127.0.0.1"
HTTP_PORT = 9644  # of the schema registry and the metrics, if it is free
PORTS_TRIED = 100
SAMPLE_TICK_S = 0.2  # a sample's events wait for this: not noticed by eyes, and a laptop may rest
FIRST_LOOK = 'spark.read.format("headrace").option("valueFormat", "json").load("clicks").show()'


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
    "--set",
    "settings",
    type=SETTING,
    multiple=True,
    help="A broker setting, Kafka's name for it, such as log.retention.ms=7d.",
    shell_complete=broker_settings,
)
@click.option(
    "--sample",
    type=click.Choice(list(SAMPLES)),
    help="Publish events to try things with. "
    + "; ".join(f"{name}: {what}" for name, what in SAMPLES.items())
    + ".",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    help=f"Impressions a second of the sample.  [default: {SAMPLE_RATE:g}]",
)
@json_option
def command(
    brokers: int,
    data: Path,
    port: int,
    settings: tuple[tuple[str, str], ...],
    sample: str | None,
    rate: float | None,
    as_json: bool,
) -> None:
    """Start a development broker; print `ready HOST:PORT` once it serves; stop it with Ctrl-C or SIGTERM.

    It serves a schema registry and metrics, too. The data stays in --data and is there again the next time.
    """
    if brokers > 1:
        raise click.UsageError(f"--brokers {brokers}: Headrace has no clusters yet. Use --brokers 1.")
    if rate is not None and sample is None:
        raise click.UsageError("--rate is the rate of a --sample.")
    if settings:  # the modules that check them take time to load
        check_settings(dict(settings))
    node = LocalNode(data.absolute(), 1, port, _with_http_port(dict(settings), port))
    if (holder := node.holder()) is not None:
        raise click.ClickException(
            f"{data} is in use by process {holder}, perhaps another `headrace up`. Use that one, stop it, or "
            "choose another directory with --data."
        )
    if "listeners" not in dict(settings):
        check_port(port)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _stop)
    try:
        _start(node, data)
        if sample is None:
            _say_ready(node, data, as_json, {})
            _hint_hello(node, port)
            raise _ended_by_itself(node)
        _publish_sample(node, data, port, rate or SAMPLE_RATE, as_json)
    except Stopped:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # it is being ended; once more does not speed it up
        code = node.stop()
        note("stopped; the data is kept")
        click.get_current_context().exit(0 if code == 0 else 1)
    finally:
        node.stop()


def _start(node: LocalNode, data: Path) -> None:
    try:
        node.start()
    except OSError as error:
        raise click.ClickException(
            f"{error.filename or data}: {error.strerror}. Choose another directory with --data."
        ) from error


def check_settings(settings: dict[str, str]) -> None:
    """Refuses wrong and unknown settings of `--set` before anything is written."""
    from headrace.machines.configs.values import InvalidConfig
    from headrace.node.settings import Settings
    from headrace.server.config import named_key, option_error

    try:
        # node.id is the only key that must be there; `up` sets it
        unknown = Settings.parse({"node.id": "1"} | settings).unknown
    except InvalidConfig as error:
        message = str(error)
        raise click.UsageError(option_error(named_key(message, settings), message)) from None
    for name, meant in unknown.items():
        hint = f"Did you mean {meant}?" if meant else "docs/reference/broker-configs.md lists all of them."
        raise click.UsageError(f"--set {name}: there is no such setting. {hint}")


def check_port(port: int) -> None:
    """Refuses a port that is not free, and suggests one that is."""
    error = _obstacle(port)
    if port == 0 or error is None:
        return
    following = range(port + 1, min(port + PORTS_TRIED, 65536))
    free = next((one for one in following if _obstacle(one) is None), 0)
    if error.errno == errno.EADDRINUSE:
        raise click.ClickException(
            f"port {port} of {HOST} is taken, perhaps by another broker. Stop it, or use the next free port: "
            f"--port {free}"
        )
    raise click.ClickException(f"port {port} of {HOST}: {error.strerror}. Choose another one with --port.")


def _obstacle(port: int) -> OSError | None:
    """Why a node could not listen on this port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the node itself
        try:
            probe.bind((HOST, port))
        except OSError as error:
            return error
    return None


def _with_http_port(settings: dict[str, str], port: int) -> dict[str, str]:
    """Adds the port of registry and metrics: the usual one, or any free one if that is taken."""
    if "headrace.metrics.port" in settings:
        return settings
    is_free = port not in (0, HTTP_PORT) and _obstacle(HTTP_PORT) is None
    http_port = HTTP_PORT if is_free else 0
    return settings | {"headrace.metrics.port": str(http_port)}


def _stop(*_: object) -> NoReturn:
    raise Stopped


def _ended_by_itself(node: LocalNode) -> click.ClickException:
    """Waits for it."""
    code = node.wait()
    return click.ClickException(f"the node ended by itself with code {code}; see {node.log_path}.")


def _publish_sample(node: LocalNode, data: Path, port: int, rate: float, as_json: bool) -> NoReturn:
    """Until the node ends; ready is said once what has happened so far can be read."""
    from headrace.cli.sampling import TOPICS, ClicksSample
    from headrace.client.errors import ClientError

    try:
        with ClicksSample(node.bootstrap, rate) as sample:
            sample.publish()
            sample.flush()
            _say_ready(node, data, as_json, {"sample": {"topics": TOPICS, "impressions_per_second": rate}})
            _hint_sample(node, port)
            while node.is_running:
                sample.publish()
                time.sleep(SAMPLE_TICK_S)
            raise _ended_by_itself(node)  # in here, so that nothing waits for its acknowledgements
    except ClientError as error:
        if node.is_running:
            raise
        raise _ended_by_itself(node) from error


def _say_ready(node: LocalNode, data: Path, as_json: bool, more: dict[str, object]) -> None:
    """The line, or the document, for programs; the rest is for people and on stderr."""
    metrics = node.metrics_url
    registry = metrics.removesuffix("/metrics") if metrics else None
    if as_json:
        assert node.process is not None
        print_json(
            {
                "bootstrap": node.bootstrap,
                "registry": registry,
                "metrics": metrics,
                "data": str(data),
                "pids": [node.process.pid],
                **more,
            }
        )
    else:
        click.echo(f"ready {node.bootstrap}")
    sys.stdout.flush()
    note(f"  bootstrap        {node.bootstrap}")
    if registry is not None:
        note(f"  schema registry  {registry}")
        note(f"  metrics          {metrics}")
    note(f"  data             {node.directory}")
    note(f"  log              {node.log_path}")
    note("  stop             Ctrl-C; the data stays")
    note("Try it in another terminal:")


def _hint_hello(node: LocalNode, port: int) -> None:
    where = _where(node, port)
    note(f"  headrace topic create hello{where}")
    note(f"  echo world | headrace produce hello{where}")
    note(f"  headrace consume hello{where}")


def _hint_sample(node: LocalNode, port: int) -> None:
    where = _where(node, port)
    note(f"  headrace consume clicks --follow{where}")
    note(f"  headrace spark{where}")
    note(f"    {FIRST_LOOK}")


def _where(node: LocalNode, port: int) -> str:
    return "" if port == 9092 else f" -b {node.bootstrap}"
