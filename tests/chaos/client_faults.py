"""Headrace's own client under fire: a proxy ruins its connections, and the broker is killed again and again.

`python -m chaos.client_faults --records 200000 --kills 30` lets a producer write while a group reads, then
lets a copier copy the topic in transactions. Judged by an independent reader: nothing that was acknowledged
is lost, nothing is doubled, every key keeps its order, and the copy has each record once.
"""

from __future__ import annotations

import argparse
import socket
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import OFFSET_BEGINNING, KafkaError
from confluent_kafka import Consumer as Judge
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewTopic

import headrace
from chaos.headrace_copier import HeadraceCopier
from chaos.worker import WAIT_S, Worker
from harness.broker import Broker
from harness.fault_proxy import FaultProxy, fair, stormy
from harness.headrace import Headrace

SOURCE, TARGET = "original", "copy"
PARTITIONS = 3
KEYS = 30
STRIKES_PER_KILL = 4
SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.min.session.timeout.ms": "1000",
}
IMPATIENT: dict[str, Any] = {
    "request.timeout.ms": 700,  # a connection gone silent is given up after that
    "socket.connection.setup.timeout.ms": 700,
    "socket.connection.setup.timeout.max.ms": 700,
    "retry.backoff.ms": 10,
    "retry.backoff.max.ms": 100,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
}
MEMBER: dict[str, Any] = IMPATIENT | {
    "auto.offset.reset": "earliest",
    "session.timeout.ms": 3000,
    "heartbeat.interval.ms": 300,
}


@dataclass(frozen=True)
class Plan:
    records: int
    kills: int
    seed: int = 1


class Hidden(Headrace):
    """A broker that says it is where the proxy is; its own port is chosen beforehand."""

    def __init__(self, directory: Path, proxy: FaultProxy) -> None:
        super().__init__(directory, SETTINGS | {"advertised.listeners": f"PLAINTEXT://{proxy.bootstrap}"})
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]

    def is_serving(self) -> bool:
        return Broker.is_serving(self)


