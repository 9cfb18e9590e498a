"""The transactions of a producer: records and offsets that are committed together or not at all.

The coordinator gets one request at a time. With transaction.version=2 (KIP-890) partitions and groups join a
transaction when they are written to, and every end of a transaction raises the producer's epoch. Without it,
each has to be added first, and we raise the epoch after a failure that left the sequence numbers in doubt.

    the next requests, by state (see `transaction.py`):
    INITIALIZING            features → InitProducerId
    IN_TRANSACTION          AddPartitions (1) → AddOffsets (1) → TxnOffsetCommit
    COMMITTING              the same, then EndTxn once no record is under way
    ABORTING                EndTxn once no record is under way
"""

from collections.abc import Callable, Mapping
from functools import partial

from headrace.base.randomness import Randomness
from headrace.base.time import NEVER, Instant
from headrace.client.cluster import Address, TopicPartition
from headrace.client.coordinator import Coordinator, CoordinatorKind
from headrace.client.errors import (
    ClientError,
    InvalidInput,
    KafkaError,
    OutsideTransaction,
    ProducerUnusable,
    TransactionMustAbort,
)
from headrace.client.membership.events import CommittedOffset, GroupMembership
from headrace.client.network.connection import Question
from headrace.client.producer.idempotence import Sequences
from headrace.client.producer.transaction import (
    ADD_PARTITIONS_BY_CLIENTS,
    ALLOWED,
    END_TXN_FIRST_PROTOCOL,
    OFFSET_COMMIT_FIRST_PROTOCOL,
    PRODUCE_FIRST_PROTOCOL,
    SECOND_PROTOCOL,
    PendingOffsets,
    Severity,
    State,
    UntakenCall,
    add_offsets_request,
    add_partitions_request,
    end_request,
    error_of_adding,
    features_request,
    init_producer_id_request,
    offsets_request,
    results_of_offsets,
    severity_of_answer,
    severity_of_failed_batch,
    transaction_version,
)
from headrace.client.session import Answer, RequestQueue
from headrace.client.settings.producer import SendingSettings
from headrace.client.steps import Pending
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from headrace.protocol.messages.end_txn import EndTxnResponse
from headrace.protocol.messages.init_producer_id import InitProducerIdResponse

_Reader = Callable[[Answer], None]  # raises what the answer says went wrong


