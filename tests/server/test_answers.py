"""Answers leave in order, files are read without holding up others, and a slow reader costs little memory."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from headrace.base.limits import UNANSWERED_PER_CONNECTION_MAX
from headrace.base.time import Now
from headrace.node.quotas import ClientMeters
from headrace.server import connection_limits
from headrace.server.connection_limits import PIECE_BYTES, PIECE_IDLE_SWEEPS
from headrace.server.disk import RealDisk, RealFile
from headrace.storage.disk import Span
from headrace.storage.memory_disk import MemoryDisk
from server.fake_node import ECHO, FILL, MUTE, PARK, SPAN, RunningServer, answer, request, running_server

Run = Callable[[Coroutine[Any, Any, None]], None]


def content(size: int) -> bytes:
    return os.urandom(1 << 16) * (size // (1 << 16)) + bytes(size % (1 << 16))


def file_with(directory: Path, data: bytes) -> RealFile:
    file = RealDisk(str(directory)).open("records", create=True)
    file.append(data)
    return file


def only_channel(server: RunningServer) -> Any:
    (channel,) = server.process.connections.channels.values()
    return channel


class ColdFile:
    """Makes every inline read of real files say "not in the page cache", and lets thread reads wait for
    us.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_read = threading.Event()
        self.reads = 0
        plain = RealFile.read

        def read(file: RealFile, position: int, size: int) -> bytes:
            assert threading.current_thread() is not threading.main_thread()
            self.may_read.wait(10)
            self.reads += 1
            return plain(file, position, size)

        monkeypatch.setattr(RealFile, "try_read_into", lambda file, position, view: False)
        monkeypatch.setattr(RealFile, "read", read)


@pytest.mark.parametrize("size", [0, 1, 1_000, 1_048_576, 5_000_000])
def test_spans_are_sent_as_they_are(run: Run, tmp_path: Path, size: int) -> None:
    async def story() -> None:
        async with running_server(tmp_path / "data") as server:
            data = content(size + 100)
            file = file_with(tmp_path, data)
            server.node.span = Span(file, 50, size)
            client = await server.client()
            await client.send(request(ECHO, 1, b"before"), request(SPAN, 2), request(ECHO, 3, b"after"))
            assert await client.receive() == (1, b"before")
            assert await client.receive() == (2, data[50 : 50 + size])
            assert await client.receive() == (3, b"after")
            file.close()

    run(story())


