"""Jobs of a node under test, run one after the other in the event loop's thread.

A broker for tests has little data, so threads and child processes would bring nothing. Without them the same
test gives the same order of events, and nothing of a discarded node still writes to the disk that the next
node opens.
"""

import asyncio
from collections import deque
from typing import Any

from headrace.server.jobs import Finished
from headrace.storage.disk import Disk
from headrace.storage.jobs import Job


class InlineJobs:
    __slots__ = ("_disks", "_finished", "_is_stopped", "_loop", "_waiting")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        disks: dict[str, Disk],
        roots: dict[str, str],
        finished: Finished,
    ) -> None:
        self._loop = loop
        self._disks = disks
        self._finished = finished
        self._waiting: deque[tuple[int, Disk, Job]] = deque()
        self._is_stopped = False

    def start(self, ticket: int, directory: str, queue: str, job: Job, /) -> None:
        if not self._waiting:
            self._loop.call_soon(self.drain)  # never at once: we may be inside a call of the node
        self._waiting.append((ticket, self._disks[directory], job))

    def drain(self) -> None:
        """Runs waiting jobs, and those that they start."""
        while self._waiting and not self._is_stopped:
            ticket, disk, job = self._waiting[0]
            result: Any
            try:
                result = job.run(disk)
            except Exception as error:  # whoever ordered it must hear of it
                result = error
            self._waiting.popleft()
            self._finished(ticket, result)

    def stop(self) -> None:
        self._is_stopped = True
