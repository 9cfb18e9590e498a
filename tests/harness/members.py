"""Group members with one face: whatever client they are made of, a test can share, seize and judge them.

A member lives in a thread of its own and polls all the time, as a healthy application does; what it received
and what it owned is kept. A test gives it orders, which it carries out between two polls. `python -m
harness.members` runs one member as a process that can be killed.
"""

from __future__ import annotations

import abc
import asyncio
import inspect
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, NamedTuple

import aiokafka
import kafka
from aiokafka.coordinator.assignors import range as aiokafka_range
from aiokafka.coordinator.assignors import roundrobin as aiokafka_roundrobin
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka.coordinator.assignors import range as kafka_range
from kafka.coordinator.assignors import roundrobin as kafka_roundrobin
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

import headrace
import headrace.aio
from headrace.client.membership.events import CommittedOffset

POLL_S = 0.05
SESSION_TIMEOUT_MS = 2000
HEARTBEAT_MS = 100  # a rebalance is noticed with the next heartbeat
REFRESH_MS = 200  # new topics and partitions are noticed by a look at the metadata
PATIENCE_S = 120


class Place(NamedTuple):
    topic: str
    partition: int


class Received(NamedTuple):
    place: Place
    offset: int
    value: bytes


class Committed(NamedTuple):
    offset: int
    metadata: str = ""


