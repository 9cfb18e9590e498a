"""sec: what security costs. T1, T3, T4, T5 and commits, by clients that have logged in, with a thousand rules
and with quotas, without TLS and with it; beside our own plaintext without all that, and beside Kafka with the
same settings.
"""

from __future__ import annotations

import ssl
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks import exchanges, generators, secured
from benchmarks.bench import Bench, cpu_seconds, create_topic, delete_topic, resident_mb, touch_memory
from benchmarks.exchanges import Desk
from benchmarks.generators import Login
from benchmarks.secured import Secured
from benchmarks.throughput import SETTINGS
from harness.broker import Broker
from harness.headrace import Headrace
from harness.message_socket import MessageSocket
from headrace.client.security.sasl import Scram

TOPICS = ["T1", "T3", "T4", "T5", "coordination", "first", "warm-up"]
GROUPS = "commits-"
PLAINTEXT = "plaintext"
RULES, TLS = "rules and quotas", "SASL_SSL"
IDLE_CONNECTIONS = 500
IDLE_LIMIT_KB = 64.0


class Way(NamedTuple):
    """A way into a broker: by one of its listeners, with or without a login."""

    name: str
    broker: Broker
    bootstrap: str
    login: Login


class Aim(NamedTuple):
    """What a figure is held against."""

    way: str  # of Headrace
    rival: str  # a way of Headrace, or "kafka" for the same way into Kafka
    target: float


# Targets of rates: by way, and what it is compared with.
AIMS = {
    "T1": {(RULES, PLAINTEXT): 0.95, (RULES, "kafka"): 1.5, (TLS, PLAINTEXT): 0.5, (TLS, "kafka"): 1.0},
    "T3": {(RULES, PLAINTEXT): 0.95, (TLS, PLAINTEXT): 0.5, (TLS, "kafka"): 1.0},
    "T4": {
        (RULES, PLAINTEXT): 0.95,
        (RULES, "kafka"): 1.4,
        (TLS, PLAINTEXT): 0.5,
        (TLS, "kafka"): 1.3,
    },
    "T5": {
        (RULES, PLAINTEXT): 0.95,
        (RULES, "kafka"): 1.5,
        (TLS, PLAINTEXT): 0.5,
        (TLS, "kafka"): 1.0,
    },
    "commits": {(RULES, PLAINTEXT): 0.95},
}
DELAYS = {"T4": ("p50", 0.75), "T5": ("p99", 0.75)}  # beside Kafka, with rules and quotas


