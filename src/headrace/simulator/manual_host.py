"""A host whose time, jobs and requests the caller moves by hand: for tests of one node.

`Host` lets everything happen at a random time and may be killed inside any call. Here nothing happens by
itself: a request is handled when it is sent, time passes in `advance`, and jobs run at once, or one by one
when the caller says so.
"""

from collections import deque
from collections.abc import Mapping
from random import Random
from typing import Any

from headrace.base.time import ManualClock
from headrace.node.connection import Connection
from headrace.node.effects import (
    Answer,
    Close,
    Effect,
    Fetch,
    Halt,
    Hangup,
    LoseAudit,
    Mute,
    Proceed,
    Report,
    Run,
    Send,
    WriteAudit,
)
from headrace.node.node import Node
from headrace.node.partition import Partition
from headrace.node.settings import Settings
from headrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.simulator.frames import joined, read_answer, request_bytes
from headrace.storage.disk import Disk
from headrace.storage.memory_disk import MemoryDisk

# One node cannot hold three copies of the coordinators' topics; nobody waits for a group's first members.
ONE_NODE = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
}


def creation(
    topic: str, configs: dict[str, str], *, partitions: int = 1, timeout_ms: int = 10_000
) -> CreateTopicsRequest:
    """In keys of configs an underscore stands for a dot, so that they can be keyword arguments."""
    wanted = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    created = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1, configs=wanted)
    return CreateTopicsRequest(topics=[created], timeout_ms=timeout_ms)


