"""Who may come in, who has to go, and how much memory frames in arrival may hold together."""

from __future__ import annotations

import struct
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from headrace.base.limits import UNANSWERED_PER_CONNECTION_MAX
from headrace.base.time import ManualClock, Now
from headrace.node.connection import Connection
from headrace.node.effects import Mute
from server.fake_node import ECHO, PARK, SILENT, RunningServer, request, running_server

Run = Callable[[Coroutine[Any, Any, None]], None]


def sweep(server: RunningServer) -> None:
    server.process.connections.sweep(list(server.process.connections.channels.values()))


def test_connections_beyond_the_limit_are_closed(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path, max_connections=2) as server:
            first, second = await server.client(), await server.client()
            assert await second.ask(ECHO, 1, b"in") == b"in"
            third = await server.client()
            assert await third.is_closed()
            assert "max.connections=2" in server.logged("connection_refused")[0]
            assert server.process.connections.refused == 1
            first.close()
            await server.until(lambda: len(server.node.gone) == 1)
            fourth = await server.client()
            assert await fourth.ask(ECHO, 1, b"in") == b"in"
            assert len(server.node.connections) == 3  # the refused one never reached the node

    run(story())


def test_connections_of_one_address_are_limited(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path, max_connections_per_ip=1) as server:
            first = await server.client()
            assert await first.ask(ECHO, 1, b"in") == b"in"
            assert await (await server.client()).is_closed()
            first.close()
            await server.until(lambda: not server.process.connections.channels)
            assert await (await server.client()).ask(ECHO, 1, b"in") == b"in"

    run(story())


