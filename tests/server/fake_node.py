"""A node for the server's tests: requests say what should happen to them.

A frame is an api key (what to do), a version, a correlation id, then a body. Answers are size, correlation
id, body.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from headrace.base.time import Instant, Now
from headrace.node.authorization import Access
from headrace.node.connection import Connection, Pending
from headrace.node.effects import Answer, Close, Effect, Halt, Mute, Parts, Proceed, Report, Run, Send
from headrace.node.http_clients import HttpClients
from headrace.node.metrics import Metrics
from headrace.node.peers import Peer, Unanswered
from headrace.node.settings import Settings
from headrace.server.jobs import Jobs
from headrace.server.logs import Log
from headrace.server.process import Process, Surroundings
from headrace.storage.disk import Disk, Span
from headrace.storage.jobs import JobKind

ECHO, PARK, SPAN, SILENT, CLOSE, MUTE, JOB, RAISE, SEND, HALT, FILL, KEEP = range(12)

TIMEOUT_S = 120.0

uses_core = False  # whether servers have the compiled network core: what the fixture `run` says


@dataclass(slots=True)
class Call:
    """A job that runs any function: only for threads."""

    act: Callable[[Disk], Any]
    kind: JobKind = JobKind.IO

    def run(self, disk: Disk) -> Any:
        return self.act(disk)


class FakeNode:
    def __init__(self, around: Surroundings) -> None:
        self.around = around
        self.settings = around.settings
        self.is_ready = True
        self.is_stopped = False
        self.is_stopping = False
        self.frames: list[bytes] = []
        self.connections: list[Connection] = []
        self.gone: list[Connection] = []
        self.parked: list[tuple[Pending, Parts]] = []
        self.kept: list[tuple[Connection, memoryview]] = []  # frames of KEEP, where they have arrived
        self.results: list[tuple[int, Any]] = []
        self.effects: list[Effect] = []
        self.woken_at: list[float] = []
        self.deadlines: list[float] = []
        self.span: Span | None = None
        self.jobs: dict[int, Connection] = {}
        self.stops_by_itself = True
        self.moments: list[Now] = []
        self.peer = Peer(7, "127.0.0.1", 1)  # to which SEND sends an ECHO
        self.check_certificates: Callable[[Settings], None] = lambda wanted: None

    def try_certificates_by(self, check: Callable[[Settings], None]) -> None:
        self.check_certificates = check

    def connected(self, now: Now, connection: Connection) -> None:
        self.connections.append(connection)

    def shown_certificate(self, now: Now, connection: Connection, principal: str) -> None:
        connection.principal = principal

    def refused_handshake(self, now: Now, connection: Connection, reason: str) -> None:
        pass

    def disconnected(self, now: Now, connection: Connection) -> None:
        connection.is_closed = True
        self.gone.append(connection)

    def handle(self, now: Now, connection: Connection, frame: memoryview) -> Parts | None:
        self.frames.append(bytes(frame))
        self.moments.append(now)
        what, size, correlation = struct.unpack_from(">hhi", frame)
        parts: Parts = [answer(correlation, bytes(frame[8:]))]
        match what:
            case 0:  # ECHO, in two parts
                whole = answer(correlation, bytes(frame[8:]))
                parts = [whole[:8], whole[8:]] if len(frame) > 8 else parts
            case 1:  # PARK
                self.park(connection, parts)
                return None
            case 2:  # SPAN
                assert self.span is not None
                head = struct.pack(">ii", 4 + self.span.size, correlation)
                parts = [head, Span(self.span.file, self.span.position, self.span.size)]
            case 3:  # SILENT
                return None
            case 4:  # CLOSE
                self.effects.append(Close(connection, "asked to"))
                return None
            case 5:  # MUTE
                self.effects.append(Mute(connection, Instant(now.mono + size / 1000)))
            case 6:  # JOB
                self.jobs[correlation] = connection
                self.effects.append(Run(correlation, self.directory, "queue", Call(lambda disk: repr(disk))))
                return None
            case 7:  # RAISE
                raise RuntimeError("planted")
            case 8:  # SEND
                self.effects.append(
                    Send(correlation, self.peer, "lane", request(ECHO, correlation, bytes(frame[8:])))
                )
                return None
            case 9:  # HALT
                self.effects.append(Halt("planted"))
                return None
            case 10:  # FILL: an answer of that many KiB
                parts = [answer(correlation, bytes(size * 1024))]
            case 11:  # KEEP: without an answer, and used until it is released
                assert connection.frames_stay
                connection.kept_frames += 1
                self.kept.append((connection, frame))
                return None
        if connection.pending:
            pending = Pending(connection)
            pending.parts, pending.is_done = parts, True
            connection.pending.append(pending)
            return None
        return parts

    @property
    def http_clients(self) -> HttpClients:
        """Everybody may do everything."""
        nothing: Any = None
        ports: Any = SimpleNamespace(jobs=None, deadlines=None, reports=None)
        return HttpClients(self.settings, Access(), nothing, nothing, ports, Metrics())

    @property
    def directory(self) -> str:
        return self.around.settings.log_dirs[0]

    def park(self, connection: Connection, parts: Parts) -> None:
        pending = Pending(connection)
        connection.pending.append(pending)
        self.parked.append((pending, parts))

    def answer_parked(self, index: int = 0) -> None:
        pending, pending.parts = (item := self.parked.pop(index))[0], item[1]
        pending.is_done = True
        queue = pending.connection.pending
        while queue and queue[0].is_done:
            ready = queue.popleft()
            assert ready.parts is not None
            self.effects.append(Answer(ready.connection, ready.parts))

    def release_frame(self) -> None:
        """The oldest that is kept."""
        connection, _ = self.kept.pop(0)
        connection.kept_frames -= 1
        self.effects.append(Proceed(connection))

    def completed(self, now: Now, ticket: int, result: Any) -> None:
        self.results.append((ticket, result))
        connection = self.jobs.pop(ticket, None)
        if connection is not None:
            self.effects.append(Answer(connection, [answer(ticket, str(result).encode())]))

    def answered(self, now: Now, ticket: int, answer: memoryview | Unanswered) -> bool:
        self.completed(now, ticket, answer if isinstance(answer, Unanswered) else bytes(answer))
        return False

    def wake(self, now: Now) -> None:
        self.woken_at.append(now.mono)
        self.deadlines = [at for at in self.deadlines if at > now.mono]

    def deadline(self) -> Instant | None:
        return Instant(min(self.deadlines)) if self.deadlines else None

    def take_effects(self) -> list[Effect]:
        effects, self.effects = self.effects, []
        return effects

    def shutdown(self, now: Now) -> None:
        self.effects.append(Report("info", "shutting_down", {}))
        while self.parked:
            self.answer_parked()
        self.is_stopping = True
        self.is_stopped = self.stops_by_itself


def answer(correlation: int, body: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation) + body


def request(what: int, correlation: int, body: bytes = b"", size: int = 0) -> bytes:
    return struct.pack(">ihhi", 8 + len(body), what, size, correlation) + body


class Client:
    """A raw connection that can be as rude as it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))
        await self.writer.drain()

    async def receive(self) -> tuple[int, bytes]:
        size = struct.unpack(">i", await self.reader.readexactly(4))[0]
        frame = await self.reader.readexactly(size)
        return struct.unpack_from(">i", frame)[0], frame[4:]

    async def ask(self, what: int, correlation: int, body: bytes = b"", size: int = 0) -> bytes:
        await self.send(request(what, correlation, body, size))
        answered, content = await self.receive()
        assert answered == correlation
        return content

    async def is_closed(self) -> bool:
        """Waits for the server to close; anything it still sends is an error."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.writer.close()


class RunningServer:
    """A process around a fake node, its clients, and what it logged."""

    def __init__(self, process: Process, node: FakeNode, lines: list[str]) -> None:
        self.process = process
        self.node = node
        self.lines = lines
        self.clients: list[Client] = []

    @property
    def port(self) -> int:
        return self.process.settings.listeners[0].port

    async def client(self) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port, limit=2**26))
        self.clients.append(client)
        return client

    @property
    def jobs(self) -> Jobs:
        jobs = self.process.driver.jobs
        assert isinstance(jobs, Jobs)
        return jobs

    async def until_received(self, count: int) -> None:
        """Until this many bytes have come in, of all clients together."""
        await self.until(lambda: self.process.connections.bytes_in == count)

    def settle(self) -> None:
        self.process.driver.settle()

    def logged(self, event: str) -> list[str]:
        return [line for line in self.lines if line.split()[2] == event]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Yields to the loop until the condition holds; the test's own timeout ends a hopeless wait."""
        while not condition():
            await asyncio.sleep(0)


def settings(directory: Path, **keys: object) -> Settings:
    texts = {
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(directory),
        "headrace.network.core": str(uses_core).lower(),
    }
    return Settings.parse(texts | {key.replace("_", "."): str(value) for key, value in keys.items()})


@asynccontextmanager
async def running_server(
    directory: Path, *, clock: Any = None, halt: Any = None, **keys: object
) -> AsyncIterator[RunningServer]:
    lines: list[str] = []
    nodes: list[FakeNode] = []

    def make_node(around: Surroundings) -> FakeNode:
        nodes.append(FakeNode(around))
        return nodes[0]

    extra = {} if halt is None else {"halt": halt}
    process = Process(
        settings(directory, **keys),
        log=Log("debug", write=lines.append),
        make_node=make_node,
        clock=clock,
        **extra,
    )
    async with asyncio.timeout(TIMEOUT_S):
        await process.start()
        made = RunningServer(process, nodes[0], lines)
        try:
            yield made
        finally:
            for client in made.clients:
                client.close()
            if not nodes[0].is_stopped:
                nodes[0].stops_by_itself = True
                await process.stop()
