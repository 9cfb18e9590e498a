"""The transaction coordinator's machine: one partition of `__transaction_state`.

It decides and never writes: each method returns a Decision, and `replay` of its records changes the state
(machines/coordination.py). Deadlines of open transactions are in memory; when the shard is loaded, they are
computed from the recorded start.

Guarantees: a transaction has one outcome; a request with an older epoch changes nothing; a transaction that
is open longer than its timeout is aborted, and its producer is fenced; a transactional id that was not used
for long expires, but never while its transaction is open or ending.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from headrace.base.time import Instant, Now
from headrace.machines.coordination import WRITE_AGAIN_MS, Decision, Ticket, Writer, restore
from headrace.machines.transactions.effects import WriteMarkers
from headrace.machines.transactions.ending import End, end_version_1, end_version_2
from headrace.machines.transactions.initialization import (
    Initialization,
    ProducerEpoch,
    held_by,
    initialize,
    refusal,
)
from headrace.machines.transactions.listing import Filters
from headrace.machines.transactions.settings import TransactionSettings
from headrace.machines.transactions.state_record import records_of
from headrace.machines.transactions.timeouts import Timeouts
from headrace.machines.transactions.transaction import (
    NO_EPOCH,
    State,
    TopicPartition,
    Transaction,
    created,
    recorded,
)
from headrace.protocol.coordinator_records import Record
from headrace.protocol.coordinator_records.transactions import TransactionLogKey, TransactionLogValue
from headrace.protocol.errors import ErrorCode

FreshId = Callable[[], int]  # a producer id that nobody has had; what it raises is its owner's concern

# Tombstones of expired ids in one batch: below what a batch may hold, even if every id is as long as can be.
TOMBSTONES_MAX = 20


class Transactions:
    __slots__ = (
        "_bumped_from",
        "_coordinator_epoch",
        "_next_expiration",
        "_settings",
        "_timeouts",
        "_transactions",
        "_writing",
    )

    def __init__(self, settings: TransactionSettings, coordinator_epoch: int) -> None:
        self._settings = settings
        self._coordinator_epoch = coordinator_epoch
        self._transactions: dict[str, Transaction] = {}  # changed by `replay` alone
        # In memory only.
        self._timeouts = Timeouts()  # of open transactions
        self._writing: dict[str, WriteMarkers] = {}  # the order that counts, of each id that is ending
        self._bumped_from: dict[str, int] = {}  # of an Empty id: the epoch that was shown for the current one
        self._next_expiration: Instant | None = None

    def init_producer_id(self, now: Now, request: Initialization, fresh_id: FreshId) -> Decision:
        """Reply: a ProducerEpoch, or an ErrorCode."""
        transactional_id, timeout_ms = request.transactional_id, request.timeout_ms
        error = refusal(request, self._settings.transaction_max_timeout_ms)
        if error is not ErrorCode.NONE:
            return Decision(reply=error)
        held = held_by(request)
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            return self._initialized(created(transactional_id, fresh_id(), now.wall_ms, timeout_ms), held)
        outcome = initialize(
            transaction, now.wall_ms, timeout_ms, held, self._epoch_before(transaction), fresh_id
        )
        if isinstance(outcome, ErrorCode):
            return Decision(reply=outcome)
        if outcome.is_open:
            decision = self._fenced(now, outcome)
            decision.reply = ErrorCode.CONCURRENT_TRANSACTIONS
            return decision
        return self._initialized(outcome, held)

    def _epoch_before(self, transaction: Transaction) -> int:
        """What the owner of the current epoch held when it asked for it, if it did and we know."""
        if transaction.has_ended:
            return transaction.epoch_before_end
        return self._bumped_from.get(transaction.transactional_id, NO_EPOCH)

    def _initialized(self, transaction: Transaction, held: ProducerEpoch | None) -> Decision:
        if held is None:
            # a producer that has just started: whoever asks again with an older epoch is not its own retry
            self._bumped_from.pop(transaction.transactional_id, None)
        else:
            self._bumped_from[transaction.transactional_id] = held.epoch
        reply = ProducerEpoch(transaction.producer_id, transaction.producer_epoch)
        return Decision(reply=reply, records=records_of(transaction))

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
        """Reply: an ErrorCode for each partition.

        With `verify_only` nothing is added: partitions that are not in the open transaction get
        TRANSACTION_ABORTABLE.
        """
        if verify_only:
            return Decision(reply=self._verified(transactional_id, producer_id, epoch, partitions))
        error = self._refusal_to_add(transactional_id, producer_id, epoch)
        records: list[Record] = []
        if error is ErrorCode.NONE:
            records = self._added(now, transactional_id, frozenset(partitions), transaction_version)
        return Decision(reply=dict.fromkeys(partitions, error), records=records)

    def _verified(
        self, transactional_id: str, producer_id: int, epoch: int, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        error = self._refusal(transactional_id, producer_id, epoch)
        if error is not ErrorCode.NONE:
            return dict.fromkeys(partitions, error)
        added = self._transactions[transactional_id].partitions
        return {
            each: ErrorCode.NONE if each in added else ErrorCode.TRANSACTION_ABORTABLE for each in partitions
        }

    def add_offsets(
        self,
        now: Now,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        offsets_partition: TopicPartition,
    ) -> Decision:
        """Reply: an ErrorCode. The partition is that of the group in `__consumer_offsets`."""
        error = self._refusal_to_add(transactional_id, producer_id, epoch)
        records: list[Record] = []
        if error is ErrorCode.NONE:
            records = self._added(now, transactional_id, frozenset((offsets_partition,)), 1)
        return Decision(reply=error, records=records)

    def _refusal_to_add(self, transactional_id: str, producer_id: int, epoch: int) -> ErrorCode:
        transaction = self._transactions.get(transactional_id)
        if transaction is not None and transaction.is_ending:
            # before the id is looked at: after a rotation the producer already has the one that takes over
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return self._refusal(transactional_id, producer_id, epoch)

    def _refusal(self, transactional_id: str, producer_id: int, epoch: int) -> ErrorCode:
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        transaction = self._transactions.get(transactional_id)
        if transaction is None or producer_id != transaction.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if not transaction.is_current(epoch):
            return ErrorCode.PRODUCER_FENCED
        return ErrorCode.CONCURRENT_TRANSACTIONS if transaction.is_ending else ErrorCode.NONE

    def _added(
        self,
        now: Now,
        transactional_id: str,
        partitions: frozenset[TopicPartition],
        transaction_version: int,
    ) -> list[Record]:
        transaction = self._transactions[transactional_id]
        if not transaction.is_open:
            self._timeouts.set(transactional_id, now.after_ms(transaction.timeout_ms))
        elif partitions <= transaction.partitions:
            return []
        return records_of(transaction.added(now.wall_ms, partitions, transaction_version))

    def end(self, now: Now, request: End, fresh_id: FreshId) -> Decision:
        """Reply: the ProducerEpoch of the next transaction, or an ErrorCode."""
        if not request.transactional_id:
            return Decision(reply=ErrorCode.INVALID_REQUEST)
        transaction = self._transactions.get(request.transactional_id)
        if transaction is None:
            return Decision(reply=ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if request.transaction_version >= 2:
            outcome = end_version_2(transaction, now.wall_ms, request, fresh_id)
        else:
            outcome = end_version_1(transaction, now.wall_ms, request)
        if isinstance(outcome, Transaction):
            decision = self._prepared(outcome)
            decision.reply = ProducerEpoch(*outcome.producer_after_end)
            return decision
        if outcome is ErrorCode.NONE:
            return Decision(reply=ProducerEpoch(transaction.producer_id, transaction.producer_epoch))
        return Decision(reply=outcome)

    def _fenced(self, now: Now, transaction: Transaction) -> Decision:
        return self._prepared(transaction.fenced(now.wall_ms, self._settings.transaction_version))

    def _prepared(self, transaction: Transaction) -> Decision:
        self._timeouts.cancel(transaction.transactional_id)
        return Decision(records=records_of(transaction), effects=[self._order_markers(transaction)])

    def _order_markers(self, transaction: Transaction) -> WriteMarkers:
        order = WriteMarkers(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            epoch=transaction.producer_epoch,
            coordinator_epoch=self._coordinator_epoch,
            is_commit=transaction.state is State.PREPARE_COMMIT,
            partitions=sorted(transaction.partitions),
            transaction_version=transaction.client_version,
        )
        self._writing[transaction.transactional_id] = order
        return order

    def is_writing(self, order: WriteMarkers) -> bool:
        """Whether the order still counts: this machine gave it, and its transaction is not complete."""
        return self._writing.get(order.transactional_id) is order

    def markers_written(self, now: Now, *orders: WriteMarkers) -> Decision:
        """Of one transactional id, for which one order counts. Nobody waits for it; orders that do not count
        any more change nothing.
        """
        if not any(map(self.is_writing, orders)):
            return Decision()
        transactional_id = orders[0].transactional_id
        del self._writing[transactional_id]
        return Decision(records=records_of(self._transactions[transactional_id].completed(now.wall_ms)))

    def decide_or_undo(self, key: str, decide: Callable[[], Decision]) -> Decision:
        due, order, bumped_from = self._timeouts.get(key), self._writing.get(key), self._bumped_from.get(key)
        decision = decide()
        if decision.records:
            self._timeouts.restore(key, due)
            restore(self._writing, key, order)
            restore(self._bumped_from, key, bumped_from)
        return decision

    @property
    def transactions(self) -> Iterable[Transaction]:
        return self._transactions.values()

    def describe(self, now: Now, transactional_id: str) -> Transaction | None:
        return self._transactions.get(transactional_id)

    def list_transactions(self, now: Now, filters: Filters) -> list[Transaction]:
        return [each for each in self._transactions.values() if filters.match(now.wall_ms, each)]

    def replay(
        self,
        change: Record | Transaction | dict[str, Transaction] | list[str],
        writer: Writer | None = None,
    ) -> None:
        """A record, the state in it, or what a load found: states by transactional id, or expired ids."""
        assert writer is None, "the coordinator's own records are part of no transaction"
        if isinstance(change, Transaction):
            transaction = change
        elif isinstance(change, dict):
            self._transactions.update(change)
            return
        elif isinstance(change, list):
            for transactional_id in change:
                self._transactions.pop(transactional_id, None)
            return
        else:
            key, value = change
            assert isinstance(key, TransactionLogKey)
            if value is None:
                self._transactions.pop(key.transactional_id, None)
                self._bumped_from.pop(key.transactional_id, None)
                return
            assert isinstance(value, TransactionLogValue)
            transaction = recorded(key.transactional_id, value)
        self._transactions[transaction.transactional_id] = transaction
        if transaction.state is not State.EMPTY:
            self._bumped_from.pop(transaction.transactional_id, None)

    def replay_end(self, producer_id: int, is_committed: bool) -> None:
        """A marker in the coordinator's own log, where WriteTxnMarkers and AddPartitionsToTxn 4 can write:
        nothing here is part of a transaction.
        """

    def loaded(self, now: Now) -> Decision:
        """Orders the markers that may still be missing, and starts the clocks."""
        self._next_expiration = self._expiration_after(now)
        effects = []
        for transaction in self._transactions.values():
            if transaction.is_ending:
                effects.append(self._order_markers(transaction))
            elif transaction.is_open:
                left_ms = transaction.start_ms + transaction.timeout_ms - now.wall_ms
                # a wall clock that was set back must not make a transaction live longer than its timeout
                left_ms = max(0, min(left_ms, transaction.timeout_ms))
                self._timeouts.set(transaction.transactional_id, now.after_ms(left_ms))
        return Decision(effects=effects)

    def deadline(self) -> Instant | None:
        times = [each for each in (self._timeouts.next(), self._next_expiration) if each is not None]
        return min(times, default=None)

    def wake(self, now: Now, *, can_write: bool = True) -> list[Decision]:
        """Aborts what was open for too long, and forgets ids that nobody has used for long."""
        overdue = self._timeouts.pop(now.mono)
        is_expiration_due = self._next_expiration is not None and now.mono >= self._next_expiration
        if is_expiration_due:
            self._next_expiration = self._expiration_after(now)
        if not can_write:
            for transactional_id in overdue:
                self._timeouts.set(transactional_id, now.after_ms(WRITE_AGAIN_MS))
            return []
        decisions = [self._fenced(now, self._transactions[transactional_id]) for transactional_id in overdue]
        if is_expiration_due:
            expired = [
                each.tombstone()
                for each in self._unused_since(now.wall_ms - self._settings.transactional_id_expiration_ms)
            ]
            for start in range(0, len(expired), TOMBSTONES_MAX):
                decisions.append(Decision(records=expired[start : start + TOMBSTONES_MAX]))
        return decisions

    def _expiration_after(self, now: Now) -> Instant:
        return now.after_ms(self._settings.transaction_remove_expired_transaction_cleanup_interval_ms)

    def _unused_since(self, wall_ms: int) -> Iterator[Transaction]:
        for transaction in self._transactions.values():
            is_at_rest = transaction.state is State.EMPTY or transaction.has_ended
            if is_at_rest and transaction.last_update_ms <= wall_ms:
                yield transaction

    def abandon(self) -> list[Ticket]:
        """Nobody ever waits here: a request that cannot be answered yet is told to come again."""
        return []

    def state(self) -> dict[str, Transaction]:
        """Everything that was replayed, for comparisons."""
        return dict(self._transactions)

    def check(self) -> None:
        """What holds between two decisions: every open transaction has its deadline, every one that ends has
        the order that ends it, and nobody else has either.
        """
        for name, transaction in self._transactions.items():
            assert transaction.is_open == (name in self._timeouts), f"{name}: its deadline in {transaction}"
            order = self._writing.get(name)
            assert transaction.is_ending == (order is not None), f"{name}: {order} in {transaction}"
            if order is not None:
                assert order.producer_id == transaction.producer_id, f"{name}: {order} in {transaction}"
                assert order.epoch == transaction.producer_epoch, f"{name}: {order} in {transaction}"
                assert order.is_commit == (transaction.state is State.PREPARE_COMMIT), f"{name}: {order}"
        assert self._writing.keys() <= self._transactions.keys(), "an order without its transaction"