class Member(abc.ABC):
    """One consumer of a group. `settings` are the client's own, by its own names.

    `subscription` is a list of topics, or one pattern that begins with `^`.
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        subscription: list[str],
        *,
        instance: str | None = None,
        **settings: Any,
    ) -> None:
        self.bootstrap, self.group, self.instance = bootstrap, group, instance
        self.subscription, self.settings = subscription, settings
        self.received: list[Received] = []
        self.owned: frozenset[Place] = frozenset()
        self.moves: list[tuple[str, frozenset[Place]]] = []  # ("gained" | "gave up" | "lost", partitions)
        self.errors: list[Any] = []  # errors that the client reported without raising
        self.failure: BaseException | None = None  # what ended the member
        self._orders: queue.SimpleQueue[tuple[Callable[[Any], Any], Future[Any]]] = queue.SimpleQueue()
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{self.group}", daemon=True)
        self._thread.start()

    def ask(self, order: Callable[[Any], Any]) -> Any:
        """The answer of `order(client)`, carried out by the member itself; an error is raised here."""
        answer: Future[Any] = Future()
        self._orders.put((order, answer))
        return answer.result(PATIENCE_S)

    def close(self) -> None:
        """Leaves the group, as the client does it."""
        self._leaving.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the member does not close"

    def resubscribe(self, subscription: list[str]) -> None:
        self.subscription = subscription
        self.ask(self._subscribe)

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """The application hangs: the client lives, but nobody polls it."""
        moving_on = threading.Event()
        self._orders.put((lambda _: self._hang(moving_on), Future()))
        try:
            yield
        finally:
            moving_on.set()

    def _hang(self, moving_on: threading.Event) -> Any:
        moving_on.wait(PATIENCE_S)

    @abc.abstractmethod
    def commit(self, offsets: dict[Place, Committed]) -> None: ...

    @abc.abstractmethod
    def committed(self, place: Place) -> Committed | None: ...

    @abc.abstractmethod
    def seek(self, place: Place, offset: int) -> None: ...

    @abc.abstractmethod
    def _subscribe(self, client: Any) -> None: ...

    @abc.abstractmethod
    def _live(self) -> None:
        """Polls and carries out orders until `_leaving` is set, then leaves."""

    def _run(self) -> None:
        try:
            self._live()
        except BaseException as error:
            self.failure = error

    def _gained(self, partitions: Iterable[Any]) -> None:
        self._moved("gained", partitions)

    def _gave_up(self, partitions: Iterable[Any]) -> None:
        self._moved("gave up", partitions)

    def _lost(self, partitions: Iterable[Any]) -> None:
        self._moved("lost", partitions)

    def _moved(self, how: str, partitions: Iterable[Any]) -> None:
        places = frozenset(Place(p.topic, p.partition) for p in partitions)
        self.owned = self.owned | places if how == "gained" else self.owned - places
        if places:
            self.moves.append((how, places))

    def _take_order(self) -> tuple[Callable[[Any], Any], Future[Any]] | None:
        try:
            return self._orders.get_nowait()
        except queue.Empty:
            return None

    @property
    def _pattern(self) -> str | None:
        first = self.subscription[0]
        return first if first.startswith("^") else None


class ConfluentMember(Member):
    """confluent-kafka; the rebalance protocol is the classic one unless the settings say otherwise."""

    _fatal: KafkaError | None = None

    def _hear(self, error: KafkaError) -> None:
        self.errors.append(error)
        if error.fatal() or error.code() == KafkaError._FATAL:
            self._fatal = error

    def _config(self) -> dict[str, Any]:
        config: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": REFRESH_MS,
            "log_level": 0,
        }
        if self.settings.get("group.protocol") != "consumer":
            config |= {"session.timeout.ms": SESSION_TIMEOUT_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
        if self.instance is not None:
            config["group.instance.id"] = self.instance
        return config | self.settings

    def _subscribe(self, client: Any) -> None:
        client.subscribe(
            self.subscription,
            on_assign=lambda _, partitions: self._gained(partitions),
            on_revoke=lambda _, partitions: self._gave_up(partitions),
            on_lost=lambda _, partitions: self._lost(partitions),
        )

    def _live(self) -> None:
        client: Any = Consumer(self._config(), error_cb=self._hear)
        self._subscribe(client)
        try:
            while not self._leaving.is_set():
                for message in client.consume(500, POLL_S):
                    if (error := message.error()) is None:
                        place = Place(message.topic(), message.partition())
                        self.received.append(Received(place, message.offset(), message.value()))
                    else:
                        self._hear(error)
                if self._fatal is not None:
                    raise KafkaException(self._fatal)
                while (order := self._take_order()) is not None:
                    _carry_out(order, client)
        finally:
            client.close()

    def commit(self, offsets: dict[Place, Committed]) -> None:
        partitions = [
            ConfluentPartition(*place, committed.offset, committed.metadata)
            for place, committed in offsets.items()
        ]
        for done in self.ask(lambda client: client.commit(offsets=partitions, asynchronous=False)):
            if done.error is not None:
                raise KafkaException(done.error)

    def committed(self, place: Place) -> Committed | None:
        (found,) = self.ask(lambda client: client.committed([ConfluentPartition(*place)], PATIENCE_S))
        return Committed(found.offset, found.metadata or "") if found.offset >= 0 else None

    def seek(self, place: Place, offset: int) -> None:
        self.ask(lambda client: client.seek(ConfluentPartition(*place, offset)))


class NextGenerationMember(ConfluentMember):
    """confluent-kafka with KIP-848: the broker decides who owns what."""

    def _config(self) -> dict[str, Any]:
        self.settings = {"group.protocol": "consumer"} | self.settings
        return super()._config()


class _KafkaPythonListener(kafka.ConsumerRebalanceListener):
    def __init__(self, member: Member) -> None:
        self.member = member

    def on_partitions_assigned(self, assigned: Iterable[kafka.TopicPartition]) -> None:
        self.member._gained(assigned)

    def on_partitions_revoked(self, revoked: Iterable[kafka.TopicPartition]) -> None:
        self.member._gave_up(revoked)

    def on_partitions_lost(self, lost: Iterable[kafka.TopicPartition]) -> None:
        self.member._lost(lost)


class KafkaPythonMember(Member):
    """kafka-python.

    It polls for longer than the others: a poll that ends in the middle of a rebalance may leave it there for
    good, and for a pattern it asks, within a poll, for metadata behind a fetch that waits. It happens all the
    same, on Apache Kafka too; as a user would, it then begins again.
    """

    STUCK_S = 6.0

    def _subscribe(self, client: Any) -> None:
        topics = {"pattern": self._pattern} if self._pattern else {"topics": self.subscription}
        client.subscribe(**topics, listener=_KafkaPythonListener(self))

    def _live(self) -> None:
        settings: dict[str, Any] = {
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "metadata_max_age_ms": REFRESH_MS,
            "group_instance_id": self.instance,
            "fetch_max_wait_ms": 50,
        }
        while not self._leaving.is_set():
            client = kafka.KafkaConsumer(
                bootstrap_servers=self.bootstrap, group_id=self.group, **settings | self.settings
            )
            self._subscribe(client)
            try:
                self._poll_until_stuck(client)
            finally:
                client.close()

    def _poll_until_stuck(self, client: Any) -> None:
        owned_at = time.monotonic()
        while not self._leaving.is_set() and time.monotonic() - owned_at < self.STUCK_S:
            for records in client.poll(timeout_ms=500).values():
                for record in records:
                    place = Place(record.topic, record.partition)
                    self.received.append(Received(place, record.offset, record.value))
            while (order := self._take_order()) is not None:
                _carry_out(order, client)
            if client.assignment():
                owned_at = time.monotonic()

    def commit(self, offsets: dict[Place, Committed]) -> None:
        wanted = {
            kafka.TopicPartition(*place): kafka.OffsetAndMetadata(offset, metadata, -1)
            for place, (offset, metadata) in offsets.items()
        }
        self.ask(lambda client: client.commit(wanted))

    def committed(self, place: Place) -> Committed | None:
        found = self.ask(lambda client: client.committed(kafka.TopicPartition(*place), metadata=True))
        return None if found is None else Committed(found.offset, found.metadata)

    def seek(self, place: Place, offset: int) -> None:
        self.ask(lambda client: client.seek(kafka.TopicPartition(*place), offset))


class _AiokafkaListener(aiokafka.ConsumerRebalanceListener):
    def __init__(self, member: Member) -> None:
        self.member = member

    def on_partitions_assigned(self, assigned: Iterable[aiokafka.TopicPartition]) -> None:
        self.member._gained(assigned)

    def on_partitions_revoked(self, revoked: Iterable[aiokafka.TopicPartition]) -> None:
        self.member._gave_up(revoked)


class AiokafkaMember(Member):
    """aiokafka, with an event loop of its own."""

    def _subscribe(self, client: Any) -> None:
        topics = {"pattern": self._pattern} if self._pattern else {"topics": self.subscription}
        client.subscribe(**topics, listener=_AiokafkaListener(self))

    def _hang(self, moving_on: threading.Event) -> Any:
        return asyncio.to_thread(moving_on.wait, PATIENCE_S)

    def _live(self) -> None:
        asyncio.run(self._live_in_loop())

    async def _live_in_loop(self) -> None:
        settings: dict[str, Any] = {
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "metadata_max_age_ms": REFRESH_MS,
            "group_instance_id": self.instance,
        }
        client = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, group_id=self.group, **settings | self.settings
        )
        self._subscribe(client)
        await client.start()
        try:
            while not self._leaving.is_set():
                for records in (await client.getmany(timeout_ms=int(POLL_S * 1000))).values():
                    for record in records:
                        place = Place(record.topic, record.partition)
                        self.received.append(Received(place, record.offset, record.value))
                while (order := self._take_order()) is not None:
                    await _carry_out_awaiting(order, client)
        finally:
            await client.stop()

    def commit(self, offsets: dict[Place, Committed]) -> None:
        wanted = {aiokafka.TopicPartition(*place): tuple(committed) for place, committed in offsets.items()}
        self.ask(lambda client: client.commit(wanted))

    def committed(self, place: Place) -> Committed | None:
        """aiokafka tells the offset only."""
        offset = self.ask(lambda client: client.committed(aiokafka.TopicPartition(*place)))
        return None if offset is None else Committed(offset)

    def seek(self, place: Place, offset: int) -> None:
        self.ask(lambda client: client.seek(aiokafka.TopicPartition(*place), offset))


class HeadraceMember(Member):
    """Our own consumer, with a thread of its own beside the member's."""

    def _config(self) -> dict[str, Any]:
        settings = {
            "bootstrap_servers": self.bootstrap,
            "group_id": self.group,
            "group_instance_id": self.instance,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "metadata_max_age_ms": REFRESH_MS,
        }
        return settings | self.settings

    def _subscribe(self, client: Any) -> None:
        topics = {"pattern": self._pattern} if self._pattern else {"topics": self.subscription}
        client.subscribe(
            **topics,
            on_assign=lambda _, partitions: self._gained(partitions),
            on_revoke=lambda _, partitions: self._gave_up(partitions),
            on_lost=lambda _, partitions: self._lost(partitions),
        )

    def _received(self, messages: list[headrace.Message]) -> None:
        for message in messages:
            place = Place(message.topic, message.partition)
            self.received.append(Received(place, message.offset, message.value))

    def _live(self) -> None:
        with headrace.Consumer(self._config()) as client:
            self._subscribe(client)
            while not self._leaving.is_set():
                self._received(client.poll(POLL_S))
                while (order := self._take_order()) is not None:
                    _carry_out(order, client)

    def commit(self, offsets: dict[Place, Committed]) -> None:
        told = {at: CommittedOffset(each.offset, -1, each.metadata) for at, each in offsets.items()}
        self.ask(lambda client: client.commit(told))

    def committed(self, place: Place) -> Committed | None:
        found = self.ask(lambda client: client.committed([place]))[place]
        return found and Committed(found.offset, found.metadata)

    def seek(self, place: Place, offset: int) -> None:
        self.ask(lambda client: client.seek(place, offset))


