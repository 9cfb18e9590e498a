"""Session of an admin client: runs any number of operations at once, for every shell.

Each is a generator (see `operation`) with one deadline. It yields one `Ask` after another, and an `Execution`
carries each out, with routing (`broker_lookup`), retries and timeouts, until every subject has a value or an
error:

    open --its target is found--> sent --answered--> settled
         <--an error that may pass, after a pause--     (value, final error, or out of time)

Subjects that wait for the same broker travel in one request, also when they are tried again: whatever fails
during a pause waits for the end of that pause.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from headrace.base.randomness import Randomness
from headrace.base.time import NEVER, Instant
from headrace.client.admin.broker_lookup import BrokerLookup, Destination
from headrace.client.admin.operation import Ask, Draw, Operation, Outcome, Sent, Target
from headrace.client.backoff import backoff
from headrace.client.cluster import Cluster
from headrace.client.errors import BadResponse, ClientBroken, ClientError, KafkaError, PartlyFailed, TimedOut
from headrace.client.metadata import LONG_AGO
from headrace.client.network.reachability import Reachability
from headrace.client.session import Answer, Outgoing, RequestQueue
from headrace.client.settings.network import AdminSettings
from headrace.client.steps import Pending
from headrace.protocol.messages.metadata import MetadataResponse

# How often an execution sees whether brokers are out of reach, if it is to end because of that.
LOOK_S = 1.0


@dataclass(slots=True)
class _Open:
    """A subject that has no answer yet."""

    target: Target
    after: Instant = LONG_AGO  # older news of its target led us astray
    retry_at: Instant = LONG_AGO
    error: ClientError | None = None  # of the last try
    is_sent: bool = False
    is_sought: bool = False  # its target is being looked up


class Execution:
    """Invariant: every subject is either in `_open` or in `_settled`."""

    def __init__(
        self,
        now: Instant,
        question: Ask[Any, Any],
        deadline: Instant,
        *,
        request_queue: RequestQueue,
        lookup: BrokerLookup,
        settings: AdminSettings,
        rng: Randomness,
        reachability: Reachability,
    ) -> None:
        self._question = question
        self._began = now
        self._deadline = deadline
        self._request_queue = request_queue
        self._lookup = lookup
        self._settings = settings
        self._rng = rng
        self._reachability = reachability
        self._open = {subject: _Open(target) for subject, target in question.targets.items()}
        self._settled: Outcome[Hashable, Any] = {}
        self._looked_at = now
        self._failures = 0  # pauses that were taken
        self._retry_at = LONG_AGO  # the end of the last one

    @property
    def is_done(self) -> bool:
        return not self._open

    def outcome(self) -> Outcome[Hashable, Any]:
        """Every subject with its value or its error, in the order of the asking."""
        return {subject: self._settled[subject] for subject in self._question.targets}

    def advance(self, now: Instant) -> None:
        """Sends what can be sent, and gives up what is out of time."""
        self._looked_at = now
        if now >= self._deadline or now >= self._reachability.give_up_at():
            self._expire(now)
            return
        found: dict[Destination, list[Hashable]] = {}
        astray: dict[Hashable, ClientError] = {}
        for subject, state in self._open.items():
            if state.is_sent or now < state.retry_at:
                continue
            where = self._lookup.find(now, state.target, since=self._began, after=state.after)
            state.is_sought = where is None
            if isinstance(where, ClientError):
                astray[subject] = where
            elif where is not None:
                found.setdefault(where, []).append(subject)
        self._settle(now, astray)
        for where, subjects in found.items():
            for together in [[one] for one in subjects] if self._question.is_alone else [subjects]:
                self._send(now, where, together)

    def deadline(self) -> Instant:
        """When `advance` has something to do, unless an answer comes first."""
        if self.is_done:
            return LONG_AGO  # to be handed over
        due = (one.retry_at for one in self._open.values() if not one.is_sent and not one.is_sought)
        moment = min(self._deadline, self._reachability.give_up_at(), min(due, default=NEVER))
        if self._reachability.limit_s is not None:
            return min(moment, Instant(self._looked_at + LOOK_S))
        return moment

    def _expire(self, now: Instant) -> None:
        outage = None if self._reachability.outage is None else self._reachability.as_error(now)
        if outage is not None and now < self._deadline:
            self._settled |= dict.fromkeys(self._open, outage)
            self._open.clear()
            return
        for subject, state in self._open.items():
            late = outage or TimedOut(f"timed out while {self._question.what}")
            self._settled[subject] = state.error or late
        self._open.clear()

    # --- one request ---------------------------------------------------------------------------------------

    def _send(self, now: Instant, where: Destination, subjects: list[Hashable]) -> None:
        timeout_s = min(self._settings.request_timeout_s, self._deadline - now)
        sent = Sent(subjects, where.broker_id)
        for subject in subjects:
            self._open[subject].is_sent = True

        def then(later: Instant, answer: Answer) -> None:
            if not self.is_done:  # else nobody waits for it any more
                self._answered(later, now, sent, answer)

        self._request_queue.post(
            where.to,
            self._question.make(subjects, round(timeout_s * 1000)),
            then,
            timeout_s=timeout_s,
            version_max=self._question.version_max,
        )

    def _answered(self, now: Instant, asked_at: Instant, sent: Sent[Hashable], answer: Answer) -> None:
        for subject in sent.subjects:
            self._open[subject].is_sent = False
        told = self._read(sent, answer)
        if isinstance(answer, MetadataResponse):
            self._lookup.learn_brokers(asked_at, answer)
        left_out = BadResponse(f"the broker left something out of its answer while {self._question.what}")
        self._settle(now, {subject: told.get(subject, left_out) for subject in sent.subjects})

    def _read(self, sent: Sent[Hashable], answer: Answer) -> Mapping[Hashable, Any]:
        if isinstance(answer, ClientError):
            return dict.fromkeys(sent.subjects, answer)
        try:
            return self._question.read(answer, sent)
        except ClientError as error:
            return dict.fromkeys(sent.subjects, error)

    # --- values and errors ---------------------------------------------------------------------------------

    def _settle(self, now: Instant, told: Mapping[Hashable, Any]) -> None:
        passing: list[Hashable] = []
        for subject, value in told.items():
            if isinstance(value, ClientError) and self._may_pass(now, value):
                self._open[subject].error = value
                passing.append(subject)
            else:
                self._close(subject, value)
        if passing:
            self._try_again(now, passing)

    def _try_again(self, now: Instant, subjects: Iterable[Hashable]) -> None:
        if now >= self._retry_at:
            pause_s = backoff(
                self._failures,
                self._rng,
                first_s=self._settings.retry_first_s,
                last_s=self._settings.retry_last_s,
            )
            self._failures += 1
            self._retry_at = Instant(now + pause_s)
        for subject in subjects:
            state = self._open[subject]
            if self._retry_at >= self._deadline:
                self._close(subject, state.error)  # what went wrong says more than that time was up
            else:
                state.retry_at, state.after = self._retry_at, now

    def _close(self, subject: Hashable, value: Any) -> None:
        del self._open[subject]
        self._settled[subject] = value

    def _may_pass(self, now: Instant, error: ClientError) -> bool:
        if not error.is_retriable:
            return False
        if isinstance(error, PartlyFailed):
            return all(self._may_pass(now, each) for each in error.failures.values())
        if not isinstance(error, KafkaError):
            return True
        if error.is_unknown_topic:
            return now < self._began + self._question.unknown_s
        return error.code not in self._question.final


T = TypeVar("T")


@dataclass(slots=True)
class _Run:
    """One operation, from one question to the next."""

    operation: Operation[Any]
    pending: Pending[Any]
    deadline: Instant
    execution: Execution | None = None  # None: it has ended


class AdminSession:
    def __init__(self, settings: AdminSettings, rng: Randomness) -> None:
        self._settings = settings
        self._rng = rng
        self._request_queue = RequestQueue()
        self._lookup = BrokerLookup(self._request_queue, settings, rng)
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
        """Drops an operation whose caller has stopped waiting; requests that were sent may still be
        carried out.
        """
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
        """Passes the answers to the operation, which runs to its next `Ask` or to its end."""
        run.execution = None
        try:
            wish = run.operation.send(told)
            while isinstance(wish, Draw):
                wish = run.operation.send(self._rng.randbytes(wish.size))
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
                rng=self._rng,
                reachability=self.reachability,
            )

    def _drop_ended(self) -> None:
        if any(run.execution is None for run in self._runs):
            self._runs = [run for run in self._runs if run.execution is not None]
