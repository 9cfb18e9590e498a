"""Offsets of partitions: the ends, by time, and deleting what lies before one. Each leader is asked once."""

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.base.time import Instant
from headrace.client.attempts import Attempts
from headrace.client.client import Client
from headrace.client.cluster import Topic, TopicPartition
from headrace.client.errors import ClientError, InvalidInput, KafkaError
from headrace.client.network import clock
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.protocol.notation import Request

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3  # Kafka's special timestamps


def list_offsets(
    client: Client, wanted: Mapping[TopicPartition, int], *, isolation: int = 0
) -> dict[TopicPartition, tuple[int, int]]:
    """For each partition the first offset whose record is as late as the timestamp, and that record's own
    timestamp.

    (-1, -1) where no record is that late. The special timestamps give the ends instead.
    """

    def request_for(partitions: list[TopicPartition]) -> Request:
        topics: dict[str, ListOffsetsTopic] = {}
        for at in partitions:
            asked = topics.setdefault(at.topic, ListOffsetsTopic(name=at.topic))
            asked.partitions.append(ListOffsetsPartition(partition_index=at.partition, timestamp=wanted[at]))
        return ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=list(topics.values()),
            timeout_ms=round(client.timeout_s * 1000),
        )

    def result_of(told: Any) -> tuple[int, int]:
        return told.offset, told.timestamp

    return ask_leaders(client, wanted, request_for, result_of, "listing offsets")


def delete_records(client: Client, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Deletes the records before the given offsets (-1: all of them); the first offset left of each."""

    def request_for(partitions: list[TopicPartition]) -> Request:
        topics: dict[str, DeleteRecordsTopic] = {}
        for at in partitions:
            asked = topics.setdefault(at.topic, DeleteRecordsTopic(name=at.topic))
            asked.partitions.append(DeleteRecordsPartition(partition_index=at.partition, offset=before[at]))
        return DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=round(client.timeout_s * 1000))

    return ask_leaders(client, before, request_for, lambda told: told.low_watermark, "deleting records")


def ask_leaders(
    client: Client, wanted: Iterable[TopicPartition], request_for: Any, result_of: Any, what: str
) -> dict[TopicPartition, Any]:
    """Sends each leader its partitions, and again those that were not answered, until all are or time is
    up.
    """
    attempts = Attempts(what, Instant(clock() + client.timeout_s), client.dice)
    left = set(wanted)
    found: dict[TopicPartition, Any] = {}
    while True:
        for name in sorted({at.topic for at in left if client.cluster.leader_of(at) is None}):
            _check_partitions(left, client.topic(name))
        error = _ask_once(client, left, found, request_for, result_of)
        left -= found.keys()
        if not left:
            return found
        for name in {at.topic for at in left}:
            client.cluster.topics.pop(name, None)
        wake_at = attempts.failed(
            clock(), error or KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, subject=str(min(left)))
        )
        while clock() < wake_at:
            client.network.poll(wake_at)


def _check_partitions(wanted: set[TopicPartition], topic: Topic) -> None:
    count = len(topic.partitions)
    for at in sorted(wanted):
        if at.topic == topic.name and not 0 <= at.partition < count:
            raise InvalidInput(f"topic {topic.name!r} has partitions 0 to {count - 1}, and no {at.partition}")


def _ask_once(
    client: Client,
    left: set[TopicPartition],
    found: dict[TopicPartition, Any],
    request_for: Any,
    result_of: Any,
) -> ClientError | None:
    """One round to all leaders at once; the first error that is worth another round, others are raised."""
    by_leader: dict[int, list[TopicPartition]] = {}
    for at in sorted(left):
        leader = client.cluster.leader_of(at)
        if leader is not None:
            by_leader.setdefault(leader, []).append(at)
    calls = [
        client.network.submit(client.address(leader), request_for(partitions), timeout_s=client.timeout_s)
        for leader, partitions in by_leader.items()
    ]
    setback: ClientError | None = None
    for call in calls:
        try:
            answer = client.network.run(call)
        except ClientError as error:
            setback = error
            continue
        for topic in answer.topics:
            for told in topic.partitions:
                at = TopicPartition(topic.name, told.partition_index)
                if told.error_code:
                    setback = KafkaError(told.error_code, subject=f"partition {at}")
                else:
                    found[at] = result_of(told)
    return setback