def aims(plan: Plan) -> list[int]:
    """So many records are to be done before each strike, and before the end."""
    strikes = plan.kills * STRIKES_PER_KILL
    return [plan.records * number // (strikes + 1) for number in range(1, strikes + 2)]


class BrokerBehindProxy:
    """A broker whose only address is that of a proxy."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.proxy = FaultProxy()
        self.broker: Hidden
        self._directory = directory
        self._seed = seed

    def __enter__(self) -> Self:
        self.proxy.__enter__()
        self.broker = Hidden(self._directory, self.proxy)
        self.broker.start()
        self.proxy.target_port = self.broker.port
        admin = AdminClient({"bootstrap.servers": self.proxy.bootstrap, "log_level": 0})
        topics = [NewTopic(topic, PARTITIONS, 1) for topic in (SOURCE, TARGET)]
        for created in admin.create_topics(topics, operation_timeout=WAIT_S).values():
            created.result(WAIT_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.broker.kill()
        self.proxy.__exit__(kind, error, trace)

    def begin_storm(self) -> None:
        self.proxy.weather = stormy(self._seed, bytes_mean=700)
        self.proxy.cut_all()

    def end_storm(self) -> None:
        """Connections that have gone silent are cut, too: nobody has to wait for them."""
        self.proxy.weather = fair
        self.proxy.cut_all()

    def strike(self, number: int) -> None:
        """The broker is killed, or all connections break, so that new ones meet the storm."""
        if number % STRIKES_PER_KILL:
            self.proxy.cut_all()
        else:
            self.broker.kill()
            self.broker.start()


class Delivering:
    """A producer writes numbers, each key's in order, and a group handles them."""

    def __init__(self, target: BrokerBehindProxy, plan: Plan) -> None:
        self.target, self.plan = target, plan
        self.acknowledged: dict[int, tuple[int, int]] = {}  # number → partition and offset
        self.handled: dict[bytes, list[int]] = defaultdict(list)  # by key, as they came
        self.handled_numbers: set[int] = set()
        self.failures: list[BaseException] = []
        self.sent = 0

    def play(self) -> None:
        self.target.begin_storm()
        with Worker(self._consume) as consumer, Worker(self._produce) as producer:
            for number, aim in enumerate(aims(self.plan), 1):
                producer.wait_for(lambda: len(self.acknowledged), aim, "records are acknowledged")
                if aim < self.plan.records:
                    self.target.strike(number)
            self.target.end_storm()
            consumer.wait_for(lambda: len(self.handled_numbers), self.sent, "records are handled")
        self._judge()

    def _produce(self, worker: Worker) -> None:
        settings = IMPATIENT | {"linger.ms": 1, "batch.size": 2000, "buffer.memory": 100_000}
        with headrace.Producer(self.target.proxy.bootstrap, **settings) as producer:
            while self.sent < self.plan.records and not worker.is_stopping:
                number, key = self.sent, b"key-%d" % (self.sent % KEYS)
                delivery = producer.send(SOURCE, b"%d" % number, key)
                delivery.add_callback(self._delivered, number).add_errback(self.failures.append)
                self.sent += 1
            producer.flush(WAIT_S)

    def _delivered(self, number: int, metadata: Any) -> None:
        self.acknowledged[number] = metadata.partition, metadata.offset

    def _consume(self, worker: Worker) -> None:
        with headrace.Consumer(self.target.proxy.bootstrap, **MEMBER, group_id="readers") as consumer:
            consumer.subscribe([SOURCE])
            while not worker.is_stopping:
                for message in consumer.poll(0.2):
                    self.handled[message.key].append(int(message.value))
                    self.handled_numbers.add(int(message.value))

    def _judge(self) -> None:
        assert not self.failures, self.failures[:3]
        places: dict[int, list[tuple[int, int]]] = defaultdict(list)
        numbers: dict[bytes, list[int]] = defaultdict(list)
        for message in read_all(self.target.proxy.bootstrap, SOURCE):
            places[int(message.value())].append((message.partition(), message.offset()))
            numbers[message.key()].append(int(message.value()))
        assert places == {number: [place] for number, place in self.acknowledged.items()}
        for key, found in numbers.items():
            assert found == sorted(found), f"{key!r} is out of order"
            first_seen = list(dict.fromkeys(self.handled[key]))
            assert first_seen == found, f"the group handled {key!r} otherwise than it was written"


class Copying:
    """What is in one topic is written into another, in transactions."""

    def __init__(self, target: BrokerBehindProxy, plan: Plan) -> None:
        self.target, self.plan = target, plan
        self.copier = HeadraceCopier(target.proxy.bootstrap, SOURCE, TARGET, "copiers", IMPATIENT)

    def play(self) -> None:
        self.target.begin_storm()
        with Worker(self._copy) as copier:
            for number, aim in enumerate(aims(self.plan), 1):
                copier.wait_for(lambda: self.copier.copied, aim, "records are copied")
                if aim < self.plan.records:
                    self.target.strike(number)
        self.target.end_storm()
        self._judge()

    def _copy(self, worker: Worker) -> None:
        self.copier.run(lambda: worker.is_stopping, MEMBER)

    def _judge(self) -> None:
        bootstrap = self.target.proxy.bootstrap
        contents: list[dict[int, list[bytes]]] = []
        for topic in (SOURCE, TARGET):
            found: dict[int, list[bytes]] = defaultdict(list)
            for message in read_all(bootstrap, topic):
                found[message.partition()].append(message.value())
            contents.append(found)
        assert contents[0] == contents[1]


def read_all(bootstrap: str, topic: str) -> list[Any]:
    """By another client than the one on trial."""
    reader = Judge(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    reader.assign([Place(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    messages: list[Any] = []
    ended: set[int | None] = set()
    try:
        while len(ended) < PARTITIONS:
            for message in reader.consume(10_000, 1.0):
                if (error := message.error()) is None:
                    messages.append(message)
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended.add(message.partition())
    finally:
        reader.close()
    return messages


def play(directory: Path, plan: Plan, say: Callable[[str], None]) -> None:
    began = time.monotonic()
    with BrokerBehindProxy(directory, plan.seed) as target:
        delivering = Delivering(target, plan)
        delivering.play()
        say(
            f"  {plan.records} records delivered and handled in {time.monotonic() - began:.0f} s, "
            f"{target.proxy.connections} connections, {len(target.proxy.struck)} came to grief"
        )
        copying = Copying(target, plan)
        copying.play()
        took_s = time.monotonic() - began
        say(f"  copied exactly once in {took_s:.0f} s, {copying.copier.aborted} transactions repeated")


def main() -> None:
    parser = argparse.ArgumentParser(prog="chaos.client_faults", description=__doc__)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        plan = Plan(arguments.records, arguments.kills, arguments.seed)
        play(Path(directory), plan, lambda line: print(line, flush=True))


if __name__ == "__main__":
    main()
