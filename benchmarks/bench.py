"""One run of the benchmarks: which brokers take part, how often, and the turns they take.

Every row is a function of a `Bench`. It starts brokers of each kind through it, in directories that are
removed afterwards, and measures them in turns (A B A B A B): what the machine does meanwhile hits both.
"""

from __future__ import annotations

import mmap
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.report import Measure
from harness.broker import CACHE, Broker
from harness.headrace import Headrace
from harness.kafka import Kafka

KINDS: dict[str, type[Broker]] = {"headrace": Headrace, "kafka": Kafka}
WAIT_S = 120
MADV_POPULATE_WRITE = 23  # Linux 5.14; the module mmap has no name for it


class Named(Protocol):
    """A broker, or a cluster of them."""

    name: str


N = TypeVar("N", bound=Named)


class Bench:
    def __init__(self, kinds: dict[str, type[Broker]], repeats: int, scale: float) -> None:
        self.kinds = kinds
        self.repeats = repeats
        self.scale = scale  # of the amounts of work; 1 is what the targets speak of
        self.measures: list[Measure] = []
        self._began = time.monotonic()

    def say(self, what: str) -> None:
        print(f"{time.monotonic() - self._began:6.0f} s  {what}", file=sys.stderr, flush=True)

    def measure(self, row: str, what: str, unit: str, **target: object) -> Measure:
        self.measures.append(Measure(row, what, unit, **target))  # type: ignore[arg-type]
        return self.measures[-1]

    def amount(self, count: int) -> int:
        return max(1000, int(count * self.scale))

    def headraces(self) -> list[tuple[str, dict[str, str] | None]]:
        """This Headrace and an earlier one, if they take part, each with the environment of its loads."""
        return [(name, kind.environment) for name, kind in self.kinds.items() if issubclass(kind, Headrace)]

    @contextmanager
    def directory(self) -> Iterator[Path]:
        """A place on the same disk as the checkout, gone afterwards."""
        place = CACHE / "bench"
        place.mkdir(parents=True, exist_ok=True)
        path = Path(tempfile.mkdtemp(dir=place))
        try:
            yield path
        finally:
            shutil.rmtree(path)

    @contextmanager
    def only(self, kind: str, settings: dict[str, str] | None = None) -> Iterator[Broker]:
        """A running broker of one kind."""
        with self.directory() as path:
            os.sync()  # what earlier rows wrote must not reach the disk during the next ones
            self.say(f"starting {kind}")
            with self.kinds[kind](path, settings) as broker:
                yield broker

    @contextmanager
    def brokers(self, settings: dict[str, str] | None = None) -> Iterator[list[Broker]]:
        """One running broker of each kind."""
        with ExitStack() as running:
            yield [running.enter_context(self.only(kind, settings)) for kind in self.kinds]

    def turns(
        self, brokers: list[N], what: str, take: Callable[[N], str], repeats: int | None = None
    ) -> None:
        """`take` on each broker in turn, as often as the run repeats; it returns what to print.

        Who begins changes with each round: whatever the machine does slowly helps nobody.
        """
        repeats = repeats or self.repeats
        for repeat in range(repeats):
            for broker in brokers if repeat % 2 == 0 else reversed(brokers):
                told = take(broker)
                self.say(f"{what}  {broker.name:8} {repeat + 1}/{repeats}  {told}")


def touch_memory(size: int) -> None:
    """Use so much memory once and free it, so that the page cache of the next turn gets pages that the host
    has given us already: on a virtual machine that returns free memory to its host, the first use of a page
    can cost more than all that the broker does with it.
    """
    with mmap.mmap(-1, size) as memory:
        memory.madvise(MADV_POPULATE_WRITE)


def create_topic(broker: Broker, topic: str, partitions: int = 1, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2})
    config = {key.replace("_", "."): value for key, value in configs.items()}
    new = NewTopic(topic, partitions, 1, config=config)
    admin.create_topics([new], operation_timeout=WAIT_S)[topic].result(WAIT_S)
    while len(admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions) != partitions:
        time.sleep(0.02)


def delete_topic(broker: Broker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2})
    admin.delete_topics([topic], operation_timeout=WAIT_S)[topic].result(WAIT_S)


def family(broker: Broker) -> list[psutil.Process]:
    """The broker's process and whatever it has started."""
    process = psutil.Process(broker.pid)
    return [process, *process.children(recursive=True)]


def cpu_seconds(broker: Broker) -> float:
    return sum(times.user + times.system for times in (one.cpu_times() for one in family(broker)))


def resident_mb(broker: Broker) -> float:
    return sum(one.memory_info().rss for one in family(broker)) / 1e6
