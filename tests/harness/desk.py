"""A node on a desk: no sockets, no threads; the test says when time passes and when jobs are done."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Any

from harness.broker import ONE_NODE
from harness.single_partition import creation
from headrace.base.time import ManualClock
from headrace.node.connection import Connection
from headrace.node.effects import Answer, Close, Effect, Halt, Mute, Proceed, Report, Run
from headrace.node.node import Node
from headrace.node.settings import Settings
from headrace.protocol.api import request_codec, response_codec
from headrace.protocol.framing import decode_response_header, request_frame
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.storage.disk import Disk, Span
from headrace.storage.memory_disk import MemoryDisk


def joined(parts: list[Any]) -> bytes:
    return b"".join(part.read() if isinstance(part, Span) else bytes(part) for part in parts)


class Desk:
    """Jobs run when `run_jobs` is called, or at once while `runs_jobs` is True."""

    def __init__(
        self,
        settings: dict[str, str] | None = None,
        *,
        disks: dict[str, Disk] | None = None,
        seed: int = 1,
        boot_id: str = "boot-1",
        clock: ManualClock | None = None,
    ) -> None:
        self.clock = clock or ManualClock()
        self.disks: dict[str, Disk] = disks or {"data": MemoryDisk()}
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
        self.answers: dict[int, deque[bytes]] = {}
        self.asked: dict[int, deque[tuple[int, int]]] = {}
        self.closed: dict[int, str] = {}
        self.halted: str | None = None
        self._connections = 0
        self._correlation = 0
        self.node = Node(Settings.parse(self.texts), self.disks, Random(seed), boot_id, self.clock.now())
        self.settle()

    # --- connections and requests ------------------------------------------------------------------------

    def connect(self) -> Connection:
        self._connections += 1
        connection = Connection(self._connections, listener="PLAINTEXT", address="127.0.0.1")
        self.node.connected(self.clock.now(), connection)
        self.answers[connection.id] = deque()
        self.asked[connection.id] = deque()
        return connection

    def send(self, connection: Connection, request: Any, version: int) -> None:
        """Hand a request in; its answer, now or later, is found by `receive`."""
        self._correlation += 1
        key = type(request).KEY
        body = request_codec(key, version).encode(request)
        frame = joined(request_frame(key, version, self._correlation, "test", [body]))[4:]
        self.asked[connection.id].append((key, version))
        self.send_frame(connection, frame)

    def send_frame(self, connection: Connection, frame: bytes) -> None:
        buffer = bytearray(frame)
        parts = self.node.handle(self.clock.now(), connection, memoryview(buffer))
        if parts is not None:
            self.answers[connection.id].append(joined(parts))
        buffer[:] = b"\xff" * len(buffer)  # no view of a connection's buffer outlives `handle`
        self.settle()

    def receive(self, connection: Connection) -> Any:
        """The next answer, decoded as the answer to the oldest unanswered request; None: not yet."""
        waiting = self.answers[connection.id]
        if not waiting:
            return None
        frame = waiting.popleft()
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        key, version = self.asked[connection.id].popleft()
        codec = response_codec(key, version)
        _, position = decode_response_header(frame[4:], codec.header_version)
        return codec.decode(frame[4:], position)

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

    # --- the world ----------------------------------------------------------------------------------------

    def settle(self) -> None:
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
                    case Mute() | Proceed() | Report():
                        self.effects.append(effect)
                    case _:
                        raise AssertionError(f"nobody expected {effect}")
            if self.runs_jobs and self.jobs:
                self.run_job()
            elif not effects:
                break
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

    def advance(self, seconds: float) -> None:
        """Let time pass, stopping at every deadline on the way."""
        end = self.clock.mono + seconds
        while (at := self.node.deadline()) is not None and at <= end:
            self.clock.advance(max(0.0, at - self.clock.mono))
            self.node.wake(self.clock.now())
            self.settle()
        self.clock.advance(end - self.clock.mono)

    # --- what tests do all the time -------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        (result,) = self.ask(creation(name, configs, partitions=partitions), 7).topics
        assert result.error_code == 0, result

    @staticmethod
    def produce_request(
        topic: str,
        batch: bytes | bytearray | memoryview,
        *,
        partition: int = 0,
        acks: int = -1,
        timeout_ms: int = 1_000,
    ) -> ProduceRequest:
        return ProduceRequest(
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)]
                )
            ],
        )
