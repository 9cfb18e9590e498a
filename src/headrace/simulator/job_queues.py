"""Job queues of one simulated process.

A job runs some time after the node ordered it, and the node gets its result some time after it has run. Jobs
of one queue run one after the other. The host chooses the delays: all jobs may be slow, or those of one
queue.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Literal, Protocol

from headrace.node.effects import Run
from headrace.simulator.world import World

# Of a job: it was ordered; it has run, and nobody was told; its result was told.
Step = Literal["ordered", "run", "told"]

SLOW_S = (0.1, 2.0)  # from the order to the run of each job of a host that is slow
LATE_S = (0.5, 4.0)  # of each job of a late queue, before it runs or before its result is told


class JobDelays:
    """How late the jobs of a host are; a new process finds them as the last one did."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.is_slow = False  # all jobs take long
        self.late_queue = ""  # the jobs of this queue are late, the others are not; "": none

    def before_run_s(self, queue: str) -> float:
        if queue == self.late_queue and self._world.chance(0.5):
            return self._world.between(*LATE_S)
        return self._world.between(*SLOW_S) if self.is_slow else self._world.short_delay()

    def before_told_s(self, queue: str) -> float:
        """Nobody knows yet what the job has done."""
        if queue == self.late_queue and self._world.chance(0.5):
            return self._world.between(*LATE_S)
        return self._world.short_delay()

    def heal(self) -> None:
        self.is_slow = False
        self.late_queue = ""


class Process(Protocol):
    """The process whose jobs these are."""

    def run_job(self, run: Run, /) -> tuple[Any, ...] | None:
        """Its result alone in a tuple; None: the process died in it."""
        ...

    def job_told(self, run: Run, result: Any, /) -> None: ...

    def job_passed(self, step: Step, run: Run, /) -> None: ...


class JobQueues:
    def __init__(self, world: World, delays: JobDelays, process: Process) -> None:
        self._world = world
        self._delays = delays
        self._process = process
        self._queues: dict[tuple[str, str], deque[Run]] = {}  # by directory and name
        self._is_over = False  # its process has ended

    def end(self) -> None:
        self._is_over = True

    def add(self, run: Run) -> None:
        queue = self._queues.setdefault((run.directory, run.queue), deque())
        queue.append(run)
        if len(queue) == 1:
            self._begin(queue)
        self._process.job_passed("ordered", run)

    def _begin(self, queue: deque[Run]) -> None:
        self._after(self._delays.before_run_s(queue[0].queue), lambda: self._run(queue))

    def _run(self, queue: deque[Run]) -> None:
        run = queue[0]
        ended = self._process.run_job(run)
        if ended is None:
            return
        # what it did is on the disk; that it did it is not known before it is told
        self._process.job_passed("run", run)
        self._after(self._delays.before_told_s(run.queue), lambda: self._done(queue, ended[0]))

    def _done(self, queue: deque[Run], result: Any) -> None:
        run = queue.popleft()
        if queue:
            self._begin(queue)
        self._process.job_told(run, result)

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        def act_unless_over() -> None:
            if not self._is_over:
                act()

        self._world.after(seconds, act_unless_over)
