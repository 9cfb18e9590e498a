"""Brokers, topics, partitions and their leaders, as Metadata answers described them last.

This view is updated piece by piece as answers arrive, and may be out of date at any time. Code that notices a
moved leader marks the topic stale, and `client/metadata.py` requests it again. The leader epoch of a
partition never goes back: the answer of a broker that does not know the newest leader yet changes nothing.
"""

from dataclasses import dataclass
from typing import NamedTuple

from headrace.base.ids import NO_TOPIC_ID
from headrace.client.errors import BadResponse, InvalidInput, KafkaError
from headrace.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic

DEFAULT_PORT = 9092
PORT_DIGITS_MAX = 5
NO_EPOCH = -1  # from brokers that do not count leader epochs


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class TopicPartition(NamedTuple):
    """One partition of a topic; an ordinary tuple otherwise.

    >>> str(headrace.TopicPartition("orders", 3)), headrace.TopicPartition("orders", 3) == ("orders", 3)
    ('orders-3', True)
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetRange(NamedTuple):
    """The offsets [start, end) of a partition."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def parse_bootstrap(text: str) -> list[Address]:
    """Addresses from `host:port,host:port`; a missing port is Kafka's 9092."""
    addresses = [_parse_address(part.strip()) for part in text.split(",") if part.strip()]
    if not addresses:
        raise InvalidInput("bootstrap.servers has no address; give host:port")
    return addresses


def _parse_address(text: str) -> Address:
    _, _, bare = text.rpartition("://")
    if bare.startswith("["):
        host, bracket, rest = bare[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise InvalidInput(f"{text!r} is not of the form host:port")
        port = rest[1:]
    else:
        host, _, port = bare.partition(":")
    is_number = port.isascii() and port.isdecimal() and len(port) <= PORT_DIGITS_MAX
    if not host or (port and not (is_number and 0 < int(port) < 65536)):
        raise InvalidInput(f"{text!r:.200} is not of the form host:port")
    return Address(host, int(port) if port else DEFAULT_PORT)


@dataclass(slots=True)
class Partition:
    index: int
    leader: int  # -1: none at the moment
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline: list[int]


@dataclass(slots=True)
class Topic:
    name: str
    topic_id: bytes  # zeros from brokers that know no ids
    is_internal: bool
    partitions: list[Partition]  # by index, without gaps

    @property
    def has_id(self) -> bool:
        return self.topic_id != NO_TOPIC_ID


class Cluster:
    """The view itself; changed only by `update` and `mark_stale`."""

    def __init__(self) -> None:
        self.brokers: dict[int, Address] = {}
        self.racks: dict[int, str | None] = {}
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.topics: dict[str, Topic] = {}
        self.names_by_id: dict[bytes, str] = {}
        self.stale: set[str] = set()

    def update(self, answer: MetadataResponse, *, is_complete: bool = False) -> dict[str, KafkaError]:
        """Takes an answer in; the topics that it answered with an error.

        A complete one lists all topics: what it leaves out is gone.
        """
        self.brokers = {broker.node_id: Address(broker.host, broker.port) for broker in answer.brokers}
        self.racks = {broker.node_id: broker.rack for broker in answer.brokers}
        self.cluster_id = answer.cluster_id
        self.controller_id = answer.controller_id
        if is_complete:
            for name in self.topics.keys() - {told.name for told in answer.topics}:
                self._forget(name)
        errors: dict[str, KafkaError] = {}
        for told in answer.topics:
            name = told.name or ""
            if told.error_code:
                error = errors[name] = KafkaError(told.error_code, subject=f"topic {name!r}")
                # one that only has no leader at the moment is not gone
                if not error.is_retriable or error.is_unknown_topic:
                    self._forget(name)
            else:
                self._learn(name, told)
        return errors

    def _forget(self, name: str) -> None:
        gone = self.topics.pop(name, None)
        if gone is not None:
            self.names_by_id.pop(gone.topic_id, None)

    def _learn(self, name: str, told: MetadataResponseTopic) -> None:
        known = self.topics.get(name)
        is_recreated = known is not None and known.has_id and known.topic_id != told.topic_id
        before = [] if known is None or is_recreated else known.partitions
        self._forget(name)
        partitions = [
            Partition(
                partition.partition_index,
                partition.leader_id,
                partition.leader_epoch,
                partition.replica_nodes,
                partition.isr_nodes,
                partition.offline_replicas,
            )
            for partition in sorted(told.partitions, key=lambda partition: partition.partition_index)
        ]
        if [partition.index for partition in partitions] != list(range(len(partitions))):
            raise BadResponse(f"the broker's Metadata response lacks some partitions of topic {name!r}")
        for old, new in zip(before, partitions, strict=False):
            if NO_EPOCH < new.leader_epoch < old.leader_epoch:
                partitions[new.index] = old
        topic = Topic(name, told.topic_id, told.is_internal, partitions)
        self.topics[name] = topic
        self.stale.discard(name)
        if topic.has_id:
            self.names_by_id[topic.topic_id] = name

    def hint(self, at: TopicPartition, leader: int, leader_epoch: int, brokers: dict[int, Address]) -> bool:
        """A broker that does not lead the partition says who does (KIP-951); whether that was news."""
        topic = self.topics.get(at.topic)
        if topic is None or not 0 <= at.partition < len(topic.partitions):
            return False
        partition = topic.partitions[at.partition]
        if leader < 0 or leader_epoch <= partition.leader_epoch:
            return False
        if leader not in brokers and leader not in self.brokers:
            return False
        self.brokers |= brokers
        partition.leader, partition.leader_epoch = leader, leader_epoch
        return True

    def mark_stale(self, topic: str) -> None:
        self.stale.add(topic)

    def leader_of(self, at: TopicPartition) -> int | None:
        """The broker that leads the partition, as far as we know; None when nobody does or we do not know
        it.
        """
        topic = self.topics.get(at.topic)
        if topic is None or not 0 <= at.partition < len(topic.partitions):
            return None
        leader = topic.partitions[at.partition].leader
        return leader if leader in self.brokers else None

    def leader_epoch_of(self, at: TopicPartition) -> int:
        """NO_EPOCH where we do not know it, or brokers count none."""
        topic = self.topics.get(at.topic)
        if topic is None or not 0 <= at.partition < len(topic.partitions):
            return NO_EPOCH
        return topic.partitions[at.partition].leader_epoch

    def name_of(self, name: str, topic_id: bytes) -> str:
        """The topic that an answer means: newer answers carry only its id."""
        return name or self.names_by_id.get(topic_id, "")
