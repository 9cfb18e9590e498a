"""Consumer with assigned partitions: it fetches repeatedly, and decodes every answer for the judges."""

from typing import Any

from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.records.errors import BadRecords
from headrace.records.reader import batches, read_rows
from headrace.simulator.clients.simulated_client import Ask, Pause, Script, Story
from headrace.simulator.clients.topics import Topic
from headrace.simulator.history import Fetched, History, OffsetTold, PartitionKey
from headrace.simulator.host import Host

FETCH, LIST_OFFSETS = 1, 2
EARLIEST, LATEST = -2, -1
NAMED_VERSIONS = (4, 11, 12)
ID_VERSIONS = (13, 16, 17, 18)


class Consumer(Script):
    def __init__(self, host: Host, name: str, topics: list[Topic]) -> None:
        super().__init__(host, name)
        self._topics = topics
        self.positions: dict[PartitionKey, int] = {}

    def story(self) -> Story:
        while True:
            there = [topic for topic in self._topics if topic.is_there]
            partitions = [key for topic in there for key in topic.keys]
            if not partitions:
                yield Pause(0.1)
                continue
            rng = self.world.rng
            wanted = {key: self.positions.get(key, 0) for key in partitions}
            request = fetch(
                self.history,
                self.name,
                wanted,
                version=rng.choice(
                    ID_VERSIONS if any(topic.has_namesakes for topic in there) else NAMED_VERSIONS
                ),
                max_wait_ms=rng.choice((0, 100, 500, 2_000)),
                min_bytes=rng.choice((0, 1, 1, 500)),
                partition_bytes=rng.choice((1, 300, 5_000, 1_000_000)),
            )
            answer = yield request
            if answer is None:
                continue
            for key, data in partitions_of(answer, wanted):
                if data.error_code == ErrorCode.NONE:
                    self.positions[key] = max(self.positions.get(key, 0), end_of(data.records))
                elif data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    topic = next(one for one in there if one.topic_id == key.topic_id)
                    told = yield list_offset(self.history, key, EARLIEST, topic)
                    if told is not None:
                        self.positions[key] = max(told.topics[0].partitions[0].offset, 0)
                else:
                    yield Pause(0.05)
            yield Pause(self.world.between(0.0, 0.7))


def fetch(
    history: History,
    name: str,
    wanted: dict[PartitionKey, int],
    *,
    version: int,
    max_wait_ms: int,
    min_bytes: int,
    partition_bytes: int,
) -> Ask:
    topics: dict[bytes, FetchTopic] = {}
    for key, offset in wanted.items():
        topic = topics.setdefault(
            key.topic_id, FetchTopic(topic=key.topic, topic_id=key.topic_id, partitions=[])
        )
        topic.partitions.append(
            FetchPartition(partition=key.number, fetch_offset=offset, partition_max_bytes=partition_bytes)
        )
    body = FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=10_000_000, topics=list(topics.values())
    )

    def promised(answer: Any) -> None:
        for key, data in partitions_of(answer, wanted):
            if data.error_code == ErrorCode.NONE:
                history.add(_taken_apart(name, key, wanted[key], data))

    return Ask(FETCH, version, body, promised)


def list_offset(history: History, key: PartitionKey, timestamp: int, topic: Topic | None = None) -> Ask:
    """With a topic that may be replaced under its name, an answer counts only if it still was there."""
    partition = ListOffsetsPartition(partition_index=key.number, timestamp=timestamp)
    body = ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name=key.topic, partitions=[partition])]
    )

    def promised(answer: Any) -> None:
        told = answer.topics[0].partitions[0]
        if told.error_code == ErrorCode.NONE and (topic is None or topic.is_there):
            which = "earliest" if timestamp == EARLIEST else "latest"
            history.add(OffsetTold(key, which, told.offset))

    return Ask(LIST_OFFSETS, 7, body, promised)


def partitions_of(answer: Any, wanted: dict[PartitionKey, int]) -> list[tuple[PartitionKey, Any]]:
    by_name = {(key.topic, key.number): key for key in wanted}
    by_id = {(key.topic_id, key.number): key for key in wanted}
    found = []
    for topic in answer.responses:
        for data in topic.partitions:
            key = by_name.get((topic.topic, data.partition_index)) or by_id.get(
                (topic.topic_id, data.partition_index)
            )
            if key is not None:
                found.append((key, data))
    return found


def end_of(records: Any) -> int:
    """One past the last offset, 0 when there is none."""
    end = 0
    if records:
        for _, header in batches(records):
            end = header.next_offset
    return end


def _taken_apart(name: str, key: PartitionKey, offset: int, data: Any) -> Fetched:
    records: list[tuple[int, bytes]] = []
    spans: list[tuple[int, int]] = []
    position = 0
    view = data.records or b""
    damage = ""
    try:
        for at, header in batches(view):
            spans.append((header.base_offset, header.last_offset))
            records += [(row[0], row[3] or b"") for row in read_rows(view, at, header)]
            position = at + header.size
    except BadRecords as error:
        damage = str(error)
    return Fetched(
        name,
        key,
        offset,
        records,
        spans,
        len(view) - position,
        damage,
        data.high_watermark,
        data.log_start_offset,
    )
