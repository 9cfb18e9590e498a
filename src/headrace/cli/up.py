"""`headrace up`: a development cluster in the foreground, each node in a process of its own."""

import errno
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from headrace.cli.client_settings import use_file
from headrace.cli.completers import broker_settings
from headrace.cli.local_cluster import LOOK_EVERY_S, LocalCluster
from headrace.cli.options import SETTING, json_option
from headrace.cli.terminal import note, print_json, say

if TYPE_CHECKING:
    from headrace.cli.secure_cluster import SecureCluster

# name → what it is; the code of a sample is imported when one is asked for
SAMPLES = {"clicks": "ads that are shown and clicked, in the topics impressions and clicks"}
SAMPLE_RATE = 20.0
HOST = "127.0.0.1"
HTTP_PORT = 9644  # of the schema registry and the metrics, if it is free
PORTS_TRIED = 100
SAMPLE_TICK_S = (
    0.2  # events are published this often: nobody notices the delay, and the processor can sleep in between
)
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
FIRST_LOOK = 'spark.read.format("headrace").option("valueFormat", "json").load("clicks").show()'


class Stopped(BaseException):
    """SIGTERM or Ctrl-C arrived."""


@click.command("up")
@click.option(
    "--brokers",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of nodes; several are one cluster. From three on, topics have three replicas, and a write "
    "with acks=all needs two of them.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("headrace-data"),
    show_default=True,
    help="Directory for all files of the nodes, in node-1, node-2, ….",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=9092,
    show_default=True,
    help="Port of the first node; the other nodes use the next ports. 0 takes free ports.",
)
@click.option(
    "--no-restart",
    "restarts",
    flag_value=False,
    default=True,
    help="Do not restart nodes that have ended. Without this, and with several nodes, `up` restarts them "
    "after a second.",
)
@click.option(
    "--set",
    "settings",
    type=SETTING,
    multiple=True,
    help="A broker setting with Kafka's name, such as log.retention.ms=7d.",
    shell_complete=broker_settings,
)
@click.option(
    "--sample",
    type=click.Choice(list(SAMPLES)),
    help="Publish sample events. " + "; ".join(f"{name}: {what}" for name, what in SAMPLES.items()) + ".",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    help=f"Impressions per second in the sample.  [default: {SAMPLE_RATE:g}]",
)
@click.option(
    "--secure",
    "is_secure",
    is_flag=True,
    help="With TLS, logins and access rules: makes certificates and users, and writes settings for clients.",
)
@click.option(
    "--new-authority",
    "is_new_authority",
    is_flag=True,
    help="With --secure: make a new authority and certificates, because the old authority's key is lost.",
)
@json_option
def command(
    brokers: int,
    data: Path,
    port: int,
    restarts: bool,
    settings: tuple[tuple[str, str], ...],
    sample: str | None,
    rate: float | None,
    is_secure: bool,
    is_new_authority: bool,
    as_json: bool,
) -> None:
    """Start development brokers; print `ready HOST:PORT,…` once they serve; stop them with Ctrl-C or SIGTERM.

    The first also serves a schema registry and metrics. The data stays in --data; the next start with the
    same --brokers uses it again.
    """
    if rate is not None and sample is None:
        raise click.UsageError("--rate needs --sample: it is the rate of the sample's events.")
    if is_new_authority and not is_secure:
        raise click.UsageError("--new-authority needs --secure: other clusters have no certificates.")
    secure = _secure_cluster(data, brokers, dict(settings), is_new_authority) if is_secure else None
    if settings:  # the modules that check them take time to load
        check_settings(dict(settings))
    if brokers > 1 and "listeners" in dict(settings):
        raise click.UsageError("--set listeners: several nodes cannot have the same listeners. Use --port.")
    if port + brokers > 65536:
        raise click.UsageError(
            f"--port {port}: {brokers} nodes need {brokers} ports from there on, up to 65535."
        )
    own = dict(settings)
    if secure is not None:
        secure.check()
    if secure is None and any((data / "secure" / name).exists() for name in ("ca.pem", "admin.password")):
        raise click.ClickException(f"{data} has a cluster that was made with --secure. Give --secure again.")
    cluster = LocalCluster(data.absolute(), brokers, port, own, _http_port(own, port), secure)
    cluster.check_data()
    for node in cluster.nodes:
        if (holder := node.holder()) is not None:
            raise click.ClickException(
                f"{data} is in use by process {holder}, perhaps another `headrace up`. Use that one, stop "
                "it, or choose another directory with --data."
            )
        if "listeners" not in own:
            check_port(node.port, first=port, count=brokers)
    for number in SIGNALS:
        signal.signal(number, _stop)
    try:
        if secure is not None:
            secure.prepare()
        _start(cluster, data)
        if secure is not None:
            secure.write_client_settings(cluster.bootstrap)
            use_file(secure.admin_config)
        if brokers > 1:
            note("The cluster is a preview: do not keep the only copy of your data in it.")
        if sample is None:
            _say_ready(cluster, data, as_json, {}, secure)
            _hint_hello(cluster, port, secure)
            cluster.wait(restarts=restarts, tell=note)
            raise _ended(cluster)
        _publish_sample(cluster, data, port, rate or SAMPLE_RATE, restarts, as_json, secure)
    except Stopped:
        code = cluster.stop()
        note("stopped; the data is kept")
        click.get_current_context().exit(0 if code == 0 else 1)
    finally:
        cluster.stop()


