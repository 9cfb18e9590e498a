"""Idempotence: the producer id, its epochs, and the sequence numbers of each partition.

Every batch of an idempotent producer has an id, an epoch and the sequence number of its first record. The
broker accepts the batch only where the sequence goes on, and recognises the last five batches when they come
again. So a batch keeps its numbers through all retries, unless it is certain that no broker ever took it. If
that is not certain, and its numbers cannot be used any more because of a gap before them, the batch is given
up: under other numbers it might be written twice. (Java's producer sends it again.)

    a batch: new --numbered--> tracked --acknowledged--> gone
                                  |----expired, result unknown--> unresolved, until all tracked are answered
                                  '----certainly refused--> the rest starts over at 0 in a new epoch

    the id: unknown --InitProducerId--> known --a partition has a gap--> the next epoch (KIP-360)
               ^                                                             |
               '---------------------- epochs used up -----------------------'
"""

from headrace.base.randomness import Randomness
from headrace.base.time import NEVER, Instant
from headrace.client.cluster import TopicPartition
from headrace.client.errors import ClientError, KafkaError
from headrace.client.producer._batch import Batch
from headrace.client.session import Answer, RequestQueue
from headrace.client.settings.producer import SendingSettings
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.records.batch import NO_SEQUENCE

SEQUENCES = 1 << 31  # they wrap from the largest int32 to 0
TRACKED_MAX = 5  # what a broker remembers of a producer in a partition
NO_OFFSET = -1


def is_later(sequence: int, other: int) -> bool:
    """Sequences wrap, so that their distance decides."""
    return 0 < (sequence - other) % SEQUENCES < SEQUENCES // 2


class PartitionSequences:
    """The sequence numbers of one partition."""

    __slots__ = (
        "doubtful",
        "last_acked_offset",
        "last_acked_sequence",
        "next_sequence",
        "producer",
        "tracked",
        "unresolved",
    )

    def __init__(self, producer: tuple[int, int]) -> None:
        self.producer = producer  # id and epoch to which the sequence belongs
        self.next_sequence = 0
        self.last_acked_sequence = NO_SEQUENCE
        self.last_acked_offset = NO_OFFSET
        # Batches that have a number and are not acknowledged, in the order of their numbers.
        self.tracked: list[Batch] = []
        self.doubtful: set[Batch] = set()  # those of them that a broker may have written
        # The sequence after the batches that expired, if any: it is unknown whether the broker has them.
        self.unresolved: int | None = None

    def follows(self, sequence: int) -> bool:
        """Whether all before that sequence is acknowledged."""
        if self.last_acked_sequence == NO_SEQUENCE:
            return sequence == 0
        return sequence == (self.last_acked_sequence + 1) % SEQUENCES

    def restart(self, producer: tuple[int, int]) -> None:
        """Numbers the tracked batches again from 0, under that id and epoch."""
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
        """Stops tracking a batch."""
        self.doubtful.discard(batch)
        if batch in self.tracked:
            self.tracked.remove(batch)

    def acknowledged(self, batch: Batch, base_offset: int) -> None:
        self.drop(batch)
        last = (batch.base_sequence + batch.count - 1) % SEQUENCES
        # responses may overtake each other after a change of leader
        if self.last_acked_sequence == NO_SEQUENCE or is_later(last, self.last_acked_sequence):
            self.last_acked_sequence = last
        if base_offset >= 0:
            self.last_acked_offset = max(self.last_acked_offset, base_offset + batch.count - 1)

    def given_up(self, batch: Batch) -> None:
        """Stops tracking a batch of which it is unknown whether the broker wrote it."""
        self.drop(batch)
        after = (batch.base_sequence + batch.count) % SEQUENCES
        if self.unresolved is None or is_later(after, self.unresolved):
            self.unresolved = after

    def split(self, batch: Batch, parts: list[Batch]) -> None:
        """Replaces a batch by its parts, which share its numbers."""
        at = self.tracked.index(batch)
        if batch in self.doubtful:
            self.doubtful.remove(batch)
            self.doubtful.update(parts)
        sequence = batch.base_sequence
        for part in parts:
            part.identify(batch.producer_id, batch.producer_epoch, sequence)
            sequence = (sequence + part.count) % SEQUENCES
        self.tracked[at : at + 1] = parts


