"""Session of an admin client: runs any number of operations at once, for every shell.

Each is a generator (see `asking`) with one `Execution` at a time and one deadline for all of it; they share
the directory of who is where.
"""

from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.base.dice import Dice
from headrace.base.time import NEVER, Instant
from headrace.client.admin.broker_lookup import BrokerLookup
from headrace.client.admin.execution import Execution
from headrace.client.admin.operation import Draw, Operation
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientBroken, ClientError
from headrace.client.network.reachability import Reachability
from headrace.client.pending import Pending
from headrace.client.request_queue import Answer, Outgoing, RequestQueue
from headrace.client.settings.admin import AdminSettings

T = TypeVar("T")


@dataclass(slots=True)
class _Run:
    """One operation, from one question to the next."""

    operation: Operation[Any]
    pending: Pending[Any]
    deadline: Instant
    execution: Execution | None = None  # None: it has ended


class AdminSession:
    def __init__(self, settings: AdminSettings, dice: Dice) -> None:
        self._settings = settings
        self._dice = dice
        self._request_queue = RequestQueue()
        self._lookup = BrokerLookup(self._request_queue, settings, dice)
        self._runs: list[_Run] = []
        self.reachability = Reachability(settings.unreachable_s)

    @property
    def cluster(self) -> Cluster:
        return self._lookup.cluster

    def run(self, now: Instant, operation: Operation[T], timeout_s: float | None = None) -> Pending[T]:
        """Begins an operation; without a timeout of its own it has that of the settings."""
        if not self._runs:
            self._lookup.forget_many()
        pending: Pending[T] = Pending("waiting for the cluster")
        allowed_s = self._settings.api_timeout_s if timeout_s is None else timeout_s
        run = _Run(operation, pending, Instant(now + allowed_s))
        self._resume(now, run)
        if run.execution is not None:
            self._runs.append(run)
        return pending

    def abandon(self, pending: Pending[Any]) -> None:
        """Nobody waits for it any more; what was sent may still happen."""
        for run in self._runs:
            if run.pending is pending:
                run.operation.close()
        self._runs = [run for run in self._runs if run.pending is not pending]

    # --- what a driver calls -------------------------------------------------------------------------------

    def requests(self, now: Instant) -> list[Outgoing]:
        for run in list(self._runs):
            self._go_on(now, run)
        self._drop_ended()
        self._lookup.advance(now)
        return self._request_queue.take()

    def answered(self, now: Instant, ticket: int, answer: Answer) -> None:
        self._request_queue.answered(now, ticket, answer)
        for run in list(self._runs):
            if run.execution is not None and run.execution.is_done:
                self._go_on(now, run)
        self._drop_ended()

    def deadline(self) -> Instant:
        if self._lookup.has_news:
            return Instant(0.0)
        return min(
            (run.execution.deadline() for run in self._runs if run.execution is not None), default=NEVER
        )

    def _go_on(self, now: Instant, run: _Run) -> None:
        """As far as it goes without an answer."""
        try:
            while run.execution is not None:
                run.execution.advance(now)
                if not run.execution.is_done:
                    break
                self._resume(now, run, run.execution.outcome())
        except Exception as error:
            # an argument of a type that we did not foresee, or our own mistake: only this call suffers
            run.execution = None
            broken = ClientBroken(f"this call failed: {error!r}")
            broken.__cause__ = error
            run.pending.finish(error=broken)

    def _resume(self, now: Instant, run: _Run, told: Any = None) -> None:
        """Hands in what was told, up to the next question or the end."""
        run.execution = None
        try:
            wish = run.operation.send(told)
            while isinstance(wish, Draw):
                wish = run.operation.send(self._dice.randbytes(wish.size))
        except StopIteration as ended:
            run.pending.finish(ended.value)
        except ClientError as error:
            run.pending.finish(error=error)
        else:
            run.execution = Execution(
                now,
                wish,
                run.deadline,
                request_queue=self._request_queue,
                lookup=self._lookup,
                settings=self._settings,
                dice=self._dice,
                reachability=self.reachability,
            )

    def _drop_ended(self) -> None:
        if any(run.execution is None for run in self._runs):
            self._runs = [run for run in self._runs if run.execution is not None]
