"""The compiled network core and asyncio's transports do the same: the same bytes in, cut anywhere, give the
same frames, the same bytes out and the same ends of connections.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import struct
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.server.disk import RealDisk
from headrace.storage.disk import Span
from server import fake_node
from server.fake_node import (
    CLOSE,
    ECHO,
    FILL,
    MUTE,
    PARK,
    RAISE,
    SILENT,
    SPAN,
    RunningServer,
    request,
    running_server,
)

pytest.importorskip("headrace.server._core", reason="this installation has no compiled network core")

# An example takes some 50 ms: fewer of them than of other fuzzers.
CASES = max(100, min(2_000, int(os.environ.get("HEADRACE_FUZZ_CASES", "0")) // 100))
METADATA = 3


@dataclass(slots=True, repr=False)
class Story:
    """What a client sends, where the network cuts it, and after which pieces the node answers who waits."""

    frames: list[bytes]
    cuts: list[int]
    answered_after: list[int]

    def __repr__(self) -> str:
        frames = [
            repr(one) if len(one) < 80 else f"{one[:30]!r} and {len(one) - 30} bytes" for one in self.frames
        ]
        return f"Story({', '.join(frames)}; cuts {self.cuts}, answered after {self.answered_after})"

    def pieces(self) -> list[bytes]:
        data = b"".join(self.frames)
        at = sorted({0, *(cut % (len(data) + 1) for cut in self.cuts), len(data)})
        return [data[start:end] for start, end in pairwise(at)]


@dataclass(slots=True)
class Outcome:
    received: bytes
    handled: list[bytes]
    reasons: list[str]
    refused: int
    counted_in: int
    counted_out: int


class Pair:
    """A server of each kind, in asyncio's own loop: its transports write at once, as the core does."""

    def __init__(self, directory: Path) -> None:
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._stack = AsyncExitStack()
        self._servers: list[RunningServer] = []
        self._file = RealDisk(str(directory)).open("records", create=True)
        self._file.append(bytes(range(256)) * 400)
        self._runner.run(self._start(directory))

    async def _start(self, directory: Path) -> None:
        for uses_core in (False, True):
            fake_node.uses_core = uses_core
            server = await self._stack.enter_async_context(running_server(directory / f"core-{uses_core}"))
            self._servers.append(server)
            server.node.span = Span(self._file, 100, 50_000)
        fake_node.uses_core = False

    def outcomes(self, story: Story) -> list[Outcome]:
        return [self._runner.run(outcome(server, story)) for server in self._servers]

    def close(self) -> None:
        self._runner.run(self._stack.aclose())
        self._runner.close()
        self._file.close()


async def outcome(server: RunningServer, story: Story) -> Outcome:
    node, connections = server.node, server.process.connections
    await server.until(lambda: not connections.channels)
    assert connections.memory.bytes_used == 0
    node.frames.clear()
    node.parked.clear()
    server.lines.clear()
    server.process.log._repeats.clear()
    before = connections.bytes_in, connections.bytes_out, connections.frames_refused
    loop = asyncio.get_running_loop()
    client = socket.create_connection(("127.0.0.1", server.port))
    client.setblocking(False)
    await server.until(lambda: len(connections.channels) == 1)
    (channel,) = connections.channels.values()
    received = bytearray()

    async def receive() -> None:
        try:
            while more := await loop.sock_recv(client, 1 << 20):
                received.extend(more)
        except ConnectionError:
            pass

    reading = loop.create_task(receive())
    sent = 0
    try:
        for index, piece in enumerate(story.pieces()):
            await loop.sock_sendall(client, piece)
            sent += len(piece)
            wanted = before[0] + sent
            await server.until(
                lambda wanted=wanted: (
                    not connections.channels  # type: ignore[misc]
                    or (connections.bytes_in == wanted and not channel.holds)
                )
            )
            if index in story.answered_after and node.parked:
                node.answer_parked(index % len(node.parked))
                server.settle()
        client.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the server has ended it
    await reading
    await server.until(lambda: not connections.channels)
    client.close()
    return Outcome(
        bytes(received),
        list(node.frames),
        [match[1] for line in server.lines if (match := re.search(r'reason="?([^"]*)', line))],
        connections.frames_refused - before[2],
        connections.bytes_in - before[0] if not server.logged("connection_closed") else 0,
        connections.bytes_out - before[1],
    )


numbers = st.integers(0, 2**31 - 1)
small = st.binary(max_size=60)
large = st.builds(lambda size, byte: bytes([byte]) * size, st.integers(10_000, 300_000), st.integers(0, 255))
calm = st.one_of(
    st.builds(request, st.just(ECHO), numbers, small),
    st.builds(request, st.just(ECHO), numbers, large),
    st.builds(request, st.sampled_from([SILENT, PARK, SPAN]), numbers, small),
    st.builds(request, st.just(FILL), numbers, st.just(b""), st.integers(0, 60)),
    st.builds(request, st.just(MUTE), numbers, small, st.integers(0, 2)),
)
ends = st.one_of(
    st.just(b""),
    st.builds(request, st.sampled_from([CLOSE, RAISE]), numbers, small),
    st.builds(struct.pack, st.just(">i"), st.integers(-(2**31), 2**31 - 1)),
    st.builds(lambda size: struct.pack(">ihhi", size, METADATA, 1, 7), st.integers(0, 2**31 - 1)),
    st.binary(max_size=40),
    st.builds(lambda frame, cut: frame[:cut], calm, st.integers(0, 100_000)),  # a frame that never ends
)
stories = st.builds(
    lambda before, end, after, cuts, answered: Story([*before, end, *after], cuts, answered),
    st.lists(calm, max_size=12),
    ends,
    st.lists(calm, max_size=3),
    st.lists(st.one_of(numbers, st.integers(0, 200)), max_size=12),
    st.lists(st.integers(0, 12), max_size=6),
)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    made = Pair(tmp_path_factory.mktemp("pair"))
    yield made
    made.close()


@pytest.mark.filterwarnings("ignore:Generating overly large repr")  # else it hides why an example fails
@given(story=stories)
@example(story=Story([request(ECHO, 1, b"one"), request(ECHO, 2, b"two")], list(range(40)), []))
@example(story=Story([request(PARK, 1), request(ECHO, 2, b"two"), request(PARK, 3)], [12], [0, 1]))
@example(story=Story([request(FILL, 1, size=60), b"\xff" * 9, request(ECHO, 2)], [], []))
@settings(max_examples=CASES)
def test_both_do_the_same(pair: Pair, story: Story) -> None:
    with_asyncio, with_core = pair.outcomes(story)
    if with_asyncio.reasons:
        # a connection that the server ends with unread bytes is reset: what had not arrived yet is lost
        common = min(len(with_asyncio.received), len(with_core.received))
        for one in (with_asyncio, with_core):
            one.received = one.received[:common]
    assert with_core == with_asyncio
