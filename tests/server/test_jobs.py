"""Jobs run where they hold up nobody, in order within their queue, and come back into the loop."""

from __future__ import annotations

import asyncio
import errno
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace.base.time import ManualClock
from headrace.node.effects import Fetch, Report
from headrace.node.effects import Run as RunJob
from headrace.server import jobs as jobs_module
from headrace.server.worker import WorkerLost
from headrace.storage.errors import is_io_error, is_transient
from headrace.storage.jobs import JobKind
from server.fake_node import ECHO, JOB, Call, running_server
from server.jobs_for_tests import Compute, Return

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child finds the tests' jobs where this process found them."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_job_runs_and_its_result_comes_back(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            client = await server.client()
            assert str(tmp_path).encode() in await client.ask(JOB, 5)

    run(story())


def test_queues_are_first_in_first_out_and_independent(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            gates = [threading.Event() for _ in range(3)]
            order: list[int] = []

            def job(number: int) -> Call:
                def act(_: Any) -> int:
                    assert threading.current_thread() is not threading.main_thread()
                    gates[number].wait(10)
                    order.append(number)
                    return number

                return Call(act)

            directory = server.node.directory
            server.node.effects += [
                RunJob(0, directory, "flush", job(0)),
                RunJob(1, directory, "flush", job(1)),
                RunJob(2, directory, "delete", job(2)),
            ]
            server.settle()
            gates[1].set()  # may run, but not before the one ahead of it
            gates[2].set()
            await server.until(lambda: len(server.node.results) == 1)
            assert server.node.results == [(2, 2)]
            assert not server.jobs.is_idle
            gates[0].set()
            await server.until(lambda: len(server.node.results) == 3)
            assert order == [2, 0, 1]
            assert server.node.results == [(2, 2), (0, 0), (1, 1)]
            assert server.jobs.is_idle

    run(story())


@pytest.mark.skipif(sys.platform != "linux", reason="threads have a priority of their own on Linux only")
def test_a_patient_job_lets_others_go_first(run: Run, tmp_path: Path) -> None:
    """The hash of a stranger's password must not take the processor from the loop or threads from fsync."""

    async def story() -> None:
        async with running_server(tmp_path) as server:
            gate = threading.Event()

            def patient(_: Any) -> int:
                gate.wait(10)
                return os.getpriority(os.PRIO_PROCESS, 0)

            directory, own = server.node.directory, os.getpriority(os.PRIO_PROCESS, 0)
            others = [Call(lambda _: os.getpriority(os.PRIO_PROCESS, 0)) for _ in range(2)]
            server.node.effects += [
                RunJob(number, directory, f"login-{number}", Call(patient, JobKind.PATIENT))
                for number in range(jobs_module.THREADS_MAX)
            ]
            server.node.effects += [
                RunJob(100 + number, directory, f"flush-{number}", job) for number, job in enumerate(others)
            ]
            server.settle()
            await server.until(lambda: len(server.node.results) == 2)
            assert [found for _, found in server.node.results] == [own, own]
            gate.set()
            await server.until(lambda: len(server.node.results) == 2 + jobs_module.THREADS_MAX)
            assert {found for _, found in server.node.results[2:]} == {min(19, own + jobs_module.NICENESS)}
            assert os.getpriority(os.PRIO_PROCESS, 0) == own

    run(story())


def test_jobs_that_wait_are_dropped_at_the_end(run: Run, tmp_path: Path) -> None:
    """Nothing may be written for a node that has stopped; what a thread has begun, it ends."""

    async def story() -> None:
        async with running_server(tmp_path) as server:
            begun, may_end = threading.Event(), threading.Event()
            done: list[str] = []

            def first(_: Any) -> None:
                begun.set()
                may_end.wait(60)
                done.append("first")

            directory = server.node.directory
            server.node.effects += [
                RunJob(0, directory, "checkpoint", Call(first)),
                RunJob(1, directory, "checkpoint", Call(lambda _: done.append("second"))),
            ]
            server.settle()
            assert await asyncio.to_thread(begun.wait, 60)
            server.process.driver.jobs.stop()
            may_end.set()
            await server.until(lambda: bool(server.node.results))
            assert server.jobs.is_idle
            assert done == ["first"]

    run(story())


def passing(number: int, _: Any) -> int:
    return number


def test_more_jobs_than_threads(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            directory = server.node.directory
            for number in range(100):
                job = Call(partial(passing, number))
                server.node.effects.append(RunJob(number, directory, f"queue {number}", job))
            server.settle()
            await server.until(lambda: len(server.node.results) == 100)
            assert sorted(server.node.results) == [(number, number) for number in range(100)]
            assert threading.active_count() < 20

    run(story())


def test_a_failed_job_comes_back_as_its_error(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            broken = Call(lambda disk: disk.open("missing"))
            server.node.effects.append(RunJob(1, server.node.directory, "queue", broken))
            server.settle()
            await server.until(lambda: bool(server.node.results))
            assert isinstance(server.node.results[0][1], FileNotFoundError)

    run(story())


def test_a_job_without_a_thread_is_postponed_and_the_next_one_gets_one(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            directory = server.node.directory
            start = threading.Thread.start

            def no_more(thread: threading.Thread) -> None:
                raise RuntimeError("can't start new thread")

            monkeypatch.setattr(threading.Thread, "start", no_more)
            for number in range(jobs_module.THREADS_MAX + 1):
                server.node.effects.append(RunJob(number, directory, f"queue {number}", Call(lambda _: None)))
            server.settle()
            await server.until(lambda: len(server.node.results) == jobs_module.THREADS_MAX + 1)
            assert all(is_transient(error) for _, error in server.node.results)
            monkeypatch.setattr(threading.Thread, "start", start)
            server.node.results.clear()
            server.node.effects.append(RunJob(99, directory, "queue", Call(lambda _: "done")))
            server.settle()
            await server.until(lambda: bool(server.node.results))
            assert server.node.results == [(99, "done")]

            # with one thread there, all wait for it
            monkeypatch.setattr(threading.Thread, "start", no_more)
            server.node.results.clear()
            for number in range(20):
                job = Call(partial(passing, number))
                server.node.effects.append(RunJob(number, directory, f"queue {number}", job))
            server.settle()
            await server.until(lambda: len(server.node.results) == 20)
            assert server.node.results == [(number, number) for number in range(20)]

    run(story())


@pytest.mark.parametrize("lacks", ["a thread", "a descriptor"])
def test_a_document_that_cannot_be_fetched_comes_back_as_an_error(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    """Logins wait for it. The module that fetches is loaded when it is first used."""

    def no_more(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def story() -> None:
        async with running_server(tmp_path) as server:
            document = tmp_path / "keys"
            document.write_bytes(b"{}")
            with monkeypatch.context() as patch:
                if lacks == "a thread":
                    patch.setattr(threading.Thread, "start", no_more)
                else:
                    patch.setitem(sys.modules, "headrace.server.documents", None)
                server.node.effects.append(Fetch(1, document.as_uri(), 100))
                server.settle()
                await server.until(lambda: bool(server.node.results))
            ((ticket, error),) = server.node.results
            assert ticket == 1
            assert isinstance(error, Exception)
            server.node.effects.append(Fetch(2, document.as_uri(), 100))
            server.settle()
            await server.until(lambda: len(server.node.results) == 2)
            assert server.node.results[1] == (2, b"{}")

    run(story())


def test_a_child_that_cannot_be_started_is_no_error_of_the_disk(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    async def story() -> None:
        async with running_server(tmp_path) as server:
            with monkeypatch.context() as patch:
                patch.setattr(subprocess, "Popen", no_memory)
                server.node.effects.append(RunJob(0, server.node.directory, "compute", Compute("again")))
                server.settle()
                await server.until(lambda: bool(server.node.results))
            (_, error) = server.node.results.pop()
            assert is_transient(error)
            assert not is_io_error(error)
            assert "Cannot allocate memory" in str(error)
            server.node.effects.append(RunJob(1, server.node.directory, "compute", Compute("again")))
            server.settle()
            await server.until(lambda: bool(server.node.results))
            assert server.node.results == [(1, "again")]

    run(story())


def test_computing_happens_in_a_child(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            directory = server.node.directory
            whats = ["pid", "write", "print", "fail", "die", "again"]
            for number, what in enumerate(whats):
                server.node.effects.append(RunJob(number, directory, "compute", Compute(what)))
            server.settle()
            client = await server.client()
            assert await client.ask(ECHO, 1, b"meanwhile") == b"meanwhile"
            await server.until(lambda: len(server.node.results) == len(whats))
            results = [result for _, result in server.node.results]
            child, parent, niceness = results[0]
            assert child != os.getpid()
            assert parent == os.getpid()
            assert niceness >= 10
            assert "result" in results[1]
            assert (tmp_path / "result").read_bytes() == b"from the child"
            assert results[2] == "quiet"
            assert isinstance(results[3], OSError)
            assert results[3].errno == 28
            assert isinstance(results[4], WorkerLost)
            assert results[5] == "again"  # by a new child
            assert not is_alive(child)

    run(story())


def test_what_clients_wait_for_does_not_wait_for_long_work(run: Run, tmp_path: Path) -> None:
    """Each kind of computation has a child of its own; batches get there and back as they are."""

    async def story() -> None:
        async with running_server(tmp_path) as server:
            directory = server.node.directory
            fifo = tmp_path / "fifo"
            os.mkfifo(fifo)
            batch = os.urandom(3_000_000)
            server.node.effects += [
                RunJob(0, directory, "long", Compute(f"read {fifo}")),  # until somebody writes
                RunJob(1, directory, "short", Return(batch)),
            ]
            server.settle()
            await server.until(lambda: bool(server.node.results))
            assert server.node.results == [(1, batch)]
            fifo.write_text("at last")
            await server.until(lambda: len(server.node.results) == 2)
            assert server.node.results[1] == (0, "at last")

    run(story())


def test_an_idle_child_is_ended_and_replaced(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_module, "WORKER_IDLE_S", 0.01)

    async def story() -> None:
        async with running_server(tmp_path) as server:
            server.node.effects.append(RunJob(1, server.node.directory, "queue", Compute("pid")))
            server.settle()
            await server.until(lambda: bool(server.node.results))
            child = server.node.results[0][1][0]
            await server.until(lambda: not is_alive(child))
            server.node.effects.append(RunJob(2, server.node.directory, "queue", Compute("pid")))
            server.settle()
            await server.until(lambda: len(server.node.results) == 2)
            assert server.node.results[1][1][0] not in (child, os.getpid())

    run(story())


def test_no_child_outlives_the_process(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            server.node.effects.append(RunJob(1, server.node.directory, "queue", Compute("pid")))
            server.settle()
            await server.until(lambda: bool(server.node.results))
            children.append(server.node.results[0][1][0])

    children: list[int] = []
    run(story())
    assert not is_alive(children[0])


PARENT = """
import sys, time
from headrace.server.worker import Worker
from server.jobs_for_tests import Compute
print(Worker().call(sys.argv[1], Compute("pid"))[0], flush=True)
sys.stdin.read()
"""


def test_the_child_dies_with_a_killed_parent(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    with parent.stdin, parent.stdout:
        child = int(parent.stdout.readline())
        assert is_alive(child)
        watched = os.pidfd_open(child)
        parent.kill()
        parent.wait()
        ended, _, _ = select.select([watched], [], [], 20)
        os.close(watched)
    assert ended


def test_an_effect_that_fails_does_not_take_the_others_with_it(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            fine = Call(lambda _: "fine")
            server.node.effects += [RunJob(1, "no such directory", "queue", fine)]
            server.node.effects += [RunJob(2, "no such directory", "queue", fine)]
            server.node.effects += [Report("no such level", "odd", {})]
            server.node.effects += [RunJob(3, server.node.directory, "queue", fine)]
            server.settle()
            await server.until(lambda: len(server.node.results) == 3)
            results = dict(server.node.results)
            assert isinstance(results[1], KeyError)
            assert isinstance(results[2], KeyError)
            assert results[3] == "fine"
            assert "no such level" in server.logged("internal_error")[0]
            assert server.jobs.is_idle

    run(story())


def test_the_timer_follows_the_earliest_deadline(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:
            node = server.node
            start = server.process.clock.now().mono
            node.deadlines = [start + 3600]
            server.settle()
            node.deadlines.append(start + 0.02)
            server.settle()
            await server.until(lambda: len(node.deadlines) == 1)
            assert node.woken_at[-1] >= start + 0.02
            assert len(node.woken_at) < 5  # a little early now and then, but it does not spin
            node.deadlines = [start]  # already over: woken in the next turn
            server.settle()
            await server.until(lambda: node.deadlines == [])

    run(story())


def test_a_slow_call_of_the_node_is_logged(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        clock = ManualClock(100.0)
        async with running_server(tmp_path, clock=clock) as server:

            def slow(now: Any) -> None:
                server.node.deadlines = []
                clock.advance(0.2)

            monkeypatch.setattr(server.node, "wake", slow)
            server.node.deadlines = [0.0]
            server.settle()
            await server.until(lambda: bool(server.logged("slow_call")))
            assert "call=wake took_ms=200" in server.logged("slow_call")[0]

    run(story())


def test_a_bug_in_a_wake_is_logged_and_survived(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with running_server(tmp_path) as server:

            def broken(now: Any) -> None:
                server.node.deadlines = []
                raise RuntimeError("planted")

            monkeypatch.setattr(server.node, "wake", broken)
            server.node.deadlines = [0.0]
            server.settle()
            await server.until(lambda: bool(server.logged("internal_error")))
            client = await server.client()
            assert await client.ask(ECHO, 1, b"alive") == b"alive"

    run(story())
