"""The runner: it carries out what the machine decides, and writes it to the topic."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from harness.wait import Patience
from headrace.client.errors import ClientError
from headrace.client.threads.admin import Admin
from headrace.client.threads.producer import Producer
from headrace.jobs import child_process
from headrace.jobs.errors import JobFailed
from headrace.jobs.file import Definition, JobsFile
from headrace.jobs.runner import Runner
from headrace.jobs.state_topic import JobStatus, StateTopic, ensure_topics
from headrace.machines.jobs import job as machine
from headrace.machines.jobs.job import Order, Phase
from headrace.machines.jobs.schedule import parse_schedule
from headrace.server.logs import Log
from headrace.testing import Broker

TOPIC = "headrace-jobs"


@pytest.fixture(autouse=True)
def quick_children(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Path(__file__).with_name("fake_child.py")
    monkeypatch.setattr(child_process, "COMMAND", (sys.executable, "-S", "-E", str(script)))


class Story:
    """Runners on one event loop; what the topic says is read by a command's own code, in a thread."""

    def __init__(self, broker: Broker, jobs: dict[str, str], partitions: int = 1) -> None:
        """`jobs` is name → schedule and act."""
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        self.clients = dict.fromkeys(("admin", "consumer", "producer"), servers)
        self.servers = broker.bootstrap_servers
        self.lines: list[str] = []
        self.file = self.file_with(jobs, partitions)
        with Admin(self.servers) as admin:
            self.count = ensure_topics(admin, TOPIC, partitions)
        self.running: list[tuple[Runner, asyncio.Task[None]]] = []

    def file_with(self, jobs: dict[str, str], partitions: int = 1) -> JobsFile:
        definitions = {}
        for name, text in jobs.items():
            schedule, _, act = text.partition(":")
            definitions[name] = Definition(name, "replay", parse_schedule(schedule), {"act": act}, Path())
        return JobsFile(TOPIC, TOPIC, partitions, 5000, definitions)

    async def __aenter__(self) -> Story:
        return self

    async def __aexit__(self, *_: object) -> None:
        for runner, task in self.running:
            runner.stop()
            await asyncio.gather(task, return_exceptions=True)

    async def serve(self, name: str = "one", file: JobsFile | None = None) -> Runner:
        is_ready = asyncio.Event()
        runner = Runner(
            file or self.file,
            self.clients,
            name=name,
            partitions=self.count,
            log=Log(write=self.lines.append),
            on_ready=is_ready.set,
        )
        task = asyncio.ensure_future(runner.run())
        self.running.append((runner, task))
        ready = asyncio.ensure_future(is_ready.wait())
        await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if task.done():
            task.result()
        return runner

    async def end(self, runner: Runner) -> None:
        runner.stop()
        await next(task for one, task in self.running if one is runner)

    async def status(self, name: str) -> JobStatus:
        return await asyncio.to_thread(self._status, name)

    def _status(self, name: str) -> JobStatus:
        with Admin(self.servers) as admin:
            states = StateTopic(admin, self.clients, TOPIC)
            with states.opened(30.0):
                states.find_owners()
                return states.jobs[name]

    async def until(self, name: str, condition: Callable[[machine.JobState], object]) -> JobStatus:
        patience = Patience(60)
        while True:
            status = await self.status(name)
            assert status.described is not None
            if condition(status.described.state):
                return status
            assert not patience.is_over, f"{status}\n{''.join(self.lines)}"
            await asyncio.sleep(0.05)

    async def order(self, name: str, order: Order) -> int:
        def ask() -> int:
            with Admin(self.servers) as admin:
                states = StateTopic(admin, self.clients, TOPIC)
                with states.opened(30.0):
                    return states.order(name, order)

        return await asyncio.to_thread(ask)


