"""The runner of `headrace jobs serve`: a member of a group that shares the jobs out to all runners.

Each job belongs to a partition of the state topic, and runs where that partition is assigned. A runner that
is assigned a partition fences its former owner, reads what the partition says, and adopts its jobs. When a
runner dies, the group gives its partitions to another one. What happens to a job is decided by
`headrace.machines.jobs.job`; here its effects are carried out, in their order.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, Final

from headrace.client.aio.consumer import Consumer
from headrace.client.aio.producer import Producer
from headrace.client.cluster import TopicPartition
from headrace.jobs.child_process import ChildProcess
from headrace.jobs.errors import JobFailed
from headrace.jobs.file import JobsFile
from headrace.jobs.messages import Finished, Task
from headrace.jobs.owned import OwnedJob, OwnedPartition
from headrace.jobs.progress import Progress
from headrace.jobs.state_topic import partition_of
from headrace.jobs.work import Settings, wall_ms
from headrace.machines.jobs.job import (
    Adopted,
    Closing,
    Ended,
    Failed,
    Input,
    Interrupted,
    Job,
    JobError,
    JobState,
    Kill,
    Lost,
    Ordered,
    Persist,
    Phase,
    Progressed,
    Start,
    Stop,
    Succeeded,
    Woke,
)
from headrace.machines.jobs.records import (
    ORDER,
    PROGRESS,
    STATE,
    Described,
    Key,
    Unreadable,
    encode_json,
    encode_state,
    read_key,
    read_order,
    read_state,
)
from headrace.records._messages import Message
from headrace.server.logs import Log

POLL_S: Final = 0.5
PROGRESS_EVERY_S: Final = 2.0
TICK_S_MAX: Final = 60.0
BLOCK_MS: Final = 10_000  # how long a write waits for a broker before it is tried again
CLOSE_S: Final = 90.0  # for all runs to stop; the machine kills each after a minute


class Runner:
    def __init__(
        self,
        jobs: JobsFile,
        clients: Mapping[str, Settings],
        *,
        name: str,
        partitions: int,
        log: Log,
        on_ready: Callable[[], None],
    ) -> None:
        """`partitions` is the number of partitions of the state topic. `on_ready` is called when the runner
        is a member of the group, and the jobs that it was given are known.
        """
        self.jobs = jobs
        self.name = name
        self._clients = clients
        self._count = partitions
        self._log = log
        self.partitions: dict[int, OwnedPartition] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._on_ready = on_ready
        self._has_joined = False
        self._gives_up = False
        self._stopping = asyncio.Event()
        self._ticking = asyncio.Event()  # deadlines have changed
        self._failure: BaseException | None = None

    async def run(self) -> None:
        """Serve jobs until `stop`; raises what made it impossible to go on."""
        consumer = Consumer(self._consumer_settings())
        self._consumer = consumer
        self._subscribe()
        ticker = self._spawn(self._tick())
        reporter = self._spawn(self._write_progress())
        poller = self._spawn(self._poll())
        try:
            await self._stopping.wait()
        finally:
            poller.cancel()
            await asyncio.gather(poller, return_exceptions=True)
            try:
                async with asyncio.timeout(CLOSE_S):
                    await self._release(list(self.partitions))
            except TimeoutError:
                self._gives_up = True
                await self._give_up(list(self.partitions))
            for task in (ticker, reporter):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await consumer.close()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        self._stopping.set()

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failure = self._failure or task.exception()
            self._stopping.set()

    # --- membership ----------------------------------------------------------------------------------------

    def _consumer_settings(self) -> dict[str, object]:
        return {
            **self._clients["consumer"],
            "client.id": self.name,
            "group.id": self.jobs.group,
            "session.timeout.ms": self.jobs.takeover_ms,
            "heartbeat.interval.ms": max(100, self.jobs.takeover_ms // 4),
            "partition.assignment.strategy": "cooperative-sticky",  # others go on while one joins
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "allow.auto.create.topics": False,
        }

    def _subscribe(self) -> None:
        self._consumer.subscribe(
            [self.jobs.topic],
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    async def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._has_joined = True
        for at in partitions:
            producer = Producer(
                {
                    **self._clients["producer"],
                    "client.id": self.name,
                    "transactional.id": f"{self.jobs.topic}-{at.partition}",
                    "linger.ms": 0,
                    "max.block.ms": BLOCK_MS,
                }
            )
            partition = OwnedPartition(self.jobs.topic, at.partition, producer, self._log)
            await partition.take_over()
            self.partitions[at.partition] = partition
        if partitions:
            ends = await consumer.end_offsets(partitions)
            for at in partitions:
                self.partitions[at.partition].end = ends[at]
            consumer.seek_to_beginning(partitions)
            taken = [self.partitions[at.partition] for at in partitions]
            self._log.info("partitions_taken", partitions=_numbers(taken))

    async def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Hand over: runs finish their batch before another runner may begin."""
        await self._release([at.partition for at in partitions])

    async def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        await self._give_up([at.partition for at in partitions])

    async def _release(self, indexes: list[int]) -> None:
        owned = [self.partitions[index] for index in indexes if index in self.partitions]
        jobs = [job for partition in owned for job in partition.jobs.values()]
        await asyncio.gather(*(self._step(job, Closing()) for job in jobs))
        self._ticking.set()
        await asyncio.gather(*(job.idle.wait() for job in jobs))
        await self._drop(owned)
        if owned:
            self._log.info("partitions_handed_over", partitions=_numbers(owned))

    async def _give_up(self, indexes: list[int]) -> None:
        """Another runner may own them already: end everything now."""
        owned = [self.partitions[index] for index in indexes if index in self.partitions]
        if owned:
            self._log.warning("partitions_lost", partitions=_numbers(owned))
        for partition in owned:
            partition.is_lost = True
        jobs = [job for partition in owned for job in partition.jobs.values()]
        for job in jobs:
            if job.child is not None:
                job.child.kill()
        await asyncio.gather(*(self._step(job, Lost()) for job in jobs))
        await asyncio.gather(*(job.idle.wait() for job in jobs))
        await self._drop(owned)

    async def _drop(self, owned: list[OwnedPartition]) -> None:
        for partition in owned:
            self.partitions.pop(partition.index, None)
            await partition.close()

    async def _poll(self) -> None:
        consumer = self._consumer
        while True:
            for message in await consumer.poll(POLL_S):
                self._absorb(message)
            for partition in list(self.partitions.values()):
                at = TopicPartition(self.jobs.topic, partition.index)
                if partition.is_loaded or at not in consumer.assignment:
                    continue
                if await consumer.position(at) >= partition.end:
                    await self._adopt(partition)
            if self._has_joined and all(one.is_loaded for one in self.partitions.values()):
                self._on_ready()
                self._on_ready = lambda: None
            lost = [partition.index for partition in self.partitions.values() if partition.is_lost]
            if lost:
                await self._give_up(lost)
                await consumer.unsubscribe()
                self._subscribe()

    # --- what the topic says -------------------------------------------------------------------------------

    def _absorb(self, message: Message) -> None:
        partition = self.partitions.get(message.partition)
        if partition is None:
            return
        try:
            key = read_key(message.key)
            if key.kind == ORDER:
                order = read_order(message.value)
                partition.orders[key.job] = (message.offset, order)
                job = partition.jobs.get(key.job)
                if job is not None:
                    self._log.info("job_ordered", job=key.job, order=order)
                    self._spawn(self._step(job, Ordered(message.offset, order)))
            elif key.kind == STATE and not partition.is_loaded:
                partition.states[key.job] = read_state(message.value)
        except Unreadable as error:
            self._log.warning("record_ignored", offset=message.offset, reason=str(error))

    async def _adopt(self, partition: OwnedPartition) -> None:
        partition.is_loaded = True
        own = {
            name: definition
            for name, definition in self.jobs.jobs.items()
            if partition_of(name, self._count) == partition.index
        }
        for name in partition.states:
            if name in self.jobs.jobs and name not in own:
                raise JobFailed(
                    f"topic {self.jobs.topic} had another number of partitions when job {name} began",
                    "Use another topic for the states of jobs (`topic` in the file).",
                )
        steps: list[Awaitable[object]] = []
        for name, definition in own.items():
            stored = partition.states.pop(name, None)
            machine = Job(definition.schedule, definition.digest, random.SystemRandom())
            job = OwnedJob(definition, machine, partition)
            partition.jobs[name] = job
            steps.append(self._begin(job, stored))
        removed = [
            (Key(STATE, name), encode_state(one._replace(state=_removed(one))))
            for name, one in partition.states.items()
            if one.state.phase is not Phase.REMOVED
        ]
        if removed:
            steps.append(partition.write(removed, lambda: self._gives_up))
        await asyncio.gather(*steps)

    async def _begin(self, job: OwnedJob, stored: Described | None) -> None:
        await self._step(job, Adopted(None if stored is None else stored.state))
        order = job.partition.orders.get(job.definition.name)
        if order is not None:
            await self._step(job, Ordered(*order))

    # --- what the machine decides --------------------------------------------------------------------------

    async def _step(self, job: OwnedJob, event: Input) -> None:
        async with job.lock:
            for effect in job.machine.step(wall_ms(), event):
                match effect:
                    case Persist():
                        if not await self._persist(job):
                            self._ticking.set()
                            return
                    case Start(run, generation):
                        self._start(job, run, generation)
                    case Stop():
                        if job.child is not None:
                            job.child.stop()
                    case Kill():
                        if job.child is not None:
                            job.child.kill()
        self._ticking.set()

    async def _persist(self, job: OwnedJob) -> bool:
        state, definition = job.machine.state, job.definition
        described = Described(state, definition.kind, str(definition.schedule), self.name)
        records = [(Key(STATE, definition.name), encode_state(described)), *_new_progress(job)]
        facts = {"job": definition.name, "phase": str(state.phase), "run": state.run}
        if state.error is not None and state.phase in (Phase.BACKING_OFF, Phase.FAILED):
            facts["error"] = state.error.message
        self._log.info("job", **facts)
        return await job.partition.write(records, lambda: self._gives_up)

    def _start(self, job: OwnedJob, run: int, generation: int) -> None:
        task = Task(job.definition, run, generation, self.jobs.topic, self._clients)
        job.progress, job.progress_run = None, run

        def report(progress: Progress) -> None:
            has_batch = job.progress is None or progress.batch_count > job.progress.batch_count
            job.progress, job.is_progress_new = progress, True
            if has_batch and progress.batch_count:
                self._spawn(self._step(job, Progressed(run)))

        def line(text: str) -> None:
            self._log.info("job_output", job=job.definition.name, line=text)

        job.child = ChildProcess(task, report, line)
        job.idle.clear()
        self._spawn(self._attend(job, job.child, run))

    async def _attend(self, job: OwnedJob, child: ChildProcess, run: int) -> None:
        try:
            finished = await child.run()
        finally:
            job.child = None
        await self._step(job, _ended(run, finished))
        if job.child is None:  # else the next run has begun
            job.idle.set()

    # --- time ----------------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            self._ticking.clear()
            now_ms = wall_ms()
            due = TICK_S_MAX
            for job in self.owned_jobs():
                deadline = job.machine.deadline()
                if deadline is None or job.lock.locked():
                    continue
                if deadline <= now_ms:
                    self._spawn(self._step(job, Woke()))
                else:
                    due = min(due, (deadline - now_ms) / 1000)
            try:
                # not wait_for, which may swallow the cancellation of this task
                async with asyncio.timeout(due):
                    await self._ticking.wait()
            except TimeoutError:
                pass

    async def _write_progress(self) -> None:
        while True:
            await asyncio.sleep(PROGRESS_EVERY_S)
            for partition in list(self.partitions.values()):
                records = [record for job in partition.jobs.values() for record in _new_progress(job)]
                if records and not partition.is_lost:
                    await partition.write(records, lambda: self._gives_up)

    def owned_jobs(self) -> list[OwnedJob]:
        return [job for partition in self.partitions.values() for job in partition.jobs.values()]


def _ended(run: int, finished: Finished) -> Ended:
    if finished.fault is not None:
        message, advice, is_retriable = finished.fault
        return Failed(run, JobError(message, advice, wall_ms()), is_retriable)
    return Succeeded(run) if finished.is_done else Interrupted(run)


def _new_progress(job: OwnedJob) -> list[tuple[Key, bytes]]:
    if not job.is_progress_new or job.progress is None:
        return []
    job.is_progress_new = False
    facts = {"run": job.progress_run, "at_ms": wall_ms(), "progress": job.progress.as_json()}
    return [(Key(PROGRESS, job.definition.name), encode_json(facts))]


def _removed(described: Described) -> JobState:
    return replace(described.state, phase=Phase.REMOVED, due_ms=None)


def _numbers(partitions: list[OwnedPartition]) -> str:
    return ",".join(str(one.index) for one in partitions)
