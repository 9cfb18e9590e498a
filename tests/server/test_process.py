"""From settings to `ready`, and from a signal to a clean end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from harness.certificates import Authority
from headrace.server import process as process_module
from headrace.server.connection_limits import Connections
from headrace.server.driver import HALTED
from headrace.server.listeners import CannotListen
from headrace.server.lock import DirectoryInUse
from headrace.server.logs import Log
from headrace.server.process import Process, Surroundings, boot_id, serve
from server.fake_node import ECHO, FILL, HALT, PARK, FakeNode, request, running_server, settings

Run = Callable[[Coroutine[Any, Any, None]], None]

SERVE = """
import sys
from server.fake_node import FakeNode, settings
from headrace.server.process import run
from pathlib import Path
def make_node(around):
    node = FakeNode(around)
    node.stops_by_itself = sys.argv[2] == "stops"
    return node
run(settings(Path(sys.argv[1])), make_node=make_node, pid_file=sys.argv[1] + "/pid")
"""


def test_the_node_is_told_its_real_address(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            around = server.node.around
            assert around is not None
            (told,) = around.settings.advertised_listeners
            assert (told.name, told.host, told.port) == ("PLAINTEXT", "127.0.0.1", server.port)
            assert server.port > 0
            assert server.process.bootstrap == f"127.0.0.1:{server.port}"
            assert list(around.disks) == [str(tmp_path)]
            assert around.boot_id == boot_id()

    run(story())


def test_listeners_by_name(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        keys = {
            "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "advertised_listeners": "INSIDE://127.0.0.1:0,OUTSIDE://example.org:19092",
            "listener_security_protocol_map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller_listener_names": "CONTROLLER",
        }
        async with running_server(tmp_path, **keys) as server:
            inside, outside, _ = server.process.settings.listeners
            assert server.process.bootstrap == f"127.0.0.1:{inside.port},example.org:19092"
            reader, writer = await asyncio.open_connection("127.0.0.1", outside.port)
            writer.write(request(ECHO, 1))
            await reader.readexactly(8)
            assert server.node.connections[0].listener == "OUTSIDE"
            assert server.node.connections[0].address == "127.0.0.1"
            writer.close()

    run(story())


def test_every_interface_is_told_as_a_name(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(
            tmp_path, listeners="PLAINTEXT://127.0.0.1:0", advertised_listeners="PLAINTEXT://0.0.0.0:0"
        ) as server:
            (told,) = server.process.settings.advertised_listeners
            assert told.host not in ("", "0.0.0.0")
            assert told.port == server.port

    run(story())


@pytest.mark.parametrize("is_compiled", [True, False])
def test_an_interpreted_codec_is_said_once(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_compiled: bool
) -> None:
    monkeypatch.setattr("headrace.records.compiled.COMPILED", is_compiled)
    lines: list[str] = []

    async def story() -> None:
        process = Process(settings(tmp_path), log=Log("warning", write=lines.append), make_node=FakeNode)
        await process.start()
        await process.stop()

    run(story())
    assert [line.count("record_codec_interpreted") for line in lines] == ([] if is_compiled else [1])


def test_a_taken_port_is_said(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path / "a") as server:
            second = Process(
                settings(tmp_path / "b", listeners=f"PLAINTEXT://127.0.0.1:{server.port}"),
                log=Log("error"),
                make_node=FakeNode,
            )
            with pytest.raises(CannotListen, match=f"127.0.0.1:{server.port}: Address already in use"):
                await second.start()

    run(story())


def test_a_taken_directory_is_said_and_given_back(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path):
            second = Process(settings(tmp_path), log=Log("error"), make_node=FakeNode)
            with pytest.raises(DirectoryInUse):
                await second.start()
        async with running_server(tmp_path):
            pass

    run(story())


def test_it_listens_only_once_the_node_is_ready(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        nodes: list[FakeNode] = []

        def make(around: Any) -> FakeNode:
            nodes.append(FakeNode(around))
            nodes[0].is_ready = False
            return nodes[0]

        process = Process(settings(tmp_path), log=Log("error"), make_node=make)
        starting = asyncio.create_task(process.start())
        while not nodes:
            await asyncio.sleep(0)
        port = process.settings.listeners[0].port
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        nodes[0].is_ready = True
        process.driver.settle()
        await starting
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        await process.stop()

    run(story())


def test_stopping_finishes_what_was_accepted(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            client = await server.client()
            await client.send(request(PARK, 1, b"accepted"))
            await server.until(lambda: len(server.node.parked) == 1)
            server.node.stops_by_itself = False
            stopping = asyncio.create_task(server.process.stop())
            assert await client.receive() == (1, b"accepted")
            with pytest.raises(ConnectionRefusedError):
                await server.client()
            assert not stopping.done()
            server.node.is_stopped = True
            server.settle()
            await stopping
            assert await client.is_closed()
            assert server.logged("stopped")
            assert not server.process.connections.channels

    run(story())


def test_requests_after_the_signal_are_not_handled(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            client = await server.client()
            assert await client.ask(ECHO, 1) == b""
            server.node.stops_by_itself = False
            stopping = asyncio.create_task(server.process.stop())
            await server.until(lambda: bool(server.logged("shutting_down")))
            await client.send(request(ECHO, 2))
            server.node.is_stopped = True
            server.settle()
            await stopping
            assert len(server.node.frames) == 1

    run(story())


def test_a_client_that_reads_nothing_does_not_keep_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last answer is in the transport's buffer, and nobody takes it."""
    monkeypatch.setattr(process_module, "FAREWELL_S_MAX", 0.01)

    async def story() -> None:
        async with running_server(tmp_path) as server:
            with socket.create_connection(("127.0.0.1", server.port)) as client:
                client.sendall(request(FILL, 1, size=32_000))
                await server.until(lambda: bool(server.process.connections.channels))
                (channel,) = server.process.connections.channels.values()
                await server.until(lambda: channel.transport.get_write_buffer_size() > 0)
                await server.process.stop()
                assert not server.process.connections.channels
                assert server.logged("stopped")

    run(story())


