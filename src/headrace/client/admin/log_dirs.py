"""Data directories of brokers: what lies in them, and moves of replicas from one to another."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from headrace.client.admin.asking import (
    Ask,
    OfBroker,
    Operation,
    Outcome,
    Sent,
    ask_all,
    by_topic,
    check,
    failed,
)
from headrace.client.admin.cluster import broker_ids
from headrace.client.cluster import TopicPartition
from headrace.client.errors import KafkaError
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from headrace.protocol.messages.describe_log_dirs import DescribeLogDirsRequest


class LogDirectory(NamedTuple):
    """One data directory of one broker; sizes in bytes, -1 where the broker does not say.

    >>> admin.describe_log_dirs()[0].error is None
    True
    """

    broker_id: int
    path: str
    error: KafkaError | None  # why it is offline
    total_bytes: int
    usable_bytes: int
    partition_bytes: dict[TopicPartition, int]
    moving_bytes: dict[TopicPartition, int]  # of replicas that are on their way into it
    is_cordoned: bool  # takes no new partitions


class Replica(NamedTuple):
    """A partition's copy on one broker.

    >>> Replica("orders", 0, broker_id=1).partition
    0
    """

    topic: str
    partition: int
    broker_id: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} on broker {self.broker_id}"


def describe_log_dirs(brokers: Iterable[int] | None = None) -> Operation[list[LogDirectory]]:
    """What lies where, on those brokers or on all.

    >>> ("orders", 0) in admin.describe_log_dirs([1])[0].partition_bytes
    True
    """
    asked = (yield from broker_ids()) if brokers is None else brokers

    def read(answer: Any, sent: Sent[int]) -> dict[int, list[LogDirectory]]:
        check(answer.error_code, subject=f"broker {sent.broker_id}")
        return {broker: [_directory(broker, told) for told in answer.results] for broker in sent.subjects}

    places = {broker: OfBroker(broker) for broker in asked}
    request = DescribeLogDirsRequest(topics=None)
    found = yield from ask_all(Ask("asking for log directories", places, lambda *_: request, read))
    return [directory for one in found.values() for directory in one]


def _directory(broker_id: int, told: Any) -> LogDirectory:
    partitions = [
        (TopicPartition(topic.name, one.partition_index), one)
        for topic in told.topics
        for one in topic.partitions
    ]
    return LogDirectory(
        broker_id,
        told.log_dir,
        failed(told.error_code, subject=told.log_dir),
        told.total_bytes,
        told.usable_bytes,
        {at: one.partition_size for at, one in partitions if not one.is_future_key},
        {at: one.partition_size for at, one in partitions if one.is_future_key},
        told.is_cordoned,
    )


def alter_replica_log_dirs(
    moves: Mapping[Replica, str] | Mapping[tuple[str, int, int], str],
) -> Operation[None]:
    """Moves replicas (topic, partition, broker) into other directories of their brokers.

    The broker copies in the background; `LogDirectory.moving_bytes` shows how far it is.

    >>> path = admin.describe_log_dirs([1])[0].path
    >>> admin.alter_replica_log_dirs({Replica("orders", 0, broker_id=1): path})
    """
    wanted = {Replica(*replica): path for replica, path in moves.items()}

    def make(replicas: list[Replica], _: int) -> AlterReplicaLogDirsRequest:
        paths = dict.fromkeys(wanted[replica] for replica in replicas)
        return AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path=path,
                    topics=[
                        AlterReplicaLogDirTopic(name=topic, partitions=[at.partition for at in some])
                        for topic, some in by_topic(
                            TopicPartition(one.topic, one.partition)
                            for one in replicas
                            if wanted[one] == path
                        ).items()
                    ],
                )
                for path in paths
            ]
        )

    def read(answer: Any, sent: Sent[Replica]) -> Outcome[Replica, bool]:
        outcome: Outcome[Replica, bool] = {}
        for topic in answer.results:
            for told in topic.partitions:
                replica = Replica(topic.topic_name, told.partition_index, sent.subjects[0].broker_id)
                outcome[replica] = failed(told.error_code, subject=str(replica)) or True
        return outcome

    places = {replica: OfBroker(replica.broker_id) for replica in wanted}
    # a directory that failed, and a replica that is not there, do not come back in a moment
    final = frozenset({ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REPLICA_NOT_AVAILABLE})
    yield from ask_all(Ask("moving replicas", places, make, read, final=final))
