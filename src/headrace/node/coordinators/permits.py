"""Permits: before a transaction writes to a partition, its coordinator says that it is open (KIP-890).

Otherwise a late request could open a transaction that nobody ends. The coordinator of a transactional id or a
sink is on this broker or on another one, which is asked with AddPartitionsToTxn. With the second transaction
protocol the coordinator adds the partition; with the first it must have been added before. The write waits
until the record that adds the partition is committed, because it may not outlive that record.

A permit is valid until an end marker of its producer is written to the partition: it speaks of the
transaction before the marker, and what is open after it is another one.
"""

from typing import TYPE_CHECKING, Any, TypeGuard

from headrace.base.time import Now
from headrace.node.authorization import Access, Operation, Resource
from headrace.node.coordinators.other_brokers import OtherBrokers
from headrace.node.coordinators.shard import Shard
from headrace.node.coordinators.sinks import SinkCoordinator
from headrace.node.coordinators.transactions import TransactionCoordinator, older
from headrace.node.error_codes import Refused
from headrace.node.metadata_log import MetadataLog
from headrace.node.partition import Partition
from headrace.node.peers import Unanswered
from headrace.node.ports import Ports
from headrace.node.routes import Request
from headrace.node.settings import LiveSettings
from headrace.protocol.coordinator_records.sinks import TRANSACTIONAL_ID_PREFIX
from headrace.protocol.errors import ErrorCode
from headrace.records.batch import read_header

if TYPE_CHECKING:
    from headrace.machines.sinks.sinks import Sinks
    from headrace.machines.transactions.transactions import Transactions
    from headrace.protocol.messages.add_partitions_to_txn import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnResponse,
    )
    from headrace.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

LANE = "transactions"
# A producer waits for so long at most, and then tries again.
TIMEOUT_MS = 10_000

PRODUCE_ADDS_SINCE = 12
ABORTABLE_SINCE = 11  # the first Produce whose clients know TRANSACTION_ABORTABLE
COMMIT_ADDS_SINCE = 5
COMMIT_ABORTABLE_SINCE = 4

COORDINATOR_ERRORS = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)

# Trouble between brokers: the client tries again, and need not look for another coordinator.
PASSING = (
    *COORDINATOR_ERRORS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # the coordinator's metadata are behind ours
    ErrorCode.OPERATION_NOT_ATTEMPTED,  # the same, about another partition of the request
)


class Permit:
    """One write's permission. It is asked for when the write comes, and again whenever it had to wait.

    A permit that is not there yet is its own `Commit` (append_queue.py): whoever asked waits for it.
    """

    __slots__ = (
        "_awaited",
        "_is_void",
        "_permits",
        "_ticket",
        "_word",
        "adds",
        "epoch",
        "partition",
        "producer_id",
        "transactional_id",
    )

    def __init__(
        self,
        permits: "Permits",
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partition: Partition,
        *,
        adds: bool,
    ) -> None:
        self._permits = permits
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.epoch = epoch
        self.partition = partition
        self.adds = adds  # by the second protocol; by the first it is verified only
        self._awaited: Shard[Any] | RemoteWord | None = None
        self._word: ErrorCode | None = None  # the coordinator's, once it was waited for
        self._is_void = False  # the word that is waited for will speak of a transaction that is over
        self._ticket: Any = None

    def ask(self, now: Now) -> "Permit | None":
        """None: write now. Itself: ask again when it is settled. Refused: never."""
        word = self._word
        if word is None:
            if self._awaited is not None:
                return self
            if not self._is_needed(now):
                return None
            word, self._awaited = self._permits.admit(now, self)
            if self._awaited is not None:
                self._permits.watch(self)
                return self
        if word is not ErrorCode.NONE:
            raise Refused(self._told(word))
        return None

    def _is_needed(self, now: Now) -> bool:
        raise AssertionError("each kind of permit says when it is needed")

    def _told(self, word: ErrorCode) -> ErrorCode:
        raise AssertionError("each kind of permit says what its client is told")

    def await_commit(self, now: Now, ticket: Any) -> None:
        assert self._awaited is not None, "whoever waits has asked first"
        self._ticket = ticket
        self._awaited.await_commit(now, self)

    def settle(self, now: Now, word: ErrorCode | None) -> None:
        """The coordinator elsewhere has answered, or the one here has committed."""
        self._awaited = None
        if self._is_void:
            self._is_void = False
        else:
            self._word = word or ErrorCode.NONE
        self._ticket.settle(now, None)

    def refuse(self, now: Now, code: ErrorCode) -> None:
        """The coordinator here was discarded."""
        self._ticket.refuse(now, code)

    def marker_appended(self) -> None:
        """What was granted, or will be, is over."""
        self._word = None
        self._is_void = self._awaited is not None

    def drop(self) -> None:
        """Nobody will ask again."""
        self._permits.unwatch(self)


