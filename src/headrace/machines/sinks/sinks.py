"""The coordinator of sinks, of one partition of `__sink_sessions`.

A program such as a Spark query writes batch by batch. It may write a batch again after a failure, in several
attempts at once, from several runs of itself that do not know of each other. Each attempt joins here and
writes in a transaction of its own; one commit names the attempts that make up the batch.

Promises: a batch is committed at most once and whole; an attempt that the commit does not name never counts;
what an older run or a batch that is over still writes is refused; attempts that nobody ends are aborted when
their batch's time is over. A ledger does not expire, but of a sink that said that it writes only once.

It decides and never writes: each method gives a Decision, and `replay` of its records is what changes the
state (machines/coordination.py).
"""

from __future__ import annotations

from headrace.base.time import Instant, Now
from headrace.machines.coordination import Decision, Ticket, Writer
from headrace.machines.sinks.session import Attempt, FreshId, Session, Status, recorded
from headrace.machines.transactions.effects import WriteMarkers
from headrace.machines.transactions.timeouts import Timeouts
from headrace.machines.transactions.transaction import TopicPartition
from headrace.protocol.coordinator_records import Record
from headrace.protocol.coordinator_records.sinks import TRANSACTIONAL_ID_PREFIX, SinkKey, SinkValue
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.abort_sink import AbortSinkRequest, AbortSinkResponse
from headrace.protocol.messages.commit_sink import CommitSinkRequest, CommitSinkResponse
from headrace.protocol.messages.join_sink import JoinSinkRequest, JoinSinkResponse
from headrace.protocol.messages.list_sinks import ListedSink
from headrace.protocol.messages.reset_sink import ResetSinkRequest, ResetSinkResponse

# Every end has an epoch of its own (KIP-890), so that nothing late can touch the producer's next attempt.
TRANSACTION_VERSION = 2

# Attempts of one batch, those that are being ended with them: tasks of the largest jobs, some tried again.
# Each lies in every record of the session, with some 30 bytes and the partitions it wrote to.
ATTEMPTS_MAX = 10_000

# How long a sink that writes only once is remembered: whoever lost the answer to its commit asks again soon.
PASSING_KEPT_MS = 24 * 3600 * 1000