class TransactionSession:
    """Invariant: at most one request is under way (`_is_asked`).

    A call that is made again before its result was taken (`taken`) is the same call: it gets the result of
    the first one, even if that was over meanwhile.
    """

    def __init__(
        self, settings: SendingSettings, sequences: Sequences, request_queue: RequestQueue, rng: Randomness
    ) -> None:
        assert settings.transactional_id is not None
        self.transactional_id = settings.transactional_id
        self.state = State.UNINITIALIZED
        self.error: ClientError | None = None  # what brought it to ABORTABLE or FATAL
        self.is_second = False  # the second protocol is spoken
        self.when_moved: Callable[[], object] = lambda: None  # called after every change of state
        self._settings = settings
        self._sequences = sequences
        self._request_queue = request_queue
        self._rng = rng
        self._coordinator = Coordinator(
            self.transactional_id,
            request_queue,
            rng,
            request_timeout_s=settings.request_timeout_s,
            kind=CoordinatorKind.TRANSACTION,
        )
        self._coordinator.listeners.append(lambda now, error: self._fail(error))
        self._groups: dict[str, Coordinator] = {}
        self._is_asked = False
        self._retry_at = Instant(0.0)
        self._looked_at = Instant(0.0)
        self._failures = 0
        self._knows_features = False
        self._needs_epoch = False  # a failure left sequences in doubt that EndTxn does not mend
        self._is_started = False  # the coordinator knows of the transaction
        self._may_be_started = False  # it was asked to begin it, and its answer may be lost
        self._partitions: set[TopicPartition] = set()
        self._to_add: dict[TopicPartition, None] = {}
        self._offsets: PendingOffsets | None = None
        self._initializing: Pending[None] | None = None
        self._ending: Pending[None] | None = None
        self._untaken: UntakenCall | None = None

    # What the user asks for

    def init(self) -> Pending[None]:
        """Takes over the transactional id: fences its former producer, and aborts what that left open."""
        if self._initializing is None:
            self._check_usable()
            self._move(State.INITIALIZING, "initialize transactions")
            self._initializing = Pending[None]("initializing transactions")
        return self._initializing

    def begin(self) -> None:
        self._check_usable()
        self._move(State.IN_TRANSACTION, "begin a transaction")
        self._untaken = None

    def taken(self, pending: Pending[None]) -> None:
        """The caller has the result: the next call of the same kind is another one."""
        if self._untaken is not None and self._untaken.pending is pending:
            self._untaken = None

    def _called_before(self, what: str, subject: object = None) -> Pending[None] | None:
        untaken = self._untaken
        if untaken is None or untaken[:2] != (what, subject) or untaken.pending.error is not None:
            return None  # an error is told by the state that it has led to
        return untaken.pending

    def check_may_send(self) -> None:
        """Raises unless records may be added now."""
        self._check_usable()
        if self.state is not State.IN_TRANSACTION:
            raise OutsideTransaction(
                f"records must be sent inside a transaction; this producer is {_named(self.state)}"
            )

    def send_offsets(
        self, offsets: Mapping[TopicPartition, CommittedOffset], member: GroupMembership
    ) -> Pending[None]:
        """The group's offsets count when the transaction commits."""
        before = self._called_before("send_offsets", (offsets, member))
        if before is not None:
            return before
        self.check_may_send()
        if self._offsets is not None:
            raise InvalidInput("an earlier send_offsets() call is still in progress")
        pending = Pending[None]("adding offsets to the transaction")
        self._untaken = UntakenCall("send_offsets", (dict(offsets), member), pending)
        if not offsets:
            pending.finish()
            return pending
        coordinator = self._groups.get(member.group_id)
        if coordinator is None:
            coordinator = self._groups[member.group_id] = Coordinator(
                member.group_id,
                self._request_queue,
                self._rng,
                request_timeout_s=self._settings.request_timeout_s,
            )
            coordinator.listeners.append(lambda now, error: self._cannot_commit(State.IN_TRANSACTION, error))
        self._offsets = PendingOffsets(member, offsets, coordinator, pending)
        return pending

    def commit(self) -> Pending[None]:
        before = self._called_before("commit")
        if before is not None:
            return before
        self._check_usable()
        self._move(State.COMMITTING, "commit a transaction")
        return self._begin_end("commit", "committing the transaction")

    def abort(self) -> Pending[None]:
        before = self._called_before("abort")
        if before is not None:
            return before
        if self.state is State.FATAL:
            self._check_usable()
        self._move(State.ABORTING, "abort a transaction")
        self.error = None
        if self._offsets is not None:
            self._offsets.pending.finish(error=TransactionMustAbort("the transaction is being aborted"))
            self._offsets = None
        self._to_add.clear()
        return self._begin_end("abort", "aborting the transaction")

    def _begin_end(self, what: str, doing: str) -> Pending[None]:
        self._ending = Pending[None](doing)
        self._untaken = UntakenCall(what, None, self._ending)
        return self._ending

    # What sending asks

    def may_send(self, at: TopicPartition) -> bool:
        """Whether a batch for the partition may leave; if not, the partition is added first."""
        if self.state not in (State.IN_TRANSACTION, State.COMMITTING):
            # what was sent before an abort is sent again until it is clear whether the log has it
            return self.state is State.ABORTING and at in self._partitions
        if at in self._partitions:
            return True
        if self.is_second:
            self._partitions.add(at)
            self._may_be_started = True
            return True
        self._to_add[at] = None
        return False

    def batch_failed(self, error: ClientError) -> None:
        """A record of the transaction is not delivered: the others must not count either."""
        self._needs_epoch = True
        if self.state is not State.FATAL and severity_of_failed_batch(error) is Severity.FATAL:
            self._fail(error)
        elif self.state in (State.IN_TRANSACTION, State.COMMITTING):
            self._require_abort(error)

    @property
    def will_abort(self) -> bool:
        """Records that were never sent shall not be."""
        return self.state in (State.ABORTABLE, State.ABORTING, State.FATAL)

    @property
    def is_busy(self) -> bool:
        """Whether a call waits for its result."""
        pending = (self._initializing, self._ending, None if self._offsets is None else self._offsets.pending)
        return any(each is not None and not each.is_done for each in pending)

    @property
    def is_open(self) -> bool:
        """Records may be added."""
        return self.state is State.IN_TRANSACTION

    @property
    def is_fatal(self) -> bool:
        return self.state is State.FATAL

    @property
    def is_ending(self) -> bool:
        return self.state in (State.COMMITTING, State.ABORTING)

    @property
    def produce_version_max(self) -> int | None:
        return None if self.is_second else PRODUCE_FIRST_PROTOCOL

    # What the shell drives

    def advance(self, now: Instant, *, is_drained: bool) -> None:
        """Posts what is due; `is_drained`: no record of the transaction waits or is under way."""
        self._looked_at = now
        if not self._is_asked and now >= self._retry_at:
            self._next(is_drained)
        self._coordinator.advance(now)
        for coordinator in self._groups.values():
            coordinator.advance(now)

    def deadline(self) -> Instant:
        wake_at = self._coordinator.deadline()
        for coordinator in self._groups.values():
            wake_at = min(wake_at, coordinator.deadline())
        is_put_off = not self._is_asked and self._retry_at > self._looked_at
        return min(wake_at, self._retry_at if is_put_off else NEVER)

    def _next(self, is_drained: bool) -> None:
        match self.state:
            case State.INITIALIZING:
                if not self._knows_features:
                    self._ask_features()
                else:
                    self._ask_identity()
            case State.IN_TRANSACTION | State.COMMITTING:
                if self._to_add:
                    self._add_partitions()
                elif self._offsets is not None:
                    self._commit_offsets(self._offsets)
                elif self.state is State.COMMITTING and is_drained:
                    self._end(committed=True)
            case State.ABORTING:
                if is_drained:
                    self._end(committed=False)
            case _:
                pass

    # The requests, one by one

    def _ask(
        self, coordinator: Coordinator, question: Question, read: _Reader, version_max: int | None = None
    ) -> None:
        address = coordinator.address()
        if address is None:
            return
        self._is_asked = True
        self._request_queue.post(
            address,
            question,
            partial(self._heard, coordinator, address, self.state, read),
            timeout_s=self._settings.request_timeout_s,
            version_max=version_max,
        )

    def _heard(
        self,
        coordinator: Coordinator,
        address: Address,
        asked_in: State,
        read: _Reader,
        now: Instant,
        answer: Answer,
    ) -> None:
        self._is_asked = False
        if self.state is State.FATAL:
            return
        try:
            if isinstance(answer, ClientError):
                raise answer
            read(answer)
        except ClientError as error:
            severity = severity_of_answer(error)
            if severity is Severity.ABORTABLE:
                self._cannot_commit(asked_in, error)
            elif severity is Severity.FATAL:
                self._fail(error)
            else:
                if severity is Severity.ELSEWHERE:
                    coordinator.failed(address)
                self._retry_at = Instant(now + self._settings.backoff(self._failures, self._rng))
                self._failures += 1
        else:
            self._failures = 0

    def _cannot_commit(self, asked_in: State, error: ClientError) -> None:
        self._needs_epoch = True
        if self.state in (State.IN_TRANSACTION, State.COMMITTING):
            self._require_abort(error)
        elif asked_in not in (State.IN_TRANSACTION, State.COMMITTING):
            self._fail(error)  # not even an abort goes through

    def _ask_features(self) -> None:
        def read(answer: Answer) -> None:
            self.is_second = transaction_version(answer) >= SECOND_PROTOCOL
            self._knows_features = True

        self._ask(self._coordinator, features_request(), read)

    def _ask_identity(self) -> None:
        """Sends InitProducerId: the first fences earlier producers, later ones raise the own epoch
        (KIP-360).
        """

        def read(answer: Answer) -> None:
            assert isinstance(answer, InitProducerIdResponse)
            self._check(answer.error_code)
            self._identified(answer.producer_id, answer.producer_epoch)
            self._move(State.READY, "end a transaction")
            for pending in (self._initializing, self._ending):
                if pending is not None and not pending.is_done:
                    pending.finish()
            self._ending = None

        question = init_producer_id_request(
            self.transactional_id, self._sequences.producer, self._settings.transaction_timeout_ms
        )
        self._ask(self._coordinator, question, read)

    def _identified(self, producer_id: int, producer_epoch: int) -> None:
        self._needs_epoch = False
        self._sequences.reset()
        self._sequences.identify(producer_id, producer_epoch)

    def _add_partitions(self) -> None:
        adding = list(self._to_add)

        def read(answer: Answer) -> None:
            self._check(error_of_adding(answer))
            self._is_started = True
            self._partitions.update(adding)
            for at in adding:
                self._to_add.pop(at, None)

        self._may_be_started = True
        question = add_partitions_request(self.transactional_id, self._sequences.producer, adding)
        self._ask(self._coordinator, question, read, ADD_PARTITIONS_BY_CLIENTS)

    def _commit_offsets(self, offsets: PendingOffsets) -> None:
        self._may_be_started = True
        if not self.is_second and not offsets.is_added:
            self._add_offsets(offsets)
            return

        def read(answer: Answer) -> None:
            code = 0
            for at, error_code in results_of_offsets(answer).items():
                if error_code:
                    code = error_code
                else:
                    self._is_started = True
                    offsets.left.pop(at, None)
            self._check(code)
            if self._offsets is offsets:
                self._offsets = None
                offsets.pending.finish()

        question = offsets_request(
            self.transactional_id, self._sequences.producer, offsets.member, offsets.left
        )
        version_max = None if self.is_second else OFFSET_COMMIT_FIRST_PROTOCOL
        self._ask(offsets.coordinator, question, read, version_max)

    def _add_offsets(self, offsets: PendingOffsets) -> None:
        def read(answer: Answer) -> None:
            assert isinstance(answer, AddOffsetsToTxnResponse)
            self._check(answer.error_code)
            self._is_started = True
            offsets.is_added = True

        question = add_offsets_request(
            self.transactional_id, self._sequences.producer, offsets.member.group_id
        )
        self._ask(self._coordinator, question, read)

    def _end(self, *, committed: bool) -> None:
        if not (self._is_started or self._may_be_started):
            self._ended()
            return

        def read(answer: Answer) -> None:
            assert isinstance(answer, EndTxnResponse)
            # nothing was begun, so that nothing has to be aborted
            if committed or self._is_started or answer.error_code != ErrorCode.INVALID_TXN_STATE:
                self._check(answer.error_code)
            if answer.producer_id >= 0:
                self._identified(answer.producer_id, answer.producer_epoch)
            self._ended()

        question = end_request(self.transactional_id, self._sequences.producer, committed=committed)
        self._ask(self._coordinator, question, read, None if self.is_second else END_TXN_FIRST_PROTOCOL)

    def _ended(self) -> None:
        self._is_started = self._may_be_started = False
        self._partitions.clear()
        self._to_add.clear()
        if self.state is State.ABORTING and self._needs_epoch:
            # the cluster may have changed its protocol meanwhile: it is asked again, too
            self._knows_features = False
            self._move(State.INITIALIZING, "initialize transactions")
            return
        self._move(State.READY, "end a transaction")
        assert self._ending is not None
        self._ending.finish()
        self._ending = None

    # Errors

    def _check(self, code: int) -> None:
        if code:
            raise KafkaError(code, subject=f"transactional id {self.transactional_id!r}")

    def _check_usable(self) -> None:
        if self.state is State.FATAL:
            raise ProducerUnusable(f"this producer cannot be used any more: {self.error}") from self.error
        if self.state is State.ABORTABLE:
            raise TransactionMustAbort(f"the transaction must be aborted: {self.error}") from self.error

    def _move(self, state: State, what: str) -> None:
        if state not in ALLOWED[self.state]:
            raise InvalidInput(f"cannot {what}: the state of this producer is {_named(self.state)!r}")
        self.state = state
        self.when_moved()

    def _require_abort(self, error: ClientError) -> None:
        self._move(State.ABORTABLE, "fail a transaction")
        self.error = error
        self._settle_waiting(TransactionMustAbort(f"the transaction can only be aborted: {error}"), error)

    def _fail(self, error: ClientError) -> None:
        self.state = State.FATAL
        self.error = error
        self.when_moved()
        self._settle_waiting(ProducerUnusable(f"this producer cannot be used any more: {error}"), error)
        if self._initializing is not None and not self._initializing.is_done:
            self._initializing.finish(error=error)

    def _settle_waiting(self, told: ClientError, cause: ClientError) -> None:
        told.__cause__ = cause
        offsets, self._offsets = self._offsets, None
        ending, self._ending = self._ending, None
        self._to_add.clear()
        if offsets is not None:
            offsets.pending.finish(error=told)
        if ending is not None:
            ending.finish(error=told)


def _named(state: State) -> str:
    return state.name.lower().replace("_", " ")
