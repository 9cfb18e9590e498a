"""The network among the nodes of one cluster: a TCP proxy before each node that only other nodes know.

Who dials says its node id in the header of its first request, so each direction between two nodes can be cut
alone. While it is cut, nothing passes and nobody is told: what was sent arrives when it is healed, as TCP
would have it. The proxy of a node that is down refuses connections, as the node itself would.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from headrace.node.peers import CLIENT_ID_PREFIX

CHUNK_BYTES = 65_536
# Below those that the system gives to outgoing connections, and those that `headrace up --port 0` takes.
PORTS = range(10_000, 19_000)

# size, API key, version, correlation id, length of the client id
_HEADER = struct.Struct(">ihhih")


# Of the loop, in which it closes the sockets of connections that were aborted.
TURNS = 3


def _is_accepting(task: asyncio.Task[Any]) -> bool:
    return "_accept_connection" in getattr(task.get_coro(), "__qualname__", "")


def _hold_ports(count: int) -> list[socket.socket]:
    """Sockets with a port each on which they do not listen: connections to it are refused, and nobody else
    takes it while its node is down.
    """
    holders: list[socket.socket] = []
    for port in PORTS:
        if len(holders) == count:
            break
        holder = socket.socket()
        try:
            holder.bind(("127.0.0.1", port))
        except OSError:
            holder.close()
            continue
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # now that it is ours: the proxy listens
        holders.append(holder)
    return holders


@dataclass
class _Gate:
    """Where other nodes find one listener of a node."""

    node: int
    port: int
    target_port: int
    server: asyncio.Server | None = None
    tasks: set[asyncio.Task[None]] = field(default_factory=set)


class NodeLinks:
    def __init__(self, nodes: int) -> None:
        self._holders = _hold_ports(2 * nodes)
        ports = [holder.getsockname()[1] for holder in self._holders]
        self.broker_ports = {n + 1: ports[n] for n in range(nodes)}
        self.controller_ports = {n + 1: ports[nodes + n] for n in range(nodes)}
        self.passed_bytes = 0
        self._gates: list[_Gate] = []
        self._cut: set[tuple[int, int]] = set()  # (from, to)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._healed: asyncio.Event

    def serve(self, node: int, broker_port: int, controller_port: int) -> None:
        """Where the node itself listens; nobody is let through before `up`."""
        self._gates.append(_Gate(node, self.broker_ports[node], broker_port))
        self._gates.append(_Gate(node, self.controller_ports[node], controller_port))

    def up(self, node: int) -> None:
        self._do(self._listen(node))

    def down(self, node: int) -> None:
        """Its process is gone: connections are refused."""
        self._do(self._close(node))

    def cut(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Nothing passes any more from the first to the second of each pair."""

        async def cut() -> None:
            self._cut.update(pairs)

        self._do(cut())

    def heal(self) -> None:
        async def heal() -> None:
            self._cut.clear()
            healed, self._healed = self._healed, asyncio.Event()
            healed.set()

        self._do(heal())

    def __enter__(self) -> Self:
        self._thread.start()

        async def begin() -> None:
            self._healed = asyncio.Event()

        self._do(begin())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in {gate.node for gate in self._gates}:
            self.down(node)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        for holder in self._holders:
            holder.close()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _listen(self, node: int) -> None:
        for gate in self._gates:
            if gate.node == node and gate.server is None:
                gate.server = await asyncio.start_server(self._accept(gate), "127.0.0.1", gate.port)

    async def _close(self, node: int) -> None:
        for gate in self._gates:
            if gate.node != node or gate.server is None:
                continue
            # asyncio sets a connection up in a task, which leaves its socket open if the server closes first
            for listener in gate.server.sockets:
                self._loop.remove_reader(listener.fileno())
            while accepting := [task for task in asyncio.all_tasks() if _is_accepting(task)]:
                await asyncio.wait(accepting)
            gate.server.close()
            gate.server = None
            for task in gate.tasks:
                task.cancel()
            await asyncio.gather(*gate.tasks, return_exceptions=True)
        for _ in range(TURNS):
            await asyncio.sleep(0)

    def _accept(self, gate: _Gate) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            gate.tasks.add(task := asyncio.ensure_future(self._tunnel(gate, reader, writer)))

            def end(task: asyncio.Task[None]) -> None:
                gate.tasks.discard(task)
                writer.transport.abort()

            task.add_done_callback(end)

        return accept

    async def _tunnel(self, gate: _Gate, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_writer: asyncio.StreamWriter | None = None
        pumps: list[asyncio.Future[None]] = []
        try:
            first = await reader.readexactly(_HEADER.size)
            name = await reader.readexactly(max(0, _HEADER.unpack(first)[-1]))
            source = int(name.decode().removeprefix(CLIENT_ID_PREFIX))
            there, back = (source, gate.node), (gate.node, source)
            await self._passable(there, back)
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", gate.target_port)
            far_writer.write(first + name)
            pumps.append(asyncio.ensure_future(self._pump(there, reader, far_writer)))
            pumps.append(asyncio.ensure_future(self._pump(back, far_reader, writer)))
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except (OSError, EOFError):
            return
        finally:
            if far_writer is not None:
                far_writer.transport.abort()  # before anything is awaited: that may be cancelled
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(
        self, way: tuple[int, int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Until one end hangs up; nobody hears of it beyond a cut."""
        try:
            while data := await reader.read(CHUNK_BYTES):
                await self._passable(way)
                self.passed_bytes += len(data)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        await self._passable(way)

    async def _passable(self, *ways: tuple[int, int]) -> None:
        while not self._cut.isdisjoint(ways):
            await self._healed.wait()