def _secure_cluster(data: Path, brokers: int, own: dict[str, str], is_new_authority: bool) -> "SecureCluster":
    from headrace.cli.secure_cluster import SecureCluster

    secure = SecureCluster(data.absolute(), brokers, is_new_authority=is_new_authority)
    taken = {"listeners", "inter.broker.listener.name", "listener.security.protocol.map", *secure.settings(1)}
    for key in own:
        if key in taken:
            raise click.UsageError(f"--set {key}: --secure sets it.")
    return secure


def _start(cluster: LocalCluster, data: Path) -> None:
    try:
        cluster.start()
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
        if name.startswith("listener.name."):
            continue  # of listeners that `up` adds; the node says what it does not know
        hint = f"Did you mean {meant}?" if meant else "docs/reference/broker-configs.md lists all of them."
        raise click.UsageError(f"--set {name}: unknown setting. {hint}")


def check_port(port: int, first: int, count: int) -> None:
    """Refuses a port that is not free, and suggests another one. It is one of `count`, from `first` on."""
    error = _obstacle(port)
    if port == 0 or error is None:
        return
    following = range(port + 1, min(port + PORTS_TRIED, 65536 - count))
    free = next((one for one in following if not any(map(_obstacle, range(one, one + count)))), 0)
    if error.errno == errno.EADDRINUSE:
        ports = "port" if count == 1 else f"{count} ports"
        used = "" if count == 1 else f" (the nodes use {first} to {first + count - 1})"
        raise click.ClickException(
            f"port {port} of {HOST} is taken, perhaps by another broker{used}. Stop it, or use the next free "
            f"{ports}: --port {free}"
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


def _http_port(settings: dict[str, str], port: int) -> dict[str, str]:
    """The port of registry and metrics: the usual one, or any free one if that is taken."""
    if "headrace.metrics.port" in settings or "headrace.http.listeners" in settings:
        return {}
    is_free = port not in (0, HTTP_PORT) and _obstacle(HTTP_PORT) is None
    http_port = HTTP_PORT if is_free else 0
    return {"headrace.metrics.port": str(http_port)}


def _stop(*_: object) -> NoReturn:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # it is stopping already; a second signal does not speed it up
    raise Stopped


def _ended(cluster: LocalCluster) -> click.ClickException:
    """The error after the last node has ended by itself."""
    all_nodes = "all nodes have ended; the last: " if len(cluster.nodes) > 1 else ""
    return click.ClickException(f"{all_nodes}{cluster.last_end}.")


def _publish_sample(
    cluster: LocalCluster,
    data: Path,
    port: int,
    rate: float,
    restarts: bool,
    as_json: bool,
    secure: "SecureCluster | None",
) -> NoReturn:
    """Publishes until no node is left. Prints `ready` once the events of the past can be read."""
    from headrace.cli.client_warnings import shown_warnings
    from headrace.cli.sampling import TOPICS, ClicksSample
    from headrace.client.errors import ClientError

    try:
        with shown_warnings(as_json=as_json), ClicksSample(cluster.bootstrap, rate) as sample:
            sample.publish()
            sample.flush()
            facts: dict[str, object] = {"sample": {"topics": TOPICS, "impressions_per_second": rate}}
            _say_ready(cluster, data, as_json, facts, secure)
            _hint_sample(cluster, port, secure)
            while cluster.look_after(restarts=restarts, tell=note):
                sample.publish()
                time.sleep(max(LOOK_EVERY_S, SAMPLE_TICK_S))
            raise _ended(cluster)  # in here, so that nothing waits for its acknowledgements
    except ClientError as error:
        if cluster.look_after(restarts=restarts, tell=note):
            raise
        raise _ended(cluster) from error


def _say_ready(
    cluster: LocalCluster,
    data: Path,
    as_json: bool,
    more: dict[str, object],
    secure: "SecureCluster | None",
) -> None:
    """Prints the line or the JSON document for programs to stdout; hints for people go to stderr."""
    metrics = cluster.first.metrics_url
    registry = metrics.removesuffix("/metrics") if metrics else None
    if as_json:
        print_json(
            {
                "bootstrap": cluster.bootstrap,
                "registry": registry,
                "metrics": metrics,
                "data": str(data),
                "pids": [node.process.pid for node in cluster.nodes if node.process is not None],
                **({} if secure is None else {"secure": secure.as_json()}),
                **more,
            }
        )
    else:
        say(f"ready {cluster.bootstrap}")
    sys.stdout.flush()
    note(f"  bootstrap        {cluster.bootstrap}")
    if secure is not None:
        note(f"  user client      {secure.client_config}  (topics, groups and transactions)")
        note(f"  user admin       {secure.admin_config}  (everything)")
    if registry is not None:
        login = "" if secure is None else f"  (the password is in {secure.client_password})"
        note(f"  schema registry  {registry}{login}")
        note(f"  metrics          {metrics}")
    for node in cluster.nodes:
        note(f"  data             {node.directory}")
        note(f"  log              {node.log_path}")
    note("  stop             Ctrl-C; the data stays")
    note("Try it in another terminal:")


def _hint_hello(cluster: LocalCluster, port: int, secure: "SecureCluster | None") -> None:
    where = _where(cluster, port, secure)
    note(f"  headrace topic create hello{where}")
    note(f"  echo world | headrace produce hello{where}")
    note(f"  headrace consume hello{where}")
    if len(cluster.nodes) > 1:
        note("  headrace cluster describe")
        note(f"  kill -9 $(cat {cluster.nodes[1].pid_path})")


def _hint_sample(cluster: LocalCluster, port: int, secure: "SecureCluster | None") -> None:
    where = _where(cluster, port, secure)
    note(f"  headrace consume clicks --follow{where}")
    note(f"  headrace spark{where}")
    note(f"    {FIRST_LOOK}")


def _where(cluster: LocalCluster, port: int, secure: "SecureCluster | None") -> str:
    """The option for the address. With several nodes the environment has it: a command that knows only one
    of them fails while that one does not run. A secure cluster has a file that says all.
    """
    if secure is not None:
        note(f"  export HEADRACE_CLIENT_CONFIG={secure.client_config}")
        return ""
    if len(cluster.nodes) > 1:
        note(f"  export HEADRACE_BOOTSTRAP={cluster.bootstrap}")
        return ""
    return "" if port == 9092 else f" -b {cluster.first.bootstrap}"
