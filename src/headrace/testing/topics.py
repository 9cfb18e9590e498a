"""What the helpers of a broker under test do with topics, as any client would: over its port.

Each call opens a connection of its own and closes it, so that no helper remembers a broker that was reset.
"""

import time
from collections.abc import Iterable, Mapping

from headrace.client.admin import Admin
from headrace.client.client import Client
from headrace.client.cluster import TopicPartition
from headrace.client.consumer import Consumer
from headrace.client.errors import KafkaError
from headrace.client.fetcher import READ_COMMITTED, READ_UNCOMMITTED
from headrace.client.groups import Groups
from headrace.client.offsets import EARLIEST, LATEST, list_offsets
from headrace.client.producer import Producer
from headrace.protocol.errors import ErrorCode
from headrace.testing.records import Record

ISOLATIONS = {"read_committed": READ_COMMITTED, "read_uncommitted": READ_UNCOMMITTED}
CLIENT_ID = "headrace-testing"

# A broker in a test answers soon or, because of the test's faults, never.
PATIENCE_S = 10.0


class GroupHasMembers(Exception):
    """Only a group without members can be read for from outside."""


class Topics:
    """Topics of the broker at an address."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def _client(self, timeout_s: float = PATIENCE_S) -> Client:
        return Client(self._bootstrap, client_id=CLIENT_ID, timeout_s=timeout_s)

    def create(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        with self._client() as client:
            Admin(client).create_topic(name, partitions=partitions, configs=configs)

    def delete(self, name: str) -> None:
        with self._client() as client:
            Admin(client).delete_topic(name)

    def names(self) -> list[str]:
        """All but the broker's own."""
        with self._client() as client:
            return [topic.name for topic in Admin(client).topics() if not topic.name.startswith("__")]

    def partitions(self, name: str) -> int:
        """How many it has; 0 while there is no such topic."""
        with self._client() as client:
            try:
                return len(client.topic(name).partitions)
            except KafkaError as error:
                if error.is_unknown_topic:
                    return 0
                raise

    def write(self, topic: str, records: Iterable[Record], timeout_s: float = PATIENCE_S) -> int:
        """All of them, each acknowledged in that time; how many they were."""
        count = 0
        with self._client(timeout_s) as client, Producer(client, delivery_s=timeout_s) as producer:
            for record in records:
                producer.send(
                    topic,
                    record.value,
                    key=record.key,
                    headers=record.headers,
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                count += 1
        return count

    def read(self, topic: str, isolation: str, timeout_s: float = PATIENCE_S) -> list[Record]:
        """All that is there now, by partition and offset."""
        with self._client(timeout_s) as client:
            ends = self._ends(client, topic, LATEST, isolation)
            starts = self._ends(client, topic, EARLIEST, isolation)
            return _between(client, starts, ends, isolation, timeout_s)

    def read_as(self, group: str, topic: str, isolation: str, timeout_s: float) -> list[Record]:
        """What the group has not read yet; committed as read."""
        with self._client(timeout_s) as client:
            groups = Groups(client)
            ends = self._ends(client, topic, LATEST, isolation)
            committed = {at: known.offset for at, known in groups.committed(group).items()}
            starts = {
                at: max(start, committed.get(at, start))
                for at, start in self._ends(client, topic, EARLIEST, isolation).items()
            }
            found = _between(client, starts, ends, isolation, timeout_s)
            try:
                groups.commit(group, ends)
            except KafkaError as error:
                if error.code != ErrorCode.UNKNOWN_MEMBER_ID:
                    raise
                raise GroupHasMembers(f"group {group!r} has members that read for it: let them") from None
            return found

    def read_by(self, group: str, topic: str, isolation: str, timeout_s: float = PATIENCE_S) -> list[Record]:
        """What the group has committed as read."""
        with self._client(timeout_s) as client:
            committed = Groups(client).committed(group)
            starts = self._ends(client, topic, EARLIEST, isolation)
            ends = {at: committed[at].offset if at in committed else start for at, start in starts.items()}
            return _between(client, starts, ends, isolation, timeout_s)

    def _ends(self, client: Client, topic: str, which: int, isolation: str) -> dict[TopicPartition, int]:
        partitions = [TopicPartition(topic, one.index) for one in client.topic(topic).partitions]
        asked = dict.fromkeys(partitions, which)
        found = list_offsets(client, asked, isolation=_isolation(isolation))
        return {at: offset for at, (offset, _) in found.items()}


def _isolation(name: str) -> int:
    if name not in ISOLATIONS:
        raise ValueError(f"isolation is one of {', '.join(ISOLATIONS)}, not {name!r}")
    return ISOLATIONS[name]


def _between(
    client: Client,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    isolation: str,
    timeout_s: float,
) -> list[Record]:
    wanted = {at: start for at, start in starts.items() if start < ends[at]}
    found: list[Record] = []
    consumer = Consumer(client, isolation=_isolation(isolation))
    consumer.assign(wanted)
    deadline = time.monotonic() + timeout_s
    while any(consumer.position(at) < ends[at] for at in wanted):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(f"the broker did not hand out all records in {timeout_s:g} s")
        found += [
            Record(one.value, one.key, one.headers, one.partition, one.timestamp_ms, one.topic, one.offset)
            for one in consumer.poll(min(left_s, 0.5))
            if one.offset < ends[TopicPartition(one.topic, one.partition)]
        ]
    found.sort(key=lambda record: (record.partition, record.offset))
    return found
