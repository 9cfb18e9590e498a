"""The states of a transaction, how severe errors are for it, and what the sender asks of it.

    UNINITIALIZED --init--> INITIALIZING --> READY --begin--> IN_TRANSACTION
    IN_TRANSACTION --commit--> COMMITTING --> READY
    IN_TRANSACTION --abort--> ABORTING --> READY, or INITIALIZING where the client must raise the epoch
    IN_TRANSACTION, COMMITTING --something failed--> ABORTABLE --abort--> ABORTING
    any --fenced, or not authorized for the id--> FATAL

The tables of errors are those of Kafka's TransactionManager. Whoever ends it, the sender sees a
`Transaction`: a `TransactionSession` of the application's own, or a sink's attempt.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol

from headrace.base.dice import Dice
from headrace.base.time import Instant
from headrace.client.cluster import TopicPartition
from headrace.client.errors import ClientError, KafkaError, UnsupportedByBroker
from headrace.client.producer.idempotence import Sequences
from headrace.client.request_queue import RequestQueue
from headrace.client.settings.producer import SendingSettings
from headrace.protocol.errors import ErrorCode


class Transaction(Protocol):
    when_moved: Callable[[], object]  # called after every change of state

    @property
    def error(self) -> ClientError | None:
        """Why nothing of it will count."""
        ...

    @property
    def is_open(self) -> bool:
        """Records may be added."""
        ...

    @property
    def will_abort(self) -> bool:
        """Records that were never sent shall not be."""
        ...

    @property
    def is_fatal(self) -> bool:
        """Not even what was sent needs an answer any more."""
        ...

    @property
    def is_ending(self) -> bool:
        """Nothing lingers."""
        ...

    @property
    def produce_version_max(self) -> int | None: ...

    def check_may_send(self) -> None:
        """Raises unless records may be added now."""
        ...

    def may_send(self, at: TopicPartition) -> bool:
        """Whether a batch for the partition may leave; if not, what it needs is seen to."""
        ...

    def batch_failed(self, error: ClientError) -> None: ...

    def advance(self, now: Instant, *, is_drained: bool) -> None:
        """Posts what is due; `is_drained`: no record of the transaction waits or is under way."""
        ...

    def deadline(self) -> Instant: ...


TransactionFactory = Callable[[SendingSettings, Sequences, RequestQueue, Dice], Transaction]


class State(Enum):
    UNINITIALIZED = auto()
    INITIALIZING = auto()
    READY = auto()
    IN_TRANSACTION = auto()
    COMMITTING = auto()
    ABORTING = auto()
    ABORTABLE = auto()
    FATAL = auto()


ALLOWED: dict[State, frozenset[State]] = {
    State.UNINITIALIZED: frozenset({State.INITIALIZING}),
    State.INITIALIZING: frozenset({State.READY}),
    State.READY: frozenset({State.IN_TRANSACTION}),
    State.IN_TRANSACTION: frozenset({State.COMMITTING, State.ABORTING, State.ABORTABLE}),
    State.COMMITTING: frozenset({State.READY, State.ABORTABLE}),
    State.ABORTING: frozenset({State.READY, State.INITIALIZING}),
    State.ABORTABLE: frozenset({State.ABORTING, State.ABORTABLE}),
    State.FATAL: frozenset(),
}


class Severity(Enum):
    PASSING = auto()  # the same request may succeed later
    ELSEWHERE = auto()  # another broker is to be asked
    ABORTABLE = auto()
    FATAL = auto()


_ELSEWHERE = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_PASSING = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
# What only this transaction suffers from. All others that do not pass are fatal.
_ABORTABLE = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        # of offsets: the group has moved on
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
_FATAL_FOR_BATCHES = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)


def severity_of_answer(error: ClientError) -> Severity:
    """Of a coordinator's answer, or of none."""
    if not isinstance(error, KafkaError):
        return Severity.ELSEWHERE if error.is_retriable else Severity.FATAL
    if error.code in _ELSEWHERE:
        return Severity.ELSEWHERE
    if error.code in _ABORTABLE:
        return Severity.ABORTABLE
    if error.code in _PASSING or error.is_retriable:
        return Severity.PASSING
    return Severity.FATAL


def severity_of_failed_batch(error: ClientError) -> Severity:
    if isinstance(error, UnsupportedByBroker):
        return Severity.FATAL
    is_fatal = isinstance(error, KafkaError) and error.code in _FATAL_FOR_BATCHES
    return Severity.FATAL if is_fatal else Severity.ABORTABLE