def test_an_address_can_have_its_own_limit(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(
            tmp_path, max_connections_per_ip=1, max_connections_per_ip_overrides="127.0.0.1:2"
        ) as server:
            for _ in range(2):
                assert await (await server.client()).ask(ECHO, 1, b"in") == b"in"
            assert await (await server.client()).is_closed()

    run(story())


def test_a_listener_can_have_its_own_limit(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            connections = server.process.connections
            (listener,) = [one.name for one in server.process.settings.served_listeners]
            connections.limits.connections_per_listener = {listener: 1}
            first = await server.client()
            assert await first.ask(ECHO, 1, b"in") == b"in"
            assert await (await server.client()).is_closed()
            assert "max.connections=1" in server.logged("connection_refused")[0]
            first.close()
            await server.until(lambda: not connections.channels)
            assert await (await server.client()).ask(ECHO, 1, b"in") == b"in"

    run(story())


def test_another_node_takes_the_place_of_the_client_that_was_quiet_for_longest(
    run: Run, tmp_path: Path
) -> None:
    async def story() -> None:
        async with running_server(tmp_path, max_connections=3) as server:
            connections = server.process.connections
            clients = [await server.client() for _ in range(3)]
            for client in (clients[1], clients[0], clients[2]):
                assert await client.ask(ECHO, 1, b"in") == b"in"
            (listener,) = [one.name for one in server.process.settings.served_listeners]
            connections.limits.spared_listeners = frozenset((listener,))
            for channel in connections.channels.values():
                channel.connection.listener = "CLIENTS"
            node = await server.client()
            assert await node.ask(ECHO, 1, b"in") == b"in"
            assert await clients[1].is_closed()
            for client in (clients[0], clients[2]):
                assert await client.ask(ECHO, 2, b"still in") == b"still in"

    run(story())


def test_from_a_new_connection_that_is_muted_nothing_is_read(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            node = server.node
            until: list[float] = []

            def connected(now: Now, connection: Connection) -> None:
                node.connections.append(connection)
                until.append(now.after_ms(50))
                node.effects.append(Mute(connection, now.after_ms(50)))

            node.connected = connected  # type: ignore[method-assign]
            client = await server.client()
            assert await client.ask(ECHO, 1, b"in") == b"in"
            assert node.moments[0].mono >= until[0] - 0.001  # timers count in milliseconds

    run(story())


def test_limits_change_while_it_runs(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path, connections_max_idle_ms=80) as server:  # swept every 10 ms
            connections = server.process.connections
            node = server.node
            node.settings = node.settings.overlaid({}, {"max.connections": "0"})
            await server.until(lambda: connections.limits.connections_max == 0)
            assert await (await server.client()).is_closed()
            node.settings = node.settings.overlaid({}, {})
            await server.until(lambda: connections.limits.connections_max > 0)
            assert await (await server.client()).ask(ECHO, 1, b"in") == b"in"
            node.settings = node.settings.overlaid({}, {"listener.name.plaintext.max.connections": "0"})
            await server.until(lambda: connections.limits.connections_per_listener == {"PLAINTEXT": 0})
            assert await (await server.client()).is_closed()

    run(story())


def test_connections_leave_descriptors_for_files(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            connections = server.process.connections
            first = await server.client()
            assert await first.ask(ECHO, 1, b"in") == b"in"
            connections.limits.descriptors_max = 10  # more than that are open in this process
            assert await (await server.client()).is_closed()
            assert "ulimit -n" in server.logged("connection_refused")[0]
            assert await first.ask(ECHO, 2, b"still in") == b"still in"

    run(story())


def test_idle_connections_are_closed(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        clock = ManualClock(100.0)
        async with running_server(tmp_path, clock=clock, connections_max_idle_ms=10_000) as server:
            idle, busy, waiting = [await server.client() for _ in range(3)]
            for client in (idle, busy):
                assert await client.ask(ECHO, 1) == b""
            await waiting.send(request(PARK, 1))  # it waits for us: that is not idle
            await server.until(lambda: len(server.node.parked) == 1)
            clock.advance(9.0)
            sweep(server)
            assert await busy.ask(ECHO, 2) == b""
            clock.advance(2.0)
            sweep(server)
            assert await idle.is_closed()
            assert "reason=idle" in server.logged("connection_closed")[0]
            await server.until(lambda: len(server.node.gone) == 1)
            assert await busy.ask(ECHO, 3) == b""
            server.node.answer_parked()
            server.settle()
            assert await waiting.receive() == (1, b"")

    run(story())


def test_a_frame_that_never_ends_is_given_up(run: Run, tmp_path: Path) -> None:
    """One byte now and then keeps a connection from being silent, but not for ever."""

    async def story() -> None:
        clock = ManualClock(100.0)
        async with running_server(tmp_path, clock=clock, connections_max_idle_ms=10_000) as server:
            client = await server.client()
            connections = server.process.connections
            await client.send(struct.pack(">i", 1000))
            await server.until(lambda: connections.bytes_in == 4)
            for count in range(5):
                clock.advance(2.5)
                sweep(server)
                if connections.idle:
                    break
                await client.send(b"x")
                await server.until_received(5 + count)
            assert connections.idle == 1
            assert await client.is_closed()

    run(story())


def test_the_sweep_runs_by_itself(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path, connections_max_idle_ms=40) as server:
            clients = [await server.client() for _ in range(300)]  # more than one slice
            for client in clients:
                assert await client.is_closed()
            assert server.process.connections.idle == 300

    run(story())


def test_big_frames_wait_for_memory(run: Run, tmp_path: Path) -> None:
    """Three clients send 1 MB frames where there is room for one and an overdraft: all are served in turn."""

    async def story() -> None:
        async with running_server(tmp_path, queued_max_request_bytes=1_500_000) as server:
            connections = server.process.connections
            clients = [await server.client() for _ in range(3)]
            body = bytes(1_000_000)
            for client in clients:
                await client.send(request(SILENT, 1, body)[:400_000])
            await server.until(lambda: connections.memory.is_short)
            assert connections.memory.bytes_used < 2_600_000
            small = await server.client()
            assert await small.ask(ECHO, 1, b"x" * 10_000) == b"x" * 10_000  # small frames need none
            for client in clients:
                client.writer.write(request(SILENT, 1, body)[400_000:] + request(ECHO, 2, b"done"))
            for client in clients:
                assert await client.receive() == (2, b"done")
            assert sum(len(frame) == 8 + len(body) for frame in server.node.frames) == 3
            assert not connections.memory.is_short

    run(story())


def test_who_cannot_use_the_memory_that_it_waited_for_lets_others_pass(run: Run, tmp_path: Path) -> None:
    """It has more requests waiting than it may: its next frame is not read on, however much is free."""

    async def story() -> None:
        async with running_server(tmp_path, queued_max_request_bytes=1_000_000) as server:
            connections = server.process.connections
            first, second, busy, honest = [await server.client() for _ in range(4)]
            for count, client in enumerate((first, second), 1):  # the second one overdraws
                await client.send(request(SILENT, 1, bytes(900_000))[:-1])
                await server.until_received(count * (900_000 + 11))
            big = request(ECHO, 2, bytes(700_000))
            await busy.send(request(PARK, 1) * UNANSWERED_PER_CONNECTION_MAX + big[:100_000])
            await server.until(lambda: connections.memory.is_short)
            honest.writer.write(big)
            await server.until(lambda: len(connections.memory._waiting) == 2)
            for client in (first, second):
                client.writer.write(b"\0")
            assert await honest.receive() == (2, bytes(700_000))
            busy.writer.write(big[100_000:])
            while server.node.parked:
                server.node.answer_parked()
            server.process.driver.settle()
            for _ in range(UNANSWERED_PER_CONNECTION_MAX):
                assert await busy.receive() == (1, b"")
            assert await busy.receive() == (2, bytes(700_000))
            assert not connections.memory.is_short

    run(story())


def test_who_stalls_while_others_wait_for_memory_is_closed(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        clock = ManualClock(100.0)
        async with running_server(tmp_path, clock=clock, queued_max_request_bytes=1_000_000) as server:
            connections = server.process.connections
            hostile, other, honest = [await server.client() for _ in range(3)]
            for count, client in enumerate((hostile, other), 1):  # the second one overdraws
                await client.send(request(SILENT, 1, bytes(900_000))[:-1])
                await server.until_received(count * (900_000 + 11))
            clock.advance(11.0)
            honest.writer.write(request(ECHO, 1, bytes(900_000)))
            await server.until(lambda: connections.memory.is_short)
            patient = await server.client()
            patient.writer.write(request(ECHO, 1, bytes(700_000)))
            await server.until(lambda: len(connections.memory._waiting) == 2)
            for channel in connections.channels.values():
                channel.active_at -= 11.0  # those who wait for us are not to blame for their silence
            sweep(server)
            assert await hostile.is_closed()
            assert await other.is_closed()
            assert await honest.receive() == (1, bytes(900_000))
            assert await patient.receive() == (1, bytes(700_000))

    run(story())


def test_idle_connections_hold_no_buffer(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            for _ in range(20):
                assert await (await server.client()).ask(ECHO, 1, b"x" * 5000) == b"x" * 5000
            assert all(channel._buffer is None for channel in server.process.connections.channels.values())

    run(story())


def test_who_hangs_up_while_it_is_not_read_from_is_noticed(run: Run, tmp_path: Path) -> None:
    """It has more requests waiting than it may, so nothing is read from it, and its farewell neither."""

    async def story() -> None:
        clock = ManualClock(100.0)
        async with running_server(tmp_path, clock=clock) as server:
            client = await server.client()
            await client.send(request(PARK, 1) * (UNANSWERED_PER_CONNECTION_MAX + 1))
            await server.until(lambda: len(server.node.parked) == UNANSWERED_PER_CONNECTION_MAX)
            (channel,) = server.process.connections.channels.values()
            clock.advance(2.0)
            sweep(server)
            assert not channel.is_abandoned()
            client.close()
            await server.until(channel.is_abandoned)
            assert not server.node.gone
            sweep(server)
            await server.until(lambda: len(server.node.gone) == 1)

    run(story())
