"""State of one transactional id, and its transitions.

    init ──► Empty ──add──► Ongoing ──commit───────────────► PrepareCommit ──markers──► CompleteCommit
                            Ongoing ──abort, init, timeout──► PrepareAbort ──markers──► CompleteAbort
    CompleteCommit, CompleteAbort ──add──► Ongoing
    CompleteCommit, CompleteAbort ──init──► Empty

In version 2 (KIP-890) a producer may also abort without having added anything, from Empty and Complete*. Dead
and PrepareEpochFence have numbers in Kafka's log but are never written: an expired id gets a tombstone, and
fencing is one step with the abort it leads to.

Every transition returns a new value; its record has the whole state, so the newest record is enough.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import groupby
from typing import Any, NamedTuple

from headrace.protocol.coordinator_records import Record
from headrace.protocol.coordinator_records.transactions import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIME = -1
# The last epoch fences whoever has the one before. No producer ever learns it: nothing could fence that one.
MAX_EPOCH = 32767

TopicPartition = tuple[str, int]


class State(IntEnum):
    """The numbers are those of Kafka's log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def text(self) -> str:
        """What the admin APIs call it: "PrepareCommit"."""
        return "".join(word.capitalize() for word in self.name.split("_"))


def _written(transaction_version: int) -> int:
    return 2 if transaction_version >= 2 else 0


def is_exhausted(epoch: int) -> bool:
    """Whether the next epoch could not be told to a producer any more."""
    return epoch >= MAX_EPOCH - 1


class Transaction(NamedTuple):
    """Made some times for each transaction, which for a named tuple takes a third of the time of a frozen
    dataclass.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: State
    last_update_ms: int  # wall clock, as all times here
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME  # when the newest transaction began; stays when it has ended
    previous_producer_id: int = NO_PRODUCER_ID  # the one before the last move, mostly the same
    next_producer_id: int = NO_PRODUCER_ID  # in Prepare*: takes over, with epoch 0, when the end is complete
    client_version: int = 0  # spoken by whoever moved it: 2, or 0 as Kafka writes for all before that

    @property
    def is_open(self) -> bool:
        return self.state is State.ONGOING

    @property
    def is_ending(self) -> bool:
        return self.state in (State.PREPARE_COMMIT, State.PREPARE_ABORT)

    @property
    def has_ended(self) -> bool:
        return self.state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)

    def is_current(self, epoch: int) -> bool:
        return epoch == self.producer_epoch and epoch < MAX_EPOCH

    @property
    def epoch_before_end(self) -> int:
        """The one that the end of the newest transaction has raised, then of `previous_producer_id`."""
        if not self.has_ended or self.client_version < 2:
            return NO_EPOCH
        return self.producer_epoch - 1 if self.producer_epoch else MAX_EPOCH - 1

    def _moved(self, now_ms: int, state: State, **changes: Any) -> Transaction:
        return self._replace(
            state=state, last_update_ms=now_ms, previous_producer_id=self.producer_id, **changes
        )

    def initialized(self, now_ms: int, timeout_ms: int) -> Transaction:
        """A producer starts: all earlier producers with the id are fenced."""
        assert not is_exhausted(self.producer_epoch)
        return self._moved(
            now_ms,
            State.EMPTY,
            producer_epoch=self.producer_epoch + 1,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIME,
        )

    def initialized_again(self, now_ms: int, timeout_ms: int) -> Transaction:
        """The answer to the producer was lost: it gets the same one."""
        return self._replace(
            state=State.EMPTY,
            last_update_ms=now_ms,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIME,
        )

    def rotated(self, now_ms: int, timeout_ms: int, fresh_id: int) -> Transaction:
        """As `initialized`, when the producer id has no epochs left."""
        return self._moved(
            now_ms,
            State.EMPTY,
            producer_id=fresh_id,
            producer_epoch=0,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIME,
        )

    def added(
        self, now_ms: int, partitions: frozenset[TopicPartition], transaction_version: int
    ) -> Transaction:
        return self._moved(
            now_ms,
            State.ONGOING,
            partitions=self.partitions | partitions,
            start_ms=self.start_ms if self.is_open else now_ms,
            client_version=_written(transaction_version),
        )

    def prepared(
        self,
        now_ms: int,
        *,
        is_commit: bool,
        transaction_version: int,
        next_producer_id: int = NO_PRODUCER_ID,
    ) -> Transaction:
        """The outcome is decided. In version 2 whatever of this transaction is still under way is fenced."""
        bump = 1 if transaction_version >= 2 else 0
        return self._moved(
            now_ms,
            State.PREPARE_COMMIT if is_commit else State.PREPARE_ABORT,
            producer_epoch=self.producer_epoch + bump,
            next_producer_id=next_producer_id,
            start_ms=self.start_ms if self.is_open else now_ms,
            client_version=_written(transaction_version),
        )

    def fenced(self, now_ms: int, transaction_version: int) -> Transaction:
        """The coordinator aborts, and the producer that was in the midst of it finds itself fenced."""
        aborted = self.prepared(now_ms, is_commit=False, transaction_version=transaction_version)
        return aborted._replace(producer_epoch=min(self.producer_epoch + 1, MAX_EPOCH))

    @property
    def producer_after_end(self) -> tuple[int, int]:
        """Id and epoch with which the producer goes on once the end is complete."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch

    def completed(self, now_ms: int) -> Transaction:
        """All markers are written."""
        producer_id, producer_epoch = self.producer_after_end
        return self._moved(
            now_ms,
            State.COMPLETE_COMMIT if self.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
        )

    def by_topic(self) -> list[tuple[str, list[int]]]:
        if len(self.partitions) == 1:
            ((topic, partition),) = self.partitions
            return [(topic, [partition])]
        ordered = sorted(self.partitions)
        return [
            (topic, [partition for _, partition in of_topic])
            for topic, of_topic in groupby(ordered, key=lambda each: each[0])
        ]

    def record(self) -> Record:
        partitions = [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in self.by_topic()]
        value = TransactionLogValue(
            producer_id=self.producer_id,
            previous_producer_id=self.previous_producer_id,
            next_producer_id=self.next_producer_id,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state,
            transaction_partitions=None if self.state is State.EMPTY else partitions,
            transaction_last_update_timestamp_ms=self.last_update_ms,
            transaction_start_timestamp_ms=self.start_ms,
            client_transaction_version=self.client_version,
        )
        return Record(TransactionLogKey(transactional_id=self.transactional_id), value)

    def tombstone(self) -> Record:
        return Record(TransactionLogKey(transactional_id=self.transactional_id), None)


def created(transactional_id: str, producer_id: int, now_ms: int, timeout_ms: int) -> Transaction:
    return Transaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=0,
        timeout_ms=timeout_ms,
        state=State.EMPTY,
        last_update_ms=now_ms,
        previous_producer_id=producer_id,
    )


def recorded(transactional_id: str, value: TransactionLogValue) -> Transaction:
    return Transaction(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=State(value.transaction_status),
        last_update_ms=value.transaction_last_update_timestamp_ms,
        partitions=frozenset(
            (each.topic, partition)
            for each in value.transaction_partitions or ()
            for partition in each.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
    )
