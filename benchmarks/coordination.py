"""G1–G4, groups: heartbeats, commits, loading. X1 and X2, transactions: of 100 records, and empty ones.

Heartbeats, commits and empty transactions are raw frames over one and over several connections, each a group
or a transactional id of its own; transactions with records are librdkafka's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from confluent_kafka import Producer

from benchmarks import exchanges, generators
from benchmarks.bench import WAIT_S, Bench, cpu_seconds, create_topic
from benchmarks.exchanges import Desk, Exchange
from benchmarks.report import Measure
from harness import wire
from harness.broker import Broker

ROWS = {"G1", "G2", "G3", "X1", "X2"}  # measured on one pair of warm brokers
TOPIC, PARTITIONS = "coordination", 100
CONNECTIONS = (1, 10)
OFFSETS = 1_000_000
LOAD_LIMIT_S = 1.5
WARM_UP = 0.25  # of a turn

Make = Callable[[Desk, int, int], list[Exchange]]  # for which connection, of how many


def _heartbeat(desk: Desk, connection: int, connections: int) -> list[Exchange]:
    return [exchanges.heartbeats(desk.join(f"heartbeats-{connections}-{connection}"))]


def _commit(partitions: int) -> Make:
    def made(desk: Desk, connection: int, connections: int) -> list[Exchange]:
        member = desk.join(f"commits-of-{partitions}-{connections}-{connection}")
        return [exchanges.commit(member, TOPIC, partitions, offset=7)]

    return made


def _empty_transaction(desk: Desk, connection: int, connections: int) -> list[Exchange]:
    producer = desk.begin(f"empty-{connections}-{connection}")
    return exchanges.empty_transaction(producer, TOPIC, connection)


def run(bench: Bench, rows: set[str]) -> None:
    with bench.brokers() as brokers:
        for broker in brokers:
            create_topic(broker, TOPIC, PARTITIONS)
        if "G1" in rows:
            _raw(bench, brokers, "G1", "heartbeats", 40_000, _heartbeat, ratios=(1.2, 1.2))
        if "G2" in rows:
            _raw(bench, brokers, "G2", "commits of 1 offset", 20_000, _commit(1), ratios=(1.2, 1.2))
        if "G3" in rows:
            _raw(bench, brokers, "G3", "commits of 100 offsets", 4_000, _commit(100), ratios=(1.0, 1.0))
        if "X1" in rows:
            _transactions(bench, brokers)
        if "X2" in rows:
            what, ratios = "empty transactions", (2.0, 1.0)
            _raw(bench, brokers, "X2", what, 4_000, _empty_transaction, ratios=ratios, requests_each=2)


def _raw(
    bench: Bench,
    brokers: list[Broker],
    row: str,
    what: str,
    count: int,
    make: Make,
    *,
    ratios: tuple[float, float],
    requests_each: int = 1,
) -> None:
    for connections, ratio in zip(CONNECTIONS, ratios, strict=True):
        kind = "connection" if connections == 1 else "connections"
        rate = bench.measure(row, f"{what}, {connections} {kind}", "1/s", ratio_target=ratio)
        cost = bench.measure(row, "broker CPU each", "µs", higher_is_better=False)
        total = bench.amount(count) * (1 if connections == 1 else 2)
        with bench.directory() as place:
            for broker in brokers:
                with Desk(broker) as desk:
                    made = [make(desk, number, connections) for number in range(connections)]
                exchanges.write(place / broker.name, made)
                generators.frames(broker, place / broker.name, int(total * WARM_UP) * requests_each)
            turn = partial(_turn, rate, cost, place, total, requests_each)
            bench.turns(brokers, f"{row} {connections}", turn)


def _turn(rate: Measure, cost: Measure, place: Path, total: int, requests_each: int, broker: Broker) -> str:
    before = cpu_seconds(broker)
    figures = generators.frames(broker, place / broker.name, total * requests_each)
    used = (cpu_seconds(broker) - before) / total * 1e6
    per_s = figures["requests_per_s"] / requests_each
    rate.add(broker.name, per_s)
    cost.add(broker.name, used)
    delays = f"p50 {figures['p50_us']:.0f} µs, p99 {figures['p99_us']:.0f} µs a request"
    asked_again = f", {figures['retries']:.0f} asked again" if figures["retries"] else ""
    return f"{per_s:,.0f}/s, {delays}, {used:.0f} µs of CPU each{asked_again}"


def _transactions(bench: Bench, brokers: list[Broker]) -> None:
    rate = bench.measure("X1", "transactions of 100 records, librdkafka", "1/s", ratio_target=2.0)
    cost = bench.measure("X1", "broker CPU each", "µs", higher_is_better=False)
    count = bench.amount(1_000)
    producers = {broker.name: _transactional(broker) for broker in brokers}
    for producer in producers.values():
        _write(producer, int(count * WARM_UP))

    def take(broker: Broker) -> str:
        before = cpu_seconds(broker)
        per_s = count / _write(producers[broker.name], count)
        used = (cpu_seconds(broker) - before) / count * 1e6
        rate.add(broker.name, per_s)
        cost.add(broker.name, used)
        return f"{per_s:,.0f} transactions/s, {used:.0f} µs of CPU each"

    bench.turns(brokers, "X1", take)


def _transactional(broker: Broker) -> Producer:
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "transactional.id": "X1",
        "linger.ms": 0,
        "log_level": 2,
    }
    producer = Producer(settings)
    producer.init_transactions(WAIT_S)
    return producer


def _write(producer: Producer, transactions: int) -> float:
    value = bytes(100)
    began = time.monotonic()
    for _ in range(transactions):
        producer.begin_transaction()
        for _ in range(100):
            producer.produce(TOPIC, value, partition=0)
        producer.commit_transaction(WAIT_S)
    return time.monotonic() - began


def load(bench: Bench) -> None:
    """G4: all offsets lie in one partition, so that one coordinator has to load them all at once."""
    count = bench.amount(OFFSETS)
    groups = count // PARTITIONS
    loaded = bench.measure(
        *("G4", f"load of {count:,} offsets, ready → answered", "s"),
        higher_is_better=False,
        limit=LOAD_LIMIT_S,
    )
    whole = bench.measure("G4", "start → answered", "s", higher_is_better=False)
    for kind in bench.kinds:
        with bench.only(kind, {"offsets.topic.num.partitions": "1"}) as broker:
            _fill(broker, groups)
            for repeat in range(bench.repeats):
                ready, answered = _killed_and_loaded(broker, groups)
                loaded.add(kind, answered - ready)
                whole.add(kind, answered)
                told = f"ready after {ready:.2f} s, answered after {answered:.2f} s"
                bench.say(f"G4  {kind:8} {repeat + 1}/{bench.repeats}  {told}")


def _fill(broker: Broker, groups: int) -> None:
    create_topic(broker, TOPIC, PARTITIONS)
    with Desk(broker) as desk:
        desk.coordinator("load-0")
        desk.committed("load-0")
    nobody = [exchanges.Member(f"load-{number}", "", -1) for number in range(groups)]
    file = broker.directory / "frames"
    commits = [exchanges.commit(member, TOPIC, PARTITIONS, offset=7) for member in nobody]
    exchanges.write(file, [commits[start::4] for start in range(4)])
    generators.frames(broker, file, groups)


def _killed_and_loaded(broker: Broker, groups: int) -> tuple[float, float]:
    """Seconds from the start until the broker serves, and until the last group's offsets are told."""
    broker.kill()
    broker.write_settings()
    began = time.monotonic()
    with (broker.directory / "output.txt").open("ab") as output:
        broker.process = broker.spawn(output)
    while not wire.has_live_broker("127.0.0.1", broker.port):
        if time.monotonic() - began > WAIT_S:
            raise TimeoutError(f"{broker.name} is not back within {WAIT_S} s")
        time.sleep(0.005)
    ready = time.monotonic() - began
    told: dict[tuple[str, int], int] = {}
    while len(told) < PARTITIONS:  # just after its start Kafka may answer that it knows of nothing
        if time.monotonic() - began > WAIT_S:
            raise TimeoutError(f"{broker.name} tells {len(told)} offsets after {WAIT_S} s")
        with Desk(broker) as desk:
            desk.coordinator("load-0")
            told = desk.committed(f"load-{groups - 1}")
    answered = time.monotonic() - began
    assert set(told.values()) == {7}
    return ready, answered
