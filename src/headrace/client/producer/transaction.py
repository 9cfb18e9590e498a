"""The states of a transaction, how severe errors are for it, and the requests to its coordinators.

    UNINITIALIZED --init--> INITIALIZING --> READY --begin--> IN_TRANSACTION
    IN_TRANSACTION --commit--> COMMITTING --> READY
    IN_TRANSACTION --abort--> ABORTING --> READY, or INITIALIZING where the client must raise the epoch
    IN_TRANSACTION, COMMITTING --something failed--> ABORTABLE --abort--> ABORTING
    any --fenced, or not authorized for the id--> FATAL

The tables of errors are those of Kafka's TransactionManager. Whoever ends it, the sender sees a
`Transaction`: a `TransactionSession` of the application's own, or a sink's attempt.

The requests to coordinators are below. The second protocol (transaction.version 2, KIP-890) has versions of
its own; a request of the first one must not be newer than its last version of it.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from typing import NamedTuple, Protocol

from headrace import __version__
from headrace.base.randomness import Randomness
from headrace.base.time import Instant
from headrace.client.cluster import TopicPartition
from headrace.client.coordinator import Coordinator
from headrace.client.errors import ClientError, KafkaError, UnsupportedByBroker
from headrace.client.membership.events import CommittedOffset, GroupMembership
from headrace.client.network.connection import ByVersion
from headrace.client.producer.idempotence import Sequences
from headrace.client.session import Answer, RequestQueue
from headrace.client.settings.producer import SendingSettings
from headrace.client.steps import Pending
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from headrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)


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


TransactionFactory = Callable[[SendingSettings, Sequences, RequestQueue, Randomness], Transaction]


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


MAY_ABORT = frozenset(state for state, allowed in ALLOWED.items() if State.ABORTING in allowed)


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


FEATURE = "transaction.version"
SECOND_PROTOCOL = 2
# The last versions that belong to the first protocol.
PRODUCE_FIRST_PROTOCOL = 11
END_TXN_FIRST_PROTOCOL = 4
OFFSET_COMMIT_FIRST_PROTOCOL = 4
ADD_PARTITIONS_BY_CLIENTS = 3  # from 4 on brokers speak to each other
_MEMBER_SINCE = 3  # TxnOffsetCommit says who commits (KIP-447)


class PendingOffsets:
    """Offsets that are being added to the transaction."""

    __slots__ = ("coordinator", "is_added", "left", "member", "pending")

    def __init__(
        self,
        member: GroupMembership,
        offsets: Mapping[TopicPartition, CommittedOffset],
        coordinator: Coordinator,
        pending: Pending[None],
    ) -> None:
        self.member = member
        self.left = dict(offsets)  # not committed yet
        self.coordinator = coordinator
        self.pending = pending
        self.is_added = False  # the group, to the transaction


class UntakenCall(NamedTuple):
    """A call whose caller may not have its result yet, since it gave up waiting."""

    what: str
    subject: object  # what it was called with
    pending: Pending[None]


def features_request() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="headrace", client_software_version=__version__)


def transaction_version(answer: Answer) -> int:
    """What the cluster has switched on."""
    assert isinstance(answer, ApiVersionsResponse)
    levels = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    return levels.get(FEATURE, 0)


def add_partitions_request(
    transactional_id: str, producer: tuple[int, int], adding: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for at in adding:
        topic = topics.setdefault(at.topic, AddPartitionsToTxnTopic(name=at.topic))
        topic.partitions.append(at.partition)
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=list(topics.values()),
    )


def error_of_adding(answer: Answer) -> int:
    """0 if all were added; a partition that was not tried says less than the one that is why."""
    assert isinstance(answer, AddPartitionsToTxnResponse)
    errors = [
        told.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for told in topic.results_by_partition
        if told.partition_error_code
    ]
    return min(errors, key=lambda code: code == ErrorCode.OPERATION_NOT_ATTEMPTED, default=0)


def offsets_request(
    transactional_id: str,
    producer: tuple[int, int],
    member: GroupMembership,
    offsets: Mapping[TopicPartition, CommittedOffset],
) -> ByVersion:
    topics: dict[str, TxnOffsetCommitRequestTopic] = {}
    for at, offset in offsets.items():
        topic = topics.setdefault(at.topic, TxnOffsetCommitRequestTopic(name=at.topic))
        topic.partitions.append(
            TxnOffsetCommitRequestPartition(
                partition_index=at.partition,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                committed_metadata=offset.metadata,
            )
        )

    def make(version: int) -> TxnOffsetCommitRequest:
        said = member if version >= _MEMBER_SINCE else GroupMembership(member.group_id)
        return TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=said.group_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            generation_id=said.generation,
            member_id=said.member_id,
            group_instance_id=said.instance_id,
            topics=list(topics.values()),
        )

    return ByVersion(TxnOffsetCommitRequest, make)


def results_of_offsets(answer: Answer) -> dict[TopicPartition, int]:
    """The error code of each partition."""
    assert isinstance(answer, TxnOffsetCommitResponse)
    return {
        TopicPartition(topic.name, told.partition_index): told.error_code
        for topic in answer.topics
        for told in topic.partitions
    }


def init_producer_id_request(
    transactional_id: str, producer: tuple[int, int], timeout_ms: int
) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer[0],
        producer_epoch=producer[1],
    )


def add_offsets_request(
    transactional_id: str, producer: tuple[int, int], group_id: str
) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        group_id=group_id,
    )


def end_request(transactional_id: str, producer: tuple[int, int], *, committed: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        committed=committed,
    )