def test_spans_of_a_disk_in_memory(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            data = content(3_000_000)
            file = MemoryDisk().open("records", create=True)
            file.append(data)
            server.node.span = Span(file, 1, len(data) - 1)
            client = await server.client()
            assert await client.ask(SPAN, 1) == data[1:]
            assert file.read(0, 1) == data[:1]

    run(story())


def test_a_cold_read_waits_in_a_thread_and_keeps_the_order(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one connection waits for the disk its later answers wait too; another connection is served."""

    async def story() -> None:
        async with running_server(tmp_path / "data") as server:
            data = content(2_500_000)
            file = file_with(tmp_path, data)
            server.node.span = Span(file, 0, len(data))
            cold = ColdFile(monkeypatch)
            client, bystander = await server.client(), await server.client()
            await client.send(request(PARK, 1, b"parked"), request(SPAN, 2), request(ECHO, 3, b"after"))
            await server.until(lambda: len(server.node.frames) == 3)
            server.node.answer_parked()  # all three answers leave together, the second from the cold file
            server.settle()
            assert await client.receive() == (1, b"parked")
            assert await bystander.ask(ECHO, 1, b"served") == b"served"
            assert cold.reads == 0
            file.close()  # as retention would: the pinned descriptor still reads
            (tmp_path / "records").unlink()
            cold.may_read.set()
            assert await client.receive() == (2, data)
            assert await client.receive() == (3, b"after")
            assert cold.reads == 3  # a piece at a time
            assert await client.ask(ECHO, 4, b"goes on") == b"goes on"

    run(story())


def test_requests_behind_a_cold_read_are_not_handled_yet(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with running_server(tmp_path / "data") as server:
            file = file_with(tmp_path, b"x" * 1000)
            server.node.span = Span(file, 0, 1000)
            cold = ColdFile(monkeypatch)
            client = await server.client()
            await client.send(request(SPAN, 1), request(ECHO, 2, b"after"))
            await server.until(lambda: len(server.node.frames) == 1)
            assert only_channel(server).outbox.is_reading_file
            cold.may_read.set()
            assert await client.receive() == (1, b"x" * 1000)
            assert await client.receive() == (2, b"after")
            file.close()

    run(story())


def test_a_connection_that_goes_while_its_file_is_read(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with running_server(tmp_path / "data") as server:
            file = file_with(tmp_path, b"x" * 1000)
            server.node.span = Span(file, 0, 1000)
            cold = ColdFile(monkeypatch)
            client = await server.client()
            await client.send(request(SPAN, 1))
            await server.until(lambda: len(server.node.frames) == 1)
            channel = only_channel(server)
            channel.close("test")
            await server.until(lambda: bool(server.node.gone))
            cold.may_read.set()
            await server.until(lambda: not channel.outbox.is_reading_file)
            file.close()

    open_before = len(os.listdir("/proc/self/fd"))
    run(story())
    assert len(os.listdir("/proc/self/fd")) <= open_before


@pytest.mark.parametrize("size", [1_000, 300_000])
def test_a_file_cut_short_ends_the_connection(run: Run, tmp_path: Path, size: int) -> None:
    """Part of the frame may already have left: the client must not take what follows for records."""

    async def story() -> None:
        async with running_server(tmp_path / "data") as server:
            file = file_with(tmp_path, b"x" * size)
            server.node.span = Span(file, size // 2, size)
            client, bystander = await server.client(), await server.client()
            await client.send(request(SPAN, 1))
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await client.receive()
            assert server.logged("unreadable_file")
            assert await bystander.ask(ECHO, 1, b"served") == b"served"
            file.close()

    run(story())


@pytest.mark.parametrize("free", [0, 1])
def test_a_file_for_which_no_descriptor_is_free_ends_the_connection(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int
) -> None:
    """The frame has begun: a later answer must not be taken for the rest of it, nor may the client wait."""
    pin = RealFile.pin
    left = [free]

    def scarce(file: RealFile) -> RealFile:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return pin(file)

    async def story() -> None:
        async with running_server(tmp_path / "data") as server:
            file = file_with(tmp_path, b"x" * 1000)
            ColdFile(monkeypatch).may_read.set()
            client, bystander = await server.client(), await server.client()
            await client.send(request(PARK, 1))
            await server.until(lambda: bool(server.node.parked))
            pending, _ = server.node.parked[0]
            server.node.parked[0] = pending, [struct.pack(">ii", 1004, 1), Span(file, 0, 1000)]
            monkeypatch.setattr(RealFile, "pin", scarce)
            server.node.answer_parked()
            server.settle()
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await client.receive()
            assert "Too many open files" in server.logged("connection_closed")[0]
            assert not server.logged("internal_error")
            assert await bystander.ask(ECHO, 1, b"served") == b"served"
            file.close()

    run(story())


def test_parked_answers_come_in_order(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            client = await server.client()
            await client.send(request(PARK, 1, b"a"), request(PARK, 2, b"b"), request(ECHO, 3, b"c"))
            await server.until(lambda: len(server.node.frames) == 3)
            server.node.answer_parked(1)  # the second is ready first, and waits
            server.settle()
            server.node.answer_parked()
            server.settle()
            assert [await client.receive() for _ in range(3)] == [(1, b"a"), (2, b"b"), (3, b"c")]

    run(story())


def test_a_full_connection_is_not_read_from_until_an_answer_leaves(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            client = await server.client()
            limit = UNANSWERED_PER_CONNECTION_MAX
            frames = [request(PARK, number) for number in range(limit + 5)]
            await client.send(*frames)
            await server.until(lambda: len(server.node.frames) >= limit)
            bystander = await server.client()
            for number in range(20):  # many turns of the loop
                assert await bystander.ask(ECHO, number) == b""
            handled = [frame for frame in server.node.frames if frame[1] == PARK]
            assert len(handled) == limit
            server.node.frames[:] = handled
            server.node.answer_parked()
            server.settle()
            assert await client.receive() == (0, b"")
            await server.until(lambda: len(server.node.frames) == limit + 1)
            while server.node.parked:
                server.node.answer_parked()
                server.settle()
                await asyncio.sleep(0)
            for number in range(1, limit + 5):
                while server.node.parked:
                    server.node.answer_parked()
                    server.settle()
                assert await client.receive() == (number, b"")

    run(story())


def test_a_slow_reader_is_held_back(run: Run, tmp_path: Path) -> None:
    """It asks for 100 answers of 1 MiB and reads none: a few are made, the rest when it reads."""

    async def story() -> None:
        async with running_server(tmp_path, socket_send_buffer_bytes=65_536) as server:
            slow = socket.create_connection(("127.0.0.1", server.port))
            slow.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(slow, b"".join(request(FILL, n, size=1024) for n in range(100)))
            await server.until(lambda: bool(server.node.frames))
            bystander = await server.client()
            for number in range(50):
                assert await bystander.ask(ECHO, number) == b""
            handled = len(server.node.frames) - 50
            assert handled < 20
            left = 100 * len(answer(0, bytes(1024 * 1024)))
            buffer = bytearray(1 << 20)
            while left:
                left -= await loop.sock_recv_into(slow, buffer)
            assert len(server.node.frames) == 150
            slow.close()

    run(story())


def test_a_slow_reader_of_a_file_holds_a_piece_of_it(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path / "data", socket_send_buffer_bytes=65_536) as server:
            data = content(24_000_000)
            file = file_with(tmp_path, data)
            server.node.span = Span(file, 0, len(data))
            slow = socket.create_connection(("127.0.0.1", server.port))
            slow.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(slow, request(SPAN, 1))
            await server.until(lambda: bool(server.node.frames))
            bystander = await server.client()
            for number in range(50):
                assert await bystander.ask(ECHO, number) == b""
            assert server.process.connections.bytes_out < 12_000_000
            got = bytearray()
            while len(got) < len(data) + 8:
                got += await loop.sock_recv(slow, 1 << 20)
            assert got[8:] == data
            slow.close()
            file.close()

    run(story())


def test_a_connection_ends_when_a_slow_reader_has_taken_its_answers(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path, socket_send_buffer_bytes=65_536) as server:
            slow = socket.create_connection(("127.0.0.1", server.port))
            slow.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(slow, request(FILL, 1, size=16_000) + request(ECHO, 2, b"last"))
            await server.until(lambda: bool(server.node.frames))
            channel = only_channel(server)
            await server.until(lambda: channel.transport.get_write_buffer_size() > 0)
            channel.close_when_sent()
            received = bytearray()
            while more := await loop.sock_recv(slow, 1 << 20):
                received += more
            assert received == answer(1, bytes(16_000 * 1024))
            await server.until(lambda: bool(server.node.gone))
            slow.close()

    run(story())


def has_handled(server: RunningServer, frames: int) -> bool:
    return len(server.node.frames) >= frames


def test_slow_readers_do_not_mix_their_files(run: Run, tmp_path: Path) -> None:
    """Files pass through one piece of memory: what a slow socket has not taken must not be written over."""

    async def story() -> None:
        async with running_server(tmp_path / "data", socket_send_buffer_bytes=65_536) as server:
            data = os.urandom(9_000_000)
            file = file_with(tmp_path, data)
            loop = asyncio.get_running_loop()
            readers: dict[socket.socket, tuple[bytearray, bytes]] = {}
            for number in range(4):
                start, size = number * 1_000_003, 5_000_000 + number
                server.node.span = Span(file, start, size)
                reader = socket.create_connection(("127.0.0.1", server.port))
                reader.setblocking(False)
                handled = len(server.node.frames)
                await loop.sock_sendall(reader, request(SPAN, number) + request(ECHO, number, b"end"))
                await server.until(partial(has_handled, server, handled + 1))
                readers[reader] = bytearray(), data[start : start + size]
            while readers:
                for reader, (got, wanted) in list(readers.items()):
                    got += await loop.sock_recv(reader, 200_000)
                    if len(got) == 8 + len(wanted) + 11:
                        assert got[8:-11] == wanted
                        assert got.endswith(b"end")
                        reader.close()
                        del readers[reader]
            file.close()

    run(story())


def test_memory_through_which_nothing_was_sent_for_a_while_is_given_back(run: Run, tmp_path: Path) -> None:
    """Not what a slow socket has still to take from it."""

    async def story() -> None:
        async with running_server(tmp_path / "data", socket_send_buffer_bytes=65_536) as server:
            connections = server.process.connections
            connections.stop_sweeping()
            data = content(9_000_000)
            file = file_with(tmp_path, data)
            server.node.span = Span(file, 0, 30_000)
            client = await server.client()
            assert await client.ask(SPAN, 1) == data[:30_000]
            assert bytes(connections.piece[8:1000]) == data[:992]
            for _ in range(PIECE_IDLE_SWEEPS - 1):
                connections.release_unused_piece()
            assert bytes(connections.piece[8:1000]) == data[:992]
            connections.release_unused_piece()
            assert bytes(connections.piece[8:1000]) == bytes(992)
            assert await client.ask(SPAN, 2) == data[:30_000]
            server.node.span = Span(file, 0, len(data))
            slow = socket.create_connection(("127.0.0.1", server.port))
            slow.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(slow, request(SPAN, 3))
            await server.until(partial(has_handled, server, 3))
            got = bytearray()
            while len(got) < len(data) + 8:
                for _ in range(PIECE_IDLE_SWEEPS):
                    connections.release_unused_piece()
                got += await loop.sock_recv(slow, 1 << 20)
            assert got[8:] == data
            slow.close()
            file.close()

    run(story())


def test_a_muted_connection_is_read_again_later(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            client = await server.client()
            await client.send(request(MUTE, 1, size=30), request(ECHO, 2, b"later"))
            assert await client.receive() == (1, b"")
            assert len(server.node.frames) == 1
            muted_at = server.node.moments[0].mono
            assert await client.receive() == (2, b"later")
            assert server.node.moments[1].mono - muted_at >= 0.025

    run(story())


def test_the_time_for_a_client_with_quotas_is_counted(run: Run, tmp_path: Path) -> None:
    class Clock:
        """Counts only; what comes of it is the node's."""

        def __init__(self) -> None:
            self.counted: list[float] = []

        def spent(self, seconds: float, now: Now) -> None:
            self.counted.append(seconds)

    async def story() -> None:
        async with running_server(tmp_path) as server:
            client = await server.client()
            assert await client.ask(ECHO, 1, b"without") == b"without"
            meters = Clock()
            server.node.connections[0].meters = cast(ClientMeters, meters)
            assert await client.ask(ECHO, 2, b"whole") == b"whole"
            frame = request(ECHO, 3, b"in pieces")
            await client.send(frame[:10])
            await client.send(frame[10:])
            assert await client.receive() == (3, b"in pieces")
            assert len(meters.counted) >= 2
            assert all(0 <= seconds < 10 for seconds in meters.counted)
            assert sum(meters.counted) > 0

    run(story())


def test_others_have_their_turn_between_many_frames(run: Run, tmp_path: Path) -> None:
    """One client sends thousands of frames at once: they are handled in slices."""

    async def story() -> None:
        async with running_server(tmp_path) as server:
            node = server.node
            plain = node.handle

            def slow(*arguments: Any) -> Any:
                spin = 0
                for number in range(3_000):
                    spin += number
                return plain(*arguments)

            server.process.driver.handle = slow
            greedy = await server.client()
            await greedy.send(*(request(ECHO, number) for number in range(2_000)))
            polite = await server.client()
            await server.until(lambda: len(node.frames) > 0)
            assert await polite.ask(ECHO, -1, b"me too") == b"me too"
            position = next(i for i, frame in enumerate(node.frames) if frame[8:] == b"me too")
            assert position < 1_900
            for number in range(2_000):
                assert await greedy.receive() == (number, b"")

    run(story())


def test_clients_that_take_nothing_cannot_fill_the_memory(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one with the most is closed; one that has little is not."""
    monkeypatch.setattr(connection_limits, "UNSENT_BYTES_MAX", 40_000_000)
    monkeypatch.setattr(connection_limits, "PIECE_BYTES", 1_000_000)

    async def story() -> None:
        async with running_server(tmp_path) as server:
            modest = await server.client()
            deaf = [await server.client() for _ in range(4)]
            for number, client in enumerate(deaf):
                await client.send(request(FILL, 1, size=16_000 + number))
            await server.until(lambda: bool(server.logged("connection_closed")))
            (line,) = server.logged("connection_closed")
            assert "until this client reads them" in line
            assert server.process.connections.unsent_bytes <= 40_000_000
            assert await modest.ask(ECHO, 1, b"unharmed") == b"unharmed"
            for client in deaf:
                client.close()
            await server.until(lambda: len(server.process.connections.channels) == 1)
            assert server.process.connections.unsent_bytes == 0

    run(story())


def test_a_file_is_not_read_for_a_client_that_has_gone(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks for much, several times, and is gone when the first answer is sent."""
    reads: list[int] = []
    plain = RealFile.try_read_into

    def counted(file: RealFile, position: int, view: memoryview) -> bool:
        reads.append(len(view))
        return plain(file, position, view)

    async def story() -> None:
        async with running_server(tmp_path / "data") as server:
            data = content(24_000_000)
            file = file_with(tmp_path, data)
            server.node.span = Span(file, 0, len(data))
            handle = server.process.driver.handle

            def handle_when_gone(now: Any, connection: Any, frame: memoryview) -> Any:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()  # with a reset
                return handle(now, connection, frame)

            server.process.driver.handle = handle_when_gone  # which a connection takes when it begins
            monkeypatch.setattr(RealFile, "try_read_into", counted)
            client = socket.create_connection(("127.0.0.1", server.port))
            client.sendall(request(SPAN, 1) * 20)
            await server.until(lambda: bool(server.node.gone))
            assert sum(reads) <= 3 * PIECE_BYTES
            file.close()

    run(story())
