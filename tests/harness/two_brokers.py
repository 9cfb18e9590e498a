"""Two nodes that take each other for brokers of one cluster, with leaders that the test moves by hand.

Each has metadata of its own: the test tells both of them who leads what, and nothing is replicated. A leader
is alone in its in-sync set, so that what it appends is committed at once, unless the test says otherwise.
What they send to each other arrives in `exchange`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.machines.metadata.controller.decision import MetadataDecision
from headrace.node.connection import Connection
from headrace.node.effects import Send
from headrace.node.peers import Unanswered
from headrace.protocol.api import request_codec
from headrace.protocol.framing import decode_request_header
from headrace.protocol.metadata_records import BrokerEndpoint, PartitionChangeRecord, RegisterBrokerRecord
from headrace.protocol.notation import Data, Request
from headrace.simulator.manual_host import ManualHost

PORTS = {1: 9092, 2: 9093}
NO_DIRECTORY = bytes(16)


def change_metadata(host: ManualHost, *records: Data) -> None:
    host.node.controller.metadata.propose(host.clock.now(), MetadataDecision(None, list(records)))
    host.settle()


def lead(host: ManualHost, topic: str, index: int, leader: int, isr: tuple[int, ...] = ()) -> None:
    """Another leader epoch of the partition begins."""
    change_metadata(
        host,
        PartitionChangeRecord(
            topic_id=host.node.controller.metadata.image.topics[topic].id,
            partition_id=index,
            leader=leader,
            isr=list(isr or (leader,)),
            replicas=[1, 2],
            directories=[NO_DIRECTORY, NO_DIRECTORY],
        ),
    )


def register(host: ManualHost, broker: int) -> None:
    endpoint = BrokerEndpoint(
        name="PLAINTEXT", host="127.0.0.1", port=PORTS.get(broker, 9091), security_protocol=0
    )
    change_metadata(
        host,
        RegisterBrokerRecord(
            broker_id=broker,
            broker_epoch=host.node.controller.metadata.end_offset,
            end_points=[endpoint],
            fenced=False,
        ),
    )


class TwoBrokers:
    def __init__(self, settings: dict[str, str]) -> None:
        self.hosts = {
            number: ManualHost(
                settings | {"node.id": str(number), "listeners": f"PLAINTEXT://127.0.0.1:{port}"}
            )
            for number, port in PORTS.items()
        }
        self.first, self.second = self.hosts.values()
        self._connections: dict[tuple[int, str], Connection] = {}  # by sender and lane

    def create_topic(self, name: str, partitions: int = 1, /, **configs: str) -> None:
        """While each is alone."""
        for host in self.hosts.values():
            host.create_topic(name, partitions, **configs)

    def meet(self) -> None:
        """They hear of each other."""
        for number, host in self.hosts.items():
            register(host, 3 - number)

    def lead(self, topic: str, leader: int) -> None:
        """That broker leads all partitions of the topic."""
        for host in self.hosts.values():
            for index in range(len(host.node.controller.metadata.image.topics[topic].partitions)):
                lead(host, topic, index, leader)

    # --- requests between them ------------------------------------------------------------------------

    def under_way(self) -> Iterator[tuple[int, Send]]:
        """What was sent and has not arrived, and by whom."""
        for number, host in self.hosts.items():
            while host.sent:
                sent = host.sent.popleft()
                if sent.lane != "replica":  # nothing is replicated
                    yield number, sent

    def deliver(self, sender: int, sent: Send) -> None:
        """The request arrives; its answer is awaited."""
        receiver = self.hosts[sent.peer.id]
        connection = self._connections.setdefault((sender, sent.lane), receiver.connect())
        receiver.send_frame(connection, sent.frame[4:])

    def exchange(self) -> list[Request]:
        """Everything arrives, and so do the answers that there are; what was asked."""
        asked: list[Request] = []
        has_moved = True
        while has_moved:
            has_moved = False
            for sender, sent in self.under_way():
                has_moved = True
                asked.append(question_in(sent))
                self.deliver(sender, sent)
            for (sender, _), connection in self._connections.items():
                answers = self.hosts[3 - sender].answers[connection.id]
                while answers:
                    has_moved = True
                    frame = memoryview(answers.popleft())[4:]
                    self.answer(sender, int.from_bytes(frame[:4]), frame)
        return asked

    def answer(self, sender: int, ticket: int, answer: Any) -> None:
        host = self.hosts[sender]
        host.node.answered(host.clock.now(), ticket, answer)
        host.settle()

    def lose(self, why: Unanswered = Unanswered.LOST) -> list[Request]:
        """Nothing that was sent arrives."""
        asked = []
        for sender, sent in list(self.under_way()):
            asked.append(question_in(sent))
            self.answer(sender, sent.ticket, why)
        return asked

    def advance(self, seconds: float) -> None:
        for host in self.hosts.values():
            host.advance(seconds)


def question_in(sent: Send) -> Request:
    frame = memoryview(sent.frame)[4:]
    key, version, _, _, position = decode_request_header(frame)
    request: Request = request_codec(key, version).decode(frame, position)
    return request
