"""The compiled network core under random traffic: frames cut anywhere, rubbish, slow readers, hang-ups.

Each case has a few connections over sockets with small buffers, and a loop whose turns the case decides. What
a client receives is compared with what an obvious model says. `make fuzz` also runs it with sanitizers. For
longer:

    python tests/fuzz/fuzz_core.py --seconds 60 --seed 7
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from harness.seeded_cases import main, run_cases
from headrace.base.time import ManualClock
from headrace.server.connection import Channel
from headrace.server.connection_limits import ConnectionLimits, Connections
from headrace.server.driver import Driver
from headrace.server.logs import Log
from server.fake_node import CLOSE, ECHO, FILL, MUTE, PARK, RAISE, SILENT, FakeNode, answer, request

CASES = int(os.environ.get("HEADRACE_FUZZ_CASES", "1000"))

FRAME_BYTES_MAX = 80_000  # less than the receive buffer: a frame that is too large may be there whole
SENDING_BYTES = 4_096  # of a socket's buffer: most larger answers do not fit
RECEIVED_BYTES = 16_384  # at a time: sanitizers take long to allocate large pieces of memory


class ManualLoop:
    """What the core and its surroundings ask of a loop; the case says when something runs."""

    def __init__(self) -> None:
        self._ready: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._timers: list[Callable[[], object]] = []

    def call_soon(self, act: Callable[..., object], *arguments: object) -> None:
        self._ready.append((act, arguments))

    def call_later(self, delay_s: float, act: Callable[[], object]) -> Any:
        self._timers.append(act)
        return SimpleNamespace(cancel=lambda: self._timers.remove(act) if act in self._timers else None)

    def add_reader(self, descriptor: int, act: Callable[[], object]) -> None: ...

    def remove_reader(self, descriptor: int) -> None: ...

    def run(self) -> None:
        for _ in range(len(self._ready)):
            act, arguments = self._ready.popleft()
            act(*arguments)

    def fire(self) -> bool:
        """Whether there was a timer, or something that was called for."""
        timers, self._timers = self._timers, []
        for act in timers:
            act()
        return bool(timers or self._ready)


class End:
    """The server's end of a pair of sockets, which is asked what only TCP has."""

    def __init__(self, real: socket.socket) -> None:
        self._real = real
        self.fileno = real.fileno
        self.close = real.close

    def getpeername(self) -> tuple[str, int]:
        return "127.0.0.1", 1

    def setsockopt(self, *_: object) -> None: ...


class Server:
    """A core with a node that does what requests say."""

    def __init__(self) -> None:
        from headrace.server._core import Core

        self.loop = ManualLoop()
        loop = cast(asyncio.AbstractEventLoop, self.loop)
        limits = ConnectionLimits(frame_bytes_max=FRAME_BYTES_MAX, request_bytes_max=1_500_000)
        self.connections = Connections(loop, ManualClock(), Log(write=lambda line: None), limits)
        self.node = FakeNode(cast(Any, SimpleNamespace(settings=None)))
        jobs: Any = SimpleNamespace(stop=lambda: None)
        self.driver = Driver(loop, self.node, self.connections, {}, {}, make_jobs=lambda *_: jobs)
        self.core = Core(loop, self.connections, self.driver)
        self.connections.gatherers.append(self.core)

    def settle(self) -> None:
        """All that may happen without the clients."""
        for _ in range(3):
            self.core.turn()
            self.loop.run()


class Client:
    def __init__(self, server: Server, rng: random.Random) -> None:
        self.socket, accepted = socket.socketpair()
        for end in (self.socket, accepted):
            end.setblocking(False)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENDING_BYTES)
        self.stream, self.expected, self.is_ended = drawn_stream(rng)
        self.sent = 0
        self.received = bytearray()
        self.is_over = False
        self.channel = Channel(server.connections, server.driver, "PLAINTEXT")
        server.core.adopt(cast(socket.socket, End(accepted)), self.channel)

    def send(self, size: int) -> bool:
        try:
            count = self.socket.send(memoryview(self.stream)[self.sent : self.sent + size])
        except OSError:
            return False
        self.sent += count
        return count > 0

    def receive(self, size: int) -> bool:
        try:
            data = self.socket.recv(size)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self.is_over = True
        self.received += data
        return bool(data)


