"""Nodes with the controller role in one quorum, and with the broker role if a test wants that, in memory: a
frame arrives a millisecond after it was sent, jobs run at once, and time passes when the test says so.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

from headrace.base.time import ManualClock
from headrace.node.connection import Connection
from headrace.node.effects import (
    Answer,
    Close,
    Halt,
    Hangup,
    Mute,
    Proceed,
    Report,
    Run,
    Send,
    WriteAudit,
)
from headrace.node.node import Node
from headrace.node.peers import Unanswered
from headrace.node.settings import Settings
from headrace.protocol.api import request_codec
from headrace.protocol.framing import request_frame
from headrace.simulator.frames import joined, read_answer
from headrace.storage.disk import Disk
from headrace.storage.memory_disk import MemoryDisk

FRAME_SECONDS = 0.001
SIZE_BYTES = 4
CLIENTS_PORT = 9600  # plus the node's id
CLUSTER_ID = "dGVzdC1jbHVzdGVyLWlkMQ"

Act = Callable[[], None]


class Wire:
    """A connection between two nodes, or of a test to a node: answers go to `answered`."""

    def __init__(self, source: Controller | None, target: Controller, connection: Connection) -> None:
        self.source = source
        self.target = target
        self.connection = connection
        self.tickets: list[int] = []
        self.answers: list[bytes] = []  # for a test


class Controller:
    """One node: its disk stays when it is killed."""

    def __init__(self, cluster: Controllers, id: int, texts: dict[str, str]) -> None:
        self.cluster = cluster
        self.id = id
        self.settings = Settings.parse(texts)
        self.disk: Any = MemoryDisk()  # or one around it
        self.node: Node | None = None
        self.life = 0
        self.boots = 0  # of its host
        self.runs_jobs = True
        self.slow_queues: set[str] = set()  # whose jobs wait for `run_jobs`
        self.held_jobs: list[Run] = []
        self.reports: list[Report] = []
        self.audited: list[dict[str, Any]] = []
        self.halted = ""
        self.wires: dict[int, Wire] = {}  # inbound, by connection id
        self.lanes: dict[tuple[int, str], Wire] = {}  # outbound

    @property
    def up(self) -> Node:
        assert self.node is not None, f"node {self.id} is down"
        return self.node

    @property
    def metadata(self) -> Any:
        return self.up.controller.metadata

    def start(self) -> None:
        self.life += 1
        disks: dict[str, Disk] = {"data": self.disk}
        rng = Random(self.id + 100 * self.life)
        self.node = Node(self.settings, disks, rng, f"boot-{self.boots}", self.cluster.clock.now())
        self.settle()

    def kill(self, *, how: Any = "killed") -> None:
        self.node = None
        self.life += 1
        self.boots += how == "lost"
        self.disk = self.disk.crash(how, Random(self.life))
        self.held_jobs.clear()
        for wire in (*self.wires.values(), *self.lanes.values()):
            self.cluster.broke(wire)
        self.wires.clear()
        self.lanes.clear()

    def call(self, act: Callable[[Node], object]) -> None:
        if self.node is not None:
            act(self.node)
            self.settle()

    def settle(self) -> None:
        """Carry out the node's effects, and set its timer."""
        while self.node is not None and (effects := self.node.take_effects()):
            for effect in effects:
                self._carry_out(effect)
        if self.node is not None:
            self.cluster.wake_later(self)

    def _carry_out(self, effect: Any) -> None:
        match effect:
            case Run():
                if self.runs_jobs and effect.queue not in self.slow_queues:
                    self.run_job(effect)
                else:
                    self.held_jobs.append(effect)
            case Send():
                self.cluster.send(self, effect)
            case Hangup(peer_id, lane):
                wire = self.lanes.pop((peer_id, lane), None)
                if wire is not None:
                    self.cluster.broke(wire)
            case Answer(connection, parts):
                self.cluster.answer(self.wires[connection.id], joined(parts))
            case Close(connection):
                self.cluster.broke(self.wires.pop(connection.id))
            case Report():
                self.reports.append(effect)
            case Halt(reason):
                self.halted = reason
            case WriteAudit():
                self.audited += effect.entries
            case Mute() | Proceed():
                pass
            case _:
                raise AssertionError(f"nobody expected {effect}")

    def run_job(self, run: Run) -> None:
        result: Any
        try:
            result = run.job.run(self.disk)
        except Exception as error:
            result = error
        self.up.completed(self.cluster.clock.now(), run.ticket, result)

    def run_jobs(self) -> None:
        self.runs_jobs = True
        self.slow_queues.clear()
        while self.held_jobs:
            self.run_job(self.held_jobs.pop(0))
            self.settle()


