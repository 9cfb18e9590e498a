"""Consumers before a node, each over a manual network of the simulator.

A `Reader` is an application: it polls, listens and acknowledges.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from harness.producer_simulation import FEW_SHARDS
from headrace.base.time import NEVER, Instant
from headrace.client.cluster import TopicPartition
from headrace.client.consumer.position import ConsumerEvent
from headrace.client.consumer.session import ConsumerSession
from headrace.client.errors import ClientError
from headrace.client.membership.events import Assigned, Lost, Revoked
from headrace.client.membership.subscription import Subscription
from headrace.client.settings.consumer import ConsumerSettings, GroupSettings, parse_reset
from headrace.client.steps import Pending
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.records._messages import Message
from headrace.records.builder import build_batch
from headrace.simulator.manual_host import ManualHost
from headrace.simulator.manual_network import ManualNetwork

TOPIC = "t"
T = TypeVar("T")


class ConsumerSimulation:
    """One node and the clock that all live by."""

    def __init__(self, seed: int = 1, *, partitions: int = 2, **settings: str) -> None:
        self.rng = Random(seed)
        self.host = ManualHost(FEW_SHARDS | settings, seed=seed)
        self.partitions = partitions
        self.host.create_topic(TOPIC, partitions)
        self.readers: list[Reader] = []

    @property
    def now(self) -> Instant:
        return Instant(self.host.clock.mono)

    def all_at(self, topic: str = TOPIC) -> list[TopicPartition]:
        return [TopicPartition(topic, partition) for partition in range(self.partitions)]

    def write(
        self, partition: int, *values: bytes, topic: str = TOPIC, timestamp_ms: int | None = None
    ) -> None:
        """One batch."""
        stamp = int(self.host.clock.wall_ms) if timestamp_ms is None else timestamp_ms
        batch = bytearray(build_batch([(stamp, None, value, ()) for value in values]))
        request = self.host.produce_request(topic, batch, partition=partition)
        (told,) = self.host.ask(request, 9).responses[0].partition_responses
        assert told.error_code == 0, told

    def delete_topic(self, name: str = TOPIC) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1000)
        (told,) = self.host.ask(request, 6).responses
        assert told.error_code == 0, told

    def reader(self, group: str | None = None, reset: str = "earliest", **settings: Any) -> Reader:
        of_group = {key: each for key, each in settings.items() if key in GroupSettings.__dataclass_fields__}
        own = {key: each for key, each in settings.items() if key in ConsumerSettings.__dataclass_fields__}
        assert of_group.keys() | own.keys() == settings.keys()
        membership = None if group is None else GroupSettings(group, **of_group)
        reader = Reader(self, ConsumerSettings(group=membership, reset=parse_reset(reset), **own))
        self.readers.append(reader)
        return reader

    def crash(self) -> None:
        """The node dies and starts again on the same disk."""
        for reader in self.readers:
            reader.network.cut_all()
        self.host.restart()

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Time passes, the network is well, and every application polls; whether `until` came true."""
        end = self.now + seconds
        while True:
            while sum(reader.network.exchange() for reader in self.readers):  # each of them
                pass
            for reader in self.readers:
                reader.poll()
            if until():
                return True
            if self.now >= end:
                return False
            wake_at = min((reader.session.deadline() for reader in self.readers), default=NEVER)
            self.host.advance(max(0.001, min(wake_at - self.now, 0.05, end - self.now)))

    def finish(self, pending: Pending[T]) -> T:
        assert self.run(120.0, lambda: pending.is_done), f"timed out while {pending.what}"
        return pending.result()


class Reader:
    """An application with a consumer."""

    def __init__(self, simulation: ConsumerSimulation, settings: ConsumerSettings) -> None:
        self.simulation = simulation
        self.session = ConsumerSession(
            settings, simulation.rng, wall_ms=lambda: int(simulation.host.clock.wall_ms)
        )
        self.messages: list[Message] = []  # all that were handed out
        self.events: list[ConsumerEvent] = []
        self.errors: list[ClientError] = []
        self.network = ManualNetwork(simulation.host, self.session)
        self.polls = True
        self.max_records = 1000
        self.on_assigned: Callable[[Assigned], None] = lambda event: None

    def subscribe(self, *topics: str) -> None:
        self.session.subscribe(self.simulation.now, Subscription(frozenset(topics or {TOPIC})))

    def poll(self) -> list[Message]:
        if not self.polls:
            return []
        now = self.simulation.now
        self.session.polled(now)
        for event in self.session.take_events():
            self.events.append(event)
            if isinstance(event, Revoked):
                self.session.acknowledge(now)
            elif isinstance(event, Assigned):
                self.on_assigned(event)
        try:
            found = self.session.take_records(now, self.max_records)
        except ClientError as error:
            self.errors.append(error)
            found = []
        self.messages += found
        self.session.check()
        return found

    def values(self, partition: int | None = None) -> list[bytes]:
        return [each.value for each in self.messages if partition is None or each.partition == partition]

    def offsets(self, partition: int) -> list[int]:
        return [each.offset for each in self.messages if each.partition == partition]

    def moves(self) -> list[ConsumerEvent]:
        return [event for event in self.events if isinstance(event, Assigned | Revoked | Lost)]

    def cause_trouble(self, rng: Random) -> None:
        """One random thing happens to this consumer's network."""
        network = self.network
        link = rng.choice(list(network.links.values())) if network.links else None
        roll = rng.randrange(100)
        if roll < 30 or link is None:
            network.pump()
        elif roll < 60:
            network.deliver(link)
        elif roll < 95:
            network.hear(link)
        else:
            network.cut(link)