class WritePermit(Permit):
    """Of a transactional batch in a Produce request."""

    __slots__ = ("_version",)

    def __init__(
        self,
        permits: "Permits",
        transactional_id: str,
        partition: Partition,
        records: memoryview,
        version: int,
    ) -> None:
        header = read_header(records)
        adds = version >= PRODUCE_ADDS_SINCE
        super().__init__(
            permits, transactional_id, header.producer_id, header.producer_epoch, partition, adds=adds
        )
        self._version = version

    def _is_needed(self, now: Now) -> bool:
        state = self.partition.opened(now).producer_state(now.wall_ms)
        if state.is_open(self.producer_id, self.epoch):
            return False
        return self.adds or self._permits.verifies

    def _told(self, word: ErrorCode) -> ErrorCode:
        if word in COORDINATOR_ERRORS or (word is ErrorCode.CONCURRENT_TRANSACTIONS and not self.adds):
            return ErrorCode.NOT_ENOUGH_REPLICAS  # the code that producers of every age try again after
        if word is ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return older(word, is_abortable_known=self._version >= ABORTABLE_SINCE)


class CommitPermit(Permit):
    """Of offsets that a transaction commits, in the partition of `__consumer_offsets` of their group."""

    __slots__ = ("_version",)

    def __init__(
        self, permits: "Permits", body: "TxnOffsetCommitRequest", partition: Partition, version: int
    ) -> None:
        adds = version >= COMMIT_ADDS_SINCE
        super().__init__(
            permits, body.transactional_id, body.producer_id, body.producer_epoch, partition, adds=adds
        )
        self._version = version

    def _is_needed(self, now: Now) -> bool:
        return self.adds or self._permits.verifies

    def _told(self, word: ErrorCode) -> ErrorCode:
        if word is ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return older(word, is_abortable_known=self._version >= COMMIT_ABORTABLE_SINCE)


class Permits:
    def __init__(
        self,
        transactions: TransactionCoordinator,
        sinks: SinkCoordinator,
        metadata: MetadataLog,
        settings: LiveSettings,
        ports: Ports,
        access: Access,
    ) -> None:
        self._broker_id = settings.current.node_id
        self._transactions = transactions
        self._sinks = sinks
        self._settings = settings
        self._access = access
        self._watched: dict[tuple[Partition, int], dict[Permit, None]] = {}  # by partition and producer
        self._others: OtherBrokers[RemoteWord] = OtherBrokers(
            LANE, TIMEOUT_MS, question, answered, metadata, settings, ports
        )

    # --- what handlers ask for -----------------------------------------------------------------------------

    def to_write(self, request: Request, partition: Partition, records: memoryview) -> WritePermit:
        """For a transactional batch of a produce request; Refused when it needs not even ask."""
        transactional_id = request.body.transactional_id
        if not self.may_write(transactional_id, request):
            raise Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return WritePermit(self, transactional_id, partition, records, request.version)

    def may_write(self, transactional_id: str | None, request: Request) -> TypeGuard[str]:
        """Whether the client may write in transactions of this id."""
        return transactional_id is not None and self._access.allows(
            request,
            Operation.WRITE,
            Resource.TRANSACTIONAL_ID,
            transactional_id.removeprefix(TRANSACTIONAL_ID_PREFIX),
        )

    def to_commit(self, request: Request, partition: Partition) -> CommitPermit:
        """For offsets of groups that live in this partition."""
        return CommitPermit(self, request.body, partition, request.version)

    def shard_of(self, now: Now, transactional_id: str) -> "Shard[Transactions] | Shard[Sinks] | ErrorCode":
        """The loaded shard of a transactional id, or of the sink of which it is an attempt."""
        if transactional_id.startswith(TRANSACTIONAL_ID_PREFIX):
            return self._sinks.shard_of(now, key_of(transactional_id))
        return self._transactions.shard_of(now, transactional_id)

    # --- what permits ask for ------------------------------------------------------------------------------

    @property
    def verifies(self) -> bool:
        """Whether writes of the first protocol are checked too."""
        return self._settings.current.transaction_partition_verification_enable

    def admit(self, now: Now, permit: Permit) -> "tuple[ErrorCode, Shard[Any] | RemoteWord | None]":
        """The coordinator's word, and what has to be awaited before it counts."""
        shard = self.shard_of(now, permit.transactional_id)
        if isinstance(shard, ErrorCode):
            if shard is ErrorCode.NOT_COORDINATOR and (leader := self._leader_elsewhere(permit)) is not None:
                word = RemoteWord(permit)
                self._others.ask(leader, word)
                return ErrorCode.NONE, word
            return shard, None
        partition = permit.partition
        place = (partition.topic, partition.index)
        decision = shard.decide(
            now,
            key_of(permit.transactional_id),
            shard.machine.add_partitions,
            permit.transactional_id,
            permit.producer_id,
            permit.epoch,
            [place],
            verify_only=not permit.adds,
            transaction_version=2 if permit.adds else 1,
        )
        if isinstance(decision, ErrorCode):
            return decision, None
        code: ErrorCode = decision.reply[place]
        if decision.records and not shard.carry_out(now, decision):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, None
        if code is not ErrorCode.NONE or shard.is_committed:
            return code, None
        return code, shard

    def _leader_elsewhere(self, permit: Permit) -> int | None:
        transactional_id = permit.transactional_id
        if transactional_id.startswith(TRANSACTIONAL_ID_PREFIX):
            leader = self._sinks.leader_of(key_of(transactional_id))
        else:
            leader = self._transactions.leader_of(transactional_id)
        return None if leader == self._broker_id else leader

    def watch(self, permit: Permit) -> None:
        self._watched.setdefault((permit.partition, permit.producer_id), {})[permit] = None

    def unwatch(self, permit: Permit) -> None:
        key = (permit.partition, permit.producer_id)
        watched = self._watched.get(key)
        if watched is not None and watched.pop(permit, self) is None and not watched:
            del self._watched[key]

    def marker_appended(self, partition: Partition, producer_id: int) -> None:
        """The producer's transaction has ended in this partition."""
        for permit in self._watched.get((partition, producer_id), ()):
            permit.marker_appended()


