"""Drivers that nobody closes: forgotten, forked, or alive when the interpreter ends."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from harness.carriers import Asking, LoopCarrier, ThreadCarrier
from harness.scripted_peer import PATIENCE_S, Peer, ScriptedServer
from headrace.client.aio.driver import Driver
from headrace.client.errors import Closed, InvalidInput
from headrace.client.network.sockets import Sockets
from headrace.client.settings.network import NetworkSettings
from headrace.client.threads.driver import SocketSelector
from headrace.protocol.messages.metadata import MetadataResponse

TESTS = Path(__file__).parents[3]


def serve(peer: Peer) -> None:
    peer.negotiate()
    while True:
        peer.answer(peer.read(), MetadataResponse())


def test_a_forgotten_driver_ends_its_thread() -> None:
    with ScriptedServer(serve) as server:
        carrier = ThreadCarrier()
        carrier.start(NetworkSettings((server.address,)))
        carrier.ask()
        (thread,) = [thread for thread in threading.enumerate() if thread.name == "tested"]
        del carrier
        gc.collect()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        server.wait_until_ended()


def test_a_forgotten_driver_lets_go_of_its_loop() -> None:
    async def forget(server: ScriptedServer) -> None:
        session = Asking()
        driver = Driver(session, NetworkSettings((server.address,)), name="tested")
        number = session.ask()
        driver.start()
        assert await driver.wait_until(lambda: number in session.answers, PATIENCE_S)
        del driver
        gc.collect()
        await asyncio.to_thread(server.wait_until_ended)

    with ScriptedServer(serve) as server:
        asyncio.run(forget(server))


def test_a_driver_that_outlives_its_loop_closes_its_sockets() -> None:
    with ScriptedServer(serve) as server:
        carrier = LoopCarrier()
        carrier.start(NetworkSettings((server.address,)))
        carrier.ask()
        carrier.runner.close()
        del carrier
        gc.collect()
        server.wait_until_ended()


def test_closing_twice_and_without_a_start() -> None:
    carrier = ThreadCarrier()
    carrier.start(NetworkSettings(()))
    carrier.close()
    carrier.close()
    with pytest.raises(Closed):
        carrier.wait_until(lambda: False, PATIENCE_S)
    asyncio.run(close_twice())


async def close_twice() -> None:
    driver = Driver(Asking(), NetworkSettings(()), name="tested")
    await driver.close()
    await driver.close()
    with pytest.raises(Closed):
        await driver.wait_until(lambda: False, PATIENCE_S)


def test_a_callback_cannot_wait_for_its_own_thread_but_close_it() -> None:
    refused = threading.Event()

    def wait() -> None:
        if refused.is_set():
            return
        with carrier.driver.lock, pytest.raises(InvalidInput, match="cannot call a method that waits"):
            carrier.driver.wait_until(lambda: False, None)
        carrier.driver.close()
        refused.set()

    with ScriptedServer(serve) as server:
        carrier = ThreadCarrier()
        carrier.start(NetworkSettings((server.address,)))
        carrier.close()
        carrier = ThreadCarrier()
        carrier.start(NetworkSettings((server.address,)), wait)
        assert refused.wait(PATIENCE_S)
        carrier.close()


def test_waiters_in_other_threads_are_told_of_the_end() -> None:
    with ScriptedServer(serve) as server:
        carrier = ThreadCarrier()
        carrier.start(NetworkSettings((server.address,)))
        told: list[BaseException] = []
        waiting = threading.Event()

        def is_over() -> bool:
            waiting.set()
            return False

        def wait() -> None:
            try:
                carrier.wait_until(is_over, PATIENCE_S)
            except Closed as error:
                told.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        assert waiting.wait(PATIENCE_S)
        carrier.close()
        thread.join(PATIENCE_S)
        assert len(told) == 1


def test_many_threads_share_a_driver() -> None:
    """Nobody's wish to be carried is overheard, whether the driver is asleep or awake at that moment."""
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            for _ in range(100):
                assert isinstance(carrier.ask(), MetadataResponse)
        except BaseException as error:
            failures.append(error)

    with ScriptedServer(serve) as server:
        carrier = ThreadCarrier()
        carrier.start(NetworkSettings((server.address,)))
        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        carrier.close()
    assert failures == []


def test_the_lock_is_free_while_the_thread_encodes_sends_and_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever wants to send meanwhile need not wait for a socket, a codec or the end of a sleep."""
    was_free: dict[str, bool] = {}
    carrier = ThreadCarrier()

    def watch(owner: type, name: str) -> None:
        method = getattr(owner, name)

        def watched(*arguments: Any) -> Any:
            driver = getattr(carrier, "driver", None)
            if driver is not None and driver.is_on_thread:
                is_free = driver.lock.acquire(timeout=PATIENCE_S)
                was_free[name] = was_free.get(name, True) and is_free
                if is_free:
                    driver.lock.release()
            return method(*arguments)

        monkeypatch.setattr(owner, name, watched)

    for owner, name in ((Sockets, "submit"), (Sockets, "flush"), (SocketSelector, "poll")):
        watch(owner, name)
    with ScriptedServer(serve) as server:
        carrier.start(NetworkSettings((server.address,)))
        for _ in range(3):
            assert isinstance(carrier.ask(), MetadataResponse)
        carrier.close()
    assert was_free == {"submit": True, "flush": True, "poll": True}


def run_program(server: ScriptedServer, text: str) -> None:
    """Runs it with a client of the server; it must end well and say nothing."""
    opening = f"""
        import sys
        sys.path.insert(0, {str(TESTS)!r})
        from harness.carriers import *
        client = ThreadCarrier()
        client.start(NetworkSettings((Address({server.address.host!r}, {server.address.port}),)))
        client.ask()
    """
    program = textwrap.dedent(opening) + textwrap.dedent(text)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_interpreter_may_end_while_a_driver_is_at_work() -> None:
    with ScriptedServer(serve) as server:
        run_program(server, "client.session.deadline = lambda: 0.0; client.driver.wake()")


def test_a_forked_child_is_told_and_the_parent_goes_on() -> None:
    program = """
        import os, warnings
        from headrace.client.errors import ClientBroken

        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 has doubts about any such fork
        client.driver.lock.acquire()  # as if another thread had it at that moment
        child = os.fork()
        if child == 0:
            client.driver.wake()
            try:
                client.ask()
            except ClientBroken:
                client.close()
                os._exit(0)
            os._exit(1)
        client.driver.lock.release()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        for _ in range(3):
            client.ask()
        client.close()
    """
    with ScriptedServer(serve) as server:
        run_program(server, program)
        assert server.connection_count == 1
