"""The numbers by which a broker recognises repeats and gaps, per partition.

Every batch of an idempotent producer has an id, an epoch and a first sequence; the broker takes it only
where the sequence goes on and knows the last five batches again. So a batch keeps its numbers through all
retries, unless it is certain that the broker never took it.

    fresh --numbered--> tracked --acknowledged--> gone
                           |-----expired: nobody knows--> unresolved, until all that is tracked is answered
                           '-----certainly refused--> the rest starts over at 0 in a new epoch
"""

from headrace.client.cluster import TopicPartition
from headrace.client.producer._batch import Batch
from headrace.records.batch import NO_SEQUENCE

SEQUENCES = 1 << 31  # they wrap from the largest int32 to 0
TRACKED_MAX = 5  # what a broker remembers of a producer in a partition
NO_OFFSET = -1


def is_later(sequence: int, other: int) -> bool:
    """Sequences wrap, so that their distance decides."""
    return 0 < (sequence - other) % SEQUENCES < SEQUENCES // 2


class Order:
    """The sequences of one partition."""

    __slots__ = (
        "last_acked_offset",
        "last_acked_sequence",
        "next_sequence",
        "producer",
        "tracked",
        "unresolved",
    )

    def __init__(self, producer: tuple[int, int]) -> None:
        self.producer = producer  # id and epoch, in which the sequences count
        self.next_sequence = 0
        self.last_acked_sequence = NO_SEQUENCE
        self.last_acked_offset = NO_OFFSET
        # Numbered and not known to be delivered, in the order of their numbers.
        self.tracked: list[Batch] = []
        # The sequence after what expired, if something did: the broker may wait for it, or not.
        self.unresolved: int | None = None

    def follows(self, sequence: int) -> bool:
        """Whether all before that sequence is acknowledged."""
        if self.last_acked_sequence == NO_SEQUENCE:
            return sequence == 0
        return sequence == (self.last_acked_sequence + 1) % SEQUENCES

    def restart(self, producer: tuple[int, int]) -> None:
        """What is tracked is numbered anew from 0, under that id and epoch."""
        self.producer = producer
        self.next_sequence = 0
        self.last_acked_sequence = NO_SEQUENCE
        self.unresolved = None
        for batch in self.tracked:
            self._number(batch)

    def track(self, batch: Batch) -> None:
        self._number(batch)
        self.tracked.append(batch)

    def _number(self, batch: Batch) -> None:
        batch.identify(*self.producer, self.next_sequence)
        self.next_sequence = (self.next_sequence + batch.count) % SEQUENCES

    def drop(self, batch: Batch) -> None:
        """It is answered for, or given up."""
        if batch in self.tracked:
            self.tracked.remove(batch)

    def acknowledged(self, batch: Batch, base_offset: int) -> None:
        self.drop(batch)
        last = (batch.base_sequence + batch.count - 1) % SEQUENCES
        # answers may overtake each other after a leader change
        if self.last_acked_sequence == NO_SEQUENCE or is_later(last, self.last_acked_sequence):
            self.last_acked_sequence = last
        if base_offset >= 0:
            self.last_acked_offset = max(self.last_acked_offset, base_offset + batch.count - 1)

    def given_up(self, batch: Batch) -> None:
        """It was sent, and nobody knows whether the broker took it."""
        self.drop(batch)
        after = (batch.base_sequence + batch.count) % SEQUENCES
        if self.unresolved is None or is_later(after, self.unresolved):
            self.unresolved = after

    def split(self, batch: Batch, parts: list[Batch]) -> None:
        """The batch goes on in parts, which share its numbers."""
        at = self.tracked.index(batch)
        sequence = batch.base_sequence
        for part in parts:
            part.identify(batch.producer_id, batch.producer_epoch, sequence)
            sequence = (sequence + part.count) % SEQUENCES
        self.tracked[at : at + 1] = parts


class Sequences:
    """All partitions of one producer id."""

    def __init__(self) -> None:
        self.producer_id = -1  # -1: none yet
        self.producer_epoch = -1
        self.orders: dict[TopicPartition, Order] = {}
        # Where a batch of this id was acknowledged. A leader that has never seen the id takes any sequence as
        # the first: if our first batch is sent away and the second is not, the first can never follow.
        self.acquainted: set[TopicPartition] = set()
        self._to_restart: dict[TopicPartition, None] = {}

    @property
    def is_identified(self) -> bool:
        return self.producer_id >= 0

    @property
    def producer(self) -> tuple[int, int]:
        return self.producer_id, self.producer_epoch

    def identify(self, producer_id: int, producer_epoch: int) -> None:
        """A new id or epoch: whatever is numbered from now on counts from 0."""
        if producer_id != self.producer_id:
            self.acquainted.clear()
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self.restart_due()

    def of(self, at: TopicPartition) -> Order:
        order = self.orders.get(at)
        if order is None:
            order = self.orders[at] = Order(self.producer)
        return order

    def may_leave(self, at: TopicPartition, batch: Batch) -> bool:
        """Whether this batch, the oldest that waits for its partition, would come in order now."""
        if not self.is_identified:
            return False
        order = self.of(at)
        if batch.base_sequence != NO_SEQUENCE:
            # a repeat: all that precedes it must be answered for
            return order.tracked[0] is batch
        if order.tracked:
            if order.producer != self.producer or len(order.tracked) >= TRACKED_MAX:
                return False
            if at not in self.acquainted:
                return False
        return order.unresolved is None

    def acknowledged(self, at: TopicPartition, batch: Batch, base_offset: int) -> None:
        self.of(at).acknowledged(batch, base_offset)
        self.acquainted.add(at)

    def number(self, at: TopicPartition, batch: Batch) -> None:
        """Gives a batch its sequence, once: it is about to be sent."""
        if batch.base_sequence != NO_SEQUENCE:
            return
        order = self.of(at)
        if order.producer != self.producer:
            assert not order.tracked
            order.restart(self.producer)
        order.track(batch)

    def want_restart(self, at: TopicPartition) -> None:
        """There is a gap: the partition has to start over in a new epoch."""
        self._to_restart[at] = None

    @property
    def wants_restart(self) -> bool:
        return bool(self._to_restart)

    def restart_due(self) -> None:
        for at in self._to_restart:
            self.of(at).restart(self.producer)
        self._to_restart.clear()

    def reset(self) -> None:
        """Nothing is under way any more; all partitions begin anew with their next batch."""
        assert not any(order.tracked for order in self.orders.values())
        self.orders.clear()
        self._to_restart.clear()

    def unresolved(self) -> list[TopicPartition]:
        """The partitions where something expired and nothing is under way any more."""
        return [at for at, order in self.orders.items() if order.unresolved is not None and not order.tracked]
