"""Produce requests under way, broker by broker."""

from typing import NamedTuple

from headrace.base.time import NEVER, Instant
from headrace.client.cluster import Cluster, TopicPartition
from headrace.client.network.connection import ByVersion
from headrace.client.producer._batch import Batch
from headrace.client.producer.meter import Meter
from headrace.client.settings.producer import SendingSettings
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

NAMES_ONLY_VERSION = 12  # the last version of Produce that names topics instead of giving their ids


class Carried(NamedTuple):
    """A batch in a request, with the numbers that it had when the request was made."""

    batch: Batch
    producer_id: int
    producer_epoch: int
    base_sequence: int

    @property
    def was_renumbered(self) -> bool:
        batch = self.batch
        return self[1:] != (batch.producer_id, batch.producer_epoch, batch.base_sequence)


class Flight:
    __slots__ = ("began_at", "broker", "carried")

    def __init__(self, broker: int, carried: dict[TopicPartition, Carried], began_at: Instant) -> None:
        self.broker = broker
        self.carried = carried
        self.began_at = began_at


class Flights:
    """Invariant: no broker has more of them than `max_per_broker`; with `is_one_per_partition` no partition
    is in two of them, whichever brokers they went to.
    """

    def __init__(self, max_per_broker: int, *, is_one_per_partition: bool = False) -> None:
        self._max_per_broker = max_per_broker
        self._is_one_per_partition = is_one_per_partition
        self._written: set[TopicPartition] = set()  # in a flight; only kept for one per partition
        self._by_broker: dict[int, list[Flight]] = {}
        self._mute_until: dict[int, Instant] = {}  # brokers that asked for a pause (KIP-219)

    def __bool__(self) -> bool:
        return any(self._by_broker.values())

    def all(self) -> list[Flight]:
        return [flight for flights in self._by_broker.values() for flight in flights]

    def may_write(self, at: TopicPartition) -> bool:
        """Whether the partition's next batch may leave before the last one is answered for.

        The leader may have changed since: the new one has room, and would write the next batch first.
        """
        return at not in self._written

    def has_room(self, now: Instant, broker: int) -> bool:
        if len(self._by_broker.get(broker, ())) >= self._max_per_broker:
            return False
        return self._mute_until.get(broker, now) <= now

    def add(self, flight: Flight) -> None:
        self._by_broker.setdefault(flight.broker, []).append(flight)
        if self._is_one_per_partition:
            self._written.update(flight.carried)

    def remove(self, flight: Flight) -> None:
        self._by_broker[flight.broker].remove(flight)
        if self._is_one_per_partition:
            self._written.difference_update(flight.carried)

    def mute(self, broker: int, until: Instant) -> None:
        self._mute_until[broker] = until

    def unmuted_at(self, after: Instant) -> Instant:
        """When the next broker that is left alone may be spoken to again."""
        return min((until for until in self._mute_until.values() if until > after), default=NEVER)


def produce_request(
    settings: SendingSettings, cluster: Cluster, load: dict[TopicPartition, Carried], meter: Meter
) -> tuple[ByVersion, int | None]:
    """The request that carries these batches, and the highest version that can.

    It is made when its connection is ready for it: then batches are compressed and sealed, which takes long
    and needs nothing but themselves.
    """
    topics = {at.topic: cluster.topics[at.topic] for at in load}
    has_ids = all(topic.has_id for topic in topics.values())
    is_transactional = settings.transactional_id is not None

    def make(version: int) -> ProduceRequest:
        data = {
            name: TopicProduceData(name=topic.name, topic_id=topic.topic_id) for name, topic in topics.items()
        }
        for at, carried in load.items():
            batch = carried.batch
            if batch.is_settled:
                continue  # its time was over before a connection was there
            is_plain = batch.codec == 0
            plain_bytes = batch.used
            records = batch.seal(settings.codec, settings.compression_level, is_transactional, carried[1:])
            if is_plain:
                meter.plain_bytes += plain_bytes
                meter.packed_bytes += len(records)
            data[at.topic].partition_data.append(PartitionProduceData(index=at.partition, records=records))
        return ProduceRequest(
            transactional_id=settings.transactional_id,
            acks=settings.acks,
            timeout_ms=int(settings.request_timeout_s * 1000),
            topic_data=[each for each in data.values() if each.partition_data],
        )

    return ByVersion(ProduceRequest, make), None if has_ids else NAMES_ONLY_VERSION