class Sequences:
    """The producer id and epoch, and the sequence numbers of all partitions."""

    def __init__(self) -> None:
        self.producer_id = -1  # -1: none yet
        self.producer_epoch = -1
        self.orders: dict[TopicPartition, PartitionSequences] = {}
        # Partitions where a batch of this id was acknowledged. A leader that has never seen the id accepts
        # any sequence as the first: if it refused our first batch and took the second, the first could never
        # follow.
        self.acknowledged_at: set[TopicPartition] = set()
        self._to_restart: dict[TopicPartition, None] = {}

    @property
    def is_identified(self) -> bool:
        return self.producer_id >= 0

    @property
    def producer(self) -> tuple[int, int]:
        return self.producer_id, self.producer_epoch

    def identify(self, producer_id: int, producer_epoch: int) -> None:
        """Sets a new id or epoch; partitions that want a restart are numbered from 0."""
        if producer_id != self.producer_id:
            self.acknowledged_at.clear()
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self.restart_due()

    def of(self, at: TopicPartition) -> PartitionSequences:
        order = self.orders.get(at)
        if order is None:
            order = self.orders[at] = PartitionSequences(self.producer)
        return order

    def may_leave(self, at: TopicPartition, batch: Batch) -> bool:
        """Whether this batch, the oldest in its queue, would be in order if it were sent now."""
        if not self.is_identified:
            return False
        order = self.of(at)
        if batch.base_sequence != NO_SEQUENCE:
            # a retry: all batches before it must be answered
            return order.tracked[0] is batch
        if order.tracked:
            if order.producer != self.producer or len(order.tracked) >= TRACKED_MAX:
                return False
            if at not in self.acknowledged_at:
                return False
        return order.unresolved is None

    def acknowledged(self, at: TopicPartition, batch: Batch, base_offset: int) -> None:
        self.of(at).acknowledged(batch, base_offset)
        self.acknowledged_at.add(at)

    def number(self, at: TopicPartition, batch: Batch) -> None:
        """Gives a batch its sequence number, if it has none yet."""
        if batch.base_sequence != NO_SEQUENCE:
            return
        order = self.of(at)
        if order.producer != self.producer:
            assert not order.tracked
            order.restart(self.producer)
        order.track(batch)

    def want_restart(self, at: TopicPartition) -> None:
        """After a gap: the partition starts over in a new epoch."""
        self._to_restart[at] = None

    def will_restart(self, at: TopicPartition) -> bool:
        return at in self._to_restart

    @property
    def wants_restart(self) -> bool:
        return bool(self._to_restart)

    def restart_due(self) -> None:
        for at in self._to_restart:
            self.of(at).restart(self.producer)
        self._to_restart.clear()

    def reset(self) -> None:
        """When nothing is in flight: all partitions start over at 0 with their next batch."""
        assert not any(order.tracked for order in self.orders.values())
        self.orders.clear()
        self._to_restart.clear()

    def unresolved(self) -> list[TopicPartition]:
        """The partitions where a batch expired and nothing is tracked any more."""
        return [at for at, order in self.orders.items() if order.unresolved is not None and not order.tracked]


EPOCH_MAX = (1 << 15) - 1
NO_TRANSACTION_TIMEOUT_MS = (1 << 31) - 1


class ProducerIdentity:
    def __init__(
        self, sequences: Sequences, request_queue: RequestQueue, settings: SendingSettings, rng: Randomness
    ) -> None:
        self.error: ClientError | None = None  # why the broker will never give us an id
        self._sequences = sequences
        self._request_queue = request_queue
        self._settings = settings
        self._rng = rng
        self._is_asked = False
        self._ask_at = Instant(0.0)
        self._failures = 0

    def advance(self, now: Instant) -> None:
        sequences = self._sequences
        if sequences.is_identified and sequences.wants_restart:
            if sequences.producer_epoch < EPOCH_MAX:
                sequences.identify(sequences.producer_id, sequences.producer_epoch + 1)
            else:
                sequences.producer_id = -1
        if sequences.is_identified or self._is_asked or self.error is not None or now < self._ask_at:
            return
        self._is_asked = True
        question = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=NO_TRANSACTION_TIMEOUT_MS
        )
        self._request_queue.post(None, question, self._answered, timeout_s=self._settings.request_timeout_s)

    def _answered(self, now: Instant, answer: Answer) -> None:
        self._is_asked = False
        error: ClientError
        if isinstance(answer, ClientError):
            error = answer
        else:
            assert isinstance(answer, InitProducerIdResponse)
            if not answer.error_code:
                self._failures = 0
                self._sequences.identify(answer.producer_id, answer.producer_epoch)
                return
            error = KafkaError(answer.error_code, subject="a producer id")
        if not error.is_retriable:
            self.error = error
            return
        self._ask_at = Instant(now + self._settings.backoff(self._failures, self._rng))
        self._failures += 1

    def deadline(self) -> Instant:
        is_waiting = not (self._sequences.is_identified or self._is_asked or self.error is not None)
        return self._ask_at if is_waiting else NEVER
