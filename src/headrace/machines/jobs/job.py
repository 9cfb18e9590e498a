"""One job: when its runs start, what a run that ended means, and who may decide it.

    waiting --due, or asked for--> running --succeeded--> waiting, or done
                                   running --failed-----> backing off --due--> running
                                   running --failed, and a retry cannot help--> failed
                                   running --stop asked for--> stopping --ended--> stopped
                                   running --begin again asked for--> restarting --ended--> running

`stopped`, `failed` and `done` last until somebody asks for a run, or until the definition changes (`failed`
and `done`). All times are wall time in milliseconds: a job's schedule outlives its runner.

The state is a value that is written to a log. Whoever carries out the effects does so in their order, and
does not start a run before the `Persist` in front of it is durable: a runner that was replaced cannot write
any more, so it does not start one either.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from headrace.base.randomness import Randomness
from headrace.machines.jobs.backoff import FIRST_MS, LAST_MS, backoff_ms
from headrace.machines.jobs.schedule import Continuous, Once, Schedule, first_ms, next_ms

# A run that is asked to stop finishes its batch first. One that takes longer is killed; its batch is done
# again by the next run.
STOP_PATIENCE_MS: Final = 60_000


class Phase(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    STOPPING = "stopping"
    RESTARTING = "restarting"
    BACKING_OFF = "backing off"
    STOPPED = "stopped"
    FAILED = "failed"
    DONE = "done"
    REMOVED = "removed"  # no longer in the file of its runner


ACTIVE: Final = frozenset((Phase.RUNNING, Phase.STOPPING, Phase.RESTARTING))


@dataclass(frozen=True, slots=True)
class JobError:
    message: str
    advice: str = ""
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class JobState:
    """What is written to the log about a job."""

    phase: Phase = Phase.WAITING
    run: int = 0  # number of the last run
    generation: int = 0  # how often the job was asked to begin again from its start
    failures: int = 0  # in a row
    due_ms: int | None = None  # when the next run starts
    started_ms: int | None = None  # the last run
    ended_ms: int | None = None
    error: JobError | None = None  # of the last run that failed; None after one that succeeded
    order: int = -1  # offset of the last order that was obeyed
    digest: str = ""  # of the definition


# --- inputs ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Adopted:
    """This runner owns the job now; `stored` is what its predecessors wrote."""

    stored: JobState | None


@dataclass(frozen=True, slots=True)
class Woke:
    pass


class Order(StrEnum):
    RUN = "run"
    AGAIN = "again"  # from the start: what was copied before does not count
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Ordered:
    offset: int
    order: Order


@dataclass(frozen=True, slots=True)
class Progressed:
    """The run has finished a batch: what made earlier runs fail is over."""

    run: int


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The run did all that there was to do."""

    run: int


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The run was asked to stop, and stopped before it was done."""

    run: int


@dataclass(frozen=True, slots=True)
class Failed:
    run: int
    error: JobError
    is_retriable: bool


@dataclass(frozen=True, slots=True)
class Closing:
    """The runner shuts down; another one may take over."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Another runner owns the job: nothing may be written or started here any more."""


Ended = Succeeded | Interrupted | Failed
Input = Adopted | Woke | Ordered | Progressed | Ended | Closing | Lost

# --- effects, in the order in which they are carried out ---------------------------------------------------


@dataclass(frozen=True, slots=True)
class Persist:
    """Write the state. Effects behind this one wait until it is durable, and are dropped if it is refused."""

    state: JobState


