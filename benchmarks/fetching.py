"""F1–F3: one record at a time to readers in fetch sessions: one reader, fifty, and one of many partitions."""

from __future__ import annotations

from benchmarks import generators
from benchmarks.bench import Bench, cpu_seconds, create_topic, delete_topic
from harness.broker import Broker

ROUNDS = 20_000
READERS = 50
PARTITIONS = 2_000
BUSY = 3
GROWTH_MAX = 1.2

ROWS = {"F1", "F2", "F3"}


def run(bench: Bench, rows: set[str]) -> None:
    with bench.brokers() as brokers:
        bench.say("warming up")
        for broker in brokers:
            create_topic(broker, "warm-up")
            generators.fetching(broker, "warm-up", bench.amount(ROUNDS))
            generators.fetching(broker, "warm-up", bench.amount(ROUNDS), waits=True)
            delete_topic(broker, "warm-up")
        if "F1" in rows:
            _one_reader(bench, brokers)
        if "F2" in rows:
            _many_readers(bench, brokers)
        if "F3" in rows:
            _many_partitions(bench, brokers)


def _one_reader(bench: Bench, brokers: list[Broker]) -> None:
    """Write, then read: the time of the fetch alone; and a fetch that waits for the record."""
    _read_one(bench, brokers, "fetch of a record that is there, p50", waits=False)
    _read_one(bench, brokers, "write → waiting reader, p50", waits=True)


def _read_one(bench: Bench, brokers: list[Broker], what: str, *, waits: bool) -> None:
    time = bench.measure("F1", what, "µs", higher_is_better=False, ratio_target=1.0)

    def take(broker: Broker) -> str:
        create_topic(broker, "F1")
        figures = generators.fetching(broker, "F1", bench.amount(ROUNDS), waits=waits)
        delete_topic(broker, "F1")
        time.add(broker.name, figures["p50_us"])
        return f"p50 {figures['p50_us']:.0f} µs, p99 {figures['p99_us']:.0f} µs"

    bench.turns(brokers, "F1", take)


def _many_readers(bench: Bench, brokers: list[Broker]) -> None:
    time = bench.measure(
        "F2", f"write → the last of {READERS} readers, p50", "µs", higher_is_better=False, ratio_target=1.0
    )
    cost = bench.measure("F2", "broker CPU per answer", "µs", higher_is_better=False)
    rounds = bench.amount(ROUNDS) // 10

    def take(broker: Broker) -> str:
        create_topic(broker, "F2")
        before = cpu_seconds(broker)
        figures = generators.fetching(broker, "F2", rounds, readers=READERS, waits=True)
        used = (cpu_seconds(broker) - before) / (rounds * READERS) * 1e6
        delete_topic(broker, "F2")
        time.add(broker.name, figures["p50_us"])
        cost.add(broker.name, used)
        return f"p50 {figures['p50_us']:.0f} µs, p99 {figures['p99_us']:.0f} µs, {used:.1f} µs of CPU each"

    bench.turns(brokers, "F2", take)


def _many_partitions(bench: Bench, brokers: list[Broker]) -> None:
    """The same three records in a session of three partitions and in one of two thousand."""
    time = bench.measure(
        "F3",
        f"fetch of {BUSY} records in {PARTITIONS} partitions, p50",
        "µs",
        higher_is_better=False,
        ratio_target=1.0,
    )
    growth = bench.measure(
        "F3", f"that, compared with {BUSY} partitions", "×", higher_is_better=False, limit=GROWTH_MAX
    )
    rounds = bench.amount(ROUNDS) // 10

    def take(broker: Broker) -> str:
        p50 = []
        for partitions in (BUSY, PARTITIONS):
            create_topic(broker, "F3", partitions)
            figures = generators.fetching(broker, "F3", rounds, partitions=partitions, busy=BUSY)
            delete_topic(broker, "F3")
            p50.append(figures["p50_us"])
        time.add(broker.name, p50[1])
        growth.add(broker.name, p50[1] / p50[0])
        return f"p50 {p50[0]:.0f} µs of {BUSY} partitions, {p50[1]:.0f} µs of {PARTITIONS}"

    bench.turns(brokers, "F3", take)
