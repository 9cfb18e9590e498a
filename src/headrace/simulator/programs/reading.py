"""Base of programs that read: a consumer of our client, whose records are reported to the judges."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from headrace.client.cluster import TopicPartition
from headrace.client.consumer.session import ConsumerSession
from headrace.client.errors import ClientError, KafkaError
from headrace.client.membership.events import Assigned, Lost, Partitions, Revoked
from headrace.client.settings.configuration import Configuration
from headrace.client.settings.consumer import consumer_settings
from headrace.client.settings.keys import consumer_keys
from headrace.protocol.errors import ErrorCode
from headrace.records._messages import Message
from headrace.simulator.clients.topics import Topic
from headrace.simulator.history import Assigned as JudgedAssignment
from headrace.simulator.history import PartitionKey, Shown
from headrace.simulator.nodes import Nodes
from headrace.simulator.programs.program import Program
from headrace.simulator.programs.writing import BATCH_BYTES_MAX

MAX_POLL_INTERVAL_S = 3.0

# By a process that replaced this one, or by the one before, which the group does not know to be dead.
PLACE_TAKEN = (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID)


class GroupKind(NamedTuple):
    """How a group shares its work; all of its members must agree."""

    group: str
    protocol: str
    assignor: str  # of a classic one

    def settings(self, instance_id: str | None = None) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "group.id": self.group,
            "group.protocol": self.protocol,
            "max.poll.interval.ms": int(MAX_POLL_INTERVAL_S * 1000),
        }
        if instance_id is not None:
            settings["group.instance.id"] = instance_id
        if self.protocol == "classic":
            settings |= {"session.timeout.ms": 2_000, "heartbeat.interval.ms": 300}
            settings["partition.assignment.strategy"] = self.assignor
        return settings


class Reading(Program):
    """Begins a new stretch of a partition whenever it cannot say that it goes on where it was."""

    def __init__(
        self,
        host: Nodes,
        name: str,
        topic: Topic,
        kind: GroupKind | None = None,
        *,
        leaves_ghosts: bool = True,
    ) -> None:
        super().__init__(host, name, leaves_ghosts=leaves_ghosts)
        self.topic = topic
        self._kind = kind  # of its group, if it is in one
        self._told: JudgedAssignment | None = None
        self.consumer: ConsumerSession
        self._ever_paused: set[TopicPartition] = set()
        self._stretches: dict[PartitionKey, int] = {}
        self._positions: dict[PartitionKey, int] = {}  # where each stretch goes on, once that is known

    def group_settings(self, instance_id: str | None = None) -> dict[str, Any]:
        assert self._kind is not None
        return self._kind.settings(instance_id)

    def new_consumer(self, **settings: Any) -> ConsumerSession:
        rng = self.world.rng
        chosen: dict[str, Any] = {
            "bootstrap.servers": "broker",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.max.wait.ms": rng.choice((50, 300)),
            "fetch.min.bytes": rng.choice((1, 1, 200)),
            "fetch.max.bytes": rng.choice((700, 3_000)),
            "max.partition.fetch.bytes": rng.choice((300, 1_500)),
            "max.poll.records": rng.choice((1, 7, 500)),
            "metadata.max.age.ms": 5_000,
            "request.timeout.ms": 1_500,
            "default.api.timeout.ms": 8_000,
            "retry.backoff.ms": 50,
            "retry.backoff.max.ms": 500,
        }
        configuration = Configuration(consumer_keys(), chosen | settings)
        self._positions.clear()
        self._ever_paused.clear()
        self.consumer = ConsumerSession(
            consumer_settings(configuration), rng, wall_ms=lambda: self.world.now().wall_ms
        )
        return self.consumer

    @property
    def _bytes_max(self) -> int:
        """A fetch brings one batch at least from each broker, however little room there was; what is paused,
        and was, keeps what it had besides.
        """
        settings = self.consumer.settings
        batch = self.topic.batch_bytes_max or BATCH_BYTES_MAX
        paused = len(self._ever_paused) * (settings.partition_bytes_max + batch)
        return settings.fetch_bytes_max + batch * self.host.size + paused

    def pause(self, at: TopicPartition) -> None:
        self._ever_paused.add(at)
        self.consumer.pause([at])

    def key_of(self, at: TopicPartition) -> PartitionKey:
        return self.topic.keys[at.partition]

    def place_of(self, key: PartitionKey) -> TopicPartition:
        return TopicPartition(key.topic, key.number)

    def begin_stretch(self, key: PartitionKey, position: int | None = None) -> None:
        """Reading goes on elsewhere: at that position, or where the consumer says."""
        self._stretches[key] = self._stretches.get(key, 0) + 1
        self._positions.pop(key, None)
        if position is not None:
            self._positions[key] = position

    def revoked(self) -> None:
        """The last moment to commit."""

    def lost(self, partitions: Partitions) -> None:
        """Too late to commit."""

    def listen(self) -> None:
        for event in self.consumer.take_events():
            match event:
                case Assigned(partitions):
                    for at in sorted(partitions):
                        self.begin_stretch(self.key_of(at))
                case Revoked():
                    self.revoked()
                    self.consumer.acknowledge(self.now)
                case Lost(partitions):
                    self.lost(partitions)
                case _:
                    pass
        self._tell_assignment()

    def _tell_assignment(self) -> None:
        """The judges hear what the program holds to be its own, and in which generation.

        One that is still being shared out may never be, and its number be given to another.
        """
        group = self.consumer.group
        if self._kind is None or group is None or not group.membership.is_stable:
            return
        member = self.consumer.group_metadata()
        partitions = tuple(self.key_of(at) for at in sorted(self.consumer.assignment))
        if member.generation < 0 or not partitions:
            return
        told = JudgedAssignment(
            member.group_id,
            member.instance_id or member.member_id,
            member.generation,
            partitions,
            is_classic=self._kind.protocol == "classic",
        )
        if told != self._told:
            self._told = told
            self.history.add(told)

    def poll(self, count_max: int) -> list[Message]:
        """What a shell does in its `poll`; a static member whose place is taken ends its program."""
        self.consumer.polled(self.now)
        self.listen()
        try:
            return self._take(count_max)
        except ClientError as error:
            if not isinstance(error, KafkaError) or error.code not in PLACE_TAKEN:
                raise
            self.die()
            return []

    def _take(self, count_max: int) -> list[Message]:
        """The next records; the judges are told what they were and where the consumer stood before."""
        for at in self.consumer.assignment:
            position = self.consumer.position(at)
            if position is not None:
                self._positions.setdefault(self.key_of(at), position)
        self.holds("fetched records", self.consumer.metrics().buffered_bytes, self._bytes_max)
        messages = self.consumer.take_records(self.now, count_max)
        for key, rows in by_partition(self, messages).items():
            self.history.add(
                Shown(
                    f"{self.name}.{self.life}",
                    self._stretches.setdefault(key, 1),
                    key,
                    self._positions[key],
                    [(message.offset, message.value) for message in rows],
                )
            )
            self._positions[key] = rows[-1].offset + 1
        return messages


def by_partition(program: Reading, messages: Iterable[Message]) -> dict[PartitionKey, list[Message]]:
    found: dict[PartitionKey, list[Message]] = {}
    for message in messages:
        found.setdefault(program.topic.keys[message.partition], []).append(message)
    return found
