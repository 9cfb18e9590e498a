"""T1–T3 with librdkafka, T4 and T5 with raw requests, T9 beside T1: one partition, default durability."""

from __future__ import annotations

from benchmarks import generators
from benchmarks.bench import Bench, cpu_seconds, create_topic, delete_topic, resident_mb
from harness.broker import Broker

# Deleted segments must leave the disk before the next turn fills it again; Kafka waits a minute by default.
SETTINGS = {"log.segment.delete.delay.ms": "100"}


def run(bench: Bench, rows: set[str]) -> None:
    with bench.brokers(SETTINGS) as brokers:
        if "T9" in rows:
            idle = bench.measure("T9", "resident, idle", "MB", higher_is_better=False, limit=50)
            for broker in brokers:
                idle.add(broker.name, resident_mb(broker))
        bench.say("warming up")
        for broker in brokers:
            create_topic(broker, "warm-up")
            generators.produce(broker, "warm-up", bench.amount(400_000), 1000)
            generators.consume(broker, "warm-up", bench.amount(400_000), 1000)
            generators.ping_pong(broker, "warm-up", bench.amount(30_000), 10)
            delete_topic(broker, "warm-up")
        if rows & {"T1", "T9"}:
            _produce(bench, brokers, "T1", 1_000_000, 1000, "mb_per_s", "MB/s", 1.5)
        if "T9" in rows:
            loaded = bench.measure("T9", "resident, after T1", "MB", higher_is_better=False, limit=120)
            for broker in brokers:
                loaded.add(broker.name, resident_mb(broker))
        if "T2" in rows:
            _produce(bench, brokers, "T2", 5_000_000, 100, "records_per_s", "records/s", 1.2)
        if "T3" in rows:
            _consume(bench, brokers)
        if "T4" in rows:
            _ping_pong(bench, brokers, "T4", 1, 30_000, 1.4, "p50_us")
        if "T5" in rows:
            _ping_pong(bench, brokers, "T5", 50, 150_000, 1.5, "p99_us")


def _produce(
    bench: Bench, brokers: list[Broker], row: str, count: int, size: int, key: str, unit: str, ratio: float
) -> None:
    measure = bench.measure(row, f"produce {size} B, acks=1", unit, ratio_target=ratio)
    cost = bench.measure(row, "broker CPU per GB", "s", higher_is_better=False)

    def take(broker: Broker) -> str:
        create_topic(broker, row)
        before = cpu_seconds(broker)
        figures = generators.produce(broker, row, bench.amount(count), size)
        used = (cpu_seconds(broker) - before) / (bench.amount(count) * size / 1e9)
        delete_topic(broker, row)
        measure.add(broker.name, figures[key])
        cost.add(broker.name, used)
        rates = f"{figures['mb_per_s']:.0f} MB/s, {figures['records_per_s']:,.0f} records/s"
        return f"{rates}, {used:.2f} s of CPU per GB"

    bench.turns(brokers, row, take)


def _consume(bench: Bench, brokers: list[Broker]) -> None:
    rate = bench.measure("T3", "consume 1000 B", "MB/s", ratio_target=1.15)
    cost = bench.measure("T3", "broker CPU per GB", "s", higher_is_better=False, ratio_target=0.9)
    count = bench.amount(2_000_000)
    for broker in brokers:
        create_topic(broker, "T3")
        generators.produce(broker, "T3", count, 1000)

    def take(broker: Broker) -> str:
        before = cpu_seconds(broker)
        figures = generators.consume(broker, "T3", count, 1000)
        used = (cpu_seconds(broker) - before) / (count * 1000 / 1e9)
        rate.add(broker.name, figures["mb_per_s"])
        cost.add(broker.name, used)
        return f"{figures['mb_per_s']:.0f} MB/s, {used:.2f} s of CPU per GB"

    bench.turns(brokers, "T3", take)
    for broker in brokers:
        delete_topic(broker, "T3")


def _ping_pong(
    bench: Bench,
    brokers: list[Broker],
    row: str,
    connections: int,
    requests: int,
    ratio: float,
    quantile: str,
) -> None:
    kind = "connection" if connections == 1 else "connections"
    what = f"1-record produce, {connections} {kind}"
    rate = bench.measure(row, what, "requests/s", ratio_target=ratio)
    judged = quantile.removesuffix("_us")
    delay = bench.measure(row, f"{judged} of these", "µs", higher_is_better=False, ratio_target=0.75)
    cost = bench.measure(row, "broker CPU per request", "µs", higher_is_better=False)
    for broker in brokers:
        create_topic(broker, row)

    def take(broker: Broker) -> str:
        before = cpu_seconds(broker)
        figures = generators.ping_pong(broker, row, bench.amount(requests), connections)
        used = (cpu_seconds(broker) - before) / bench.amount(requests) * 1e6
        rate.add(broker.name, figures["requests_per_s"])
        delay.add(broker.name, figures[quantile])
        cost.add(broker.name, used)
        quantiles = ", ".join(f"{q} {figures[q + '_us']:.0f} µs" for q in ("p50", "p99", "p999"))
        return f"{figures['requests_per_s']:,.0f} requests/s, {quantiles}, {used:.0f} µs of CPU each"

    bench.turns(brokers, row, take)
