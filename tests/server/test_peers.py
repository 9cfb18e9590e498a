"""Connections to other nodes, over real sockets: order, separate lanes, and what is told when one ends."""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
import tracemalloc
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.node.peers import Peer, Unanswered
from headrace.server.peers import BUFFER_BYTES, PeerConnections
from server.fake_node import SEND, request, running_server

Run = Callable[[Coroutine[Any, Any, None]], None]


class Node:
    """A peer that answers when it is told to."""

    def __init__(self) -> None:
        self.peer = Peer(2, "127.0.0.1", 0)
        self.received: list[tuple[int, int]] = []  # connection and correlation id
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(self.writers)
        self.writers.append(writer)
        try:
            while head := await reader.readexactly(4):
                frame = await reader.readexactly(int.from_bytes(head))
                self.received.append((number, struct.unpack_from(">hhi", frame)[2]))
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    def answer(self, number: int, ticket: int, body: bytes) -> None:
        self.writers[number].write(struct.pack(">ii", 4 + len(body), ticket) + body)


class Sender:
    """Our side: what was answered to which ticket."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, bytes | Unanswered]] = []
        self.keeps = False
        self.kept: list[memoryview] = []
        self.connections = PeerConnections(asyncio.get_running_loop(), self._answered)

    def _answered(self, ticket: int, answer: memoryview | Unanswered) -> bool:
        self.answers.append((ticket, answer if isinstance(answer, Unanswered) else bytes(answer[4:])))
        if self.keeps and not isinstance(answer, Unanswered):
            self.kept.append(answer[4:])
        return self.keeps

    def send(self, ticket: int, peer: Peer, lane: str = "a") -> None:
        self.connections.send(ticket, peer, lane, struct.pack(">ihhi", 8, 18, 0, ticket))


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[Sender, Node]]:
    node, sender = Node(), Sender()
    server = await asyncio.start_server(node.serve, "127.0.0.1", 0)
    node.peer = Peer(2, "127.0.0.1", server.sockets[0].getsockname()[1])
    try:
        yield sender, node
    finally:
        sender.connections.close()
        server.close()
        for writer in node.writers:
            writer.close()
        await server.wait_closed()
        await asyncio.sleep(0.01)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def play(story: Callable[[Sender, Node], object]) -> None:
    async def run() -> None:
        async with pair() as (sender, node):
            await story(sender, node)  # type: ignore[misc]

    asyncio.run(run())


def test_requests_of_a_lane_share_a_connection_and_lanes_do_not() -> None:
    async def story(sender: Sender, node: Node) -> None:
        for ticket, lane in ((1, "a"), (2, "a"), (3, "b")):
            sender.send(ticket, node.peer, lane)
        await until(lambda: len(node.received) == 3)
        first = next(number for number, ticket in node.received if ticket == 1)
        assert {ticket for number, ticket in node.received if number == first} == {1, 2}
        node.answer(1 - first, 3, b"three")  # before those of the other lane
        await until(lambda: bool(sender.answers))
        node.answer(first, 1, b"one")
        node.answer(first, 2, b"two")
        await until(lambda: len(sender.answers) == 3)
        assert sender.answers == [(3, b"three"), (1, b"one"), (2, b"two")]

    play(story)


@pytest.mark.parametrize("size", [10, BUFFER_BYTES, 5_000_000])
def test_an_answer_that_is_kept_stays_where_it_is(size: int) -> None:
    async def story(sender: Sender, node: Node) -> None:
        sender.keeps = True
        bodies = [bytes([number]) * size for number in range(1, 5)]
        for ticket, body in enumerate(bodies, 1):
            sender.send(ticket, node.peer)
            await until(lambda count=ticket: len(node.received) == count)  # type: ignore[misc]
            if ticket == 2:
                continue  # two answers come at once
            if ticket == 3:
                node.answer(0, 2, bodies[1])
            node.answer(0, ticket, body)
            await until(lambda count=ticket: len(sender.answers) == count)  # type: ignore[misc]
        await asyncio.sleep(0.01)
        assert sender.kept == bodies

    play(story)


@pytest.mark.parametrize("size", [BUFFER_BYTES - 8, BUFFER_BYTES, 5_000_000])
def test_an_answer_larger_than_the_buffer(size: int) -> None:
    async def story(sender: Sender, node: Node) -> None:
        for ticket in (1, 2, 3):
            sender.send(ticket, node.peer)
        await until(lambda: len(node.received) == 3)
        bodies = [b"x" * size, b"y", b"z" * size]
        for ticket, body in enumerate(bodies, 1):
            node.answer(0, ticket, body)
        await until(lambda: len(sender.answers) == 3)
        assert [body for _, body in sender.answers] == bodies

    play(story)


def test_nobody_listens() -> None:
    async def story(sender: Sender, node: Node) -> None:
        sender.send(1, Peer(3, "127.0.0.1", 1))
        sender.send(2, Peer(3, "127.0.0.1", 1))
        assert not sender.answers  # never inside the call
        await until(lambda: len(sender.answers) == 2)
        assert sender.answers == [(1, Unanswered.REFUSED), (2, Unanswered.REFUSED)]
        sender.send(3, node.peer)  # the next one is tried again

    play(story)


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 99_999), ("a..b", 1), ("a" * 70, 1)])
def test_an_address_that_cannot_be_one(host: str, port: int) -> None:
    """Not only the operating system refuses an address: Python does it first, with errors of its own."""

    async def story(sender: Sender, node: Node) -> None:
        sender.send(1, Peer(3, host, port))
        async with asyncio.timeout(5):
            await until(lambda: bool(sender.answers))
        assert sender.answers == [(1, Unanswered.REFUSED)]

    play(story)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EMFILE, "Too many open files"),
        OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address"),
        socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
    ],
    ids=str,
)
def test_what_this_process_lacks_says_nothing_about_the_peer(
    error: OSError, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that refuses a connection counts as ended, and is fenced."""

    async def story(sender: Sender, node: Node) -> None:
        async def fail(*_: Any, **__: Any) -> None:
            raise error

        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", fail)
        sender.send(1, node.peer)
        await until(lambda: bool(sender.answers))
        assert sender.answers == [(1, Unanswered.LOST)]

    play(story)