class HeadraceNextGenerationMember(HeadraceMember):
    """The same with KIP-848."""

    def _config(self) -> dict[str, Any]:
        self.settings = {"group_protocol": "consumer"} | self.settings
        return super()._config()


class HeadraceAioMember(HeadraceMember):
    """Our own consumer on an event loop."""

    def _hang(self, moving_on: threading.Event) -> Any:
        return asyncio.to_thread(moving_on.wait, PATIENCE_S)

    def _live(self) -> None:
        asyncio.run(self._live_in_loop())

    async def _live_in_loop(self) -> None:
        async with headrace.aio.Consumer(self._config()) as client:
            self._subscribe(client)
            while not self._leaving.is_set():
                self._received(await client.poll(POLL_S))
                while (order := self._take_order()) is not None:
                    await _carry_out_awaiting(order, client)


def _carry_out(order: tuple[Callable[[Any], Any], Future[Any]], client: Any) -> None:
    work, answer = order
    try:
        answer.set_result(work(client))
    except Exception as error:
        answer.set_exception(error)


async def _carry_out_awaiting(order: tuple[Callable[[Any], Any], Future[Any]], client: Any) -> None:
    work, answer = order
    try:
        result = work(client)
        answer.set_result(await result if inspect.isawaitable(result) else result)
    except Exception as error:
        answer.set_exception(error)


