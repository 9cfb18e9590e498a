"""Brokers that replicate to each other, with metadata that the test writes.

Each is a node of its own with its own metadata log. The test tells all of them the same: which topics there
are, who leads, who is in sync. Fetches between them arrive when the test says so, in the order of each
connection; links can be cut. Questions to the controller are decided by the controller's own machine on the
metadata of the first broker, and what follows is told to all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from harness.two_brokers import change_metadata
from headrace.base.ids import TopicId
from headrace.base.time import NEVER, ManualClock, Now
from headrace.machines.metadata.controller.alter_partition import IsrChange, IsrMember, alter_partitions
from headrace.machines.metadata.controller.topic_rules import TopicRules
from headrace.machines.metadata.image import ClusterImage, PartitionState
from headrace.node.connection import Connection
from headrace.node.effects import Hangup, Send
from headrace.node.partition import Partition
from headrace.node.peers import Unanswered
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionResult,
    TopicResult,
)
from headrace.protocol.metadata_records import (
    BrokerEndpoint,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from headrace.protocol.notation import Data
from headrace.records.reader import batches, read_rows
from headrace.simulator.manual_host import ManualHost
from headrace.storage.disk import Disk
from headrace.storage.memory_disk import MemoryDisk

NO_DIRECTORY = bytes(16)
TOPIC_ID = b"the topic's  id!"
PATIENT = {
    "broker.session.timeout.ms": "3600000",
    "broker.heartbeat.interval.ms": "1800000",
    "replica.lag.time.max.ms": "1000",
}


class Channel:
    """The way to the controller, in which questions wait for the test."""

    def __init__(self) -> None:
        self.questions: deque[tuple[AlterPartitionRequest, Any]] = deque()

    def send(self, now: Now, body: Any, then: Any) -> None:
        self.questions.append((body, then))


class Link:
    """A connection from one broker to another."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.tickets: deque[int] = deque()