def key_of(transactional_id: str) -> str:
    """What the coordinator knows it by: a transactional id, or the sink of which it is an attempt."""
    return transactional_id.removeprefix(TRANSACTIONAL_ID_PREFIX)


# --- coordinators on other brokers ------------------------------------------------------------------------


class RemoteWord:
    """What the coordinator on another broker says about one permit, once it has answered."""

    __slots__ = ("permit", "ticket")

    def __init__(self, permit: Permit) -> None:
        self.permit = permit
        self.ticket: Any = None

    def await_commit(self, now: Now, ticket: Any) -> None:
        self.ticket = ticket

    def settle(self, now: Now, word: ErrorCode) -> None:
        if self.ticket is not None:  # else its request was refused before it began to wait
            self.ticket.settle(now, word)


Transaction = tuple[str, int, int, bool]  # transactional id, producer id, epoch, adds


def by_transaction(words: list[RemoteWord]) -> dict[Transaction, list[RemoteWord]]:
    found: dict[Transaction, list[RemoteWord]] = {}
    for word in words:
        permit = word.permit
        transaction = (permit.transactional_id, permit.producer_id, permit.epoch, permit.adds)
        found.setdefault(transaction, []).append(word)
    return found


def question(words: list[RemoteWord]) -> "AddPartitionsToTxnRequest":
    from headrace.protocol.messages.add_partitions_to_txn import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnTopic,
        AddPartitionsToTxnTransaction,
    )

    transactions = []
    for (transactional_id, producer_id, epoch, adds), asking in by_transaction(words).items():
        topics: dict[str, dict[int, None]] = {}
        for word in asking:
            topics.setdefault(word.permit.partition.topic, {})[word.permit.partition.index] = None
        transactions.append(
            AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                verify_only=not adds,
                topics=[
                    AddPartitionsToTxnTopic(name=name, partitions=list(indexes))
                    for name, indexes in topics.items()
                ],
            )
        )
    return AddPartitionsToTxnRequest(transactions=transactions)


def answered(now: Now, words: list[RemoteWord], answer: "AddPartitionsToTxnResponse | Unanswered") -> None:
    """Without an answer, and where the coordinator has moved, the client is told to try again."""
    codes: dict[tuple[int, str, int], int] = {}
    if not isinstance(answer, Unanswered) and not answer.error_code:
        # by number: one transactional id may be asked about for several producers
        for number, result in enumerate(answer.results_by_transaction):
            for topic in result.topic_results:
                for partition in topic.results_by_partition:
                    codes[number, topic.name, partition.partition_index] = partition.partition_error_code
    for number, asking in enumerate(by_transaction(words).values()):
        for word in asking:
            place = (number, word.permit.partition.topic, word.permit.partition.index)
            code = ErrorCode(codes.get(place, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            word.settle(now, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if code in PASSING else code)