def test_the_first_bytes_of_something_else_take_no_memory() -> None:
    """A size is believed once it is checked, which takes the bytes behind it."""

    async def story(sender: Sender, node: Node) -> None:
        sender.send(1, node.peer)
        await until(lambda: len(node.received) == 1)
        tracemalloc.start()
        try:
            node.writers[0].write(b"HTTP")
            await asyncio.sleep(0.05)
            assert tracemalloc.get_traced_memory()[1] < 10 * BUFFER_BYTES
        finally:
            tracemalloc.stop()
        node.writers[0].write(b"/1.1 400")
        await until(lambda: bool(sender.answers))
        assert sender.answers == [(1, Unanswered.LOST)]

    play(story)


def test_a_connection_that_breaks_loses_what_was_not_answered_and_the_next_request_opens_another() -> None:
    async def story(sender: Sender, node: Node) -> None:
        for ticket in (1, 2):
            sender.send(ticket, node.peer)
        await until(lambda: len(node.received) == 2)
        node.answer(0, 1, b"one")
        await until(lambda: bool(sender.answers))
        node.writers[0].transport.abort()
        await until(lambda: len(sender.answers) == 2)
        assert sender.answers == [(1, b"one"), (2, Unanswered.LOST)]
        sender.send(3, node.peer)
        await until(lambda: len(node.received) == 3)
        node.answer(1, 3, b"three")
        await until(lambda: len(sender.answers) == 3)

    play(story)