class ManualHost:
    """Jobs run when `run_jobs` is called, or at once while `runs_jobs` is True."""

    def __init__(
        self,
        settings: dict[str, str] | None = None,
        *,
        disks: Mapping[str, Disk] | None = None,
        seed: int = 1,
        boot_id: str = "boot-1",
        clock: ManualClock | None = None,
    ) -> None:
        self.clock = clock or ManualClock()
        self.disks: dict[str, Disk] = dict(disks) if disks else {"data": MemoryDisk()}
        self.texts = {
            "node.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:9092",
            "log.dirs": ",".join(self.disks),
            **ONE_NODE,
            **(settings or {}),
        }
        self.runs_jobs = True
        self.jobs: deque[Run] = deque()
        self.effects: list[Effect] = []
        self.sent: deque[Send] = deque()  # to other nodes
        self.fetches: deque[Fetch] = deque()  # documents that the caller hands in
        self.answers: dict[int, deque[bytes]] = {}  # by connection id
        self.asked: dict[int, deque[tuple[int, int]]] = {}  # API and version of what waits for its answer
        self.closed: dict[int, str] = {}
        self.halted: str | None = None
        self._connections = 0
        self._kept: list[tuple[Connection, bytearray]] = []  # frames that the node still uses
        self._correlation = 0
        self.restarts = 0
        self._seed = seed
        self._settings = Settings.parse(self.texts)
        self.node = Node(self._settings, self.disks, Random(seed), boot_id, self.clock.now())
        self.settle()

    def restart(self) -> None:
        """The process dies and starts again on its disks; connections and jobs are gone.

        The first time the machine went on running; later it was started again, too.
        """
        self.restarts += 1
        self.jobs.clear()
        self.answers.clear()
        self.asked.clear()
        rng = Random(self._seed + 1000 * self.restarts)
        self.node = Node(self._settings, self.disks, rng, f"boot-{self.restarts}", self.clock.now())
        self.settle()

    # --- connections and requests ------------------------------------------------------------------------

    def connect(self, listener: str | None = None) -> Connection:
        """By the first listener, or the one with that name."""
        self._connections += 1
        listener = listener or self._settings.listeners[0].name
        connection = Connection(self._connections, listener=listener, address="127.0.0.1")
        self.node.connected(self.clock.now(), connection)
        self.answers[connection.id] = deque()
        self.asked[connection.id] = deque()
        return connection

    def send(self, connection: Connection, request: Any, version: int) -> None:
        """Hand a request in; `receive` returns its answer, now or later."""
        self._correlation += 1
        key = type(request).KEY
        self.asked[connection.id].append((key, version))
        self.send_frame(connection, request_bytes(key, version, self._correlation, "test", request))

    def send_frame(self, connection: Connection, frame: bytes | bytearray) -> None:
        buffer = bytearray(frame)
        parts = self.node.handle(self.clock.now(), connection, memoryview(buffer))
        if parts is not None:
            self.answers[connection.id].append(joined(parts))
        self._kept.append((connection, buffer))
        self._reuse_buffers()
        self.settle()

    def _reuse_buffers(self) -> None:
        """No view of a connection's buffer outlives `handle`, except while the node keeps the frame."""
        for connection, buffer in self._kept:
            if not connection.kept_frames:
                buffer[:] = b"\xff" * len(buffer)
        self._kept = [one for one in self._kept if one[0].kept_frames]

    def receive(self, connection: Connection) -> Any:
        """The next answer, decoded as the answer to the oldest unanswered request; None: not yet."""
        waiting = self.answers[connection.id]
        if not waiting:
            return None
        frame = waiting.popleft()
        return read_answer(frame, *self.asked[connection.id].popleft())

    def ask(self, request: Any, version: int, connection: Connection | None = None) -> Any:
        connection = connection or self.connect()
        self.send(connection, request, version)
        while connection.is_decoding:  # a long one, some of it in each turn
            self.advance(0.001)
        return self.receive(connection)

    def ask_patiently(self, request: Any, version: int) -> Any:
        """The same for an answer that takes the node several turns."""
        connection = self.connect()
        self.send(connection, request, version)
        self.advance(10.0)
        return self.receive(connection)

    # --- effects, jobs and time ---------------------------------------------------------------------------

    def settle(self) -> None:
        """Carry out the node's effects; afterwards the invariants of its coordinators hold."""
        while True:
            effects = self.node.take_effects()
            for effect in effects:
                match effect:
                    case Answer():
                        self.answers[effect.connection.id].append(joined(effect.parts))
                    case Close():
                        self.closed[effect.connection.id] = effect.reason
                        self.node.disconnected(self.clock.now(), effect.connection)
                    case Run():
                        self.jobs.append(effect)
                    case Halt():
                        self.halted = effect.reason
                    case Send():
                        self.sent.append(effect)
                    case Fetch():
                        self.fetches.append(effect)
                    case Mute() | Proceed() | Report() | Hangup() | WriteAudit() | LoseAudit():
                        self.effects.append(effect)
                    case _:
                        raise AssertionError(f"nobody expected {effect}")
            if self.runs_jobs and self.jobs:
                self.run_job()
            elif not effects:
                break
        self._reuse_buffers()
        if "broker" in self._settings.process_roles:
            for coordinator in self.node.broker.coordinators:
                for shard in coordinator.loaded_shards():
                    shard.machine.check()

    def run_job(self) -> None:
        job = self.jobs.popleft()
        result: Any
        try:
            result = job.job.run(self.disks[job.directory])
        except Exception as error:
            result = error
        self.node.completed(self.clock.now(), job.ticket, result)

    def run_jobs(self) -> None:
        while self.jobs:
            self.run_job()
            self.settle()

    def hand_in(self, document: bytes | Exception) -> None:
        """What is at the URL that the node has asked for first."""
        self.node.completed(self.clock.now(), self.fetches.popleft().ticket, document)
        self.settle()

    def advance(self, seconds: float) -> None:
        """Let time pass, stopping at every deadline on the way."""
        end = self.clock.mono + seconds
        while (at := self.node.deadline()) is not None and at <= end:
            self.clock.advance(max(0.0, at - self.clock.mono))
            self.node.wake(self.clock.now())
            self.settle()
        self.clock.advance(end - self.clock.mono)

    # --- shorthands --------------------------------------------------------------------------------------

    def partitions(self, topic: str) -> list[Partition]:
        """The partitions of a topic that exists."""
        found = self.node.broker.partitions.of_name(topic)
        assert found is not None, f"there is no topic {topic}"
        return list(found.replicas.values())

    def create_topic(self, name: str, partitions: int = 1, /, **configs: str) -> None:
        (result,) = self.ask(creation(name, configs, partitions=partitions), 7).topics
        assert result.error_code == 0, result

    @staticmethod
    def produce_request(
        topic: str,
        batch: bytes | bytearray | memoryview | None,
        *,
        partition: int = 0,
        acks: int = -1,
        timeout_ms: int = 1_000,
    ) -> ProduceRequest:
        data = [PartitionProduceData(index=partition, records=batch)]
        topics = [TopicProduceData(name=topic, partition_data=data)]
        return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=topics)
