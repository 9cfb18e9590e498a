"""Produce requests: how one is made, those in flight by broker, and what a response means for a batch.

A batch is delivered, sent again, split, started over with its sequence, or refused. The rules are those of
Kafka's TransactionManager.canRetry (KIP-360): a gap in the sequence is real only if all batches before this
one are acknowledged; otherwise this batch merely arrived before them.

When the broker names the records that it refuses (KIP-467), the whole batch fails, as with Java's producer:
those records with their own errors, the others with `BatchRefused`.
"""

from enum import Enum, auto
from typing import NamedTuple

from headrace.base.time import NEVER, Duration, Instant
from headrace.client.cluster import Cluster, TopicPartition
from headrace.client.errors import BatchRefused, ClientError, KafkaError
from headrace.client.network.connection import ByVersion
from headrace.client.producer._batch import Batch, rebatch
from headrace.client.producer.idempotence import PartitionSequences
from headrace.client.settings.producer import SendingSettings
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from headrace.records._codec import decode_rows
from headrace.records.batch import HEADER_BYTES
from headrace.records.compression import decompress


class ProducerMetrics:
    """What a producer counts, for `producer.metrics()`: sums since it was made.

    Each is written by one thread only.
    """

    __slots__ = (
        "answers",
        "batches",
        "errors",
        "latency_max_s",
        "latency_s",
        "packed_bytes",
        "plain_bytes",
        "record_bytes",
        "records",
        "requests",
        "retries",
    )

    def __init__(self) -> None:
        self.records = 0  # acknowledged
        self.record_bytes = 0  # theirs, before compression
        self.batches = 0  # acknowledged
        self.errors = 0  # records that were not delivered
        self.retries = 0  # batches that were sent again
        self.requests = 0
        self.answers = 0
        self.latency_s = 0.0  # of all answers together
        self.latency_max_s = 0.0
        self.plain_bytes = 0  # what went into compression
        self.packed_bytes = 0  # and what came out

    def answered(self, latency_s: Duration) -> None:
        self.answers += 1
        self.latency_s += latency_s
        self.latency_max_s = max(self.latency_max_s, latency_s)

    def settled(self, batch: Batch) -> None:
        if batch.error is None:
            self.records += batch.count
            self.record_bytes += batch.record_bytes
            self.batches += 1
        else:
            self.errors += batch.count

    def snapshot(self) -> dict[str, float]:
        return {
            "records": self.records,
            "bytes": self.record_bytes,
            "batches": self.batches,
            "batch_size_avg": self.record_bytes / self.batches if self.batches else 0.0,
            "errors": self.errors,
            "retries": self.retries,
            "requests": self.requests,
            "request_latency_avg_ms": 1000 * self.latency_s / self.answers if self.answers else 0.0,
            "request_latency_max_ms": 1000 * self.latency_max_s,
            "compression_ratio": self.packed_bytes / self.plain_bytes if self.plain_bytes else 1.0,
        }


NAMES_ONLY_VERSION = 12  # the last version of Produce with topic names instead of ids


class SentBatch(NamedTuple):
    """A batch in a request, and the producer id, epoch and sequence that it had when it was sent."""

    batch: Batch
    producer_id: int
    producer_epoch: int
    base_sequence: int

    @property
    def was_renumbered(self) -> bool:
        batch = self.batch
        return self[1:] != (batch.producer_id, batch.producer_epoch, batch.base_sequence)


class SentRequest:
    __slots__ = ("batches", "began_at", "broker", "names")

    def __init__(
        self, broker: int, batches: dict[TopicPartition, SentBatch], began_at: Instant, cluster: Cluster
    ) -> None:
        self.broker = broker
        self.batches = batches
        self.began_at = began_at
        # By the ids that the response has: when it comes, the cluster may have forgotten the topic.
        self.names = {cluster.topics[at.topic].topic_id: at.topic for at in batches}


class SentRequests:
    """Invariant: no broker has more of them than `max_per_broker`; with `is_one_per_partition` no partition
    is in two of them, whichever brokers they went to.
    """

    def __init__(self, max_per_broker: int, *, is_one_per_partition: bool = False) -> None:
        self._max_per_broker = max_per_broker
        self._is_one_per_partition = is_one_per_partition
        self._written: set[TopicPartition] = set()  # partitions in flight; empty without is_one_per_partition
        self._by_broker: dict[int, list[SentRequest]] = {}
        self._mute_until: dict[int, Instant] = {}  # brokers that throttle us (KIP-219)

    def __bool__(self) -> bool:
        return any(self._by_broker.values())

    def all(self) -> list[SentRequest]:
        return [request for requests in self._by_broker.values() for request in requests]

    def may_write(self, at: TopicPartition) -> bool:
        """Whether no batch of the partition is in flight; always true without `is_one_per_partition`.

        Asked per partition, not per broker: after a change of leader the new leader would otherwise write
        the next batch first.
        """
        return at not in self._written

    def has_room(self, now: Instant, broker: int) -> bool:
        if len(self._by_broker.get(broker, ())) >= self._max_per_broker:
            return False
        return self._mute_until.get(broker, now) <= now

    def add(self, request: SentRequest) -> None:
        self._by_broker.setdefault(request.broker, []).append(request)
        if self._is_one_per_partition:
            self._written.update(request.batches)

    def remove(self, request: SentRequest) -> None:
        self._by_broker[request.broker].remove(request)
        if self._is_one_per_partition:
            self._written.difference_update(request.batches)

    def mute(self, broker: int, until: Instant) -> None:
        self._mute_until[broker] = until

    def unmuted_at(self, after: Instant) -> Instant:
        """When the next broker that throttled us may be sent requests again."""
        return min((until for until in self._mute_until.values() if until > after), default=NEVER)


