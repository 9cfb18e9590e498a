"""Small answers of one turn of the loop leave together; one that is alone does not wait."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import termios
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.base.time import ManualClock
from headrace.node.effects import Answer, Halt, Parts
from headrace.server import gathered_answers
from headrace.server.disk import RealDisk
from headrace.storage.disk import Span
from server.fake_node import CLOSE, ECHO, PARK, RunningServer, answer, request, running_server

Run = Callable[[Coroutine[Any, Any, None]], None]


class Watched:
    """What a server does, in order: requests that it handles, and answers that its clients have got.

    What one side of a loopback connection has sent, the other side has: no time passes.
    """

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.events: list[str] = []
        self.on_handle: Callable[[], object] = lambda: None
        self._sockets: list[socket.socket] = []
        self._seen: list[int] = []  # bytes that wait in each of them
        handle = server.process.driver.handle

        def noted_handle(now: Any, client: Any, frame: memoryview) -> Any:
            self.note(f"handle {int.from_bytes(frame[4:8])}")
            self.on_handle()
            return handle(now, client, frame)

        server.process.driver.handle = noted_handle

    def note(self, event: str) -> None:
        self.look()
        self.events.append(event)

    def look(self) -> list[str]:
        """All events until now."""
        for index, client in enumerate(self._sockets):
            (waiting,) = struct.unpack("i", fcntl.ioctl(client, termios.FIONREAD, bytes(4)))
            if waiting > self._seen[index]:
                data = client.recv(waiting, socket.MSG_PEEK)[self._seen[index] :]
                self.events += [f"answer {number}" for number in correlation_ids(data)]
            self._seen[index] = waiting
        return self.events

    async def clients(self, count: int) -> list[socket.socket]:
        """Their requests arrive in one turn of the loop: nothing runs between their calls of `sendall`."""
        server = self.server
        known = len(server.node.connections)
        made = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(count)]
        self._sockets += made
        self._seen += [0] * count
        await server.until(lambda: len(server.node.connections) == known + count)
        return made

    async def until_answered(self, count: int) -> list[str]:
        """The kinds of all events until then."""
        await self.server.until(lambda: sum(event.startswith("answer") for event in self.look()) == count)
        return [event.split()[0] for event in self.events]

    def close(self) -> None:
        for one in self._sockets:
            one.close()


def correlation_ids(data: bytes) -> list[int]:
    found, at = [], 0
    while at < len(data):
        found.append(int.from_bytes(data[at + 4 : at + 8]))
        at += 4 + int.from_bytes(data[at : at + 4])
    return found


@asynccontextmanager
async def watched(directory: Path, **keys: Any) -> AsyncIterator[Watched]:
    async with running_server(directory, **keys) as server:
        made = Watched(server)
        try:
            yield made
        finally:
            made.close()


async def received(client: socket.socket, size: int) -> bytes:
    client.setblocking(False)
    got = b""
    while len(got) < size:
        more = await asyncio.get_running_loop().sock_recv(client, size - len(got))
        if not more:
            break
        got += more
    return got


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine must not end a turn early."""
    monkeypatch.setattr(gathered_answers, "WAIT_S_MAX", 1_000.0)


pytestmark = pytest.mark.usefixtures("patient")