class Controllers:
    def __init__(
        self, voters: int = 3, *, settings: dict[str, str] | None = None, are_brokers: bool = False
    ) -> None:
        self.clock = ManualClock(mono=100.0)
        self._agenda: list[tuple[float, int, Act]] = []
        self._order = count()
        self._connections = count(1)
        self._wakes: dict[int, float] = {}
        self.cuts: set[tuple[int, int]] = set()
        addresses = ",".join(f"{id}@127.0.0.1:{9500 + id}" for id in range(1, voters + 1))
        self.nodes = {
            id: Controller(
                self,
                id,
                {
                    "node.id": str(id),
                    "process.roles": "broker,controller" if are_brokers else "controller",
                    "controller.listener.names": "CONTROLLER",
                    "listeners": f"CONTROLLER://127.0.0.1:{9500 + id}"
                    + (f",PLAINTEXT://127.0.0.1:{CLIENTS_PORT + id}" if are_brokers else ""),
                    "controller.quorum.voters": addresses,
                    "headrace.cluster.id": CLUSTER_ID,
                    "log.dirs": "data",
                    **(settings or {}),
                },
            )
            for id in range(1, voters + 1)
        }

    # --- time ----------------------------------------------------------------------------------------------

    def at(self, seconds: float, act: Act) -> None:
        heappush(self._agenda, (self.clock.mono + seconds, next(self._order), act))

    def wake_later(self, one: Controller) -> None:
        at = one.up.deadline()
        if at is None or self._wakes.get(one.id) == at:
            return
        self._wakes[one.id] = at
        life = one.life

        def wake() -> None:
            if one.life == life and one.node is not None and self._wakes.get(one.id) == at:
                del self._wakes[one.id]
                one.call(lambda node: node.wake(self.clock.now()))

        self.at(max(0.0, at - self.clock.mono), wake)

    def run(self, seconds: float, is_done: Callable[[], bool] | None = None) -> bool:
        end = self.clock.mono + seconds
        while self._agenda and self._agenda[0][0] <= end:
            at, _, act = heappop(self._agenda)
            self.clock.advance(max(0.0, at - self.clock.mono))
            act()
            if is_done is not None and is_done():
                return True
        self.clock.advance(max(0.0, end - self.clock.mono))
        return is_done is None

    # --- the network ---------------------------------------------------------------------------------------

    def connect(self, source: Controller | None, target: Controller, listener: str = "CONTROLLER") -> Wire:
        connection = Connection(next(self._connections), listener=listener, address="127.0.0.1")
        wire = Wire(source, target, connection)
        target.wires[connection.id] = wire
        target.call(lambda node: node.connected(self.clock.now(), connection))
        return wire

    def send(self, source: Controller, effect: Send) -> None:
        target = self.nodes.get(effect.peer.id)
        life = source.life

        def lost(why: Unanswered) -> None:
            if source.life == life:
                source.call(lambda node: node.answered(self.clock.now(), effect.ticket, why))

        if target is None or (source.id, target.id) in self.cuts or (target.id, source.id) in self.cuts:
            return  # silence: the sender's deadline ends it. Brokers that tests register do not exist
        listener = "PLAINTEXT" if effect.peer.port > CLIENTS_PORT else "CONTROLLER"
        # as in a process, whose listener for brokers and clients opens when it may serve them
        is_open = target.node is not None and (listener == "CONTROLLER" or target.node.is_ready)
        if not is_open:
            self.at(FRAME_SECONDS, lambda: lost(Unanswered.REFUSED))
            return
        key = (effect.peer.id, effect.lane)
        wire = source.lanes.get(key)
        if wire is None or wire.connection.is_closed:
            wire = source.lanes[key] = self.connect(source, target, listener)
        wire.tickets.append(effect.ticket)
        self.at(FRAME_SECONDS, lambda: self._deliver(wire, effect.frame))

    def _deliver(self, wire: Wire, frame: bytes) -> None:
        target = wire.target
        if target.node is None or wire.connection.is_closed:
            return

        def handle(node: Node) -> None:
            parts = node.handle(self.clock.now(), wire.connection, memoryview(bytearray(frame[SIZE_BYTES:])))
            if parts is not None:
                self.answer(wire, joined(parts))

        target.call(handle)

    def answer(self, wire: Wire, frame: bytes) -> None:
        source = wire.source
        if source is None:
            wire.answers.append(frame)
            return
        if (source.id, wire.target.id) in self.cuts:
            return
        ticket = int.from_bytes(frame[SIZE_BYTES : 2 * SIZE_BYTES])
        life = source.life

        def arrive() -> None:
            if source.life == life and ticket in wire.tickets:
                wire.tickets.remove(ticket)
                view = memoryview(frame)[SIZE_BYTES:]
                source.call(lambda node: node.answered(self.clock.now(), ticket, view))

        self.at(FRAME_SECONDS, arrive)

    def broke(self, wire: Wire) -> None:
        """The connection is gone at both ends."""
        wire.connection.is_closed = True
        tickets, wire.tickets = wire.tickets, []
        source, target = wire.source, wire.target
        target.wires.pop(wire.connection.id, None)
        target.call(lambda node: node.disconnected(self.clock.now(), wire.connection))
        if source is not None and source.node is not None:
            life = source.life
            for ticket in tickets:

                def lose(ticket: int = ticket) -> None:
                    if source.life == life:
                        source.call(lambda node: node.answered(self.clock.now(), ticket, Unanswered.LOST))

                self.at(FRAME_SECONDS, lose)

    # --- what tests ask ------------------------------------------------------------------------------------

    def start(self) -> Controllers:
        for one in self.nodes.values():
            one.start()
        return self

    def leader(self) -> Controller | None:
        """The active one."""
        active = [one for one in self.nodes.values() if one.node is not None and one.metadata.is_active]
        return max(active, key=lambda one: one.metadata.leader_epoch, default=None)

    def elected(self, seconds: float = 5.0) -> Controller:
        assert self.run(seconds, lambda: self.leader() is not None), "nobody was elected"
        leader = self.leader()
        assert leader is not None
        return leader

    def ask(self, one: Controller, request: Any, version: int, *, seconds: float = 1.0) -> Any:
        """The answer of a node; None: it has not answered in that time."""
        return self.answer_on(self.send_request(one, request, version), request, version, seconds=seconds)

    def send_request(self, one: Controller, request: Any, version: int, listener: str = "CONTROLLER") -> Wire:
        wire = self.connect(None, one, listener)
        parts = request_frame(
            request.KEY, version, 1, "test", request_codec(request.KEY, version).encode_parts(request)
        )
        self._deliver(wire, b"".join(bytes(part) for part in parts))  # type: ignore[arg-type]
        return wire

    def answer_on(self, wire: Wire, request: Any, version: int, *, seconds: float = 1.0) -> Any:
        self.run(seconds, lambda: bool(wire.answers))
        return read_answer(wire.answers.pop(0), request.KEY, version) if wire.answers else None