def produce_request(
    settings: SendingSettings,
    cluster: Cluster,
    batches: dict[TopicPartition, SentBatch],
    metrics: ProducerMetrics,
) -> tuple[ByVersion, int | None]:
    """The Produce request with these batches, and its highest possible version.

    `make` runs when a connection is ready for the request. It compresses and seals the batches, which takes
    long and needs no lock.
    """
    topics = {at.topic: cluster.topics[at.topic] for at in batches}
    has_ids = all(topic.has_id for topic in topics.values())
    is_transactional = settings.transactional_id is not None

    def make(version: int) -> ProduceRequest:
        data = {
            name: TopicProduceData(name=topic.name, topic_id=topic.topic_id) for name, topic in topics.items()
        }
        for at, sent in batches.items():
            batch = sent.batch
            if batch.is_settled:
                continue  # it expired before a connection was ready
            is_plain = batch.codec == 0
            plain_bytes = batch.used
            records = batch.seal(settings.codec, settings.compression_level, is_transactional, sent[1:])
            if is_plain:
                metrics.plain_bytes += plain_bytes
                metrics.packed_bytes += len(records)
            data[at.topic].partition_data.append(PartitionProduceData(index=at.partition, records=records))
        return ProduceRequest(
            transactional_id=settings.transactional_id,
            acks=settings.acks,
            timeout_ms=int(settings.request_timeout_s * 1000),
            topic_data=[each for each in data.values() if each.partition_data],
        )

    return ByVersion(ProduceRequest, make), None if has_ids else NAMES_ONLY_VERSION


_KNOWN = {int(code): code for code in ErrorCode}
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_OF_SEQUENCES = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)
# The leader may have written the batch before it stopped to lead, or to wait for its followers.
MAYBE_WRITTEN = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
NO_LOG_START = -1


class Outcome(Enum):
    DELIVERED = auto()
    TOO_LARGE = auto()  # to be split
    RETRY = auto()
    RESTART = auto()  # retry, and the partition's sequence starts over at 0
    REFUSED = auto()


def outcome_of(
    told: PartitionProduceResponse,
    batch: Batch,
    order: PartitionSequences | None,
    *,
    was_renumbered: bool,
    is_transactional: bool,
    will_abort: bool = False,
) -> Outcome:
    """`order` is None without idempotence; `was_renumbered`: since the batch was sent."""
    code = told.error_code
    if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return Outcome.DELIVERED
    if code in _TOO_LARGE and batch.count > 1:
        return Outcome.TOO_LARGE
    if order is not None and code in _OF_SEQUENCES:
        if will_abort:
            return Outcome.REFUSED  # the transaction will be aborted: no retry is needed
        if was_renumbered:
            return Outcome.RETRY  # the error is about a sequence that it does not have any more
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return _out_of_order(batch, order, is_transactional)
        if code == ErrorCode.UNKNOWN_PRODUCER_ID:
            return _unknown_producer(told, batch, order, is_transactional)
        # nobody else uses the id: a batch of a later epoch arrived first
        return Outcome.REFUSED if is_transactional else Outcome.RESTART
    known = _KNOWN.get(code)
    return Outcome.RETRY if known is not None and known.is_retriable else Outcome.REFUSED


def _out_of_order(batch: Batch, order: PartitionSequences, is_transactional: bool) -> Outcome:
    if order.unresolved is None:
        if not order.follows(batch.base_sequence):
            return Outcome.RETRY
        return Outcome.REFUSED if is_transactional else Outcome.RESTART
    if is_transactional:
        return Outcome.REFUSED
    # the batch that expired before it never arrived: nothing else can be missing
    return Outcome.RESTART if batch.base_sequence == order.unresolved else Outcome.RETRY


def _unknown_producer(
    told: PartitionProduceResponse, batch: Batch, order: PartitionSequences, is_transactional: bool
) -> Outcome:
    if told.log_start_offset == NO_LOG_START:
        return Outcome.RETRY
    if order.last_acked_offset < told.log_start_offset:
        return Outcome.RESTART  # retention removed everything that the broker knew about this producer
    return Outcome.REFUSED if is_transactional else Outcome.RESTART


def name_refused_records(
    batch: Batch, at: TopicPartition, told: PartitionProduceResponse, error: ClientError
) -> ClientError:
    """Gives the records that the response names their errors; returns the error of all others."""
    named = [one for one in told.record_errors if 0 <= one.batch_index < batch.count]
    if not named:
        return error
    # The code of the batch fits for certain only if one record is refused: others may have other faults.
    code = told.error_code if len(named) == 1 else ErrorCode.INVALID_RECORD
    batch.record_errors = {
        one.batch_index: KafkaError(
            code, one.batch_index_error_message or told.error_message, subject=f"partition {at}"
        )
        for one in named
    }
    refused = BatchRefused(
        f"partition {at}: the broker refused {len(named)} of the {batch.count} records of the batch, and"
        f" wrote none of them: {error}"
    )
    refused.__cause__ = error
    return refused


def halves(batch: Batch) -> list[Batch]:
    """Two batches with the records of one that is too large for its topic, in their order."""
    records = bytes(memoryview(batch.buffer)[HEADER_BYTES : batch.used])
    if batch.codec:
        records = decompress(batch.codec, records)
    rows = [row[1:] for row in decode_rows(records, batch.count, 0, batch.base_timestamp, -1)]
    middle = len(rows) // 2
    return [rebatch(batch.queue, batch.created_at, part) for part in (rows[:middle], rows[middle:])]
