"""A producer's sender and accumulator before a node, over the simulator's manual network.

The node may crash and come back with its disk. With several brokers partitions change their leader: the node
plays all of them, each behind an address of its own, and a broker that does not lead a partition refuses what
is written to it.
"""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import Any, NamedTuple

from headrace.base.time import NEVER, Instant
from headrace.client.cluster import Address, Cluster, TopicPartition
from headrace.client.producer._accumulator import Accumulator
from headrace.client.producer._batch import Awaited, Delivery, RecordMetadata
from headrace.client.producer.partitioner import StickyPartitioner
from headrace.client.producer.sender import Sender
from headrace.client.producer.transaction import TransactionFactory
from headrace.client.producer.transaction_session import TransactionSession
from headrace.client.settings.producer import SendingSettings
from headrace.client.steps import Pending
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from headrace.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from headrace.protocol.notation import Request
from headrace.records.builder import ABORT, control_kind
from headrace.records.reader import batches, read_rows
from headrace.simulator.manual_host import ManualHost
from headrace.simulator.manual_network import Link, ManualNetwork

TOPIC = "t"
SAFE_DOWNGRADE = 2
# a crash is cheap with them
FEW_SHARDS = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}


class NobodyWaits:
    """Tests look at deliveries; they never block."""

    def wait(self, delivery: Awaited, timeout_s: float | None) -> None:
        raise AssertionError("a test waited for a delivery")

    def awaiting(self, delivery: Awaited) -> Generator[Any, None, RecordMetadata]:
        raise AssertionError("a test waited for a delivery")


class Row(NamedTuple):
    offset: int
    value: bytes


