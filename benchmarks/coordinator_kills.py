"""T7, coordinators: how long a group cannot commit offsets, or a producer its transactions, when the broker
that coordinates them is killed.

One loop of commits runs, with the default settings of confluent-kafka; the figure is the longest time between
two that succeed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from harness.cluster import Cluster
from headrace.node.coordinators.coordinator import java_hash

GROUP, GROUPS_TOPIC = "T7-group", "__consumer_offsets"
TRANSACTIONAL_ID, TRANSACTIONS_TOPIC = "T7-transactions", "__transaction_state"
PARTITIONS = 50  # of both topics, by default
PAUSE_S = 0.005
MORE = 20  # commits after the gap
WAIT_S = 120

Commit = Callable[[int], None]


def gap_of_group(cluster: Cluster) -> float:
    _create(cluster, "T7-read")
    with _committing(_offsets(cluster)) as commits:
        return _kill(cluster, commits, GROUPS_TOPIC, GROUP)


def gap_of_transactions(cluster: Cluster) -> float:
    """The transactions' records are in a partition that another broker leads."""
    topic = f"T7-written-{time.time_ns()}"
    _create(cluster, topic, partitions=6)
    producer = Transactions(cluster, topic)
    producer.commit(0)  # so that there is a coordinator
    coordinator = cluster.leader(TRANSACTIONS_TOPIC, java_hash(TRANSACTIONAL_ID) % PARTITIONS)
    producer.partition = next(p for p in range(6) if cluster.leader(topic, p) != coordinator)
    with _committing(producer.commit) as commits:
        return _kill(cluster, commits, TRANSACTIONS_TOPIC, TRANSACTIONAL_ID)


def _create(cluster: Cluster, topic: str, partitions: int = 1) -> None:
    admin = cluster.admin()
    try:
        admin.create_topics([NewTopic(topic, partitions, 3)], operation_timeout=WAIT_S)[topic].result(WAIT_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # since the kill before
            raise
    cluster.wait(lambda: cluster.in_sync(topic), topic)


def _offsets(cluster: Cluster) -> Commit:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": GROUP, "log_level": 0})

    def commit(number: int) -> None:
        consumer.commit(offsets=[TopicPartition("T7-read", 0, number)], asynchronous=False)

    return commit


class Transactions:
    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self.partition = 0
        self._producer = self._made()

    def _made(self) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self._cluster.bootstrap,
                "transactional.id": TRANSACTIONAL_ID,
                "log_level": 0,
            }
        )
        producer.init_transactions(WAIT_S)
        return producer

    def commit(self, number: int) -> None:
        try:
            self._producer.begin_transaction()
            self._producer.produce(self._topic, str(number), partition=self.partition)
            self._until_done(self._producer.commit_transaction)
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                self._until_done(self._producer.abort_transaction)
            else:
                self._producer = self._made()
            raise

    def _until_done(self, act: Callable[[], None]) -> None:
        while True:
            try:
                return act()
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise


@contextmanager
def _committing(commit: Commit) -> Iterator[list[float]]:
    """A thread commits; the moments when it succeeded."""
    commits: list[float] = []
    is_over = threading.Event()

    def run() -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            try:
                commit(number)
            except KafkaException:
                continue
            commits.append(time.monotonic())
            time.sleep(PAUSE_S)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield commits
    finally:
        is_over.set()
        thread.join()


def _kill(cluster: Cluster, commits: list[float], topic: str, key: str) -> float:
    cluster.wait(lambda: len(commits) >= MORE, "commits")
    cluster.wait(lambda: cluster.in_sync(topic), topic)
    coordinator = cluster.leader(topic, java_hash(key) % PARTITIONS)
    killed_at = time.monotonic()
    cluster.kill(coordinator)
    cluster.wait(lambda: sum(at > killed_at for at in list(commits)) >= MORE, "commits after the kill")
    around = [at for at in commits if at > killed_at - 0.5]
    gap = max(after - before for before, after in pairwise(around))
    cluster.start()
    return gap
