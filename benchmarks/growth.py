"""T17: what a one-partition produce and fetch cost as partitions and bytes grow; flat is the target."""

from __future__ import annotations

import os

from benchmarks import generators
from benchmarks.bench import Bench, create_topic
from benchmarks.report import Measure
from harness.broker import Broker

PARTITIONS = (1, 10, 100, 1000)
GIGABYTES = (0.1, 1.0, 10.0)
GROWTH_MAX = 1.2
REQUESTS = 20_000


def run(bench: Bench) -> None:
    for kind in bench.kinds:
        _partitions(bench, kind)
        _bytes(bench, kind)


def _partitions(bench: Bench, kind: str) -> None:
    """Topics are added until the broker has that many partitions; the one asked is always the first."""
    costs: dict[str, list[float]] = {"produce": [], "fetch": []}
    with bench.only(kind) as broker:
        create_topic(broker, "first")
        generators.produce(broker, "first", 100_000, 1000, "batch.size=65536")
        generators.ping_pong(broker, "first", REQUESTS, 1)
        have = 1
        for wanted in PARTITIONS:
            if wanted > have:
                create_topic(broker, f"more-{wanted}", wanted - have)
                have = wanted
            _cost(bench, broker, costs, 100_000, f"{wanted} partitions")
    _judge(bench, kind, costs, f"{PARTITIONS[0]} → {PARTITIONS[-1]} partitions")


def _bytes(bench: Bench, kind: str) -> None:
    costs: dict[str, list[float]] = {"produce": [], "fetch": []}
    with bench.only(kind) as broker:
        create_topic(broker, "first")
        have = 0
        for gigabytes in GIGABYTES:
            wanted = int(gigabytes * bench.scale * 1e6)
            generators.produce(broker, "first", wanted - have, 1000, "batch.size=65536")
            have = wanted
            os.sync()  # or the kernel, still writing gigabytes back, would slow every append down
            _cost(bench, broker, costs, have, f"{gigabytes * bench.scale:g} GB")
    first, last = GIGABYTES[0] * bench.scale, GIGABYTES[-1] * bench.scale
    _judge(bench, kind, costs, f"{first:g} → {last:g} GB in the partition")


def _cost(bench: Bench, broker: Broker, costs: dict[str, list[float]], end: int, where: str) -> None:
    """The median latency, the best of the repeats: noise only ever adds."""
    turns = range(bench.repeats)
    produce = min(generators.ping_pong(broker, "first", REQUESTS, 1)["p50_us"] for _ in turns)
    fetch = min(generators.ping_pong(broker, "first", REQUESTS, 1, fetch_below=end)["p50_us"] for _ in turns)
    costs["produce"].append(produce)
    costs["fetch"].append(fetch)
    bench.say(f"T17  {broker.name:8} {where}: produce {produce:.0f} µs, fetch {fetch:.0f} µs")


def _judge(bench: Bench, kind: str, costs: dict[str, list[float]], over: str) -> None:
    for what, medians in costs.items():
        measure = _measure(bench, f"{what} p50, growth over {over}")
        measure.add(kind, medians[-1] / medians[0])


def _measure(bench: Bench, what: str) -> Measure:
    for measure in bench.measures:
        if (measure.row, measure.what) == ("T17", what):
            return measure
    return bench.measure("T17", what, "×", higher_is_better=False, limit=GROWTH_MAX)