CLIENTS: dict[str, type[Member]] = {
    "confluent-kafka": ConfluentMember,
    "confluent-kafka-consumer": NextGenerationMember,
    "aiokafka": AiokafkaMember,
    "kafka-python": KafkaPythonMember,
    "headrace": HeadraceMember,
    "headrace-consumer": HeadraceNextGenerationMember,
    "headrace-aio": HeadraceAioMember,
}
# how each client is told to share by the same rule
ASSIGNORS: dict[str, dict[str, dict[str, Any]]] = {
    "range": {
        "confluent-kafka": {"partition.assignment.strategy": "range"},
        "aiokafka": {"partition_assignment_strategy": [aiokafka_range.RangePartitionAssignor]},
        "kafka-python": {"partition_assignment_strategy": [kafka_range.RangePartitionAssignor]},
        "headrace": {"partition_assignment_strategy": "range"},
    },
    "roundrobin": {
        "confluent-kafka": {"partition.assignment.strategy": "roundrobin"},
        "aiokafka": {"partition_assignment_strategy": [aiokafka_roundrobin.RoundRobinPartitionAssignor]},
        "kafka-python": {"partition_assignment_strategy": [kafka_roundrobin.RoundRobinPartitionAssignor]},
        "headrace": {"partition_assignment_strategy": "roundrobin"},
    },
    "cooperative-sticky": {
        "confluent-kafka": {"partition.assignment.strategy": "cooperative-sticky"},
        "kafka-python": {"partition_assignment_strategy": [CooperativeStickyAssignor]},
        "headrace": {"partition_assignment_strategy": "cooperative-sticky"},
    },
}


def main() -> None:
    """Joins as told by the arguments, prints `owns N` whenever that changes, and polls until it is killed."""
    client, bootstrap, group, *topics = sys.argv[1:]
    member = CLIENTS[client](bootstrap, group, topics)
    told = 0
    while member.failure is None:
        if len(member.owned) != told:
            told = len(member.owned)
            print(f"owns {told}", flush=True)
        member._thread.join(POLL_S)
    raise member.failure


if __name__ == "__main__":
    main()