def drawn_stream(rng: random.Random) -> tuple[bytes, bytes, bool]:
    """What a client sends, the answers to it, and whether it makes the server end the connection."""
    stream, expected = bytearray(), bytearray()
    for number in range(rng.choice((0, 1, 2, 3, 8, 60))):
        what = rng.choice((ECHO, ECHO, ECHO, FILL, SILENT, PARK, MUTE))
        size = rng.choice((0, 1, 20, 20, 300, 5_000, 70_000)) if rng.random() < 0.3 else rng.randrange(40)
        body = rng.randbytes(size)
        stream += request(what, number, body, size % 50)
        if what == FILL:
            expected += answer(number, bytes(size % 50 * 1024))
        elif what != SILENT:
            expected += answer(number, body)
    end = rng.choice((b"", b"", request(CLOSE, 0), request(RAISE, 0), b"size", b"part"))
    if end == b"size":
        end = struct.pack(">i", rng.choice((-1, 0, 7, FRAME_BYTES_MAX + 1, 2**31 - 1, -(2**31))))
        end += bytes(rng.choice((0, 100_000)))
    elif end == b"part":
        end = request(ECHO, 0, rng.randbytes(rng.randrange(1, 75_000)))[: rng.randrange(1, 90_000)][:-1]
        return bytes(stream + end), bytes(expected), False
    return bytes(stream + end + (rng.randbytes(30) if end else b"")), bytes(expected), bool(end)


def drawn(rng: random.Random) -> bytes:
    return rng.randbytes(8)


def one(seed: bytes) -> None:
    rng = random.Random(seed)
    server = shared_server()
    node, connections = server.node, server.connections
    clients = [Client(server, rng) for _ in range(rng.choice((1, 1, 2, 4)))]
    harmed = set()  # who was closed, or hung up, before its time
    for _ in range(rng.randrange(40)):
        client = rng.choice(clients)
        match rng.randrange(12):
            case 0 | 1 | 2 | 3:
                client.send(rng.choice((1, 3, 10, 200, 5_000, 100_000)))
            case 4 | 5 | 6:
                server.core.turn()
            case 7:
                server.loop.run()
            case 8 | 9:
                client.receive(rng.choice((1, 100, 100_000)))
            case 10:
                if node.parked:
                    node.answer_parked(rng.randrange(len(node.parked)))
                    server.driver.settle()
                server.loop.fire()
            case 11 if rng.random() < 0.1:
                harmed.add(client)
                channel = client.channel
                rng.choice((client.socket.close, channel.close_when_sent, partial(channel.close, "fuzz")))()
    quiet = 0
    while quiet < 2:
        before = connections.bytes_in
        is_moving = False
        for client in clients:
            is_moving |= client.send(1 << 20)
            server.settle()
            is_moving |= client.receive(RECEIVED_BYTES)
        is_moving |= server.loop.fire()
        while node.parked:
            node.answer_parked()
            is_moving = True
        server.driver.settle()
        quiet = 0 if is_moving or connections.bytes_in != before else quiet + 1
    for client in clients:
        assert client.expected.startswith(client.received), "other answers than expected"
        if client not in harmed and not client.is_ended:
            assert client.sent == len(client.stream), "not all was read"
            assert client.received == client.expected, "an answer is missing"
        if client.is_ended or client in harmed:
            assert client.is_over, "the connection was not ended"
        client.socket.close()
    server.settle()
    assert not connections.channels
    assert connections.memory.bytes_used == 0
    assert connections.unsent_bytes == 0
    assert not server.core.waiting
    node.frames.clear()
    node.moments.clear()
    node.gone.clear()
    node.connections.clear()
    node.parked.clear()


_servers: list[Server] = []


def shared_server() -> Server:
    """One for all cases: what one leaves behind shows in another."""
    if not _servers:
        _servers.append(Server())
    return _servers[0]


def test_random_traffic() -> None:
    pytest.importorskip("headrace.server._core", reason="this installation has no compiled network core")
    try:
        assert run_cases(drawn, one, seed=1, cases=CASES) == CASES
    finally:
        for server in _servers:
            server.core.stop()
        _servers.clear()


if __name__ == "__main__":
    main(drawn, one, __doc__)
