"""Bytes become frames, whatever the network made of them; what cannot be a frame ends the connection."""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from headrace.base.time import Now
from headrace.node.connection import Connection
from headrace.node.effects import Parts, Report
from headrace.server.logs import REPEATS_MAX
from server.fake_node import CLOSE, ECHO, KEEP, RAISE, SILENT, answer, request, running_server

METADATA = 3
Run = Callable[[Coroutine[Any, Any, None]], None]


def test_a_request_is_answered(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            client = await server.client()
            assert await client.ask(ECHO, 1, b"hello") == b"hello"
            assert await client.ask(ECHO, 2) == b""

    run(story())


def test_frames_split_at_every_byte(run: Run, tmp_path: Path) -> None:
    """Two frames, cut into two reads at each possible place, are handled the same."""

    async def story() -> None:
        async with running_server(tmp_path) as server:
            client = await server.client()
            stream = request(ECHO, 1, b"first") + request(ECHO, 2, b"second one")
            for cut in range(1, len(stream)):
                await client.send(stream[:cut])
                seen = len(stream) * (cut - 1) + cut
                await server.until_received(seen)
                await client.send(stream[cut:])
                assert await client.receive() == (1, b"first")
                assert await client.receive() == (2, b"second one")

    run(story())


def test_one_byte_at_a_time(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            client = await server.client()
            for index, byte in enumerate(request(ECHO, 7, b"slow"), 1):
                await client.send(bytes([byte]))
                await server.until_received(index)
            assert await client.receive() == (7, b"slow")

    run(story())


def test_many_frames_in_one_read(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            client = await server.client()
            await client.send(*(request(ECHO, number, b"x" * (number % 300)) for number in range(5_000)))
            for number in range(5_000):
                assert await client.receive() == (number, b"x" * (number % 300))

    run(story())


@pytest.mark.parametrize("size", [16_000, 16_384, 65_536, 262_140, 300_000, 2_500_000, 8_000_000])
def test_big_frames_arrive_whole(run: Run, tmp_path: Path, size: int) -> None:
    """Frames larger than every buffer, back to back and mixed with small ones."""

    async def story() -> None:
        async with running_server(tmp_path) as server:
            client = await server.client()
            body = bytes(range(256)) * (size // 256 + 1)
            stream = [request(SILENT, 0, body[:size]), request(ECHO, 1, b"small")] * 3
            await client.send(*stream)
            for _ in range(3):
                assert await client.receive() == (1, b"small")
            big = [frame for frame in server.node.frames if len(frame) > 8 + 5]
            assert big == [request(SILENT, 0, body[:size])[4:]] * 3

    run(story())


@pytest.mark.parametrize("size", [300_000, 2_500_000, 6_000_000])
def test_a_frame_that_is_kept_stays_where_it_is(run: Run, tmp_path: Path, size: int) -> None:
    """Frames behind it wait: nothing is moved over it, and nothing is received over it."""

    async def story() -> None:
        async with running_server(tmp_path) as server:
            node = server.node
            client, bystander = await server.client(), await server.client()
            kept, later = os.urandom(size), os.urandom(size)
            sending = asyncio.ensure_future(
                client.send(request(KEEP, 1, kept), request(ECHO, 2, b"small"), request(ECHO, 3, later))
            )
            while not node.kept:
                assert await bystander.ask(ECHO, 7, b"others go on") == b"others go on"
            for _ in range(3):
                assert await bystander.ask(ECHO, 7, b"x" * 300_000) == b"x" * 300_000
                assert node.kept[0][1][8:] == kept
            assert not any(frame.endswith(b"small") for frame in node.frames)
            node.release_frame()
            server.process.driver.settle()
            assert await client.receive() == (2, b"small")
            assert await client.receive() == (3, later)
            await sending

    run(story())


@pytest.mark.parametrize("how", ["hangs up", "memory is short"])
def test_a_frame_that_is_kept_outlives_its_connections_buffer(run: Run, tmp_path: Path, how: str) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            node, connections = server.node, server.process.connections
            client, bystander = await server.client(), await server.client()
            kept = os.urandom(5_000_000)
            await client.send(request(KEEP, 1, kept))
            while not node.kept:
                assert await bystander.ask(ECHO, 7, b"others go on") == b"others go on"
            channel = connections.channels[node.kept[0][0].id]
            if how == "hangs up":
                channel.transport.abort()
                while not node.gone:
                    assert await bystander.ask(ECHO, 7) == b""
            else:
                channel.release_unused_buffer()
            assert connections.memory.bytes_used == 0
            for _ in range(10):  # memory is given back in several turns
                assert await bystander.ask(ECHO, 7) == b""
            assert node.kept[0][1][8:] == kept
            node.release_frame()
            server.process.driver.settle()
            if how == "memory is short":
                assert await client.ask(ECHO, 2, kept) == kept

    run(story())


def test_big_buffers_are_given_back(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            client = await server.client()
            assert await client.ask(ECHO, 1, bytes(1_000_000)) == bytes(1_000_000)
            connections = server.process.connections
            channel = next(iter(connections.channels.values()))
            assert connections.memory.bytes_used > 1_000_000
            channel.active_at -= 5
            connections.sweep([channel])
            assert connections.memory.bytes_used == 0
            assert await client.ask(ECHO, 2, b"still there") == b"still there"

    run(story())


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (struct.pack(">i", -1), "frame of -1 bytes cannot be a request"),
        (struct.pack(">i", 0), "frame of 0 bytes cannot be a request"),
        (struct.pack(">i", 3), "frame of 3 bytes cannot be a request"),
        (struct.pack(">i", 2**31 - 1), "socket.request.max.bytes"),
        (struct.pack(">i", -(2**31)), "cannot be a request"),
        (struct.pack(">ihhi", 9_000_000, METADATA, 1, 7), "too many for a request without records"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "TLS client on a plaintext listener"),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP client"),
        (b"\xff" * 64, "cannot be a request"),
    ],
)
def test_impossible_sizes_close_the_connection(run: Run, tmp_path: Path, head: bytes, reason: str) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            client = await server.client()
            bystander = await server.client()
            await client.send(head)
            assert await client.is_closed()
            assert reason in server.logged("connection_closed")[0]
            assert server.process.connections.frames_refused == 1
            assert await bystander.ask(ECHO, 1, b"unharmed") == b"unharmed"

    run(story())


def test_a_frame_beyond_a_small_limit_is_refused_though_all_of_it_is_there(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path, socket_request_max_bytes=1_000) as server:
            client = await server.client()
            assert await client.ask(ECHO, 1, bytes(992)) == bytes(992)
            await client.send(request(ECHO, 2, bytes(993)))
            assert await client.is_closed()
            assert "socket.request.max.bytes=1000" in server.logged("connection_closed")[0]
            assert len(server.node.frames) == 1

    run(story())


def test_frames_behind_garbage_are_not_handled(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            client = await server.client()
            await client.send(request(ECHO, 1, b"good"), b"\xff\xff\xff\xff", request(ECHO, 2, b"never"))
            assert await client.reader.read() in (b"", answer(1, b"good"))
            assert [frame[8:] for frame in server.node.frames] == [b"good"]

    run(story())


def test_a_lying_length_costs_no_memory(run: Run, tmp_path: Path) -> None:
    """A hundred clients announce 100 MB each and send a little: what is held is what they sent, about."""

    async def story() -> None:
        async with running_server(tmp_path) as server:
            connections = server.process.connections
            sent = 0
            for _ in range(100):
                client = await server.client()
                message = struct.pack(">i", 100_000_000) + bytes(1_000)
                sent += len(message)
                await client.send(message)
            await server.until(lambda: connections.bytes_in == sent)
            assert connections.memory.bytes_used <= 100 * 200_000

    run(story())


def test_an_error_of_ours_ends_one_connection(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            client, bystander = await server.client(), await server.client()
            await client.send(request(RAISE, 1))
            assert await client.is_closed()
            assert "RuntimeError" in server.logged("internal_error")[0]
            await server.until(lambda: bool(server.node.woken_at))  # what it had begun is owed to others
            assert await bystander.ask(ECHO, 1, b"unharmed") == b"unharmed"

    run(story())


def test_errors_of_ours_that_a_client_repeats_do_not_fill_the_log(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            for _ in range(3 * REPEATS_MAX):
                client = await server.client()
                await client.send(request(RAISE, 1))
                assert await client.is_closed()
            assert len(server.logged("internal_error")) == REPEATS_MAX

    run(story())


def test_reports_that_a_client_can_cause_again_and_again_do_not_fill_the_log(
    run: Run, tmp_path: Path
) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            for event in ("disk_full", "damaged_file"):
                server.node.effects += [Report("error", event, {"number": n}) for n in range(3 * REPEATS_MAX)]
            server.settle()
            assert len(server.logged("disk_full")) == REPEATS_MAX
            assert len(server.logged("damaged_file")) == 3 * REPEATS_MAX

    run(story())


def test_the_node_can_close_a_connection(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            client = await server.client()
            await client.send(request(CLOSE, 1), request(ECHO, 2))
            assert await client.is_closed()
            assert "asked to" in server.logged("connection_closed")[0]
            assert len(server.node.frames) == 1
            await server.until(lambda: len(server.node.gone) == 1)

    run(story())


def test_one_time_for_all_frames_of_a_read(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            client = await server.client()
            await client.send(*(request(ECHO, number) for number in range(10)))
            for number in range(10):
                assert await client.receive() == (number, b"")
            assert len({id(now) for now in server.node.moments}) < 10

    run(story())


def test_a_deadline_that_a_request_sets_is_kept(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            node = server.node

            def handle(now: Now, connection: Connection, frame: memoryview) -> Parts | None:
                node.deadlines.append(now.mono + 0.001)
                return node.handle(now, connection, frame)

            server.process.driver.handle = handle
            assert await (await server.client()).ask(ECHO, 1, b"served") == b"served"
            await server.until(lambda: bool(node.woken_at))

    run(story())


def test_a_frame_that_grows_is_not_moved(run: Run, tmp_path: Path) -> None:
    """Its buffer is as large as its length says; what it takes of the memory for requests grows with it."""

    async def story() -> None:
        async with running_server(tmp_path) as server:
            client = await server.client()
            stream = request(SILENT, 0, bytes(6_000_000))
            connections = server.process.connections
            buffers, taken = [], []
            for start in range(0, len(stream), 300_000):
                await client.send(stream[start : start + 300_000])
                arrived = min(start + 300_000, len(stream))
                await server.until_received(arrived)
                (channel,) = connections.channels.values()
                buffers.append(channel._buffer)
                taken.append(connections.memory.bytes_used)
            assert len(set(buffers)) == 1
            assert taken[0] < 2_000_000 < 6_000_000 < taken[-1]
            assert server.node.frames == [stream[4:]]

    run(story())