class Sinks:
    __slots__ = ("_coordinator_epoch", "_passing", "_sessions", "_timeout_ms_max", "_timeouts", "_writing")

    def __init__(self, timeout_ms_max: int, coordinator_epoch: int) -> None:
        self._timeout_ms_max = timeout_ms_max
        self._coordinator_epoch = coordinator_epoch
        self._sessions: dict[str, Session] = {}  # changed by `replay` alone
        # In memory only.
        self._timeouts = Timeouts()  # of open batches
        self._passing = Timeouts()  # when those that write only once are forgotten
        self._writing: dict[int, WriteMarkers] = {}  # by producer: the order that counts

    # --- requests ---------------------------------------------------------------------------------------

    def join(self, now: Now, request: JoinSinkRequest, fresh_id: FreshId) -> Decision:
        """Reply: JoinSinkResponse; without a producer the batch was committed before."""
        if not request.app_id or not request.query_id or not request.run_id or request.batch_id < 0:
            return _not_joined(ErrorCode.INVALID_REQUEST, "a sink, a query, a run and a batch are needed")
        if not 0 < request.timeout_ms <= self._timeout_ms_max:
            return _not_joined(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"transaction.timeout.ms must be 1 to {self._timeout_ms_max}",
            )
        session = self._sessions.get(request.app_id, Session(request.app_id))
        refusal = _refusal(session, request.query_id, request.run_id)
        if refusal is not None:
            return _not_joined(*refusal)
        wall_ms = now.wall_ms
        moved = _of_run(session, wall_ms, request.query_id, request.run_id)
        if request.batch_id <= session.committed_batch_id:
            decision = self._moved(session, moved)
            decision.reply = JoinSinkResponse(committed_batch_id=session.committed_batch_id)
            return decision
        if moved is session and request.batch_id < session.batch_id:
            return _not_joined(
                ErrorCode.PRODUCER_FENCED,
                f"batch {request.batch_id} is over: the query writes batch {session.batch_id}",
            )
        if moved.batch_id != request.batch_id:
            moved = moved.begun(wall_ms, request.batch_id)
        known = _joined_before(moved, request)
        if known is None:
            if request.producer_id >= 0:
                return _not_joined(ErrorCode.PRODUCER_FENCED, "the attempt was ended by others, or by time")
            if len(moved.attempts) >= ATTEMPTS_MAX:
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
            known = moved.attempts[-1]
            if request.is_passing:
                self._passing.set(request.app_id, now.after_ms(PASSING_KEPT_MS))
        self._timeouts.set(request.app_id, now.after_ms(request.timeout_ms))
        decision = self._moved(session, moved)
        decision.reply = JoinSinkResponse(
            committed_batch_id=session.committed_batch_id,
            producer_id=known.producer_id,
            producer_epoch=known.producer_epoch,
        )
        return decision

    def commit(self, now: Now, request: CommitSinkRequest) -> Decision:
        """Reply: CommitSinkResponse. Asked again after its answer was lost, it says the same."""
        session = self._sessions.get(request.app_id, Session(request.app_id))
        refusal = _refusal(session, request.query_id, request.run_id)
        if refusal is None and request.batch_id > session.committed_batch_id:
            refusal = _refusal_to_commit(session, request)
        if refusal is not None:
            code, message = refusal
            return Decision(CommitSinkResponse(error_code=code, error_message=message))
        # a run that has not joined before commits a batch without rows, or one that was committed before it
        moved = _of_run(session, now.wall_ms, request.query_id, request.run_id)
        if request.batch_id > session.committed_batch_id:
            producers = {(each.producer_id, each.producer_epoch) for each in request.attempts}
            moved = moved.committed(now.wall_ms, request.batch_id, producers)
        decision = self._moved(session, moved)
        decision.reply = CommitSinkResponse(error_message=None)
        return decision

    def abort(self, now: Now, request: AbortSinkRequest) -> Decision:
        """Reply: AbortSinkResponse. The run is over: tasks of it that come later are refused."""
        session = self._sessions.get(request.app_id)
        if session is None or (request.run_id in session.past_run_ids[-1:] and not session.run_id):
            return Decision(AbortSinkResponse(error_message=None))  # nothing is open, and nothing will be
        refusal = _refusal(session, request.query_id, request.run_id)
        if refusal is not None:
            code, message = refusal
            return Decision(AbortSinkResponse(error_code=code, error_message=message))
        decision = Decision()
        if request.run_id == session.run_id:
            decision = self._moved(session, session.given_up(now.wall_ms))
        decision.reply = AbortSinkResponse(error_message=None)
        return decision

    def reset(self, now: Now, request: ResetSinkRequest) -> Decision:
        """Reply: ResetSinkResponse."""
        session = self._sessions.get(request.app_id)
        if session is None:
            message = f"there is no sink {request.app_id!r}"
            return Decision(
                ResetSinkResponse(error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, error_message=message)
            )
        decision = self._moved(session, session.reset(now.wall_ms))
        decision.reply = ResetSinkResponse(error_message=None)
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
        session = self._sessions.get(transactional_id.removeprefix(TRANSACTIONAL_ID_PREFIX))
        if session is None:
            return _added(partitions, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        attempt = session.attempt_of(producer_id)
        if attempt is None or attempt.producer_epoch != epoch or not attempt.is_open:
            return _added(partitions, ErrorCode.PRODUCER_FENCED)
        if verify_only:
            return _added(partitions, ErrorCode.TRANSACTION_ABORTABLE)  # its clients know better
        decision = _added(partitions, ErrorCode.NONE)
        self._timeouts.set(session.app_id, now.after_ms(session.timeout_ms))
        if not attempt.partitions.issuperset(partitions):
            decision.records = [session.added(now.wall_ms, producer_id, partitions).record()]
        return decision

    def listed(self) -> list[ListedSink]:
        return [
            ListedSink(
                app_id=session.app_id,
                query_id=session.query_id,
                run_id=session.run_id,
                committed_batch_id=session.committed_batch_id,
                batch_id=session.batch_id,
                open_attempts=len(session.open_attempts),
                ending_attempts=len(session.ending_attempts),
                producer_ids=sorted(attempt.producer_id for attempt in session.attempts),
                updated_ms=session.updated_ms,
            )
            for _, session in sorted(self._sessions.items())
        ]

    # --- the ends of attempts ---------------------------------------------------------------------------

    def _moved(self, before: Session, after: Session) -> Decision:
        """The record of a move, and the markers of all attempts that it ends."""
        if after is before:
            return Decision()
        were_ending = {each.producer for each in before.ending_attempts}
        ending = [each for each in after.ending_attempts if each.producer not in were_ending]
        if not after.open_attempts:
            self._timeouts.cancel(after.app_id)
        return Decision(
            records=[after.record()],
            effects=[self._order_markers(after.app_id, attempt) for attempt in ending],
        )

    def _order_markers(self, app_id: str, attempt: Attempt) -> WriteMarkers:
        order = WriteMarkers(
            transactional_id=app_id,
            producer_id=attempt.producer_id,
            epoch=attempt.producer_epoch + 1,
            coordinator_epoch=self._coordinator_epoch,
            is_commit=attempt.status is Status.COMMITTING,
            partitions=sorted(attempt.partitions),
            transaction_version=TRANSACTION_VERSION,
        )
        self._writing[attempt.producer_id] = order
        return order

    def is_writing(self, order: WriteMarkers) -> bool:
        """Whether the order still counts: this machine gave it, and the attempt's end is not complete."""
        return self._writing.get(order.producer_id) is order

    def markers_written(self, now: Now, order: WriteMarkers) -> Decision:
        """Nobody waits for it; an order that does not count any more changes nothing."""
        if not self.is_writing(order):
            return Decision()
        del self._writing[order.producer_id]
        session = self._sessions[order.transactional_id]
        return Decision(records=[session.ended(now.wall_ms, order.producer_id).record()])

    # --- replay and time ----------------------------------------------------------------------------------

    def replay(self, record: Record, writer: Writer | None = None) -> None:
        assert writer is None, "the coordinator's own records are part of no transaction"
        key, value = record
        assert isinstance(key, SinkKey)
        if value is None:
            self._sessions.pop(key.app_id, None)
            return
        assert isinstance(value, SinkValue)
        self._sessions[key.app_id] = recorded(key.app_id, value)

    def replay_end(self, producer_id: int, is_committed: bool) -> None:
        """Nobody's transaction touches the coordinator's own topic."""
        raise AssertionError(f"an end marker of producer {producer_id} in the log of sinks")

    def loaded(self, now: Now) -> Decision:
        """Orders the markers that may still be missing. Open attempts have all of their time again: those who
        write could not be heard meanwhile.
        """
        effects = []
        for session in self._sessions.values():
            effects += [self._order_markers(session.app_id, each) for each in session.ending_attempts]
            if session.open_attempts:
                self._timeouts.set(session.app_id, now.after_ms(session.timeout_ms))
            if session.is_passing:
                kept_ms = max(0, session.updated_ms + PASSING_KEPT_MS - now.wall_ms)
                self._passing.set(session.app_id, now.after_ms(kept_ms))
        return Decision(effects=effects)

    def deadline(self) -> Instant | None:
        moments = (self._timeouts.next(), self._passing.next())
        return min((moment for moment in moments if moment is not None), default=None)

    def wake(self, now: Now) -> list[Decision]:
        """Aborts what nobody has ended in time, forgets what nobody will ask for."""
        overdue = [self._sessions[app_id] for app_id in self._timeouts.pop(now.mono)]
        decisions = [self._moved(session, session.aborted(now.wall_ms)) for session in overdue]
        for app_id in self._passing.pop(now.mono):
            session = self._sessions.get(app_id)
            if session is None:
                continue  # it was reset
            if session.attempts:
                self._passing.set(app_id, now.after_ms(PASSING_KEPT_MS))
            else:
                decisions.append(self._moved(session, session.reset(now.wall_ms)))
        return decisions

    def abandon(self) -> list[Ticket]:
        """Nobody ever waits here."""
        return []

    def state(self) -> dict[str, Session]:
        """All that was replayed, to compare."""
        return dict(self._sessions)

    def check(self) -> None:
        """What holds between two decisions: every attempt that ends has the order that ends it, and every
        batch with open attempts has its deadline.
        """
        for name, session in self._sessions.items():
            for attempt in session.ending_attempts:
                assert attempt.producer_id in self._writing, f"{name}: nobody ends {attempt}"
            assert not session.open_attempts or name in self._timeouts, f"{name}: open without a deadline"


def _of_run(session: Session, now_ms: int, query_id: str, run_id: str) -> Session:
    """The sink in the hands of that run: whatever another one has open is over."""
    return session if run_id == session.run_id else session.taken_over(now_ms, query_id, run_id)


def _refusal(session: Session, query_id: str, run_id: str) -> tuple[ErrorCode, str] | None:
    """Why this run has no say in the sink."""
    if session.query_id not in ("", query_id):
        return (
            ErrorCode.INVALID_TXN_STATE,
            f"the sink {session.app_id!r} belongs to query {session.query_id}: give this query another "
            f"txnAppId, or reset the sink with `headrace cluster sinks reset {session.app_id}`",
        )
    if run_id in session.past_run_ids:
        if not session.run_id:
            return ErrorCode.PRODUCER_FENCED, f"run {run_id} of the query has given up its batch"
        return ErrorCode.PRODUCER_FENCED, f"run {session.run_id} of the query has taken over from {run_id}"
    return None


def _refusal_to_commit(session: Session, request: CommitSinkRequest) -> tuple[ErrorCode, str] | None:
    is_same_run = session.run_id == request.run_id
    if is_same_run and session.batch_id > request.batch_id:
        return (
            ErrorCode.PRODUCER_FENCED,
            f"batch {request.batch_id} is over: the query writes batch {session.batch_id}",
        )
    is_current = is_same_run and session.batch_id == request.batch_id
    can_count = {each.producer for each in session.open_attempts} if is_current else set()
    stale = {(each.producer_id, each.producer_epoch) for each in request.attempts} - can_count
    if stale:
        return (
            ErrorCode.INVALID_TXN_STATE,
            f"{len(stale)} of {len(request.attempts)} attempts are not open any more; nothing was committed",
        )
    return None


def _joined_before(session: Session, request: JoinSinkRequest) -> Attempt | None:
    """The same attempt asks again: its answer was lost, or it needs more time and says who it is."""
    for attempt in session.open_attempts:
        if attempt.name == (request.task, request.attempt):
            is_itself = request.producer_id < 0 or attempt.producer == (
                request.producer_id,
                request.producer_epoch,
            )
            return attempt if is_itself else None
    return None


def _not_joined(code: ErrorCode, message: str) -> Decision:
    return Decision(JoinSinkResponse(error_code=code, error_message=message))


def _added(partitions: list[TopicPartition], code: ErrorCode) -> Decision:
    return Decision(reply=dict.fromkeys(partitions, code))
