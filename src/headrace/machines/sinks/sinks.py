"""The sink coordinator's machine: all sinks of one partition of `__sink_sessions`.

A program such as a Spark query writes batch by batch. It may write a batch again after a failure, in several
attempts at once, and from several runs that do not know about each other. Each attempt joins the sink and
writes in a transaction of its own; one commit names the attempts that make up the batch.

Guarantees: a batch is committed at most once and completely; an attempt that the commit does not name is
aborted; writes of an older run or of an earlier batch are refused; attempts that nobody ends are aborted
after the timeout of their batch. The number of the last batch does not expire, except for a sink that writes
only one batch.

It decides and never writes: each method returns a Decision, and `replay` of its records changes the state
(machines/coordination.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, cast, overload

from headrace.base.time import Instant, Now
from headrace.machines.coordination import WRITE_AGAIN_MS, Decision, Ticket, Writer, restore
from headrace.machines.sinks import sink_records
from headrace.machines.sinks.sink import Attempt, FreshId, Sink, Status
from headrace.machines.sinks.sink_records import SinkRecords
from headrace.machines.transactions.effects import WriteMarkers
from headrace.machines.transactions.timeouts import Timeouts
from headrace.machines.transactions.transaction import TopicPartition
from headrace.protocol.coordinator_records import Record
from headrace.protocol.coordinator_records.sinks import TRANSACTIONAL_ID_PREFIX
from headrace.protocol.errors import ErrorCode

# Every end has an epoch of its own (KIP-890), so that nothing late can touch the producer's next attempt.
TRANSACTION_VERSION = 2

# Open attempts of one batch: tasks of the largest jobs, some tried again. With those that are being ended,
# twice as many. Each has a record of some 50 bytes, with the partitions it wrote to.
ATTEMPTS_MAX = 10_000

# How long a sink that writes only once is remembered: whoever lost the answer to its commit asks again soon.
PASSING_KEPT_MS = 24 * 3600 * 1000


class SinkJoin(NamedTuple):
    """An attempt to write one task's part of a batch begins, or asks for more time."""

    app_id: str
    query_id: str
    run_id: str
    batch_id: int
    task: int
    attempt: int
    timeout_ms: int
    producer_id: int = -1  # of an attempt that asks for more time
    producer_epoch: int = -1
    is_passing: bool = False  # nobody will write to the sink another time


class SinkJoined(NamedTuple):
    """Without a producer the batch was committed before."""

    committed_batch_id: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


