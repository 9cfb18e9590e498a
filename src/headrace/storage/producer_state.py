"""State of a partition's idempotent and transactional producers.

Of each producer: its epoch, its last five batches (a repeated one is answered, not written again), and
where its open transaction began. Changes come from batches alone, so that replaying the log gives the same
state again. Sequences wrap from the largest int32 to 0.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headrace.records.batch import BatchHeader
from headrace.storage.errors import (
    CoordinatorFenced,
    InvalidTransactionState,
    OutOfOrderSequence,
    StaleProducerEpoch,
)
from headrace.storage.transaction_index import AbortedTransaction

BATCHES_REMEMBERED = 5  # Kafka's: an idempotent producer has at most five requests in flight
SEQUENCE_MASK = 0x7FFF_FFFF

# Ended transactions whose end may lie above the high watermark. A few per producer is usual; beyond this,
# they are counted as one, which can only hold the stable offset back a little longer.
UNDECIDED_MAX = 1000


class RememberedBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry:
    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "producer_id",
        "seen_ms",
        "timestamp",
        "transaction_start",
    )

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: list[RememberedBatch] = []  # the last five of this epoch, oldest first
        self.timestamp = -1  # of its last batch
        self.coordinator_epoch = -1  # of the last end marker
        self.transaction_start = -1  # first offset of its open transaction
        self.seen_ms = 0  # when it last wrote, by our clock: expiry counts from here

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1


class ProducerState:
    __slots__ = ("entries", "open", "undecided")

    def __init__(self, entries: Iterable[ProducerEntry] = ()) -> None:
        self.entries: dict[int, ProducerEntry] = {entry.producer_id: entry for entry in entries}
        # producer id → first offset, in the order of those offsets
        self.open: dict[int, int] = {
            entry.producer_id: entry.transaction_start
            for entry in sorted(self.entries.values(), key=lambda entry: entry.transaction_start)
            if entry.transaction_start >= 0
        }
        # ended, but maybe not yet below the high watermark: first offset, offset of the marker
        self.undecided: list[tuple[int, int]] = []

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(self.entries.values())

    # --- before a batch is appended ----------------------------------------------------------------------

    def check(
        self, producer_id: int, epoch: int, sequence: int, offset_delta: int, *, is_transactional: bool
    ) -> RememberedBatch | None:
        """None: append it. A remembered batch: it repeats that one. Raises when it fits nowhere."""
        entry = self.entries.get(producer_id)
        if entry is None:
            return None  # unknown, or known no more: it may begin with any sequence
        if epoch != entry.epoch:
            if epoch < entry.epoch:
                raise StaleProducerEpoch(
                    f"producer {producer_id} has epoch {entry.epoch} already, the batch has {epoch}"
                )
            if sequence != 0:
                raise OutOfOrderSequence(
                    f"producer {producer_id} begins epoch {epoch} with sequence {sequence}, not 0"
                )
        else:
            batches = entry.batches
            expected = (batches[-1][1] + 1) & SEQUENCE_MASK if batches else 0
            if sequence != expected:
                last_sequence = (sequence + offset_delta) & SEQUENCE_MASK
                for batch in batches:
                    if batch[0] == sequence and batch[1] == last_sequence:
                        return batch
                raise OutOfOrderSequence(
                    f"producer {producer_id} sent sequence {sequence}, expected {expected}"
                )
        if entry.transaction_start >= 0 and not is_transactional:
            raise InvalidTransactionState(
                f"producer {producer_id} sent a batch that is not transactional while its transaction is open"
            )
        return None

    def check_epoch(self, producer_id: int, epoch: int) -> ProducerEntry | None:
        """What a coordinator writes on behalf of a producer has no sequence; only a zombie is refused."""
        entry = self.entries.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise StaleProducerEpoch(
                f"producer {producer_id} has epoch {entry.epoch} already, the batch has {epoch}"
            )
        return entry

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int) -> None:
        entry = self.check_epoch(producer_id, epoch)
        if entry is not None and coordinator_epoch < entry.coordinator_epoch:
            raise CoordinatorFenced(
                f"marker of coordinator epoch {coordinator_epoch} after epoch {entry.coordinator_epoch}"
            )

    # --- after it was appended, and in a replay ----------------------------------------------------------

    def add_batch(
        self,
        producer_id: int,
        epoch: int,
        sequence: int,
        base_offset: int,
        offset_delta: int,
        timestamp: int,
        wall_ms: int,
        *,
        is_transactional: bool,
    ) -> None:
        entry = self._enter(producer_id, epoch)
        if sequence >= 0:
            batches = entry.batches
            if len(batches) >= BATCHES_REMEMBERED:
                del batches[0]
            last_offset = base_offset + offset_delta
            batches.append(
                RememberedBatch(
                    sequence, (sequence + offset_delta) & SEQUENCE_MASK, last_offset, offset_delta, timestamp
                )
            )
        entry.timestamp = timestamp
        entry.seen_ms = wall_ms
        if is_transactional and entry.transaction_start < 0:
            entry.transaction_start = base_offset
            self.open[producer_id] = base_offset

    def replay_batch(self, header: BatchHeader, wall_ms: int) -> None:
        """A data batch that is in the log already, from this or another leader."""
        self.add_batch(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.base_offset,
            header.last_offset_delta,
            header.max_timestamp,
            wall_ms,
            is_transactional=header.is_transactional,
        )

    def aborted_at(self, producer_id: int, offset: int) -> AbortedTransaction | None:
        """The entry for the transaction index if this producer's transaction is aborted at `offset`."""
        first_offset = self.open.get(producer_id)
        if first_offset is None:
            return None
        others = (start for other, start in self.open.items() if other != producer_id)
        return AbortedTransaction(producer_id, first_offset, offset, next(others, offset + 1))

    def end_transaction(
        self, producer_id: int, epoch: int, coordinator_epoch: int, offset: int, timestamp: int, wall_ms: int
    ) -> None:
        """An end marker stands at `offset`. Maybe no transaction is open, as after a marker that was sent
        twice.
        """
        entry = self._enter(producer_id, epoch)
        entry.coordinator_epoch = coordinator_epoch
        entry.timestamp = timestamp
        entry.seen_ms = wall_ms
        entry.transaction_start = -1
        first_offset = self.open.pop(producer_id, None)
        if first_offset is not None:
            self.undecided.append((first_offset, offset))
            if len(self.undecided) > UNDECIDED_MAX:
                self._merge_undecided()

    def _merge_undecided(self) -> None:
        """Nobody has asked for the stable offset for long: treat the older half as one."""
        half = len(self.undecided) // 2
        older = self.undecided[:half]
        self.undecided[:half] = [(min(first for first, _ in older), older[-1][1])]

    def _enter(self, producer_id: int, epoch: int) -> ProducerEntry:
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id, epoch)
        elif entry.epoch != epoch:
            entry.epoch = epoch
            entry.batches.clear()
        return entry

    # --- questions ---------------------------------------------------------------------------------------

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer, in this epoch, has a transaction open here."""
        return producer_id in self.open and self.entries[producer_id].epoch == epoch

    @property
    def first_open_offset(self) -> int | None:
        """Where the oldest transaction without an end marker begins."""
        return next(iter(self.open.values()), None)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Below it every transaction has ended, and its end is below the high watermark itself."""
        undecided = self.undecided
        while undecided and undecided[0][1] < high_watermark:
            del undecided[0]
        stable = high_watermark
        for first_offset, _ in undecided:
            stable = min(stable, first_offset)
        first_open = self.first_open_offset
        return stable if first_open is None else min(stable, first_open)

    def expire(self, wall_ms: int, expiration_ms: int) -> int:
        """Forget producers that were silent for so long and have nothing open; how many."""
        silent = [
            entry.producer_id
            for entry in self.entries.values()
            if entry.transaction_start < 0 and wall_ms - entry.seen_ms >= expiration_ms
        ]
        for producer_id in silent:
            del self.entries[producer_id]
        return len(silent)