class ReplicaBrokers:
    def __init__(
        self,
        count: int = 3,
        settings: dict[str, str] | None = None,
        disks: dict[int, Disk] | None = None,
        spare_disks: dict[int, Disk] | None = None,
    ) -> None:
        """`disks` are those of some brokers; metadata lie on others. A broker with a spare disk has a second
        log directory there.
        """
        self.clock = ManualClock()
        self.ids = tuple(range(1, count + 1))
        self._settings = PATIENT | (settings or {})
        self.hosts: dict[int, ManualHost] = {}
        self.channels: dict[int, Channel] = {}
        self.cut: set[tuple[int, int]] = set()  # from, to
        self._links: dict[tuple[int, int, str], Link] = {}
        self._delivered: dict[int, deque[Send]] = {id: deque() for id in self.ids}
        self.records: list[Data] = []  # the common metadata
        self.disks: dict[int, Disk] = {id: MemoryDisk() for id in self.ids} | (disks or {})
        self._spare_disks = spare_disks or {}
        self._metadata_disks = {id: MemoryDisk() for id in self.ids}
        for id in self.ids:
            self._start(id)
        self._register(*self.ids)

    def _start(self, id: int, boot: str = "boot-1") -> None:
        settings = self._settings | {
            "node.id": str(id),
            "listeners": f"PLAINTEXT://127.0.0.1:{9090 + id}",
            "log.dirs": "data",
            "metadata.log.dir": "meta",
        }
        disks: dict[str, Disk] = {"data": self.disks[id], "meta": self._metadata_disks[id]}
        if id in self._spare_disks:
            disks["spare"] = self._spare_disks[id]
            settings["log.dirs"] = "data,spare"
        host = ManualHost(settings, disks=disks, clock=self.clock, boot_id=boot, seed=id)
        channel = self.channels[id] = Channel()
        host.node.broker.replication._isr_changes._channel = channel
        self.hosts[id] = host

    def image(self, id: int) -> ClusterImage:
        return self.hosts[id].node.controller.metadata.image

    def epoch_of(self, id: int) -> int:
        return self.image(id).brokers[id].epoch

    def _register(self, *brokers: int) -> None:
        for id, host in self.hosts.items():
            for other in brokers:
                if other == id or other not in self.hosts:
                    continue
                endpoint = BrokerEndpoint(
                    name="PLAINTEXT", host="127.0.0.1", port=9090 + other, security_protocol=0
                )
                record = RegisterBrokerRecord(
                    broker_id=other,
                    broker_epoch=self.epoch_of(other),
                    end_points=[endpoint],
                    fenced=False,
                )
                change_metadata(host, record)

    # --- metadata ----------------------------------------------------------------------------------------

    def tell(self, *records: Data, to: Sequence[int] | None = None) -> None:
        for id in self.ids if to is None else to:
            if id in self.hosts:
                change_metadata(self.hosts[id], *records)

    def create_topic(
        self,
        name: str = "t",
        partitions: int = 1,
        leader: int = 1,
        topic_id: bytes = TOPIC_ID,
        **configs: str,
    ) -> None:
        replicas = [leader, *(id for id in self.ids if id != leader)]
        self.tell(
            TopicRecord(name=name, topic_id=topic_id),
            *(
                ConfigRecord(resource_type=2, resource_name=name, name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ),
            *(
                PartitionRecord(
                    partition_id=index,
                    topic_id=topic_id,
                    replicas=replicas,
                    isr=replicas,
                    leader=leader,
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[NO_DIRECTORY] * len(replicas),
                )
                for index in range(partitions)
            ),
        )

    def lead(
        self, leader: int, isr: Sequence[int], index: int = 0, *, to: Sequence[int] | None = None
    ) -> None:
        """Another leader epoch begins."""
        change = PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=index, leader=leader, isr=list(isr))
        self.tell(change, to=to)

    def state(self, index: int = 0) -> PartitionState:
        return self.image(min(self.hosts)).topics["t"].partitions[index]

    def control(self) -> list[ErrorCode]:
        """The controller answers all questions that have arrived."""
        codes: list[ErrorCode] = []
        for id, channel in self.channels.items():
            while channel.questions:
                body, then = channel.questions.popleft()
                response = self._decide(id, body, codes)
                then(self.clock.now(), response)
                self.hosts[id].node.wake(self.clock.now())
                self.hosts[id].settle()
        return codes

    def _decide(self, id: int, body: AlterPartitionRequest, codes: list[ErrorCode]) -> AlterPartitionResponse:
        image = self.image(id)
        changes = [
            IsrChange(
                TopicId(topic.topic_id),
                data.partition_index,
                data.leader_epoch,
                data.partition_epoch,
                [IsrMember(one.broker_id, one.broker_epoch) for one in data.new_isr_with_epochs],
            )
            for topic in body.topics
            for data in topic.partitions
        ]
        rules = TopicRules(2, allows_unclean=False, tracks_eligible=True)
        decision = alter_partitions(image, id, body.broker_epoch, changes, lambda name: rules)
        topics = []
        for altered in decision.reply:
            codes.append(altered.error)
            result = PartitionResult(partition_index=altered.index, error_code=altered.error)
            if altered.partition is not None:
                result.leader_id = altered.partition.leader
                result.leader_epoch = altered.partition.leader_epoch
                result.isr = list(altered.partition.isr)
                result.partition_epoch = altered.partition.partition_epoch
            topics.append(TopicResult(topic_id=altered.topic_id, partitions=[result]))
        if decision.records:
            self.tell(*decision.records)
        return AlterPartitionResponse(topics=topics)

    # --- requests between brokers ------------------------------------------------------------------------

    def exchange(self) -> int:
        """Everything that was sent arrives, and so do answers, until nothing moves; how many requests."""
        count = 0
        while moved := self.move():
            count += moved
            assert count < 10_000, "they never come to rest"
        return count

    def move(self) -> int:
        """What is on its way arrives."""
        moved = 0
        for id, host in list(self.hosts.items()):
            self._hang_up(id, host)
            while host.sent:
                self._deliver(id, host.sent.popleft())
                moved += 1
        for (sender, receiver, _), link in list(self._links.items()):
            if receiver not in self.hosts or sender not in self.hosts:
                continue
            answers = self.hosts[receiver].answers.get(link.connection.id, ())
            while answers and (receiver, sender) not in self.cut:
                frame = memoryview(answers.popleft())[4:]
                link.tickets.popleft()
                self._answer(sender, int.from_bytes(frame[:4]), frame)
                moved += 1
        return moved

    def _deliver(self, sender: int, sent: Send) -> None:
        receiver = sent.peer.id
        if receiver not in self.hosts or (sender, receiver) in self.cut:
            self._answer(sender, sent.ticket, Unanswered.REFUSED)
            return
        link = self._links.get((sender, receiver, sent.lane))
        if link is None:
            link = self._links[(sender, receiver, sent.lane)] = Link(self.hosts[receiver].connect())
        link.tickets.append(sent.ticket)
        self.hosts[receiver].send_frame(link.connection, sent.frame[4:])

    def _answer(self, id: int, ticket: int, answer: Any) -> None:
        host = self.hosts[id]
        if isinstance(answer, Unanswered):
            host.node.answered(self.clock.now(), ticket, answer)
        else:
            buffer = bytearray(answer)
            if not host.node.answered(self.clock.now(), ticket, memoryview(buffer)):
                buffer[:] = b"\xff" * len(buffer)  # it is used for the next answer
        host.settle()

    def _hang_up(self, id: int, host: ManualHost) -> None:
        for effect in [one for one in host.effects if isinstance(one, Hangup)]:
            host.effects.remove(effect)
            self._break(id, effect.peer_id, effect.lane)

    def _break(self, sender: int, receiver: int, lane: str) -> None:
        link = self._links.pop((sender, receiver, lane), None)
        if link is None:
            return
        if receiver in self.hosts:
            self.hosts[receiver].node.disconnected(self.clock.now(), link.connection)
        if sender in self.hosts:
            for ticket in link.tickets:
                self._answer(sender, ticket, Unanswered.LOST)

    def separate(self, one: int, other: int) -> None:
        """No connection between them, and none can be made."""
        self.cut |= {(one, other), (other, one)}
        for key in [key for key in self._links if set(key[:2]) == {one, other}]:
            self._break(*key)

    def heal(self) -> None:
        self.cut.clear()

    def advance(self, seconds: float) -> None:
        """Time passes for all of them, with what they send."""
        end = self.clock.mono + seconds
        while True:
            self.exchange()
            deadlines = [host.node.deadline() for host in self.hosts.values()]
            at = min((moment for moment in deadlines if moment is not None), default=NEVER)
            if at > end:
                break
            self.clock.advance(max(0.0, at - self.clock.mono))
            for host in list(self.hosts.values()):
                host.node.wake(self.clock.now())
                host.settle()
        self.clock.advance(max(0.0, end - self.clock.mono))

    def kill(self, id: int) -> None:
        for key in [key for key in self._links if id in key[:2]]:
            self._break(*key)
        del self.hosts[id]
        del self.channels[id]

    def restart(self, id: int, boot: str = "boot-1") -> None:
        self._start(id, boot)
        for other in self.hosts:
            if other != id:
                self._register_at(id, other)
        self._register(id)

    def _register_at(self, id: int, other: int) -> None:
        endpoint = BrokerEndpoint(name="PLAINTEXT", host="127.0.0.1", port=9090 + other, security_protocol=0)
        record = RegisterBrokerRecord(
            broker_id=other, broker_epoch=self.epoch_of(other), end_points=[endpoint], fenced=False
        )
        change_metadata(self.hosts[id], record)

    # --- what tests look at ------------------------------------------------------------------------------

    def partition(self, id: int, index: int = 0, topic: str = "t") -> Partition:
        found = self.hosts[id].node.broker.partitions.at(topic, index)
        assert found is not None
        return found

    def values(self, id: int, index: int = 0, topic: str = "t") -> list[bytes]:
        """The values of all records in a broker's log."""
        log = self.partition(id, index, topic).opened(self.clock.now())
        found: list[bytes] = []
        for segment in log.segments.items:
            if segment.is_new:
                continue
            data = bytes(segment.file().read(0, segment.measure()))
            for position, header in batches(data):
                found += [row[3] or b"" for row in read_rows(data, position, header)]
        return found

    def content(self, id: int, index: int = 0, topic: str = "t") -> bytes:
        log = self.partition(id, index, topic).opened(self.clock.now())
        return b"".join(
            bytes(segment.file().read(0, segment.measure()))
            for segment in log.segments.items
            if not segment.is_new
        )

    def produce(
        self, id: int, *values: bytes, acks: int = -1, index: int = 0, timeout_ms: int = 10_000
    ) -> tuple[ManualHost, Connection]:
        """Sends a batch, and returns where its answer arrives."""
        from harness.node_records import batch

        host = self.hosts[id]
        connection = host.connect()
        request = host.produce_request("t", batch(*values), acks=acks, partition=index, timeout_ms=timeout_ms)
        host.send(connection, request, 9)
        return host, connection