class SinkResult(NamedTuple):
    """Of a commit, an abort or a reset."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


# Stands for an order of markers that was not made yet.
ORDERED = object()


class Orders(Sequence[WriteMarkers]):
    """The orders of one decision, each made when it is asked for."""

    __slots__ = ("_ending", "_sinks")

    def __init__(self, sinks: Sinks, ending: list[tuple[str, Attempt]]) -> None:
        self._sinks = sinks
        self._ending = ending

    def __len__(self) -> int:
        return len(self._ending)

    @overload
    def __getitem__(self, index: int) -> WriteMarkers: ...
    @overload
    def __getitem__(self, index: slice) -> list[WriteMarkers]: ...
    def __getitem__(self, index: int | slice) -> WriteMarkers | list[WriteMarkers]:
        if isinstance(index, slice):
            return [self._sinks.order(*each) for each in self._ending[index]]
        return self._sinks.order(*self._ending[index])


class Sinks:
    __slots__ = ("_coordinator_epoch", "_passing", "_sinks", "_timeout_ms_max", "_timeouts", "_writing")

    def __init__(self, timeout_ms_max: int, coordinator_epoch: int) -> None:
        self._timeout_ms_max = timeout_ms_max
        self._coordinator_epoch = coordinator_epoch
        self._sinks: dict[str, Sink] = {}  # changed by `replay` alone
        # In memory only.
        self._timeouts = Timeouts()  # of open batches
        self._passing = Timeouts()  # when those that write only once are forgotten
        # by producer: the order that counts, ORDERED if nobody has asked for it yet
        self._writing: dict[int, WriteMarkers | object] = {}

    # --- requests ---------------------------------------------------------------------------------------

    def join(self, now: Now, request: SinkJoin, fresh_id: FreshId) -> Decision:
        """Reply: SinkJoined."""
        if not request.app_id or not request.query_id or not request.run_id or request.batch_id < 0:
            return _not_joined(ErrorCode.INVALID_REQUEST, "a sink, a query, a run and a batch are needed")
        if not 0 < request.timeout_ms <= self._timeout_ms_max:
            return _not_joined(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"transaction.timeout.ms: must be at least 1 and at most {self._timeout_ms_max}",
            )
        sink = self._sinks.get(request.app_id, Sink(request.app_id))
        refusal = _refusal(sink, request.query_id, request.run_id)
        if refusal is not None:
            return _not_joined(*refusal)
        wall_ms = now.wall_ms
        moved = _of_run(sink, wall_ms, request.query_id, request.run_id)
        if request.batch_id <= sink.committed_batch_id:
            decision = self._moved(sink, moved)
            decision.reply = SinkJoined(sink.committed_batch_id)
            return decision
        if moved is sink and request.batch_id < sink.batch_id:
            return _not_joined(
                ErrorCode.PRODUCER_FENCED,
                f"batch {request.batch_id} is over: the query writes batch {sink.batch_id}",
            )
        if moved.batch_id != request.batch_id:
            moved = moved.begun(wall_ms, request.batch_id)
        known = _joined_before(moved, request)
        if known is None:
            if request.producer_id >= 0:
                return _not_joined(ErrorCode.PRODUCER_FENCED, "the attempt was ended by others, or by time")
            if _has_too_many(moved):
                return _not_joined(
                    ErrorCode.POLICY_VIOLATION, f"more than {ATTEMPTS_MAX} attempts for one batch"
                )
            moved = moved.joined(
                wall_ms,
                request.task,
                request.attempt,
                request.timeout_ms,
                fresh_id,
                is_passing=request.is_passing,
            )
            known = next(reversed(moved.attempts.values()))
            if request.is_passing:
                self._passing.set(request.app_id, now.after_ms(PASSING_KEPT_MS))
        self._timeouts.set(request.app_id, now.after_ms(request.timeout_ms))
        decision = self._moved(sink, moved)
        decision.reply = SinkJoined(sink.committed_batch_id, known.producer_id, known.producer_epoch)
        return decision

    def commit(
        self,
        now: Now,
        app_id: str,
        query_id: str,
        run_id: str,
        batch_id: int,
        attempts: Iterable[tuple[int, int]],
    ) -> Decision:
        """Reply: SinkResult. Asked again after its answer was lost, it says the same. An attempt is its
        producer id and epoch.
        """
        attempts = set(attempts)
        sink = self._sinks.get(app_id, Sink(app_id))
        refusal = _refusal(sink, query_id, run_id)
        if refusal is None and batch_id > sink.committed_batch_id:
            refusal = _refusal_to_commit(sink, run_id, batch_id, attempts)
        if refusal is not None:
            return Decision(SinkResult(*refusal))
        # a run that has not joined before commits a batch without rows, or one that was committed before it
        moved = _of_run(sink, now.wall_ms, query_id, run_id)
        if batch_id > sink.committed_batch_id:
            moved = moved.committed(now.wall_ms, batch_id, attempts)
        decision = self._moved(sink, moved)
        decision.reply = SinkResult()
        return decision

    def abort(self, now: Now, app_id: str, query_id: str, run_id: str) -> Decision:
        """Reply: SinkResult. The run is over: tasks of it that come later are refused."""
        sink = self._sinks.get(app_id)
        if sink is None or (run_id in sink.past_run_ids[-1:] and not sink.run_id):
            return Decision(SinkResult())  # nothing is open, and nothing will be
        refusal = _refusal(sink, query_id, run_id)
        if refusal is not None:
            return Decision(SinkResult(*refusal))
        decision = Decision()
        if run_id == sink.run_id:
            decision = self._moved(sink, sink.given_up(now.wall_ms))
        decision.reply = SinkResult()
        return decision

    def reset(self, now: Now, app_id: str) -> Decision:
        """Reply: SinkResult."""
        sink = self._sinks.get(app_id)
        if sink is None:
            message = f"the sink {app_id!r} does not exist"
            return Decision(SinkResult(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, message))
        decision = self._moved(sink, sink.reset(now.wall_ms))
        decision.reply = SinkResult()
        return decision

    def add_partitions(
        self,
        now: Now,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: list[TopicPartition],
        *,
        verify_only: bool,
        transaction_version: int,
    ) -> Decision:
        """An attempt writes. Reply: an ErrorCode for each partition, as from the machine of transactions."""
        sink = self._sinks.get(transactional_id.removeprefix(TRANSACTIONAL_ID_PREFIX))
        if sink is None:
            return _added(partitions, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        attempt = sink.attempts.get(producer_id)
        if attempt is None or attempt.producer_epoch != epoch or not attempt.is_open:
            return _added(partitions, ErrorCode.PRODUCER_FENCED)
        if verify_only:
            return _added(partitions, ErrorCode.TRANSACTION_ABORTABLE)  # its clients know better
        decision = _added(partitions, ErrorCode.NONE)
        self._timeouts.set(sink.app_id, now.after_ms(sink.timeout_ms))
        if not attempt.partitions.issuperset(partitions):
            decision.records = sink_records.written(sink, sink.added(now.wall_ms, producer_id, partitions))
        return decision

    def sinks(self) -> list[Sink]:
        """Of all sinks, in the order of their names."""
        return [sink for _, sink in sorted(self._sinks.items())]

    # --- the ends of attempts ---------------------------------------------------------------------------

    def _moved(self, before: Sink, after: Sink) -> Decision:
        """The records of a change, and orders for the markers of all attempts that it ends."""
        if after is before:
            return Decision()
        ending = []
        is_open = False
        opened, app_id, known = Status.OPEN, after.app_id, before.attempts
        for producer_id, attempt in after.attempts.items():
            if attempt.status is opened:
                is_open = True
            elif known.get(producer_id) is not attempt:
                ending.append((app_id, attempt))
        if not is_open:
            self._timeouts.cancel(after.app_id)
        return Decision(records=sink_records.written(before, after), effects=self._order_markers(ending))

    def _order_markers(self, ending: list[tuple[str, Attempt]]) -> list[WriteMarkers]:
        for _, attempt in ending:
            self._writing[attempt.producer_id] = ORDERED
        return cast(list[WriteMarkers], Orders(self, ending)) if ending else []

    def order(self, app_id: str, attempt: Attempt) -> WriteMarkers:
        """The order that ends the attempt. It is made when it is asked for: there may be ten thousand."""
        known = self._writing.get(attempt.producer_id)
        if isinstance(known, WriteMarkers):
            return known
        order = WriteMarkers(
            transactional_id=app_id,
            producer_id=attempt.producer_id,
            epoch=attempt.producer_epoch + 1,
            coordinator_epoch=self._coordinator_epoch,
            is_commit=attempt.status is Status.COMMITTING,
            partitions=sorted(attempt.partitions),
            transaction_version=TRANSACTION_VERSION,
        )
        if known is ORDERED:
            self._writing[attempt.producer_id] = order
        return order

    def is_writing(self, order: WriteMarkers) -> bool:
        """Whether the order still counts: this machine gave it, and the attempt's end is not complete."""
        return self._writing.get(order.producer_id) is order

    def markers_written(self, now: Now, *orders: WriteMarkers) -> Decision:
        """Of attempts of one sink. Nobody waits for it; an order that does not count any more changes
        nothing.
        """
        ended = [order.producer_id for order in orders if self.is_writing(order)]
        if not ended:
            return Decision()
        for producer_id in ended:
            del self._writing[producer_id]
        sink = self._sinks[orders[0].transactional_id]
        return Decision(records=sink_records.written(sink, sink.ended(now.wall_ms, ended)))

    def decide_or_undo(self, key: str, decide: Callable[[], Decision]) -> Decision:
        sink = self._sinks.get(key)
        due, passing_due = self._timeouts.get(key), self._passing.get(key)
        producers = () if sink is None else list(sink.attempts)
        orders = {producer_id: self._writing.get(producer_id) for producer_id in producers}
        decision = decide()
        if decision.records:
            later = self._timeouts.get(key)
            # a batch whose attempts ask goes on, as if they had been heard
            self._timeouts.restore(key, due if due is None or later is None else max(due, later))
            self._passing.restore(key, passing_due)
            for producer_id, order in orders.items():
                restore(self._writing, producer_id, order)
        return decision

    # --- replay and time ----------------------------------------------------------------------------------

    def replay(self, change: Record | SinkRecords, writer: Writer | None = None) -> None:
        assert writer is None, "the coordinator's own records are part of no transaction"
        if isinstance(change, SinkRecords):
            change.replay(self._sinks)
        else:
            sink_records.replay(self._sinks, change)

    def replay_end(self, producer_id: int, is_committed: bool) -> None:
        """A marker in the coordinator's own log, where WriteTxnMarkers and AddPartitionsToTxn 4 can write:
        nothing here is part of a transaction.
        """

    def loaded(self, now: Now) -> Decision:
        """Orders the markers that may still be missing. Open attempts have all of their time again: those who
        write could not be heard meanwhile.
        """
        ending: list[tuple[str, Attempt]] = []
        for sink in self._sinks.values():
            ending += [(sink.app_id, each) for each in sink.ending_attempts]
            if sink.has_open_attempts:
                self._timeouts.set(sink.app_id, now.after_ms(sink.timeout_ms))
            if sink.is_passing:
                kept_ms = max(0, sink.updated_ms + PASSING_KEPT_MS - now.wall_ms)
                self._passing.set(sink.app_id, now.after_ms(kept_ms))
        return Decision(effects=self._order_markers(ending))

    def deadline(self) -> Instant | None:
        moments = (self._timeouts.next(), self._passing.next())
        return min((moment for moment in moments if moment is not None), default=None)

    def wake(self, now: Now, *, can_write: bool = True) -> list[Decision]:
        """Aborts what nobody has ended in time, forgets what nobody will ask for."""
        if not can_write:
            for timeouts in (self._timeouts, self._passing):
                for app_id in timeouts.pop(now.mono):
                    timeouts.set(app_id, now.after_ms(WRITE_AGAIN_MS))
            return []
        overdue = [self._sinks[app_id] for app_id in self._timeouts.pop(now.mono)]
        decisions = [self._moved(sink, sink.aborted(now.wall_ms)) for sink in overdue]
        for app_id in self._passing.pop(now.mono):
            sink = self._sinks.get(app_id)
            if sink is None:
                continue  # it was reset
            if sink.attempts:
                self._passing.set(app_id, now.after_ms(PASSING_KEPT_MS))
            else:
                decisions.append(self._moved(sink, sink.reset(now.wall_ms)))
        return decisions

    def abandon(self) -> list[Ticket]:
        """No request ever waits in this machine."""
        return []

    def state(self) -> dict[str, Sink]:
        """Everything that was replayed, for comparisons."""
        return {
            name: replace(sink, attempts=sink.attempts.copy(), spares=sink.spares.copy())
            for name, sink in self._sinks.items()
        }

    def check(self) -> None:
        """What holds between two decisions: every attempt that ends has the order that ends it, and every
        batch with open attempts has its deadline.
        """
        for name, sink in self._sinks.items():
            for attempt in sink.ending_attempts:
                assert attempt.producer_id in self._writing, f"{name}: nobody ends {attempt}"
            assert not sink.has_open_attempts or name in self._timeouts, f"{name}: open without a deadline"