def test_answers_of_one_turn_leave_together(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with watched(tmp_path) as server:
            clients = await server.clients(3)
            for number, client in enumerate(clients):
                client.sendall(request(ECHO, number))
            assert await server.until_answered(3) == ["handle"] * 3 + ["answer"] * 3
            for number, client in enumerate(clients):
                assert await received(client, 8) == answer(number, b"")

    run(story())


def test_a_lone_answer_does_not_wait(run: Run, tmp_path: Path) -> None:
    """It is sent before anything else that the loop has to do."""

    async def story() -> None:
        async with watched(tmp_path) as server:
            (client,) = await server.clients(1)
            client.sendall(request(ECHO, 1))
            assert await received(client, 8) == answer(1, b"")
            server.look()
            server.events.clear()
            loop = asyncio.get_running_loop()
            server.on_handle = lambda: loop.call_soon(server.note, "the loop goes on")
            client.sendall(request(ECHO, 2))
            await server.server.until(lambda: "the loop goes on" in server.events)
            assert server.events == ["handle 2", "answer 2", "the loop goes on"]

    run(story())


def test_answers_do_not_wait_for_long(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathered_answers, "WAIT_S_MAX", 0.0)

    async def story() -> None:
        async with watched(tmp_path) as server:
            for number, client in enumerate(await server.clients(4)):
                client.sendall(request(ECHO, number))
            assert await server.until_answered(4) == ["handle", "answer"] * 4

    run(story())


@pytest.mark.parametrize(("limit", "value"), [("ANSWERS_MAX", 3), ("BYTES_MAX", 3 * 108)])
def test_so_many_leave_at_once(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(gathered_answers, limit, value)

    async def story() -> None:
        async with watched(tmp_path) as server:
            for number, client in enumerate(await server.clients(5)):
                client.sendall(request(ECHO, number, bytes(100)))
            kinds = await server.until_answered(5)
            assert kinds == ["handle"] * 3 + ["answer"] * 3 + ["handle"] * 2 + ["answer"] * 2

    run(story())


@pytest.mark.parametrize("what", ["big", "file"])
def test_what_a_connection_sends_otherwise_leaves_behind_them(run: Run, tmp_path: Path, what: str) -> None:
    async def story() -> None:
        async with watched(tmp_path / "data") as server:
            node = server.server.node
            file = RealDisk(str(tmp_path)).open("records", create=True)
            file.append(b"x" * 1000)
            (client,) = await server.clients(1)
            large: Parts = [answer(2, bytes(20 * 1024))]
            if what == "file":
                large = [answer(2, b"x" * 1000)[:8], Span(file, 0, 1000)]
            parts: list[Parts] = [[answer(1, b"first")], large, [answer(3, b"last")]]
            node.effects += [Answer(node.connections[0], one) for one in parts]
            server.server.settle()
            expected = answer(1, b"first")
            expected += answer(2, bytes(20 * 1024) if what == "big" else b"x" * 1000)
            expected += answer(3, b"last")
            assert await received(client, len(expected)) == expected
            file.close()

    run(story())


def test_answers_are_sent_before_the_node_closes_their_connection(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with watched(tmp_path) as server:
            other, client = await server.clients(2)
            other.sendall(request(ECHO, 1))
            client.sendall(request(ECHO, 2) + request(CLOSE, 3))
            assert await received(client, 100) == answer(2, b"")
            assert await received(other, 8) == answer(1, b"")

    run(story())


def test_a_client_that_ends_its_side_is_still_answered(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with watched(tmp_path) as server:
            other, client = await server.clients(2)
            other.sendall(request(ECHO, 1))
            client.sendall(request(ECHO, 2))
            client.shutdown(socket.SHUT_WR)
            assert await received(client, 100) == answer(2, b"")

    run(story())


def test_the_end_of_a_clients_side_does_not_overtake_its_answer(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with watched(tmp_path) as server:
            await server.clients(1)
            (channel,) = server.server.process.connections.channels.values()
            channel.send([answer(1, b"")])
            assert server.look() == []
            channel.eof_received()
            assert server.look() == ["answer 1"]

    run(story())


def test_a_stop_and_an_idle_sweep_lose_no_answer(run: Run, tmp_path: Path) -> None:
    """Both come after the requests of a turn and before its end."""

    async def story() -> None:
        clock = ManualClock(100.0)
        async with watched(tmp_path, clock=clock, connections_max_idle_ms=10_000) as server:
            first, second = await server.clients(2)
            process = server.server.process
            channels = list(process.connections.channels.values())
            node = server.server.node
            for number, client in enumerate((first, second)):
                client.sendall(request(PARK, number))
            await server.server.until(lambda: len(node.parked) == 2)
            clock.advance(60.0)
            node.answer_parked()
            node.answer_parked()
            process.driver.settle()  # they are gathered
            assert not [event for event in server.look() if event.startswith("answer")]
            process.connections.sweep(channels)  # a moment ago both waited for us
            assert process.connections.idle == 0
            channels[0].close_when_sent()
            assert server.look()[-1] == "answer 0"
            channels[1].close("test")
            assert server.look()[-1] == "answer 1"
            assert await received(first, 100) == answer(0, b"")
            assert await received(second, 100) == answer(1, b"")

    run(story())


def test_a_node_that_halts_has_given_its_answers(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        seen: list[Watched] = []
        async with watched(tmp_path, halt=lambda code: seen[0].note("halt")) as server:
            seen.append(server)
            await server.clients(1)
            node = server.server.node
            node.effects += [Answer(node.connections[0], [answer(1, b"")]), Halt("planted")]
            server.server.settle()
            assert server.events == ["answer 1", "halt"]

    run(story())


def test_a_connection_that_is_lost_takes_its_answers_along(run: Run, tmp_path: Path) -> None:
    """Its descriptor may soon be another connection's."""

    async def story() -> None:
        async with watched(tmp_path) as server:
            (client,) = await server.clients(1)
            node, process = server.server.node, server.server.process
            client.sendall(request(PARK, 1))
            await server.server.until(lambda: len(node.parked) == 1)
            (channel,) = process.connections.channels.values()
            node.answer_parked()
            process.driver.settle()
            channel.connection_lost(None)
            process.connections.send_gathered()
            assert server.look() == ["handle 1"]
            channel.transport.abort()

    run(story())


def test_a_mistake_in_one_connection_does_not_keep_the_answers_of_others() -> None:
    """The loop reports the error; whatever else waits leaves in its next turn."""

    class Client:
        def __init__(self, fault: Exception | None = None) -> None:
            self.fault = fault
            self.got: list[bytes] = []

        def send_now(self, data: bytes) -> None:
            if self.fault is not None:
                raise self.fault
            self.got.append(data)

    due: list[Callable[[], None]] = []
    gathered = gathered_answers.GatheredAnswers(due.append)
    wrong, right = Client(RuntimeError("a mistake")), Client()
    gathered.add(wrong, b"1")  # type: ignore[arg-type]
    gathered.add(right, b"2")  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="a mistake"):
        due.pop()()
    due.pop()()
    assert right.got == [b"2"]
    assert not due
