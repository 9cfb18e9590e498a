"""Topic helpers of a broker under test: create, write and read, as clients of its port.

Each call opens and closes its own connection, so that no state of a broker before a reset remains.
"""

import time
from collections.abc import Iterable, Mapping

from headrace.client.admin.offsets import OffsetAt
from headrace.client.cluster import TopicPartition
from headrace.client.errors import KafkaError
from headrace.client.threads.admin import Admin
from headrace.client.threads.consumer import Consumer
from headrace.client.threads.producer import Producer
from headrace.protocol.errors import ErrorCode
from headrace.records._messages import Message
from headrace.testing.expectations import Expectation, Found
from headrace.testing.records import Given, Record

ISOLATIONS = ("read_committed", "read_uncommitted")
CLIENT_ID = "headrace-testing"

# A broker in a test answers soon or, because of the test's faults, never.
PATIENCE_S = 10.0
POLL_S = 0.05


class GroupHasMembers(Exception):
    """The helper cannot commit offsets for a group that has members."""


class Topics:
    """Topics of the broker at an address."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def _admin(self, timeout_s: float = PATIENCE_S) -> Admin:
        return Admin(self._bootstrap, client_id=CLIENT_ID, default_api_timeout_ms=round(timeout_s * 1000))

    def create(
        self, name: str, partitions: int, configs: Mapping[str, str], replication_factor: int = -1
    ) -> None:
        with self._admin() as admin:
            admin.create_topic(
                name, partitions=partitions, replication_factor=replication_factor, configs=configs
            )

    def delete(self, name: str) -> None:
        with self._admin() as admin:
            admin.delete_topic(name)

    def names(self) -> list[str]:
        """All topics but internal ones."""
        with self._admin() as admin:
            return [topic.name for topic in admin.list_topics() if not topic.name.startswith("__")]

    def partitions(self, name: str) -> int:
        """The number of partitions; 0 if the topic does not exist."""
        with self._admin() as admin:
            try:
                return len(admin.describe_topic(name).partitions)
            except KafkaError as error:
                if error.is_unknown_topic:
                    return 0
                raise

    def write(self, topic: str, records: Iterable[Record], timeout_s: float = PATIENCE_S) -> int:
        """Writes the records; each must be acknowledged within the timeout. Returns their number."""
        timeout_ms = round(timeout_s * 1000)
        producer = Producer(
            self._bootstrap,
            client_id=CLIENT_ID,
            delivery_timeout_ms=timeout_ms,
            request_timeout_ms=timeout_ms,
            max_block_ms=timeout_ms,
            linger_ms=0,
        )
        with producer:
            deliveries = [
                producer.send(
                    topic,
                    record.value,
                    record.key,
                    headers=record.headers,
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            producer.flush()
        for delivery in deliveries:
            delivery.result()
        return len(deliveries)

    def read(self, topic: str, isolation: str, timeout_s: float = PATIENCE_S) -> list[Record]:
        """All records of the topic, by partition and offset."""
        with self._admin(timeout_s) as admin:
            ends = self._ends(admin, topic, OffsetAt.LATEST, isolation)
            starts = self._ends(admin, topic, OffsetAt.EARLIEST, isolation)
            return self._between(starts, ends, isolation, timeout_s)

    def read_as(self, group: str, topic: str, isolation: str, timeout_s: float) -> list[Record]:
        """The records after the group's committed offsets; commits their ends."""
        with self._admin(timeout_s) as admin:
            ends = self._ends(admin, topic, OffsetAt.LATEST, isolation)
            committed = {at: known.offset for at, known in admin.list_group_offsets(group).items()}
            starts = {
                at: max(start, committed.get(at, start))
                for at, start in self._ends(admin, topic, OffsetAt.EARLIEST, isolation).items()
            }
            found = self._between(starts, ends, isolation, timeout_s)
            try:
                admin.alter_group_offsets(group, ends)
            except KafkaError as error:
                if error.code != ErrorCode.UNKNOWN_MEMBER_ID:
                    raise
                raise GroupHasMembers(
                    f"group {group!r} has members, so its offsets cannot be committed from outside: stop "
                    "them, or use another group"
                ) from None
            return found

    def read_by(self, group: str, topic: str, isolation: str, timeout_s: float = PATIENCE_S) -> list[Record]:
        """The records before the group's committed offsets."""
        with self._admin(timeout_s) as admin:
            committed = admin.list_group_offsets(group)
            starts = self._ends(admin, topic, OffsetAt.EARLIEST, isolation)
            ends = {at: committed[at].offset if at in committed else start for at, start in starts.items()}
            return self._between(starts, ends, isolation, timeout_s)

    def _ends(self, admin: Admin, topic: str, which: OffsetAt, isolation: str) -> dict[TopicPartition, int]:
        _check_isolation(isolation)  # a wrong one is told as such, before anybody is asked
        partitions = admin.describe_topic(topic).all_partitions()
        found = admin.list_offsets(dict.fromkeys(partitions, which), isolation_level=isolation)
        return {at: told.offset or 0 for at, told in found.items()}

    def _between(
        self,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        isolation: str,
        timeout_s: float,
    ) -> list[Record]:
        wanted = {at: start for at, start in starts.items() if start < ends[at]}
        found: list[Record] = []
        deadline = time.monotonic() + timeout_s
        consumer = Consumer(
            self._bootstrap, client_id=CLIENT_ID, auto_offset_reset="none", isolation_level=isolation
        )
        with consumer:
            consumer.assign(wanted)
            while any(consumer.position(at) < ends[at] for at in wanted):
                if time.monotonic() >= deadline:
                    raise TimeoutError(f"not all records could be read within {timeout_s:g} s")
                # soon back: the last offsets may be those of markers, which are not records
                for each in consumer.poll(POLL_S):
                    if each.offset < ends[TopicPartition(each.topic, each.partition)]:
                        found.append(_as_record(each))
        found.sort(key=lambda record: (record.partition, record.offset))
        return found


def await_consumed(
    topics: Topics,
    topic: str,
    expected: list[Given],
    group: str | None,
    in_order: bool | None,
    timeout_s: float,
    isolation: str,
) -> list[Record]:
    """Waits until the topic, or the group's committed part of it, has exactly these records."""
    what = f"topic {topic!r}" if group is None else f"what group {group!r} has read of {topic!r}"
    expectation = Expectation(what, expected, in_order=in_order)

    def look() -> Found:
        partitions = topics.partitions(topic)
        if not partitions:
            return Found(0, [])
        if group is None:
            return Found(partitions, topics.read(topic, isolation))
        return Found(partitions, topics.read_by(group, topic, isolation))

    return expectation.await_from(look, timeout_s)


def _check_isolation(name: str) -> None:
    if name not in ISOLATIONS:
        raise ValueError(f"isolation={name!r}: must be one of {', '.join(ISOLATIONS)}")


def _as_record(message: Message) -> Record:
    return Record(
        message.value,
        message.key,
        message.headers,
        message.partition,
        message.timestamp_ms,
        message.topic,
        message.offset,
    )