def _of_run(sink: Sink, now_ms: int, query_id: str, run_id: str) -> Sink:
    """The sink after this run has taken it over: open attempts of other runs are aborted."""
    return sink if run_id == sink.run_id else sink.taken_over(now_ms, query_id, run_id)


def _refusal(sink: Sink, query_id: str, run_id: str) -> tuple[ErrorCode, str] | None:
    """Why this run may not change the sink."""
    if sink.query_id not in ("", query_id):
        return (
            ErrorCode.INVALID_TXN_STATE,
            f"the sink {sink.app_id!r} belongs to query {sink.query_id}: give this query another "
            f"txnAppId, or reset the sink with `headrace cluster sinks reset {sink.app_id}`",
        )
    if run_id in sink.past_run_ids:
        if not sink.run_id:
            return ErrorCode.PRODUCER_FENCED, f"run {run_id} of the query has given up its batch"
        return ErrorCode.PRODUCER_FENCED, f"run {sink.run_id} of the query has taken over from {run_id}"
    return None


def _refusal_to_commit(
    sink: Sink, run_id: str, batch_id: int, attempts: set[tuple[int, int]]
) -> tuple[ErrorCode, str] | None:
    is_same_run = sink.run_id == run_id
    if is_same_run and sink.batch_id > batch_id:
        return (
            ErrorCode.PRODUCER_FENCED,
            f"batch {batch_id} is over: the query writes batch {sink.batch_id}",
        )
    is_current = is_same_run and sink.batch_id == batch_id
    stale = len(attempts)
    if is_current:
        opened = Status.OPEN
        for producer_id, epoch in attempts:
            attempt = sink.attempts.get(producer_id)
            if attempt is not None and attempt.status is opened and attempt.producer_epoch == epoch:
                stale -= 1
    if stale:
        return (
            ErrorCode.INVALID_TXN_STATE,
            f"{stale} of {len(attempts)} attempts are not open any more; nothing was committed",
        )
    return None


def _has_too_many(sink: Sink) -> bool:
    """Attempts of the batch before may still be ending."""
    count = len(sink.attempts)
    return count >= ATTEMPTS_MAX and (count >= 2 * ATTEMPTS_MAX or len(sink.open_attempts) >= ATTEMPTS_MAX)


def _joined_before(sink: Sink, request: SinkJoin) -> Attempt | None:
    """An attempt that joined before and asks again: its answer was lost, or it needs more time."""
    name = request.task, request.attempt
    for attempt in sink.attempts.values():
        if attempt.is_open and attempt.name == name:
            is_itself = request.producer_id < 0 or attempt.producer == (
                request.producer_id,
                request.producer_epoch,
            )
            return attempt if is_itself else None
    return None


def _not_joined(code: ErrorCode, message: str) -> Decision:
    return Decision(SinkJoined(error=code, message=message))


def _added(partitions: list[TopicPartition], code: ErrorCode) -> Decision:
    return Decision(reply=dict.fromkeys(partitions, code))
