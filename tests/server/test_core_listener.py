"""The compiled network core as a part of the process: when it is used, and how its listeners accept."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from headrace.base.time import Now
from headrace.node.connection import Connection
from headrace.node.effects import Parts
from headrace.server import core_listener
from server import fake_node
from server.fake_node import ECHO, PARK, RunningServer, answer, request, running_server

Run = Callable[[Coroutine[Any, Any, None]], None]

pytest.importorskip("headrace.server._core", reason="this installation has no compiled network core")


@pytest.fixture(autouse=True)
def with_core(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the fixture `run`, which sets it for tests of both kinds."""
    monkeypatch.setattr(fake_node, "uses_core", True)


def has_core(server: RunningServer) -> bool:
    (listener,) = server.process._servers
    return isinstance(listener, core_listener.CoreListener)


def test_an_installation_without_compiled_modules_serves_by_asyncio(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "headrace.server._core", None)

    async def story() -> None:
        async with running_server(tmp_path) as server:
            assert not has_core(server)
            assert await (await server.client()).ask(ECHO, 1, b"served") == b"served"

    run(story())


def test_the_setting_turns_it_off(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path / "on") as server:
            assert has_core(server)
        async with running_server(tmp_path / "off", headrace_network_core="false") as server:
            assert not has_core(server)

    run(story())


class Exhausted:
    """A listening socket of a process that has no descriptor left."""

    def __init__(self, real: socket.socket) -> None:
        self._real = real
        self.error: int | None = errno.EMFILE
        self.tries = 0

    def accept(self) -> Any:
        self.tries += 1
        if self.error is not None:
            raise OSError(self.error, os.strerror(self.error))
        return self._real.accept()

    def fileno(self) -> int:
        return self._real.fileno()

    def close(self) -> None:
        self._real.close()


@pytest.mark.parametrize("stops_meanwhile", [False, True])
def test_who_cannot_be_accepted_for_lack_of_descriptors_waits(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stops_meanwhile: bool
) -> None:
    """The loop does not spin meanwhile, and the log says why."""
    monkeypatch.setattr(core_listener, "RETRY_S", 0.01)

    async def story() -> None:
        async with running_server(tmp_path) as server:
            (listener,) = server.process._servers
            scarce: Any = Exhausted(listener._socket)  # type: ignore[union-attr]
            listener._socket = scarce  # type: ignore[union-attr]
            waiting = socket.create_connection(("127.0.0.1", server.port))
            waiting.sendall(request(ECHO, 1))
            await server.until(lambda: scarce.tries >= 3)
            assert "cannot be accepted" in server.logged("loop_error")[0]
            if not stops_meanwhile:
                scarce.error = None
                await server.until(lambda: len(server.process.connections.channels) == 1)
                waiting.setblocking(False)
                assert await asyncio.get_running_loop().sock_recv(waiting, 100) == answer(1, b"")
            waiting.close()

    run(story())


def test_a_stop_closes_all_descriptors(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            clients = [await server.client() for _ in range(20)]
            for client in clients[:10]:
                await client.send(request(PARK, 1))
            await server.until(lambda: len(server.node.parked) == 10)
            await server.process.stop()
            for client in clients[:10]:
                assert await client.receive() == (1, b"")
            for client in clients:
                assert await client.is_closed()

    run(story())  # what a first one loads stays open
    open_before = len(os.listdir("/proc/self/fd"))
    run(story())
    assert len(os.listdir("/proc/self/fd")) <= open_before


def test_an_error_in_the_connection_ends_that_one(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            client, bystander = await server.client(), await server.client()
            await server.until(lambda: len(server.process.connections.channels) == 2)
            connections = server.process.connections
            monkeypatch.setattr(type(next(iter(connections.channels.values()))), "_keep", lambda *_: 1 // 0)
            await client.send(request(ECHO, 1)[:5])
            assert await client.is_closed()
            assert "ZeroDivisionError" in server.logged("internal_error")[0]
            await server.until(lambda: len(server.node.gone) == 1)
            assert await bystander.ask(ECHO, 1, b"unharmed") == b"unharmed"

    run(story())


def test_the_loop_has_its_turn_between_many_requests(run: Run, tmp_path: Path) -> None:
    """Twenty requests of a millisecond each arrive at once: timers and jobs do not wait for all of them."""

    async def story() -> None:
        async with running_server(tmp_path) as server:
            loop, node = asyncio.get_running_loop(), server.node
            handled_before: list[int] = []

            def handle(now: Now, connection: Connection, frame: memoryview) -> Parts | None:
                if not node.frames:
                    loop.call_soon(lambda: handled_before.append(len(node.frames)))
                end = monotonic() + 0.001
                while monotonic() < end:
                    pass
                return node.handle(now, connection, frame)

            server.process.driver.handle = handle
            clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
            await server.until(lambda: len(node.connections) == 20)
            for client in clients:
                client.sendall(request(ECHO, 1))
            await server.until(lambda: len(node.frames) == 20)
            assert handled_before[0] < 20
            for client in clients:
                client.close()

    run(story())
