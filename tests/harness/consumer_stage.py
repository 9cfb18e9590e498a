"""A consumer's machine on a stage: the test is the brokers, and answers what it wants to.

Topics are described by themselves, as `leaders`, `epochs` and `topic_ids` have them at that moment.
"""

from __future__ import annotations

from random import Random
from typing import Any, TypeVar

from harness.batches import ABORT, COMMIT, TRANSACTIONAL, Batch, Row, marker
from headrace.base.time import NEVER, Instant
from headrace.client.cluster import TopicPartition
from headrace.client.consumer.session import ConsumerSession
from headrace.client.network.connection import ByVersion
from headrace.client.request_queue import Outgoing
from headrace.client.settings.consumer import ConsumerSettings, parse_reset
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
B0 = TopicPartition("b", 0)
WALL_MS = 1_700_000_000_000
R = TypeVar("R")


def rows(first: int, count: int, epoch: int = 0, *, value: bytes = b"v") -> bytes:
    """A batch of `count` records, the first at offset `first`."""
    batch = Batch([Row(1000 + first + step, None, b"%s%d" % (value, first + step)) for step in range(count)])
    return batch.stored(first, epoch)


def of_transaction(first: int, count: int, producer_id: int) -> bytes:
    batch = Batch(
        [Row(1000, None, b"t%d" % (first + step)) for step in range(count)],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        attributes=TRANSACTIONAL,
    )
    return batch.stored(first, 0)


def end_of_transaction(at: int, producer_id: int, *, commits: bool) -> bytes:
    return marker(producer_id, 0, 1000, COMMIT if commits else ABORT).stored(at, 0)


def data(
    partition: int, records: bytes = b"", *, end: int = 100, error: int = 0, **more: Any
) -> PartitionData:
    values = {"high_watermark": end, "last_stable_offset": end, "log_start_offset": 0, **more}
    return PartitionData(partition_index=partition, error_code=error, records=records, **values)


class Stage:
    def __init__(self, reset: str = "earliest", **settings: Any) -> None:
        self.now = Instant(0.0)
        self.leaders: dict[TopicPartition, int] = {A0: 1, A1: 1, B0: 2}
        self.epochs: dict[TopicPartition, int] = {}
        self.topic_ids = {"a": b"a" * 16, "b": b"b" * 16}
        self.topic_errors: dict[str, int] = {}
        self.described = 0  # how often topics were asked for
        self.describes = True  # else the question stays open
        self.session = ConsumerSession(
            ConsumerSettings(reset=parse_reset(reset), **settings), Random(1), wall_ms=lambda: WALL_MS
        )
        self.events: list[Any] = []
        self._open: list[Outgoing] = []

    # Requests and answers

    def turn(self) -> None:
        for outgoing in self.session.requests(self.now):
            if isinstance(outgoing.question, MetadataRequest) and self.describes:
                self.described += 1
                self.session.answered(self.now, outgoing.ticket, self._description(outgoing.question))
                self.turn()
            else:
                self._open.append(outgoing)
        self.session.check()

    def next(self, kind: type[R]) -> tuple[R, Outgoing]:
        """The next request of this kind, as late as it may come."""
        for _ in range(50):
            self.turn()
            for outgoing in self._open:
                question = outgoing.question
                made = question.make(99) if isinstance(question, ByVersion) else question
                if isinstance(made, kind):
                    self._open.remove(outgoing)
                    return made, outgoing
            assert self.session.deadline() < NEVER, f"nothing more comes by itself, open is {self._open}"
            self.now = max(self.now, self.session.deadline())
        raise AssertionError(f"no {kind.__name__} comes, only {self._open}")

    def asks(self, kind: type[Any]) -> bool:
        """Whether such a request is open now."""
        self.turn()
        return any(isinstance(outgoing.question, kind) for outgoing in self._open)

    def answer(self, outgoing: Outgoing, answer: Any) -> None:
        self.session.answered(self.now, outgoing.ticket, answer)
        self.turn()

    def advance(self, seconds: float) -> None:
        self.now = Instant(self.now + seconds)
        self.turn()

    def _description(self, question: MetadataRequest) -> MetadataResponse:
        brokers = [
            MetadataResponseBroker(node_id=broker, host=f"broker{broker}", port=9092)
            for broker in sorted(set(self.leaders.values()) - {-1})
        ]
        assert question.topics is not None
        topics = [self._topic(asked.name or "") for asked in question.topics]
        return MetadataResponse(brokers=brokers, topics=topics)

    def _topic(self, name: str) -> MetadataResponseTopic:
        partitions = [
            MetadataResponsePartition(
                partition_index=at.partition, leader_id=leader, leader_epoch=self.epochs.get(at, 0)
            )
            for at, leader in sorted(self.leaders.items())
            if at.topic == name
        ]
        error = self.topic_errors.get(name, 0 if partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if error:
            return MetadataResponseTopic(name=name, error_code=error)
        return MetadataResponseTopic(name=name, topic_id=self.topic_ids[name], partitions=partitions)

    # What tests do all the time

    def fetch(self) -> tuple[FetchRequest, Outgoing]:
        return self.next(FetchRequest)

    def bring(self, outgoing: Outgoing, *found: PartitionData, topic: str = "a", session: int = 7) -> None:
        """Answers a fetch."""
        told = (
            [FetchableTopicResponse(topic_id=self.topic_ids[topic], partitions=list(found))] if found else []
        )
        self.answer(outgoing, FetchResponse(session_id=session, responses=told))

    def listed(self, found: dict[TopicPartition, int], error: int = 0) -> ListOffsetsRequest:
        """Answers the next ListOffsets."""
        request, outgoing = self.next(ListOffsetsRequest)
        topics = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=asked.partition_index,
                        error_code=error,
                        offset=found.get(TopicPartition(topic.name, asked.partition_index), -1),
                        timestamp=asked.timestamp,
                        leader_epoch=-1,
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        self.answer(outgoing, ListOffsetsResponse(topics=topics))
        return request

    def reading(self, *partitions: TopicPartition, offset: int = 0) -> None:
        """Partitions that are read from an offset on."""
        self.session.assign(self.now, dict.fromkeys(partitions, offset))

    def take(self, count: int = 1000) -> list[tuple[int, int]]:
        """Partition and offset of each record that is handed out."""
        self.events += self.session.take_events()
        found = self.session.take_records(self.now, count)
        self.session.check()
        return [(message.partition, message.offset) for message in found]

    def told(self) -> list[Any]:
        self.events += self.session.take_events()
        events, self.events = self.events, []
        return events


def asked(request: FetchRequest) -> dict[tuple[bytes, int], int]:
    """Offsets by topic id and partition."""
    return {
        (topic.topic_id, each.partition): each.fetch_offset
        for topic in request.topics
        for each in topic.partitions
    }


def forgotten(request: FetchRequest) -> list[tuple[bytes, int]]:
    return [(topic.topic_id, each) for topic in request.forgotten_topics_data for each in topic.partitions]


def offsets(first: int, count: int, partition: int = 0) -> list[tuple[int, int]]:
    return [(partition, offset) for offset in range(first, first + count)]