def test_a_halt_ends_the_process_at_once(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        codes: list[int] = []
        async with running_server(tmp_path, halt=codes.append) as server:
            client = await server.client()
            await client.send(request(HALT, 1))
            await server.until(lambda: bool(codes))
            assert codes == [HALTED]
            assert "planted" in server.logged("halted")[0]

    run(story())


def test_a_halt_ends_the_process_whatever_becomes_of_the_answers(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        codes: list[int] = []
        async with running_server(tmp_path, halt=codes.append) as server:
            client = await server.client()
            with monkeypatch.context() as patched:
                patched.setattr(Connections, "send_gathered", lambda self: 1 // 0)
                await client.send(request(HALT, 1))
                await server.until(lambda: bool(server.node.frames))
            assert codes == [HALTED]

    run(story())


@pytest.mark.parametrize("has_tls", [True, False])
def test_a_hangup_during_the_start(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_tls: bool
) -> None:
    """With TLS it asks for new certificates, whenever it comes; otherwise the terminal is gone."""
    ended: list[int] = []
    lines: list[str] = []
    texts: dict[str, object] = {}
    if has_tls:
        issued = Authority(tmp_path / "authority").issue("broker")
        texts = {"listeners": "SSL://127.0.0.1:0", "ssl_keystore_location": issued.both}
    monkeypatch.setattr(os, "_exit", ended.append)

    async def story() -> None:
        node: list[FakeNode] = []

        def make(around: Surroundings) -> FakeNode:
            os.kill(os.getpid(), signal.SIGHUP)  # before there are certificates
            node.append(FakeNode(around))
            node[0].is_ready = False  # it waits for other voters, perhaps
            return node[0]

        task = asyncio.create_task(
            serve(settings(tmp_path / "data", **texts), log=Log(write=lines.append), make_node=make)
        )
        while not node:
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGHUP)
        while not ended and not any("certificates_loaded" in line for line in lines):
            await asyncio.sleep(0.001)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    run(story())
    assert bool(ended) is not has_tls


# --- as a real process -------------------------------------------------------------------------------------


@pytest.fixture(params=["stops"])
def process(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    started = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(tmp_path), request.param],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    yield started
    started.kill()
    started.communicate()


def test_it_says_ready_and_ends_cleanly(process: Any, tmp_path: Path) -> None:
    word, _, address = process.stdout.readline().decode().strip().partition(" ")
    assert word == "ready"
    assert (tmp_path / "pid").read_text() == f"{process.pid}\n"

    async def ask() -> None:
        host, _, port = address.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request(ECHO, 1, b"hello"))
        assert (await reader.readexactly(13))[8:] == b"hello"
        writer.close()
        await writer.wait_closed()

    asyncio.run(ask())
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


@pytest.mark.parametrize("process", ["hangs"], indirect=True)
def test_a_second_signal_ends_it_at_once(process: Any) -> None:
    """The node never says that it is stopped: the first signal waits, the second does not."""
    assert process.stdout.readline().startswith(b"ready ")
    process.send_signal(signal.SIGINT)
    while b"stopping" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 1
