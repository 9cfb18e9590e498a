"""T6 and T7: three brokers on this machine, three replicas, acks=all; throughput, latency, and the gap when a
broker is killed.

Clients and brokers have their default settings, apart from the sizes of batches in the throughput rows, which
are those of T1. Killed brokers are started again only when the gap has been measured.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from benchmarks import coordinator_kills, generators
from benchmarks.bench import Bench, cpu_seconds, touch_memory
from benchmarks.report import Measure
from harness.cluster import Cluster

KILLS = 20
PACE_PER_S = 500
PACED_S = 20.0
KILL_PACE_PER_S = 200
IDLE_PARTITIONS = 1000
SETTINGS = {"log.segment.delete.delay.ms": "100"}
WAIT_S = 120
LEADER_MOVES_MAX = 10
LIMITS_S = {"leader": 1.0, "leader that is the active controller": 1.5, "follower": 0.5}


@contextmanager
def clusters(bench: Bench, *kinds: str) -> Iterator[list[Cluster]]:
    """One running cluster of each of these kinds, or of each kind that takes part."""
    with ExitStack() as running:
        made = []
        for kind in kinds or bench.kinds:
            directory = running.enter_context(bench.directory())
            bench.say(f"starting three of {kind}")
            made.append(running.enter_context(Cluster(kind, directory, SETTINGS)))
        yield made


def create_topic(cluster: Cluster, topic: str, partitions: int = 1) -> None:
    admin = cluster.admin()
    admin.create_topics([NewTopic(topic, partitions, 3)], operation_timeout=WAIT_S)[topic].result(WAIT_S)
    cluster.wait(lambda: cluster.in_sync(topic), f"all replicas of {topic}")


def delete_topic(cluster: Cluster, topic: str) -> None:
    admin = cluster.admin()
    admin.delete_topics([topic], operation_timeout=WAIT_S)[topic].result(WAIT_S)


def cpu_of(cluster: Cluster) -> float:
    return sum(cpu_seconds(node) for node in cluster.nodes.values() if node.is_running)


# --- T6 --------------------------------------------------------------------------------------------


def replicated(bench: Bench) -> None:
    with clusters(bench) as running:
        for cluster in running:
            create_topic(cluster, "warm-up")
            generators.produce(cluster, "warm-up", bench.amount(100_000), 1000, acks="-1")
            delete_topic(cluster, "warm-up")
        for partitions in (1, 12):
            _throughput(bench, running, partitions)
        _latency(bench, running)
    what = f"CPU per GB beside {IDLE_PARTITIONS} idle partitions, of alone"
    beside_idle = bench.measure("T6", what, "×", higher_is_better=False, limit=1.2)
    for kind in bench.kinds:
        _beside_idle_partitions(bench, kind, beside_idle)


def _throughput(bench: Bench, running: list[Cluster], partitions: int) -> None:
    what = f"3 replicas, acks=all, 1000 B, {partitions} partition{'s' if partitions > 1 else ''}"
    rate = bench.measure("T6", what, "MB/s", ratio_target=2.5)
    cost = bench.measure("T6", "CPU of all brokers per GB", "s", higher_is_better=False, ratio_target=0.5)
    count = bench.amount(400_000)

    def take(cluster: Cluster) -> str:
        mb_per_s, used = _written(cluster, count, partitions)
        rate.add(cluster.name, mb_per_s)
        cost.add(cluster.name, used)
        return f"{mb_per_s:.0f} MB/s, {used:.2f} s of CPU per GB"

    bench.turns(running, "T6", take)


def _written(cluster: Cluster, count: int, partitions: int = 1) -> tuple[float, float]:
    """MB/s, and seconds of CPU of all brokers per GB."""
    create_topic(cluster, "T6", partitions)
    touch_memory(count * 1000 * 3)
    before = cpu_of(cluster)
    where = 0 if partitions == 1 else -partitions
    figures = generators.produce(cluster, "T6", count, 1000, partition=where, acks="-1")
    used = (cpu_of(cluster) - before) / (count * 1000 / 1e9)
    delete_topic(cluster, "T6")
    return figures["mb_per_s"], used


def _latency(bench: Bench, running: list[Cluster]) -> None:
    what = f"the same at {PACE_PER_S} messages/s: "
    p50 = bench.measure("T6", f"{what}p50", "ms", higher_is_better=False, ratio_target=0.5)
    p99 = bench.measure("T6", f"{what}p99", "ms", higher_is_better=False, ratio_target=0.5)
    for cluster in running:
        create_topic(cluster, "T6-paced")

    def take(cluster: Cluster) -> str:
        took = _paced(cluster, "T6-paced", PACED_S * min(1.0, bench.scale))
        quantiles = statistics.quantiles(took, n=100)
        p50.add(cluster.name, quantiles[49])
        p99.add(cluster.name, quantiles[98])
        return f"p50 {quantiles[49]:.1f} ms, p99 {quantiles[98]:.1f} ms"

    bench.turns(running, "T6 paced", take)


def _paced(cluster: Cluster, topic: str, seconds: float) -> list[float]:
    """Milliseconds from each send to its acknowledgement."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0})
    took: list[float] = []

    def send() -> None:
        began = time.perf_counter()

        def done(error: KafkaError | None, _: Message) -> None:
            if error is None:
                took.append((time.perf_counter() - began) * 1000)

        producer.produce(topic, bytes(1000), partition=0, on_delivery=done)

    began = time.perf_counter()
    for number in range(int(seconds * PACE_PER_S)):
        while (wait := began + number / PACE_PER_S - time.perf_counter()) > 0:
            producer.poll(wait)
        send()
    producer.flush(WAIT_S)
    return took[len(took) // 10 :]  # the first are those of a client that has just connected


def _beside_idle_partitions(bench: Bench, kind: str, measure: Measure) -> None:
    """Two clusters of one kind take turns, and one of them has idle partitions. One cluster, measured before
    and after it gets them, would also show whatever else changes with time.
    """
    count = bench.amount(400_000)
    with clusters(bench, kind, kind) as (alone, beside):
        for cluster in (alone, beside):
            _written(cluster, count)
        create_topic(beside, "T6-idle", IDLE_PARTITIONS)
        costs: dict[Cluster, list[float]] = {alone: [], beside: []}

        def take(cluster: Cluster) -> str:
            rate, cost = _written(cluster, count)
            costs[cluster].append(cost)
            where = "beside idle ones" if cluster is beside else "alone"
            return f"{where}: {rate:.0f} MB/s, {cost:.2f} s of CPU per GB"

        bench.turns([alone, beside], "T6 idle", take)
        for one, other in zip(costs[alone], costs[beside], strict=True):
            measure.add(kind, other / one)


# --- T7 --------------------------------------------------------------------------------------------


def failover(bench: Bench) -> None:
    kills = max(1, int(KILLS * min(1.0, bench.scale)))
    with clusters(bench) as running:
        for role, limit in LIMITS_S.items():
            _leaders_and_followers(bench, running, role, limit, kills)
        for what, limit, gap_of in (
            ("group coordinator: kill → next commit", 1.5, coordinator_kills.gap_of_group),
            ("transaction coordinator: the same", 2.0, coordinator_kills.gap_of_transactions),
        ):
            measure = bench.measure("T7", what, "s", higher_is_better=False, limit=limit)

            def take(
                cluster: Cluster,
                measure: Measure = measure,
                gap_of: Callable[[Cluster], float] = gap_of,
            ) -> str:
                gap = gap_of(cluster)
                measure.add(cluster.name, gap)
                return f"{gap:.2f} s"

            bench.turns(running, f"T7  {what}", take, kills)


def _leaders_and_followers(bench: Bench, running: list[Cluster], role: str, limit: float, kills: int) -> None:
    what = f"kill -9 of the {role}: longest gap"
    measure = bench.measure("T7", what, "s", higher_is_better=False, limit=limit)
    writers = {cluster.name: _Writer(cluster, "T7") for cluster in running}

    def take(cluster: Cluster) -> str:
        for _ in range(LEADER_MOVES_MAX):
            with suppress(_LeaderMoved):
                gap = _gap(cluster, writers[cluster.name], role)
                measure.add(cluster.name, gap)
                return f"{gap:.2f} s"
        raise AssertionError(f"{cluster.name}: the leader does not stay where it is")

    bench.turns(running, f"T7  {role}", take, kills)
    for name, writer in writers.items():
        lost = writer.lost()
        if lost:
            raise AssertionError(f"{name} lost {len(lost)} acknowledged records: {lost[:5]}")
        bench.say(f"T7  {name:8} {role}: {writer.count:,} acknowledged, none lost")


class _LeaderMoved(Exception):
    """Another broker leads than the one that was about to be killed."""


def _gap(cluster: Cluster, writer: _Writer, role: str) -> float:
    cluster.wait(lambda: cluster.in_sync(writer.topic), "all replicas")
    leader = cluster.leader(writer.topic)
    victim = leader
    if role.endswith("controller"):
        victim = cluster.active_controller()
        if victim != leader:
            writer.move_to(victim)
            leader = victim
    elif role == "leader" and cluster.active_controller() == leader:
        writer.move_to(next(number for number in cluster.nodes if number != leader))
        victim = leader = cluster.leader(writer.topic)
    elif role == "follower":
        controller = cluster.active_controller()
        victim = next(number for number in cluster.nodes if number not in (leader, controller))
    with writer.writing() as gap_of:
        time.sleep(1.0)
        if cluster.leader(writer.topic) != leader:  # Kafka moves leaders back to where they were first
            raise _LeaderMoved
        killed_at = time.monotonic()
        cluster.kill(victim)
        writer.wait_for_acks(50)
        gap = gap_of(killed_at)
    cluster.start()
    return gap


class _Writer:
    """Writes numbered records with acks=all, and remembers which were acknowledged and when."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.cluster = cluster
        self.topic = f"{topic}-{time.time_ns()}"
        create_topic(cluster, self.topic)
        self._acknowledged: dict[str, list[int]] = {}  # by topic
        self._acknowledged_at: list[float] = []
        self._next = 0
        self._is_over = threading.Event()

    def move_to(self, node: int) -> None:
        """A new topic whose leader is that node."""
        for attempt in range(12):
            self.topic = f"T7-{time.time_ns()}-{attempt}"
            create_topic(self.cluster, self.topic)
            if self.cluster.leader(self.topic) == node:
                return

    @contextmanager
    def writing(self) -> Iterator[Callable[[float], float]]:
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "acks": "all", "log_level": 0})
        self._is_over.clear()
        self._acknowledged_at = []
        acknowledged = self._acknowledged.setdefault(self.topic, [])

        def write() -> None:
            while not self._is_over.is_set():
                number = self._next
                self._next += 1

                def done(error: KafkaError | None, _: Message, number: int = number) -> None:
                    if error is None:
                        self._acknowledged_at.append(time.monotonic())
                        acknowledged.append(number)

                producer.produce(self.topic, str(number), partition=0, on_delivery=done)
                producer.poll(1 / KILL_PACE_PER_S)
            producer.flush(WAIT_S)

        thread = threading.Thread(target=write)
        thread.start()

        def gap_of(killed_at: float) -> float:
            times = sorted(self._acknowledged_at)
            around = [at for at in times if at > killed_at - 0.5]
            return max(after - before for before, after in pairwise(around))

        try:
            yield gap_of
        finally:
            self._is_over.set()
            thread.join()

    def wait_for_acks(self, more: int) -> None:
        """Of records that are sent from now on: those before may have been written before the kill."""
        first, end = self._next, time.monotonic() + WAIT_S
        acknowledged = self._acknowledged[self.topic]
        while sum(number >= first for number in acknowledged[-10 * more :]) < more:
            if time.monotonic() > end:
                raise AssertionError(f"{self.cluster.name}: nothing is acknowledged any more")
            time.sleep(0.02)
        time.sleep(0.5)

    @property
    def count(self) -> int:
        return sum(map(len, self._acknowledged.values()))

    def lost(self) -> list[int]:
        """Acknowledged records that cannot be read."""
        return [
            number
            for topic, acknowledged in self._acknowledged.items()
            for number in sorted(set(acknowledged) - self._read(topic))
        ]

    def _read(self, topic: str) -> set[int]:
        self.cluster.wait(lambda: self.cluster.in_sync(topic), "all replicas")
        consumer = Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "group.id": f"reader-{time.time_ns()}",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        partition = TopicPartition(topic, 0, 0)
        _, end = consumer.get_watermark_offsets(partition, timeout=WAIT_S)
        consumer.assign([partition])
        seen: set[int] = set()
        position = 0
        while position < end:
            message = consumer.poll(WAIT_S)
            if message is None or message.error():
                raise AssertionError(f"cannot read on: {message and message.error()}")
            value = message.value()
            assert value is not None
            seen.add(int(value))
            offset = message.offset()
            assert offset is not None
            position = offset + 1
        consumer.close()
        return seen