class Figures:
    """What each way has given, in the order of the turns."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], list[float]] = {}

    def add(self, way: Way, figure: str, value: float) -> None:
        self._values.setdefault((way.name, figure), []).append(value)

    def get(self, way: str, figure: str) -> list[float]:
        return self._values.get((way, figure), [])


def run(bench: Bench) -> None:
    with _ways(bench) as ways:
        bench.say("warming up")
        for broker in dict.fromkeys(way.broker for way in ways):
            create_topic(broker, "first")
        for way in ways:
            secured.wait_until_allowed(partial(generators.ping_pong, way, "first", 1, 1, login=way.login))
            create_topic(way.broker, "warm-up")
            _warm_up(bench, way)
            delete_topic(way.broker, "warm-up")
        figures = Figures()
        _produce(bench, ways, figures)
        _consume(bench, ways, figures)
        for row, connections, requests in (("T4", 1, 30_000), ("T5", 50, 150_000)):
            _ping_pong(bench, ways, figures, row, connections, requests)
        ours = [way for way in ways if way.name in (PLAINTEXT, _named(RULES, "headrace"))]
        for connections in (1, 10):
            _commit(bench, ours, figures, connections)
    _tell(bench, figures)
    if "headrace" in bench.kinds:
        _idle_connections(bench)


def _named(way: str, kind: str) -> str:
    return f"{way}, {kind}"


@contextmanager
def _ways(bench: Bench) -> Iterator[list[Way]]:
    with ExitStack() as running:
        ways = []
        directory = running.enter_context(bench.directory())
        bench.say(f"starting headrace, {PLAINTEXT}")
        plain = running.enter_context(Headrace(directory, SETTINGS))
        ways.append(Way(PLAINTEXT, plain, plain.bootstrap, generators.NOBODY))
        for name, broker_kind in bench.kinds.items():
            directory = running.enter_context(bench.directory())
            bench.say(f"starting {name}, with security")
            made = _secured(running, broker_kind, directory)
            for listener, way, login in (
                ("LOGIN", RULES, made.without_tls),
                ("SECURE", TLS, made.with_tls),
            ):
                bootstrap = f"127.0.0.1:{made.ports[listener]}"
                ways.append(Way(_named(way, name), made.broker, bootstrap, login))
        yield ways


def _secured(running: ExitStack, kind: type[Broker], directory: Path) -> Secured:
    made = secured.make(kind, directory, SETTINGS)
    running.enter_context(made.broker)
    secured.prepare(made, TOPICS, GROUPS)
    return made


def _warm_up(bench: Bench, way: Way) -> None:
    generators.produce(way, "warm-up", bench.amount(400_000), 1000, login=way.login)
    generators.consume(way, "warm-up", bench.amount(400_000), 1000, login=way.login)
    generators.ping_pong(way, "warm-up", bench.amount(30_000), 10, login=way.login)


# --- the loads -------------------------------------------------------------------------------------------


def _produce(bench: Bench, ways: list[Way], figures: Figures) -> None:
    count = bench.amount(1_000_000)

    def take(way: Way) -> str:
        create_topic(way.broker, "T1")
        touch_memory(count * 1000)
        told, used = _used(way, lambda: generators.produce(way, "T1", count, 1000, login=way.login))
        delete_topic(way.broker, "T1")
        figures.add(way, "T1", told["mb_per_s"])
        figures.add(way, "T1 CPU", used / (count * 1000 / 1e9))
        return f"{told['mb_per_s']:.0f} MB/s, {used / (count * 1000 / 1e9):.2f} s of CPU per GB"

    bench.turns(ways, "sec T1", take)


def _consume(bench: Bench, ways: list[Way], figures: Figures) -> None:
    count = bench.amount(2_000_000)
    for broker in dict.fromkeys(way.broker for way in ways):
        create_topic(broker, "T3")
        generators.produce(broker, "T3", count, 1000)

    def take(way: Way) -> str:
        told, used = _used(way, lambda: generators.consume(way, "T3", count, 1000, login=way.login))
        figures.add(way, "T3", told["mb_per_s"])
        figures.add(way, "T3 CPU", used / (count * 1000 / 1e9))
        return f"{told['mb_per_s']:.0f} MB/s, {used / (count * 1000 / 1e9):.2f} s of CPU per GB"

    bench.turns(ways, "sec T3", take)
    for broker in dict.fromkeys(way.broker for way in ways):
        delete_topic(broker, "T3")


def _ping_pong(
    bench: Bench, ways: list[Way], figures: Figures, row: str, connections: int, requests: int
) -> None:
    count = bench.amount(requests)
    for broker in dict.fromkeys(way.broker for way in ways):
        create_topic(broker, row)

    def take(way: Way) -> str:
        told, used = _used(way, lambda: generators.ping_pong(way, row, count, connections, login=way.login))
        figures.add(way, row, told["requests_per_s"])
        figures.add(way, f"{row} CPU", used / count * 1e6)
        for quantile in ("p50", "p99"):
            figures.add(way, f"{row} {quantile}", told[f"{quantile}_us"])
        delays = f"p50 {told['p50_us']:.0f} µs, p99 {told['p99_us']:.0f} µs"
        return f"{told['requests_per_s']:,.0f} requests/s, {delays}, {used / count * 1e6:.1f} µs of CPU each"

    bench.turns(ways, f"sec {row}", take)


def _commit(bench: Bench, ways: list[Way], figures: Figures, connections: int) -> None:
    """Of one offset."""
    count = bench.amount(20_000) * (1 if connections == 1 else 2)
    with bench.directory() as place:
        for way in ways:
            if connections == 1:
                create_topic(way.broker, "coordination")
            with Desk(way.broker) as desk:
                members = [desk.join(f"{GROUPS}{connections}-{number}") for number in range(connections)]
            made = [[exchanges.commit(member, "coordination", 1, offset=7)] for member in members]
            exchanges.write(place / way.name, made)
            generators.frames(way, place / way.name, count // 4, login=way.login)

        def take(way: Way) -> str:
            told, used = _used(way, lambda: generators.frames(way, place / way.name, count, login=way.login))
            figures.add(way, f"commits {connections}", told["requests_per_s"])
            figures.add(way, f"commits {connections} CPU", used / count * 1e6)
            return f"{told['requests_per_s']:,.0f} commits/s, {used / count * 1e6:.1f} µs of CPU each"

        bench.turns(ways, f"sec commits {connections}", take)


def _used(way: Way, load: Callable[[], generators.Figures]) -> tuple[generators.Figures, float]:
    """What the load tells, and the broker's seconds of CPU meanwhile. Its logins are among them: 50 of them
    take some 30 ms of Headrace's.
    """
    before = cpu_seconds(way.broker)
    told = load()
    return told, cpu_seconds(way.broker) - before


# --- the table -------------------------------------------------------------------------------------------


def _tell(bench: Bench, figures: Figures) -> None:
    rows = [
        ("T1", "T1", "MB/s"),
        ("T3", "T3", "MB/s"),
        ("T4", "T4", "requests/s"),
        ("T5", "T5", "requests/s"),
    ]
    rows += [(f"commits {connections}", "commits", "1/s") for connections in (1, 10)]
    for figure, row, unit in rows:
        for (way, rival), target in AIMS[row].items():
            aim = Aim(way, rival, target)
            _compare(bench, figures, figure, aim, unit, f"{figure} with {aim.way}")
        if row in DELAYS:
            quantile, target = DELAYS[row]
            aim = Aim(RULES, "kafka", target)
            _compare(bench, figures, f"{figure} {quantile}", aim, "µs", f"{figure} {quantile} with {RULES}")
        unit = "s per GB" if row in ("T1", "T3") else "µs each"
        for way in (RULES, TLS) if row != "commits" else (RULES,):
            aim = Aim(way, PLAINTEXT, 0.0)
            _compare(bench, figures, f"{figure} CPU", aim, unit, f"{figure} with {way}, broker CPU")


def _compare(bench: Bench, figures: Figures, figure: str, aim: Aim, unit: str, what: str) -> None:
    is_rate = unit in ("MB/s", "requests/s", "1/s")
    target = {"ratio_target": aim.target} if aim.target else {}
    measure = bench.measure("sec", what, unit, higher_is_better=is_rate, rival=aim.rival, **target)
    rival = _named(aim.way, "kafka") if aim.rival == "kafka" else aim.rival
    for value in figures.get(_named(aim.way, "headrace"), figure):
        measure.add("headrace", value)
    for value in figures.get(rival, figure):
        measure.add(aim.rival, value)


# --- idle connections ------------------------------------------------------------------------------------


def _idle_connections(bench: Bench) -> None:
    """How much memory of the broker a TLS connection takes that has logged in and asks for nothing."""
    measure = bench.measure(
        "sec", "memory of an idle TLS connection", "KB", higher_is_better=False, limit=IDLE_LIMIT_KB
    )
    with ExitStack() as running:
        directory = running.enter_context(bench.directory())
        made = _secured(running, bench.kinds["headrace"], directory)
        open_ones = [_connected(made) for _ in range(IDLE_CONNECTIONS // 10)]  # what is loaded only once
        sizes = []
        for _ in range(bench.repeats):
            before = _settled(made.broker)
            open_ones += [_connected(made) for _ in range(IDLE_CONNECTIONS)]
            sizes.append((_settled(made.broker) - before) * 1000 / IDLE_CONNECTIONS)
            measure.add("headrace", sizes[-1])
        bench.say(f"sec  idle TLS connection: {', '.join(f'{size:.1f}' for size in sizes)} KB")
        for one in open_ones:
            one.close()


def _settled(broker: Broker) -> float:
    """MB, once it does not change any more."""
    time.sleep(1.0)
    return statistics.median(resident_mb(broker) for _ in range(3))


def _connected(made: Secured) -> MessageSocket:
    context = ssl.create_default_context(cafile=str(made.with_tls.authority))
    client = MessageSocket(made.ports["SECURE"])
    client.socket = context.wrap_socket(client.socket, server_hostname="127.0.0.1")
    secured.log_in(client, Scram("SCRAM-SHA-256", made.with_tls.user, made.with_tls.password))
    return client
