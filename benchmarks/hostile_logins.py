"""logins: 2,000 strangers a second at a broker, and what a well-behaved client notices.

Wrong passwords, tokens with unknown keys, messages, tokens and TLS handshakes that were mutated, and
handshakes that stop at some byte (`attack.go`). For each kind: the p99 of the bystander, which writes one
record after the other by another listener, beside them; alone just before; and while they come to a second
broker, of which the bystander notices only that the machine is busy. And how much the broker's memory grows.
Only Headrace is measured.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks import generators, secured
from benchmarks.bench import Bench, cpu_seconds, create_topic, resident_mb
from benchmarks.bystander_bench import p99
from benchmarks.secured import Secured
from chaos.bystander import TOPIC, Bystander
from harness.broker import Broker
from harness.tokens import Key, key_set

PER_SECOND = 2000
SECONDS = 5.0  # 10,000 strangers of each kind
P99_LIMIT = 2.0
GROWTH_LIMIT_MB = 20.0
SAMPLE_S = 0.2

# kind of attack.go → what it is, and the listener that it comes to
KINDS = {
    "scram": ("wrong passwords, SCRAM", "LOGIN"),
    "plain": ("wrong passwords, PLAIN", "LOGIN"),
    "hangup": ("wrong passwords, PLAIN, and hung up", "LOGIN"),
    "kid": ("tokens with unknown keys", "LOGIN"),
    "token": ("mutated tokens", "LOGIN"),
    "message": ("mutated messages", "LOGIN"),
    "hello": ("mutated TLS handshakes", "SECURE"),
    "slow": ("TLS handshakes that stop", "SECURE"),
}
SLOW_PER_SECOND = 200  # each stays for ten seconds


def run(bench: Bench) -> None:
    ratios = {
        kind: bench.measure(
            "logins",
            f"{what}: p99, of that beside another broker",
            "×",
            higher_is_better=False,
            limit=P99_LIMIT,
        )
        for kind, (what, _) in KINDS.items()
    }
    to_alone = {
        kind: bench.measure("logins", f"{what}: p99, of that alone", "×", higher_is_better=False)
        for kind, (what, _) in KINDS.items()
    }
    growth = bench.measure(
        "logins",
        "growth of the broker, at most",
        "MB",
        higher_is_better=False,
        limit=GROWTH_LIMIT_MB,
    )
    with ExitStack() as running:
        bench.say("starting headrace, with logins, twice")
        made, other = _started(running, bench), _started(running, bench)
        bystander = Bystander(made.broker.port)
        running.callback(bystander.stop)
        bystander.rounds(300)  # until everything is warm
        for kind in KINDS:  # each once before the first: what is loaded when it is needed first
            _attack(made, kind, 1.0)
            _attack(other, kind, 1.0)
        time.sleep(2)
        before = resident_mb(made.broker)
        watch = running.enter_context(Watch(made.broker))
        for repeat in range(bench.repeats):
            for kind in KINDS:
                alone_ms = p99(_beside(bystander, lambda: time.sleep(SECONDS)))
                told: list[dict[str, float]] = []
                used = cpu_seconds(made.broker)
                durations_ms = _beside(bystander, partial(_tell, told, made, kind))
                used = cpu_seconds(made.broker) - used
                other_ms = p99(_beside(bystander, partial(_attack, other, kind, SECONDS)))
                ratios[kind].add("headrace", p99(durations_ms) / other_ms)
                to_alone[kind].add("headrace", p99(durations_ms) / alone_ms)
                assert made.broker.is_running, made.broker.output()[-4000:]
                rate = f"{told[0]['per_s']:,.0f} per second, {used / SECONDS:.0%} of a core"
                beside = f"alone {alone_ms:.2f}, attack at another broker {other_ms:.2f}"
                delay = f"p99 {p99(durations_ms):.2f} ms ({beside})"
                more = f"{watch.most_mb - before:.1f} MB more"
                bench.say(f"logins  {kind:8} {repeat + 1}/{bench.repeats}  {rate}; {delay}; {more}")
        growth.add("headrace", watch.most_mb - before)
        assert "internal_error" not in made.broker.output(), made.broker.output()[-4000:]


def _started(running: ExitStack, bench: Bench) -> Secured:
    directory = running.enter_context(bench.directory())
    made = secured.make(bench.kinds["headrace"], directory, _settings(directory))
    running.enter_context(made.broker)
    secured.prepare(made, [TOPIC], "group")
    create_topic(made.broker, TOPIC)
    return made


def _settings(directory: Path) -> dict[str, str]:
    directory.mkdir(parents=True, exist_ok=True)
    keys = directory / "keys.json"
    keys.write_bytes(key_set(Key("key-1", "RS256").public()))
    return {
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
    }


def _tell(told: list[dict[str, float]], made: Secured, kind: str) -> None:
    told.append(_attack(made, kind, SECONDS))


def _attack(made: Secured, kind: str, seconds: float) -> dict[str, float]:
    bootstrap = f"127.0.0.1:{made.ports[KINDS[kind][1]]}"
    rate = SLOW_PER_SECOND if kind == "slow" else PER_SECOND
    options = ["-b", bootstrap, "-kind", kind, "-rate", str(rate), "-seconds", str(seconds)]
    done = subprocess.run([str(generators.built("attack.go")), *options], capture_output=True, check=True)
    told: dict[str, float] = json.loads(done.stdout)
    return told


def _beside(bystander: Bystander, load: Callable[[], object]) -> list[float]:
    """How long the bystander's writes took during the load."""
    bystander.produces(0)
    load()
    return bystander.produces(1)


class Watch:
    """The most memory that a broker has while this is open."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.most_mb = 0.0

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            self.most_mb = max(self.most_mb, resident_mb(self._broker))
