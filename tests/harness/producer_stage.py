"""A producer's machine before a node, with a network between them that the test has in its hands.

Requests travel as bytes, over connections that keep their order; a connection may be cut before or after
the node has seen what is in it, and what was in it may still arrive long after (a ghost). The node may
crash and come back with its disk. With several brokers partitions change their leader: the node plays all of
them, each behind an address of its own, and whoever does not lead a partition refuses what is written to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from random import Random
from typing import Any, NamedTuple

from harness.desk import Desk, joined
from headrace.base.time import NEVER, Instant
from headrace.client.cluster import Address, Cluster, TopicPartition
from headrace.client.errors import ConnectionLost
from headrace.client.network.connection import ByVersion
from headrace.client.pending import Pending
from headrace.client.producer._accumulator import Accumulator
from headrace.client.producer._batch import Delivery, RecordMetadata
from headrace.client.producer.partitioner import StickyPartitioner
from headrace.client.producer.sender import Sender
from headrace.client.producer.transaction import TransactionFactory
from headrace.client.producer.transaction_session import TransactionSession
from headrace.client.request_queue import Outgoing
from headrace.client.settings.producer import SendingSettings
from headrace.node.connection import Connection
from headrace.protocol.api import APIS, request_codec
from headrace.protocol.errors import ErrorCode
from headrace.protocol.framing import request_frame
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from headrace.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from headrace.records.builder import ABORT, control_kind
from headrace.records.reader import batches, read_rows

TOPIC = "t"
SAFE_DOWNGRADE = 2
# a crash is cheap with them
FEW_SHARDS = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}


class NobodyWaits:
    """Tests look at deliveries; they never block."""

    def wait(self, delivery: Delivery, timeout_s: float | None) -> None:
        raise AssertionError("a test waited for a delivery")

    def awaiting(self, delivery: Delivery) -> Generator[Any, None, RecordMetadata]:
        raise AssertionError("a test waited for a delivery")


class Letter(NamedTuple):
    frame: bytes
    ticket: int
    api_key: int
    version: int
    expects_answer: bool
    partitions: tuple[int, ...] = ()  # that it writes to


class Link:
    """One connection: what is on its way to the node, and who waits for answers."""

    def __init__(self, connection: Connection, to: Address | None = None) -> None:
        self.connection = connection
        self.to = to
        self.letters: deque[Letter] = deque()
        self.awaiting: deque[int] = deque()


class Row(NamedTuple):
    offset: int
    value: bytes


class Stage:
    def __init__(
        self,
        seed: int = 1,
        *,
        partitions: int = 2,
        brokers: int = 1,
        desk: Desk | None = None,
        batch_bytes: int = 400,
        batch_bytes_max: int = 0,
        buffer_bytes: int = 1 << 20,
        desk_settings: dict[str, str] | None = None,
        topic_configs: dict[str, str] | None = None,
        transaction_version: int = 2,
        transact: TransactionFactory = TransactionSession,
        **settings: Any,
    ) -> None:
        self.dice = Random(seed)
        self.partitions = partitions
        self.brokers = brokers
        self.leaders = dict.fromkeys(range(partitions), 1)
        self.leader_epoch = 0
        if desk is None:
            desk = Desk(FEW_SHARDS | (desk_settings or {}), seed=seed)
            desk.create_topic(TOPIC, partitions, **(topic_configs or {}))
            if transaction_version == 1:
                update = FeatureUpdateKey(
                    feature="transaction.version", max_version_level=1, upgrade_type=SAFE_DOWNGRADE
                )
                desk.ask(UpdateFeaturesRequest(feature_updates=[update]), 1)
        self.desk = desk
        self.cluster = Cluster()
        self.settings = SendingSettings(**settings)
        self.accumulator = Accumulator(
            NobodyWaits(),
            StickyPartitioner(self.dice),
            batch_bytes=batch_bytes,
            batch_bytes_max=batch_bytes_max,
            linger_s=self.settings.linger_s,
            buffer_bytes=buffer_bytes,
            request_bytes_max=self.settings.request_bytes_max,
        )
        self.sender = Sender(
            self.settings, self.accumulator, self.cluster, self.dice, new_transaction=transact
        )
        self.links: dict[Address | None, Link] = {}  # None: any broker would do
        self.has_ghosts = True
        self.ghosts: list[Link] = []
        self.asked: list[tuple[int, int]] = []  # API and version of all that was sent
        self.boots = 0

    @property
    def now(self) -> Instant:
        return Instant(self.desk.clock.mono)

    @property
    def session(self) -> TransactionSession:
        assert self.sender.transaction is not None
        return self.sender.transaction

    def learn_topic(self) -> None:
        self.sender.topics.want(TOPIC)
        while TOPIC not in self.accumulator.topics:
            self.exchange()
            self.desk.advance(0.05)

    def send(self, partition: int, value: bytes, key: bytes | None = None) -> Delivery:
        wall_ms = int(self.desk.clock.wall_ms)
        return self.accumulator.append(self.now, TOPIC, key, value, (), partition, wall_ms)

    # The network

    def pump(self) -> None:
        """What the machine wants to send is put on its way."""
        for outgoing in self.sender.requests(self.now):
            self._post(outgoing)

    def _post(self, outgoing: Outgoing) -> None:
        question = outgoing.question
        api = APIS[question.kind.KEY if isinstance(question, ByVersion) else question.KEY]
        version = api.last if outgoing.version_max is None else min(api.last, outgoing.version_max)
        request = question.make(version) if isinstance(question, ByVersion) else question
        self.asked.append((api.key, version))
        body = request_codec(api.key, version).encode(request)
        frame = joined(request_frame(api.key, version, outgoing.ticket, "c", [body]))
        written: tuple[int, ...] = ()
        if isinstance(request, ProduceRequest):
            written = tuple(data.index for topic in request.topic_data for data in topic.partition_data)
        letter = Letter(frame[4:], outgoing.ticket, api.key, version, outgoing.expects_answer, written)
        self._link(outgoing.to).letters.append(letter)

    def _link(self, to: Address | None) -> Link:
        link = self.links.get(to)
        if link is None:
            link = self.links[to] = Link(self.desk.connect(), to)
        return link

    def address(self, broker: int) -> Address:
        return Address(f"broker-{broker}", 9092)

    def move_leader(self, partition: int, broker: int) -> None:
        """The partition has another leader; the machine is told when it asks."""
        self.leaders[partition] = broker
        self.leader_epoch += 1

    def _name_brokers(self, answer: MetadataResponse) -> None:
        """What the node says about itself, as the cluster of several brokers would."""
        answer.brokers = [
            MetadataResponseBroker(node_id=broker, host=self.address(broker).host, port=9092)
            for broker in range(1, self.brokers + 1)
        ]
        for topic in answer.topics:
            for told in topic.partitions:
                told.leader_id = self.leaders[told.partition_index]
                told.leader_epoch = self.leader_epoch

    def _refuse(self, letter: Letter) -> None:
        """It was sent to a broker that does not lead all of these partitions; none of it is written."""
        told = [
            PartitionProduceResponse(
                index=partition, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, base_offset=-1
            )
            for partition in letter.partitions
        ]
        topic_id = self.cluster.topics[TOPIC].topic_id
        responses = [TopicProduceResponse(name=TOPIC, topic_id=topic_id, partition_responses=told)]
        self.sender.answered(self.now, letter.ticket, ProduceResponse(responses=responses))

    def deliver(self, link: Link) -> bool:
        """The next request reaches the node."""
        if not link.letters:
            return False
        letter = link.letters.popleft()
        if self.brokers > 1 and any(
            self.address(self.leaders[partition]) != link.to for partition in letter.partitions
        ):
            if link not in self.ghosts:
                while self.hear(link):
                    pass  # answers come in the order of their requests
                self._refuse(letter)
            return True
        if letter.expects_answer:
            self.desk.asked[link.connection.id].append((letter.api_key, letter.version))
            link.awaiting.append(letter.ticket)
        self.desk.send_frame(link.connection, letter.frame)
        if not letter.expects_answer and link not in self.ghosts:
            self.sender.answered(self.now, letter.ticket, ProduceResponse())
        return True

    def hear(self, link: Link) -> bool:
        """The next answer reaches the machine."""
        answer = self.desk.receive(link.connection)
        if answer is None:
            return False
        if self.brokers > 1 and isinstance(answer, MetadataResponse):
            self._name_brokers(answer)
        self.sender.answered(self.now, link.awaiting.popleft(), answer)
        return True

    def cut(self, link: Link, *, leaves_ghost: bool = False) -> None:
        """The connection breaks; what was in it may still come, but nobody hears the answers."""
        self.links = {key: other for key, other in self.links.items() if other is not link}
        tickets = [*link.awaiting, *(letter.ticket for letter in link.letters)]
        link.awaiting.clear()
        # a ghost of InitProducerId would fence its own producer, as anybody with the same id would
        link.letters = deque(each for each in link.letters if each.api_key != InitProducerIdRequest.KEY)
        if leaves_ghost and link.letters:
            self.ghosts.append(link)
        for ticket in tickets:
            self.sender.answered(self.now, ticket, ConnectionLost("the connection was cut"))

    def crash(self) -> None:
        """The node dies and starts again on the same disk."""
        for link in list(self.links.values()):
            self.cut(link)
        self.ghosts.clear()
        self.boots += 1
        self.desk = Desk(
            FEW_SHARDS,
            disks=self.desk.disks,
            seed=self.boots,
            boot_id=f"boot-{self.boots}",
            clock=self.desk.clock,
        )

    def exchange(self) -> bool:
        """All that is under way arrives; whether anything was."""
        self.pump()
        moved = False
        for link in list(self.links.values()):
            while self.deliver(link):
                moved = True
            while self.hear(link):
                moved = True
        return moved

    def settle(self, *, within_s: float = 600.0) -> None:
        """The network is well: time passes until the machine wants nothing more."""
        end = self.now + within_s
        while self.now < end:
            while self.exchange():
                pass
            if self.sender.is_idle and not self._is_busy():
                return
            wake_at = self.sender.deadline()
            step = 0.05 if wake_at is NEVER else max(0.001, min(wake_at - self.now, 1.0))
            self.desk.advance(step)
        raise AssertionError("the machine did not come to rest")

    def _is_busy(self) -> bool:
        session = self.sender.transaction
        return session is not None and session.is_busy

    def run(self, pending: Pending[None]) -> None:
        """Until it is done; raises its error."""
        for _ in range(2000):
            while self.exchange():
                pass
            if pending.is_done:
                if pending.error is not None:
                    raise pending.error
                return
            self.desk.advance(0.05)
        raise AssertionError(f"timed out while {pending.what}")

    def mischief(self) -> None:
        """One random thing happens to the network, the node or the clock."""
        links = list(self.links.values())
        link = self.dice.choice(links) if links else None
        if self.brokers > 1 and self.dice.randrange(15) == 0:
            self.move_leader(self.dice.randrange(self.partitions), 1 + self.dice.randrange(self.brokers))
            if self.dice.randrange(2):
                self._refresh()
        roll = self.dice.randrange(100)
        if roll < 25:
            self.pump()
        elif roll < 50:
            if link is not None:
                self.deliver(link)
        elif roll < 75:
            if link is not None:
                self.hear(link)
        elif roll < 80:
            if link is not None:
                self.cut(link, leaves_ghost=self.has_ghosts and self.dice.randrange(2) == 0)
        elif roll < 85:
            if self.ghosts:
                ghost = self.dice.choice(self.ghosts)
                self.deliver(ghost)
                if not ghost.letters:
                    self.ghosts.remove(ghost)
        elif roll < 87:
            self.crash()
        else:
            self.desk.advance(self.dice.random() * 0.4)

    def _refresh(self) -> None:
        """The machine asks who leads, as when metadata.max.age.ms is over, and is told at once, while what
        it asked of the leaders themselves is still under way.
        """
        self.cluster.mark_stale(TOPIC)
        self.desk.advance(1.5)  # it may have asked just before
        self.pump()
        link = self._link(None)
        while self.deliver(link) or self.hear(link):
            pass
        self.pump()

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
        (told,) = self.desk.ask(request, 12).responses[0].partitions
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


def produced(stage: Stage) -> int:
    """How many produce requests were sent."""
    return sum(1 for api_key, _ in stage.asked if api_key == ProduceRequest.KEY)