def test_a_lane_that_is_hung_up_takes_no_late_answer() -> None:
    async def story(sender: Sender, node: Node) -> None:
        sender.send(1, node.peer)
        await until(lambda: len(node.received) == 1)
        sender.connections.hang_up(2, "a")
        node.answer(0, 1, b"late")
        sender.send(2, node.peer)
        await until(lambda: len(node.received) == 2)
        node.answer(1, 2, b"two")
        await until(lambda: len(sender.answers) == 2)
        assert sender.answers == [(1, Unanswered.LOST), (2, b"two")]

    play(story)


def test_a_peer_that_moved_is_asked_at_its_new_address() -> None:
    async def story(sender: Sender, node: Node) -> None:
        sender.send(1, Peer(2, "127.0.0.1", 1))
        sender.send(2, node.peer)
        await until(lambda: len(node.received) == 1)
        node.answer(0, 2, b"two")
        await until(lambda: len(sender.answers) == 2)
        assert sorted(sender.answers, key=lambda answer: answer[0])[1] == (2, b"two")

    play(story)


@pytest.mark.parametrize("frame", [b"HTTP/1.1 400", struct.pack(">ii", 4, 99), struct.pack(">ii", 3, 1)])
def test_an_answer_to_nothing_ends_the_connection(frame: bytes) -> None:
    async def story(sender: Sender, node: Node) -> None:
        sender.send(1, node.peer)
        await until(lambda: len(node.received) == 1)
        node.writers[0].write(frame)
        await until(lambda: bool(sender.answers))
        assert sender.answers == [(1, Unanswered.LOST)]

    play(story)


def test_the_driver_sends_what_its_node_asks_for_and_returns_the_answer(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            server.node.peer = Peer(1, "127.0.0.1", server.port)  # itself
            client = await server.client()
            await client.send(request(SEND, 3, b"hello"))
            await server.until(lambda: bool(server.node.results))
            assert server.node.results == [(3, struct.pack(">i", 3) + b"hello")]

    run(story())


def test_a_peer_that_is_cut_off_neither_hears_nor_is_heard_until_the_way_is_free() -> None:
    async def story(sender: Sender, node: Node) -> None:
        other = node.peer._replace(id=3)  # reached all the time

        async def round_trip(ticket: int) -> None:
            """Whatever was on its way before has arrived after it."""
            sender.send(ticket, other)
            await until(lambda: any(told == ticket for _, told in node.received))
            number = next(number for number, told in node.received if told == ticket)
            node.answer(number, ticket, b"")
            await until(lambda: any(told == ticket for told, _ in sender.answers))

        sender.send(1, node.peer)
        await until(lambda: len(node.received) == 1)
        sender.connections.cut_off({2})
        node.answer(0, 1, b"one")
        sender.send(2, node.peer)  # on the connection that there is
        sender.send(3, node.peer, "new")
        await round_trip(10)
        await round_trip(11)
        assert [ticket for _, ticket in node.received] == [1, 10, 11]
        assert [ticket for ticket, _ in sender.answers] == [10, 11]
        sender.connections.cut_off(())
        await until(lambda: {ticket for _, ticket in node.received} == {1, 2, 3, 10, 11})
        await until(lambda: (1, b"one") in sender.answers)

    play(story)


def test_a_lane_that_is_given_up_while_its_peer_is_cut_off_breaks_there_later() -> None:
    async def story(sender: Sender, node: Node) -> None:
        sender.send(1, node.peer)
        await until(lambda: len(node.received) == 1)
        sender.connections.cut_off({2})
        sender.connections.hang_up(2, "a")
        await until(lambda: sender.answers == [(1, Unanswered.LOST)])
        sender.send(2, node.peer)
        node.answer(0, 1, b"late")
        sender.connections.cut_off(())
        await until(lambda: len(node.received) == 2)
        node.answer(1, 2, b"two")
        await until(lambda: len(sender.answers) == 2)
        assert sender.answers == [(1, Unanswered.LOST), (2, b"two")]

    play(story)