@dataclass(frozen=True, slots=True)
class Start:
    run: int
    generation: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Ask the run to end after its batch."""

    run: int


@dataclass(frozen=True, slots=True)
class Kill:
    run: int


Effect = Persist | Start | Stop | Kill


class Job:
    """Invariant: at most one run is alive, and it is number `state.run`."""

    def __init__(self, schedule: Schedule, digest: str, rng: Randomness) -> None:
        self.schedule = schedule
        self.digest = digest
        self.state = JobState(digest=digest)
        self._rng = rng
        self._is_alive = False  # whether there is a run of this runner
        self._is_owner = False
        self._is_closing = False
        self._kill_ms: int | None = None  # when a run that does not stop is killed

    @property
    def is_alive(self) -> bool:
        return self._is_alive

    def check(self) -> None:
        assert not self._is_alive or not self._is_owner or self.state.phase in ACTIVE, self.state
        assert (self._kill_ms is None) or self._is_alive
        waits = self.state.phase in (Phase.WAITING, Phase.BACKING_OFF)
        assert waits or self.state.due_ms is None, self.state

    def deadline(self) -> int | None:
        """When `Woke` is wanted, at the latest."""
        if self._is_alive:
            return self._kill_ms
        return self.state.due_ms if self._is_owner and not self._is_closing else None

    def step(self, now_ms: int, event: Input) -> list[Effect]:
        match event:
            case Adopted(stored):
                return self._adopt(now_ms, stored)
            case Lost():
                self._is_owner = False
                return [Kill(self.state.run)] if self._is_alive else []
            case Succeeded(run) | Interrupted(run) | Failed(run, _, _):
                return self._end(now_ms, event) if run == self.state.run and self._is_alive else []
            case Woke():
                return self._wake(now_ms)
        if not self._is_owner:
            return []
        match event:
            case Ordered(offset, order):
                return self._obey(now_ms, offset, order) if offset > self.state.order else []
            case Progressed(run):
                if run == self.state.run and self.state.failures:
                    self.state = replace(self.state, failures=0)
                return []
            case Closing():
                self._is_closing = True
                return self._ask_to_stop(now_ms)

    # --- beginning -----------------------------------------------------------------------------------------

    def _adopt(self, now_ms: int, stored: JobState | None) -> list[Effect]:
        assert not self._is_alive, "a runner loses a job before it adopts it again"
        self._is_owner = True
        if stored is None:
            return self._become(JobState(due_ms=first_ms(self.schedule, now_ms), digest=self.digest), now_ms)
        is_changed = stored.digest != self.digest
        state = replace(stored, digest=self.digest)
        match stored.phase:
            case Phase.RUNNING | Phase.RESTARTING:  # its runner died, or handed it over
                return self._begin(now_ms, state)
            case Phase.STOPPING:
                state = replace(state, phase=Phase.STOPPED, ended_ms=now_ms)
            case Phase.REMOVED:
                state = self._waiting(state, first_ms(self.schedule, now_ms))
            case Phase.FAILED | Phase.DONE if is_changed:
                state = self._waiting(replace(state, failures=0), first_ms(self.schedule, now_ms))
            case Phase.WAITING if is_changed:
                state = replace(state, due_ms=first_ms(self.schedule, now_ms))
            case Phase.BACKING_OFF if state.due_ms is None or state.due_ms > now_ms + LAST_MS or is_changed:
                state = replace(state, due_ms=now_ms)  # the clock was set back, or the fault was repaired
        return self._become(state, now_ms)

    def _become(self, state: JobState, now_ms: int) -> list[Effect]:
        self.state = state
        if state.due_ms is not None and state.due_ms <= now_ms:
            return self._begin(now_ms, state)
        return [Persist(state)]

    def _begin(self, now_ms: int, state: JobState) -> list[Effect]:
        self.state = replace(
            state, phase=Phase.RUNNING, run=state.run + 1, due_ms=None, started_ms=now_ms, ended_ms=None
        )
        self._is_alive = True
        return [Persist(self.state), Start(self.state.run, self.state.generation)]

    def _wake(self, now_ms: int) -> list[Effect]:
        if self._is_alive:
            if self._kill_ms is not None and self._kill_ms <= now_ms:
                self._kill_ms = None
                return [Kill(self.state.run)]
            return []
        due = self.deadline()
        return self._begin(now_ms, self.state) if due is not None and due <= now_ms else []

    # --- orders --------------------------------------------------------------------------------------------

    def _obey(self, now_ms: int, offset: int, order: Order) -> list[Effect]:
        state = replace(self.state, order=offset)
        if order is Order.AGAIN:
            state = replace(state, generation=state.generation + 1)
        if order is Order.STOP:
            if self._is_alive:
                self.state = replace(state, phase=Phase.STOPPING)
                return [Persist(self.state), *self._ask_to_stop(now_ms)]
            self.state = replace(state, phase=Phase.STOPPED, due_ms=None, failures=0)
            return [Persist(self.state)]
        if not self._is_alive:
            if self._is_closing:
                self.state = self._waiting(replace(state, failures=0), now_ms)
                return [Persist(self.state)]
            return self._begin(now_ms, replace(state, failures=0))
        if order is Order.AGAIN or state.phase is Phase.STOPPING:
            self.state = replace(state, phase=Phase.RESTARTING)
            return [Persist(self.state), *self._ask_to_stop(now_ms)]
        self.state = state
        return [Persist(state)]

    def _ask_to_stop(self, now_ms: int) -> list[Effect]:
        if not self._is_alive or self._kill_ms is not None:
            return []
        self._kill_ms = now_ms + STOP_PATIENCE_MS
        return [Stop(self.state.run)]

    # --- ends ----------------------------------------------------------------------------------------------

    def _end(self, now_ms: int, ended: Ended) -> list[Effect]:
        self._is_alive = False
        self._kill_ms = None
        if not self._is_owner:
            return []
        state = replace(self.state, ended_ms=now_ms)
        if isinstance(ended, Succeeded):
            state = replace(state, failures=0, error=None)
        elif isinstance(ended, Failed):
            state = replace(state, failures=state.failures + 1, error=ended.error)
        match state.phase:
            case Phase.STOPPING:
                return self._settle(replace(state, phase=Phase.STOPPED, failures=0))
            case Phase.RESTARTING:
                if self._is_closing:
                    return self._settle(self._waiting(state, now_ms))
                return self._begin(now_ms, state)
        match ended:
            case Succeeded():
                return self._settle(self._after_success(now_ms, state))
            case Interrupted():
                return self._settle(self._waiting(state, now_ms))
            case Failed(_, _, True):
                due = now_ms + backoff_ms(state.failures, self._rng)
                return self._settle(replace(state, phase=Phase.BACKING_OFF, due_ms=due))
            case Failed():
                return self._settle(replace(state, phase=Phase.FAILED))

    def _after_success(self, now_ms: int, state: JobState) -> JobState:
        if isinstance(self.schedule, Once):
            return replace(state, phase=Phase.DONE)
        due = next_ms(self.schedule, state.started_ms or now_ms, now_ms)
        if isinstance(self.schedule, Continuous):
            due = now_ms + FIRST_MS  # it should not have ended: at least it does not spin
        return self._waiting(state, due)

    def _settle(self, state: JobState) -> list[Effect]:
        self.state = state
        return [Persist(state)]

    @staticmethod
    def _waiting(state: JobState, due_ms: int | None) -> JobState:
        return replace(state, phase=Phase.WAITING, due_ms=due_ms)
