"""A consumer's session whose brokers the test plays; topic metadata is answered by `ScriptedCluster`."""

from __future__ import annotations

from random import Random
from typing import Any, TypeVar

from harness.batches import ABORT, COMMIT, TRANSACTIONAL, Batch, Row, marker
from headrace.base.time import Instant
from headrace.client.cluster import TopicPartition
from headrace.client.consumer.session import ConsumerSession
from headrace.client.session import Outgoing
from headrace.client.settings.consumer import ConsumerSettings, parse_reset
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
from headrace.simulator.scripted_cluster import ScriptedCluster

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


class ScriptedConsumer:
    def __init__(self, reset: str = "earliest", **settings: Any) -> None:
        self.session = ConsumerSession(
            ConsumerSettings(reset=parse_reset(reset), **settings), Random(1), wall_ms=lambda: WALL_MS
        )
        self.cluster = ScriptedCluster(self.session, {A0: 1, A1: 1, B0: 2}, after_turn=self.session.check)
        self.cluster.topic_ids = {"a": b"a" * 16, "b": b"b" * 16}
        self.events: list[Any] = []

    @property
    def now(self) -> Instant:
        return self.cluster.now

    @property
    def described(self) -> int:
        """How often topics were asked for."""
        return len(self.cluster.lookups)

    # Requests and answers

    def turn(self) -> None:
        self.cluster.turn()

    def next(self, kind: type[R]) -> tuple[R, Outgoing]:
        """The next request of this kind, as late as it may come."""
        return self.cluster.next(kind)

    def asks(self, kind: type[Any]) -> bool:
        """Whether such a request is open now."""
        self.turn()
        return any(isinstance(outgoing.question, kind) for outgoing in self.cluster.open)

    def answer(self, outgoing: Outgoing, answer: Any) -> None:
        self.cluster.answer(outgoing.ticket, answer)
        self.turn()

    def advance(self, seconds: float) -> None:
        self.cluster.advance(seconds)
        self.turn()

    # What tests do all the time

    def fetch(self) -> tuple[FetchRequest, Outgoing]:
        return self.next(FetchRequest)

    def bring(self, outgoing: Outgoing, *found: PartitionData, topic: str = "a", session: int = 7) -> None:
        """Answers a fetch."""
        told = (
            [FetchableTopicResponse(topic_id=self.cluster.topic_ids[topic], partitions=list(found))]
            if found
            else []
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
