"""Execution of a node's jobs: in a few threads, or in a child process if they compute.

There are two child processes: one for long work, and one for short work that clients wait for. Threads only
wait (for fsync, for pread, for a child): a thread that computes in Python would slow down every request. Jobs
of one queue of one directory run one after the other, in order; queues do not wait for each other.
"""

import asyncio
import errno
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from headrace.storage.disk import Disk
from headrace.storage.jobs import Job, JobKind

if TYPE_CHECKING:
    from headrace.server.worker import Worker

# Enough that a slow fsync of one directory does not hold up another's; a thread that waits costs little.
THREADS_MAX = 8

# A thread for what computes with the interpreter released: strangers may keep it busy. It gets the processor
# after the others: a tenth of it while the loop needs it, too. There is one, since each takes the interpreter
# back now and then, and others wait while it has that and no processor (docs/benchmarks.md, logins).
PATIENT_THREADS_MAX = 1
NICENESS = 10

# A child that computed nothing for this long is ended: its memory is worth more than its start of 0.1 s.
WORKER_IDLE_S = 30.0

Finished = Callable[[int, Any], None]  # ticket, and the result or the exception


class Threads:
    """A small pool, started as needed, for calls that release the interpreter; results come in the loop."""

    __slots__ = ("_idle", "_loop", "_name", "_niceness", "_tasks", "_threads", "_threads_max")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, name: str, threads_max: int, *, niceness: int = 0
    ) -> None:
        """`niceness`: how much lower their priority is, on Linux."""
        self._niceness = niceness
        self._loop = loop
        self._name = name
        self._threads_max = threads_max
        self._tasks: SimpleQueue[tuple[Callable[[], Any], Callable[[Any], None]] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle = 0  # threads without a task, as the loop knows it

    def run(self, task: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Call task in a thread, then(result or exception) in the loop. BlockingIOError when there is no
        thread, and none can be started.
        """
        if self._idle > 0 or len(self._threads) >= self._threads_max or not self._add_thread():
            self._idle -= 1  # below zero: it waits for a thread, the next that becomes free
        self._tasks.put((task, then))

    def _add_thread(self) -> bool:
        thread = threading.Thread(target=self._work, name=f"{self._name}-{len(self._threads)}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the system has no more to give
            if self._threads:
                return False
            raise BlockingIOError(errno.EAGAIN, f"no thread can be started: {error}") from error
        self._threads.append(thread)
        return True

    def _work(self) -> None:
        if self._niceness and sys.platform == "linux":  # elsewhere it would count for the whole process
            os.setpriority(os.PRIO_PROCESS, 0, min(19, os.getpriority(os.PRIO_PROCESS, 0) + self._niceness))
        while (item := self._tasks.get()) is not None:
            task, then = item
            result: Any
            try:
                result = task()
            except Exception as error:
                result = error
            try:
                self._loop.call_soon_threadsafe(self._done, then, result)
            except RuntimeError:
                return  # the loop is closed: nobody waits for it any more
            del item, task, then, result

    def _done(self, then: Callable[[Any], None], result: Any) -> None:
        self._idle += 1
        then(result)

    def stop(self) -> None:
        """No more tasks; those that run are finished, by threads that nobody waits for. Those that wait are
        dropped: whoever has ordered them has stopped.
        """
        with suppress(Empty):
            while True:
                self._tasks.get_nowait()
        for _ in self._threads:
            self._tasks.put(None)


class Computer:
    """A child process that is there while it is needed, and the thread that talks to it."""

    __slots__ = ("_loop", "_thread", "_timer", "_worker")

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._thread = Threads(loop, name, 1)
        self._worker: Worker | None = None
        self._timer: asyncio.TimerHandle | None = None

    def run(self, root: str, job: Job, then: Callable[[Any], None]) -> None:
        worker = self._worker = self._worker or _new_worker()
        self._forget_timer()

        def finished(result: Any) -> None:
            self._forget_timer()
            self._timer = self._loop.call_later(WORKER_IDLE_S, self._end_idle)
            then(result)

        self._thread.run(lambda: worker.call(root, job), finished)

    def _end_idle(self) -> None:
        self._timer = None
        if self._worker is not None:
            worker, self._worker = self._worker, None
            self._thread.run(worker.end, lambda _: None)

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def stop(self) -> None:
        self._forget_timer()
        if self._worker is not None:
            self._worker.kill()
        self._thread.stop()


class Jobs:
    __slots__ = (
        "_computers",
        "_disks",
        "_finished",
        "_loop",
        "_patient_threads",
        "_queues",
        "_roots",
        "_running",
        "_threads",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        disks: dict[str, Disk],
        roots: dict[str, str],
        finished: Finished,
    ) -> None:
        self._loop = loop
        self._disks = disks
        self._roots = roots  # directory → where it really is, for the child process
        self._finished = finished
        self._queues: dict[tuple[str, str], deque[tuple[int, Job]]] = {}  # present: one of the queue runs
        self._running = 0
        self._threads = Threads(loop, "job", THREADS_MAX)
        self._patient_threads = Threads(loop, "patient-job", PATIENT_THREADS_MAX, niceness=NICENESS)
        # A computation may take minutes; what clients wait for must not wait for that.
        self._computers = {kind: Computer(loop, kind.value) for kind in (JobKind.CPU, JobKind.PROMPT)}

    @property
    def is_idle(self) -> bool:
        return not self._running

    def start(self, ticket: int, directory: str, queue: str, job: Job) -> None:
        self._running += 1
        key = (directory, queue)
        waiting = self._queues.get(key)
        if waiting is None:
            self._queues[key] = deque()
            self._run(key, ticket, job)
        else:
            waiting.append((ticket, job))

    def _run(self, key: tuple[str, str], ticket: int, job: Job) -> None:
        try:
            self._hand_over(key, ticket, job)
        except Exception as error:  # no such directory, no more threads: whoever ordered it must hear of it
            self._loop.call_soon(self._done, key, ticket, error)

    def _hand_over(self, key: tuple[str, str], ticket: int, job: Job) -> None:
        directory = key[0]
        root = self._roots.get(directory)
        computer = self._computers.get(job.kind)
        if computer is not None and root is not None:
            computer.run(root, job, lambda result: self._done(key, ticket, result))
        else:
            disk = self._disks[directory]
            threads = self._patient_threads if job.kind is JobKind.PATIENT else self._threads
            threads.run(lambda: job.run(disk), lambda result: self._done(key, ticket, result))

    def _done(self, key: tuple[str, str], ticket: int, result: Any) -> None:
        self._running -= 1
        waiting = self._queues[key]
        if waiting:
            self._run(key, *waiting.popleft())
        else:
            del self._queues[key]
        self._finished(ticket, result)

    def stop(self) -> None:
        for queue in self._queues.values():
            self._running -= len(queue)
            queue.clear()
        for computer in self._computers.values():
            computer.stop()
        self._threads.stop()
        self._patient_threads.stop()


def _new_worker() -> "Worker":
    from headrace.server.worker import Worker  # not needed to start

    return Worker()
