"""Produce requests in flight, by broker, and how such a request is made."""

from typing import NamedTuple

from headrace.base.time import NEVER, Instant
from headrace.client.cluster import Cluster, TopicPartition
from headrace.client.network.connection import ByVersion
from headrace.client.producer._batch import Batch
from headrace.client.producer.metrics import ProducerMetrics
from headrace.client.settings.producer import SendingSettings
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

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
    __slots__ = ("batches", "began_at", "broker")

    def __init__(self, broker: int, batches: dict[TopicPartition, SentBatch], began_at: Instant) -> None:
        self.broker = broker
        self.batches = batches
        self.began_at = began_at


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