def tell(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(story())  # type: ignore[arg-type]


def is_phase(phase: Phase, run: int | None = None) -> Callable[[machine.JobState], bool]:
    return lambda state: state.phase is phase and (run is None or state.run == run)


def test_runs_by_schedule_order_and_failure(broker: Broker) -> None:
    jobs = {
        "once": "once:succeed",
        "asked": "on demand:succeed",
        "retried": "once:fail twice",
        "refused": "every 5m:refuse",
        "crashed": "once:crash",
    }

    async def story() -> None:
        async with Story(broker, jobs) as at:
            await at.serve()
            done = await at.until("once", is_phase(Phase.DONE, 1))
            assert done.progress is not None
            assert (done.progress.records_in, done.owner, done.progress_run) == (5, "one", 1)
            offset = await at.order("asked", Order.AGAIN)
            again = await at.until("asked", lambda state: state.order == offset and state.ended_ms)
            assert again.described is not None
            assert (again.described.state.generation, again.described.state.run) == (1, 1)
            refused = await at.until("refused", is_phase(Phase.FAILED))
            assert refused.described is not None
            assert refused.described.state.error is not None
            assert refused.described.state.error.advice == "try harder"
            crashed = await at.until("crashed", is_phase(Phase.BACKING_OFF))
            assert crashed.described is not None
            error = crashed.described.state.error
            assert error is not None
            assert error.message == "the process ended with code 7: out of memory"
            await at.until("retried", is_phase(Phase.DONE, 3))
            assert any('job_output job=crashed line="out of memory"' in line for line in at.lines)

    tell(story)


def test_stop_and_kill(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "STOP_PATIENCE_MS", 300)

    async def story() -> None:
        async with Story(broker, {"gentle": "continuous:go on", "stubborn": "continuous:hang"}) as at:
            runner = await at.serve()
            for name in ("gentle", "stubborn"):
                await at.until(name, is_phase(Phase.RUNNING))
                await at.order(name, Order.STOP)
                stopped = await at.until(name, is_phase(Phase.STOPPED))
            assert stopped.described is not None
            error = stopped.described.state.error
            assert error is not None
            assert "SIGKILL" in error.message
            assert all(job.child is None for job in runner.owned_jobs())
            await at.order("gentle", Order.RUN)
            await at.until("gentle", is_phase(Phase.RUNNING, 2))
            await at.end(runner)
            left = await at.until("gentle", is_phase(Phase.WAITING, 2))  # for the next runner, at once
            assert left.described is not None
            assert left.described.state.due_ms is not None
            await at.serve("two")
            await at.until("gentle", is_phase(Phase.RUNNING, 3))
            assert (await at.status("stubborn")).described.state.phase is Phase.STOPPED  # type: ignore[union-attr]

    tell(story)


def test_jobs_are_shared_and_handed_over(broker: Broker) -> None:
    names = [f"job-{number}" for number in range(8)]

    async def story() -> None:
        async with Story(broker, dict.fromkeys(names, "continuous:go on"), partitions=4) as at:
            first = await at.serve("one")
            await at.serve("two")
            patience = Patience(60)
            while {(await at.status(name)).owner for name in names} != {"one", "two"}:
                assert not patience.is_over, "".join(at.lines)
            for name in names:
                status = await at.status(name)
                run = 1 if status.owner == "one" else 2
                await at.until(name, is_phase(Phase.RUNNING, run))
            await at.end(first)
            for name in names:
                await at.until(name, is_phase(Phase.RUNNING, 2))

    tell(story)


def test_a_runner_that_was_replaced_gives_up_what_it_has(broker: Broker) -> None:
    """Somebody else has its partition: it notices at its next write, ends its run, and joins again."""

    async def story() -> None:
        async with Story(broker, {"copy": "continuous:go on"}) as at:
            runner = await at.serve()
            await at.until("copy", is_phase(Phase.RUNNING, 1))
            (owned,) = runner.owned_jobs()
            child = owned.child
            assert child is not None

            def fence() -> None:
                with Producer(at.servers, transactional_id=f"{TOPIC}-0") as thief:
                    thief.init_transactions()

            await asyncio.to_thread(fence)
            await at.order("copy", Order.RUN)
            await at.until("copy", is_phase(Phase.RUNNING, 2))
            assert owned.partition.is_lost
            assert child is not runner.owned_jobs()[0].child
            text = "".join(at.lines)
            assert "partition_fenced" in text
            assert "partitions_lost" in text

    tell(story)


def test_what_the_topic_has_of_others(broker: Broker) -> None:
    """Records that nobody knows are ignored; jobs that are not in the file any more are marked."""

    async def story() -> None:
        async with Story(broker, {"old": "on demand:succeed", "copy": "on demand:succeed"}) as at:
            await at.end(await at.serve())

            def write() -> None:
                with Producer(at.servers) as producer:
                    for key in (b"\xff", b"nonsense", b"state x", b"order copy", b"progress copy"):
                        producer.send(TOPIC, b"{}", key, partition=0)

            await asyncio.to_thread(write)
            await at.serve(file=at.file_with({"copy": "on demand:succeed"}))
            await at.until("old", is_phase(Phase.REMOVED))
            assert sum("record_ignored" in line for line in at.lines) == 4
            await at.order("copy", Order.RUN)
            await at.until("copy", is_phase(Phase.WAITING, 1))

    tell(story)


def test_another_number_of_partitions_is_refused(broker: Broker, admin: Any) -> None:
    async def story() -> None:
        jobs = dict.fromkeys(("a", "b", "c", "d", "e"), "on demand:succeed")
        async with Story(broker, jobs) as at:
            await at.end(await at.serve())
            admin.create_partitions({TOPIC: 3})
            at.count = 3
            with pytest.raises(JobFailed, match="had another number of partitions"):
                await at.serve("two")

    tell(story)


def test_a_group_that_may_not_be_joined_ends_the_runner(broker: Broker) -> None:
    async def story() -> None:
        async with Story(broker, {"copy": "on demand:succeed"}) as at:
            with pytest.raises(ClientError):
                await at.serve(file=JobsFile(TOPIC, TOPIC, 1, 50, at.file.jobs))  # too short for the broker

    tell(story)
