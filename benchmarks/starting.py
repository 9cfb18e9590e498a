"""T8: from nothing to the first acknowledged write. T10: back after kill -9, with much on the disk."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import ExitStack

from benchmarks import earlier, generators
from benchmarks.bench import Bench, create_topic
from benchmarks.report import Measure
from harness import wire
from harness.broker import Broker
from harness.headrace import Headrace
from harness.kafka import free_ports

START_TIMEOUT_S = 120
PARTITIONS = 100
SEGMENT_BYTES = 64 << 20


def first_write(bench: Bench) -> None:
    limits = {"serve": 0.4, "up": 0.6}
    for command, limit in limits.items():
        measure = bench.measure(
            "T8", f"start → first acknowledged write, {command}", "s", higher_is_better=False, limit=limit
        )
        kinds = [
            kind for kind, broker in bench.kinds.items() if command == "serve" or issubclass(broker, Headrace)
        ]
        for repeat in range(bench.repeats):
            for kind in kinds if repeat % 2 == 0 else reversed(kinds):
                with bench.directory() as path:
                    broker = bench.kinds[kind](path)
                    seconds = _serve(broker) if command == "serve" else _up(broker)
                measure.add(kind, seconds)
                bench.say(f"T8  {kind:8} {command} {repeat + 1}/{bench.repeats}  {seconds:.3f} s")


def _serve(broker: Broker) -> float:
    """`serve` on a new directory; Kafka's time includes formatting it."""
    if isinstance(broker, Headrace):
        (broker.port,) = free_ports(1)
    broker.write_settings()
    began = time.monotonic()
    with (broker.directory / "output.txt").open("wb") as output:
        broker.process = broker.spawn(output)
    try:
        return _until_written(broker.port) - began
    finally:
        broker.kill()


def _up(broker: Broker) -> float:
    assert isinstance(broker, Headrace)
    (port,) = free_ports(1)
    began = time.monotonic()
    with (broker.directory / "output.txt").open("wb") as output:
        command = [*broker.command, "up", "--data", str(broker.data), "--port", str(port)]
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=broker.environment)
    try:
        return _until_written(port) - began
    finally:
        process.terminate()
        process.wait()


def _until_written(port: int) -> float:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not wire.first_acknowledged_write("127.0.0.1", port, "first"):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no write within {START_TIMEOUT_S} s")
        time.sleep(0.001)
    return time.monotonic()


def restart(bench: Bench) -> None:
    """Beside Kafka the brokers take whole turns, since one's data alone fills the page cache; beside an
    earlier commit single ones, for which a smaller `--scale` is meant.
    """
    sizes = [gb * bench.scale for gb in (2, 20)]
    measures = {
        size: bench.measure(
            "T10",
            f"restart after kill -9, {size:g} GB in {PARTITIONS} partitions",
            "s",
            higher_is_better=False,
            limit=1.0,
        )
        for size in sizes
    }
    rounds = [list(bench.kinds)] if earlier.NAME in bench.kinds else [[kind] for kind in bench.kinds]
    for kinds in rounds:
        with bench.directory() as path, ExitStack() as running:
            brokers = [running.enter_context(bench.kinds[kind](path / kind)) for kind in kinds]
            for broker in brokers:
                create_topic(broker, "T10", PARTITIONS, segment_bytes=str(SEGMENT_BYTES))
            written = 0.0
            for size in sizes:
                for broker in brokers:
                    _fill(bench, broker, size - written)
                written = size

                def take(broker: Broker, measure: Measure = measures[size]) -> str:
                    seconds = _kill_and_restart(broker)
                    measure.add(broker.name, seconds)
                    return f"{seconds:.3f} s"

                bench.turns(brokers, f"T10  {size:g} GB", take)


def _fill(bench: Bench, broker: Broker, gigabytes: float) -> None:
    count = int(gigabytes * 1e9 / 10_000)
    figures = generators.produce(broker, "T10", count, 10_000, "batch.size=200000", partition=-PARTITIONS)
    os.sync()  # the disk's backlog is not part of a restart
    bench.say(f"T10  {broker.name:8} wrote {gigabytes:g} GB at {figures['mb_per_s']:.0f} MB/s")


def _kill_and_restart(broker: Broker) -> float:
    """Until every partition takes a write again: the last one is asked, with all leaders known."""
    # a write just before the kill, so that there is a tail to look at
    generators.produce(broker, "T10", 1000, 1000, partition=-PARTITIONS)
    broker.kill()
    broker.write_settings()  # the port that the first start was given
    began = time.monotonic()
    with (broker.directory / "output.txt").open("ab") as output:
        broker.process = broker.spawn(output)
    deadline = began + START_TIMEOUT_S
    while not _all_written(broker.port):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{broker.name} is not back within {START_TIMEOUT_S} s")
        time.sleep(0.005)
    return time.monotonic() - began


def _all_written(port: int) -> bool:
    try:
        with wire.Connection("127.0.0.1", port) as connection:
            return all(connection.produce_one("T10", b"back", p) == 0 for p in range(PARTITIONS))
    except OSError:
        return False
