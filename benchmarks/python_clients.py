"""T12: Python clients against the same broker, Headrace's, in turns: records of 100 bytes, one partition.

confluent-kafka is the one to compare with; aiokafka and kafka-python stand beside it. Each turn is a process
of its own (`benchmarks.client_loads`), and takes about a second or two.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

from benchmarks import generators
from benchmarks.bench import Bench, cpu_seconds, create_topic, delete_topic
from benchmarks.report import Measure
from benchmarks.throughput import SETTINGS
from harness.broker import Broker

RECORD_BYTES = 100
TIMEOUT_S = 120

# How many records a turn has: so many that the start of a client hardly counts, and slow ones end.
COUNTS = {
    ("confluent-kafka", "send"): 1_500_000,
    ("headrace", "send"): 1_500_000,
    ("headrace", "send_arrow"): 4_000_000,
    ("headrace.aio", "send"): 1_000_000,
    ("aiokafka", "send"): 150_000,
    ("kafka-python", "send"): 60_000,
    ("confluent-kafka", "read"): 1_500_000,
    ("headrace", "read"): 2_500_000,
    ("headrace", "read_arrow"): 5_000_000,
    ("headrace.aio", "read"): 1_500_000,
    ("aiokafka", "read"): 400_000,
    ("kafka-python", "read"): 80_000,
}


@dataclass
class Contest:
    """One of our clients beside one of the others."""

    what: str
    ours: tuple[str, str]
    rival: tuple[str, str]
    ratio_target: float | None = None


CONTESTS = (
    Contest("send", ("headrace", "send"), ("confluent-kafka", "send"), 1.0),
    Contest("send", ("headrace", "send"), ("kafka-python", "send")),
    Contest("send, asyncio", ("headrace.aio", "send"), ("aiokafka", "send")),
    Contest("send_arrow", ("headrace", "send_arrow"), ("confluent-kafka", "send"), 5),
    Contest("poll", ("headrace", "read"), ("confluent-kafka", "read"), 2.5),
    Contest("poll", ("headrace", "read"), ("kafka-python", "read")),
    Contest("poll, asyncio", ("headrace.aio", "read"), ("aiokafka", "read")),
    Contest("poll_arrow", ("headrace", "read_arrow"), ("confluent-kafka", "read"), 7),
)


def run(bench: Bench) -> None:
    if "headrace" not in bench.kinds:
        return
    if len(bench.headraces()) > 1:
        _beside_earlier(bench)
    else:
        _beside_rivals(bench)


def _beside_earlier(bench: Bench) -> None:
    """Our client of this commit and of an earlier one, in turns, both with the broker of this commit."""
    loads = [load for load in COUNTS if load[0].startswith("headrace")]
    rates = {load: bench.measure("T12", " ".join(load), "records/s") for load in loads}
    costs = {
        load: bench.measure("T12", f"{' '.join(load)}, CPU per million", "s", higher_is_better=False)
        for load in loads
    }
    kinds = bench.headraces()
    with bench.only("headrace", SETTINGS) as broker:
        create_topic(broker, "read")
        generators.produce(broker, "read", bench.amount(max(COUNTS.values())), RECORD_BYTES)
        for repeat in range(bench.repeats):
            for load in loads:
                for kind, environment in kinds if repeat % 2 == 0 else reversed(kinds):
                    figures, told = _turn(bench, broker, load, environment)
                    rates[load].add(kind, figures["records_per_s"])
                    costs[load].add(kind, figures["cpu_s_per_million"])
                    bench.say(f"T12  {' '.join(load):24} {kind:8} {repeat + 1}/{bench.repeats}  {told}")


def _beside_rivals(bench: Bench) -> None:
    measures = [_measures(bench, contest) for contest in CONTESTS]
    with bench.only("headrace", SETTINGS) as broker:
        count = bench.amount(max(COUNTS.values()))
        create_topic(broker, "read")
        generators.produce(broker, "read", count, RECORD_BYTES)
        for repeat in range(bench.repeats):
            for load in COUNTS:
                figures, told = _turn(bench, broker, load)
                for contest, (rate, cost) in zip(CONTESTS, measures, strict=True):
                    for name, its_load in (("headrace", contest.ours), (contest.rival[0], contest.rival)):
                        if its_load == load:
                            rate.add(name, figures["records_per_s"])
                            cost.add(name, figures["cpu_s_per_million"])
                bench.say(f"T12  {' '.join(load):24} {repeat + 1}/{bench.repeats}  {told}")


def _measures(bench: Bench, contest: Contest) -> tuple[Measure, Measure]:
    rival = contest.rival[0]
    rate = bench.measure("T12", contest.what, "records/s", ratio_target=contest.ratio_target, rival=rival)
    cost = bench.measure("T12", "client CPU per million", "s", higher_is_better=False, rival=rival)
    return rate, cost


def _turn(
    bench: Bench, broker: Broker, load: tuple[str, str], environment: dict[str, str] | None = None
) -> tuple[dict[str, float], str]:
    client, work = load
    count = bench.amount(COUNTS[load])
    is_reading = work.startswith("read")
    topic = "read" if is_reading else "sent"
    if not is_reading:
        create_topic(broker, topic)
    before = cpu_seconds(broker)
    command = [
        sys.executable,
        "-m",
        "benchmarks.client_loads",
        client,
        work,
        broker.bootstrap,
        topic,
        str(count),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
    figures: dict[str, float] = json.loads(done.stdout)
    broker_cpu = (cpu_seconds(broker) - before) / count * 1e6
    if not is_reading:
        delete_topic(broker, topic)
    rate, cost = figures["records_per_s"], figures["cpu_s_per_million"]
    return figures, f"{rate:,.0f} records/s, CPU per million: client {cost:.2f} s, broker {broker_cpu:.2f} s"