class ProducerSimulation:
    def __init__(
        self,
        seed: int = 1,
        *,
        partitions: int = 2,
        brokers: int = 1,
        host: ManualHost | None = None,
        batch_bytes: int = 400,
        batch_bytes_max: int = 0,
        buffer_bytes: int = 1 << 20,
        host_settings: dict[str, str] | None = None,
        topic_configs: dict[str, str] | None = None,
        transaction_version: int = 2,
        transact: TransactionFactory = TransactionSession,
        **settings: Any,
    ) -> None:
        self.rng = Random(seed)
        self.partitions = partitions
        self.brokers = brokers
        self.leaders = dict.fromkeys(range(partitions), 1)
        self.leader_epoch = 0
        if host is None:
            host = ManualHost(FEW_SHARDS | (host_settings or {}), seed=seed)
            host.create_topic(TOPIC, partitions, **(topic_configs or {}))
            if transaction_version == 1:
                update = FeatureUpdateKey(
                    feature="transaction.version", max_version_level=1, upgrade_type=SAFE_DOWNGRADE
                )
                host.ask(UpdateFeaturesRequest(feature_updates=[update]), 1)
        self.host = host
        self.cluster = Cluster()
        self.settings = SendingSettings(**settings)
        self.accumulator = Accumulator(
            NobodyWaits(),
            StickyPartitioner(self.rng),
            batch_bytes=batch_bytes,
            batch_bytes_max=batch_bytes_max,
            linger_s=self.settings.linger_s,
            buffer_bytes=buffer_bytes,
            request_bytes_max=self.settings.request_bytes_max,
        )
        self.sender = Sender(
            self.settings, self.accumulator, self.cluster, self.rng, new_transaction=transact
        )
        self.network = ManualNetwork(host, self.sender)
        if brokers > 1:
            self.network.answer_instead = self._refuse
            self.network.change_answer = self._name_brokers
        self.has_ghosts = True

    @property
    def now(self) -> Instant:
        return Instant(self.host.clock.mono)

    @property
    def session(self) -> TransactionSession:
        session = self.sender.transaction
        assert isinstance(session, TransactionSession)
        return session

    def learn_topic(self) -> None:
        self.sender.topics.want(TOPIC)
        while TOPIC not in self.accumulator.topics:
            self.network.exchange()
            self.host.advance(0.05)

    def send(self, partition: int, value: bytes, key: bytes | None = None) -> Delivery:
        wall_ms = int(self.host.clock.wall_ms)
        return self.accumulator.append(self.now, TOPIC, key, value, (), partition, wall_ms)

    # Several brokers

    def address(self, broker: int) -> Address:
        return Address(f"broker-{broker}", 9092)

    def move_leader(self, partition: int, broker: int) -> None:
        """The partition has another leader; the machine is told when it asks."""
        self.leaders[partition] = broker
        self.leader_epoch += 1

    def _name_brokers(self, answer: Any) -> None:
        """What the node says about itself, as the cluster of several brokers would."""
        if not isinstance(answer, MetadataResponse):
            return
        answer.brokers = [
            MetadataResponseBroker(node_id=broker, host=self.address(broker).host, port=9092)
            for broker in range(1, self.brokers + 1)
        ]
        for topic in answer.topics:
            for told in topic.partitions:
                told.leader_id = self.leaders[told.partition_index]
                told.leader_epoch = self.leader_epoch

    def _refuse(self, link: Link, request: Request) -> ProduceResponse | None:
        """If it was sent to a broker that does not lead all of its partitions: none of it is written."""
        if not isinstance(request, ProduceRequest):
            return None
        written = [data.index for topic in request.topic_data for data in topic.partition_data]
        if all(self.address(self.leaders[partition]) == link.to for partition in written):
            return None
        told = [
            PartitionProduceResponse(
                index=partition, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, base_offset=-1
            )
            for partition in written
        ]
        topic_id = self.cluster.topics[TOPIC].topic_id
        return ProduceResponse(
            responses=[TopicProduceResponse(name=TOPIC, topic_id=topic_id, partition_responses=told)]
        )

    # Time and trouble

    def settle(self, *, within_s: float = 600.0) -> None:
        """The network is well: time passes until the machine wants nothing more."""
        end = self.now + within_s
        while self.now < end:
            while self.network.exchange():
                pass
            if self.sender.is_idle and not self._is_busy():
                return
            wake_at = self.sender.deadline()
            step = 0.05 if wake_at is NEVER else max(0.001, min(wake_at - self.now, 1.0))
            self.host.advance(step)
        raise AssertionError("the machine did not come to rest")

    def _is_busy(self) -> bool:
        session = self.sender.transaction
        return isinstance(session, TransactionSession) and session.is_busy

    def run(self, pending: Pending[None]) -> None:
        """Until it is done; raises its error."""
        for _ in range(2000):
            while self.network.exchange():
                pass
            if pending.is_done:
                if pending.error is not None:
                    raise pending.error
                return
            self.host.advance(0.05)
        raise AssertionError(f"timed out while {pending.what}")

    def cause_trouble(self) -> None:
        """One random thing happens to the network, the node or the clock."""
        links = list(self.network.links.values())
        link = self.rng.choice(links) if links else None
        if self.brokers > 1 and self.rng.randrange(15) == 0:
            self.move_leader(self.rng.randrange(self.partitions), 1 + self.rng.randrange(self.brokers))
            if self.rng.randrange(2):
                self._refresh()
        roll = self.rng.randrange(100)
        if roll < 25:
            self.network.pump()
        elif roll < 50:
            if link is not None:
                self.network.deliver(link)
        elif roll < 75:
            if link is not None:
                self.network.hear(link)
        elif roll < 80:
            if link is not None:
                self.network.cut(link, leaves_ghost=self.has_ghosts and self.rng.randrange(2) == 0)
        elif roll < 85:
            if self.network.ghosts:
                ghost = self.rng.choice(self.network.ghosts)
                self.network.deliver(ghost)
                if not ghost.sent:
                    self.network.ghosts.remove(ghost)
        elif roll < 87:
            self.network.crash()
        else:
            self.host.advance(self.rng.random() * 0.4)

    def _refresh(self) -> None:
        """The machine asks who leads, as when metadata.max.age.ms is over, and is told at once, while what
        it asked of the leaders themselves is still under way.
        """
        self.cluster.mark_stale(TOPIC)
        self.host.advance(1.5)  # it may have asked just before
        self.network.pump()
        link = self.network.link(None)
        while self.network.deliver(link) or self.network.hear(link):
            pass
        self.network.pump()

    # What the log holds

    def log(self, partition: int, *, committed_only: bool = False, topic: str = TOPIC) -> list[Row]:
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=1 if committed_only else 0,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 30)
                    ],
                )
            ],
        )
        (told,) = self.host.ask(request, 12).responses[0].partitions
        assert told.error_code == 0, told
        view = bytes(told.records or b"")
        aborted = sorted((each.first_offset, each.producer_id) for each in told.aborted_transactions or ())
        dead: set[int] = set()
        rows: list[Row] = []
        for position, header in batches(view):
            while aborted and aborted[0][0] <= header.base_offset:
                dead.add(aborted.pop(0)[1])
            found = read_rows(view, position, header)
            if header.is_control:
                if control_kind(found[0][2]) == ABORT:
                    dead.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in dead):
                rows += [Row(row[0], row[3] or b"") for row in found]
        return rows

    def values(self, partition: int, *, committed_only: bool = False) -> list[bytes]:
        return [row.value for row in self.log(partition, committed_only=committed_only)]

    def all_at(self) -> list[TopicPartition]:
        return [TopicPartition(TOPIC, partition) for partition in range(self.partitions)]


def produced(simulation: ProducerSimulation) -> int:
    """How many produce requests were sent."""
    return sum(isinstance(request, ProduceRequest) for request, _ in simulation.network.requests)
