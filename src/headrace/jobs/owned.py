"""What a runner owns: a partition of the state topic with its writer, and the jobs that belong to it.

The writer has the transactional id of the partition. A runner that is assigned the partition takes the id
over before it reads, so that a former owner that does not know yet cannot write any more. It never takes the
id over a second time: that would be the former owner's way to fence its successor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from headrace.client.aio.producer import Producer
from headrace.client.errors import ClientError, ProducerUnusable, TimedOut
from headrace.jobs.child_process import ChildProcess
from headrace.jobs.file import Definition
from headrace.jobs.progress import Progress
from headrace.machines.jobs.job import Job, Order
from headrace.machines.jobs.records import Described, Key
from headrace.server.logs import Log

RETRY_S: Final = 1.0


class OwnedJob:
    def __init__(self, definition: Definition, machine: Job, partition: OwnedPartition) -> None:
        self.definition = definition
        self.machine = machine
        self.partition = partition
        self.lock = asyncio.Lock()  # one input after the other, with all its effects
        self.child: ChildProcess | None = None
        self.idle = asyncio.Event()  # there is no child
        self.idle.set()
        self.progress: Progress | None = None
        self.progress_run = 0
        self.is_progress_new = False  # not written yet


class OwnedPartition:
    def __init__(self, topic: str, index: int, producer: Producer, log: Log) -> None:
        self.index = index
        self.end = 0  # what was written before this runner came ends here
        self.is_loaded = False
        self.is_lost = False
        self.states: dict[str, Described] = {}  # while it is loaded
        self.orders: dict[str, tuple[int, Order]] = {}
        self.jobs: dict[str, OwnedJob] = {}
        self._topic = topic
        self._producer = producer
        self._lock = asyncio.Lock()
        self._log = log

    async def take_over(self) -> None:
        """Fence the former owner."""
        while True:
            try:
                await self._producer.init_transactions()
                return
            except TimedOut as error:
                self._log.warning("partition_waits", partition=self.index, reason=str(error))

    async def write(
        self, records: Iterable[tuple[Key, bytes]], gives_up: Callable[[], bool] = lambda: False
    ) -> bool:
        """Write records, all or none; False if another runner owns the partition. A broker that is away is
        waited for.
        """
        records = list(records)
        async with self._lock:
            while not self.is_lost and not gives_up():
                try:
                    await self._transact(records)
                    return True
                except ProducerUnusable as error:
                    self._log.warning("partition_fenced", partition=self.index, reason=str(error))
                    self.is_lost = True
                except ClientError as error:
                    self._log.warning("state_not_written", partition=self.index, reason=str(error))
                    await asyncio.sleep(RETRY_S)
            return False

    async def _transact(self, records: Iterable[tuple[Key, bytes]]) -> None:
        producer = self._producer
        await producer.begin_transaction()
        try:
            for key, value in records:
                await producer.send(self._topic, value, key.encode(), partition=self.index)
            await self._insist(producer.commit_transaction)
        except ProducerUnusable:
            raise
        except ClientError:
            await self._insist(producer.abort_transaction)
            raise

    async def _insist(self, call: Callable[[], Awaitable[None]]) -> None:
        """Whether a commit that timed out was made is known only when it is asked for again."""
        while True:
            try:
                return await call()
            except TimedOut:
                if self.is_lost:
                    raise

    async def close(self) -> None:
        """Nothing is written any more."""
        self.is_lost = True
        try:
            await self._producer.close(timeout=1.0)
        except ClientError:
            pass  # a fenced one
