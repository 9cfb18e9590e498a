"""Replicas of partitions: reassignment, leader election, log directories and their sizes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from headrace.client.admin.cluster import ask_every_broker
from headrace.client.admin.operation import (
    CONTROLLER,
    Ask,
    ByPartition,
    OfBroker,
    Operation,
    Outcome,
    Sent,
    as_partition,
    ask_all,
    ask_one,
    by_partition,
    by_topic,
    check,
    failed,
    settled,
)
from headrace.client.cluster import TopicPartition
from headrace.client.errors import KafkaError
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from headrace.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from headrace.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from headrace.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from headrace.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)


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
    """A replica of a partition on one broker.

    >>> Replica("orders", 0, broker_id=1).partition
    0
    """

    topic: str
    partition: int
    broker_id: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} on broker {self.broker_id}"


def describe_log_dirs(brokers: Iterable[int] | None = None) -> Operation[list[LogDirectory]]:
    """The log directories of some brokers or of all, with the sizes of their partitions.

    >>> ("orders", 0) in admin.describe_log_dirs([1])[0].partition_bytes
    True
    """

    def read(answer: Any, sent: Sent[int]) -> dict[int, list[LogDirectory]]:
        check(answer.error_code, subject=f"broker {sent.broker_id}")
        return {broker: [_directory(broker, told) for told in answer.results] for broker in sent.subjects}

    what, request = "asking for log directories", DescribeLogDirsRequest(topics=None)
    if brokers is None:
        found = yield from ask_every_broker(what, request, read)
    else:
        targets = {broker: OfBroker(broker) for broker in brokers}
        found = yield from ask_all(Ask(what, targets, lambda *_: request, read))
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

    targets = {replica: OfBroker(replica.broker_id) for replica in wanted}
    # a directory that failed, and a replica that is not there, do not come back in a moment
    final = frozenset({ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.REPLICA_NOT_AVAILABLE})
    yield from ask_all(Ask("moving replicas", targets, make, read, final=final))


PREFERRED, UNCLEAN = 0, 1
# They describe the replicas that are there now: waiting for others to come back is the caller's business.
NO_CANDIDATE = frozenset({ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE})


class Reassignment(NamedTuple):
    """A partition that moves to other brokers.

    >>> Reassignment(replicas=[1, 2, 3], adding=[3], removing=[1]).adding
    [3]
    """

    replicas: list[int]
    adding: list[int]
    removing: list[int]


def elect_leaders(
    partitions: Iterable[tuple[str, int]] | None = None, *, unclean: bool = False
) -> Operation[dict[TopicPartition, bool]]:
    """Makes the preferred replica of some partitions, or of all, their leader; returns whether that changed
    the leader.

    With `unclean`, a replica that lacks records may become leader if there is no other; these records are
    lost.

    >>> admin.elect_leaders([("orders", 0)])
    {TopicPartition(topic='orders', partition=0): False}
    """
    chosen = None if partitions is None else [as_partition(at) for at in partitions]

    def make(timeout_ms: int) -> ElectLeadersRequest:
        topics = None if chosen is None else by_topic(chosen)
        return ElectLeadersRequest(
            election_type=UNCLEAN if unclean else PREFERRED,
            topic_partitions=None
            if topics is None
            else [
                TopicPartitions(topic=topic, partitions=[at.partition for at in some])
                for topic, some in topics.items()
            ],
            timeout_ms=timeout_ms,
        )

    def read(answer: Any) -> dict[TopicPartition, bool]:
        check(answer.error_code, subject="the election")
        outcome: Outcome[TopicPartition, bool] = {}
        for topic in answer.replica_election_results:
            for told in topic.partition_result:
                at = TopicPartition(topic.topic, told.partition_id)
                if told.error_code == ErrorCode.ELECTION_NOT_NEEDED:
                    outcome[at] = False
                else:
                    error = failed(told.error_code, told.error_message, subject=f"partition {at}")
                    outcome[at] = error or True
        return settled(outcome)

    return (yield from ask_one("electing leaders", CONTROLLER, make, read, final=NO_CANDIDATE))


def alter_reassignments(
    replicas: ByPartition[Sequence[int] | None],
) -> Operation[None]:
    """Moves partitions to other brokers, the preferred leader first; None cancels a move.

    Returns when the moves have begun; `list_reassignments` shows those that are not done.

    >>> admin.alter_reassignments({("orders", 0): [1]})  # doctest: +SKIP
    """
    wanted = {as_partition(at): brokers for at, brokers in replicas.items()}

    def make(partitions: list[TopicPartition], timeout_ms: int) -> AlterPartitionReassignmentsRequest:
        return AlterPartitionReassignmentsRequest(
            timeout_ms=timeout_ms,
            topics=[
                ReassignableTopic(name=topic, partitions=[_target(at, wanted[at]) for at in some])
                for topic, some in by_topic(partitions).items()
            ],
        )

    def read(answer: Any, _: Sent[TopicPartition]) -> Outcome[TopicPartition, bool]:
        check(answer.error_code, answer.error_message, subject="the reassignment")
        return by_partition(answer.responses, lambda _: True)

    yield from ask_all(Ask("reassigning partitions", dict.fromkeys(wanted, CONTROLLER), make, read))


def _target(at: TopicPartition, brokers: Sequence[int] | None) -> ReassignablePartition:
    return ReassignablePartition(
        partition_index=at.partition, replicas=None if brokers is None else list(brokers)
    )


def list_reassignments(
    partitions: Iterable[tuple[str, int]] | None = None,
) -> Operation[dict[TopicPartition, Reassignment]]:
    """The reassignments in progress, of some partitions or of all.

    >>> admin.list_reassignments()
    {}
    """
    topics = None if partitions is None else by_topic(map(as_partition, partitions))

    def make(timeout_ms: int) -> ListPartitionReassignmentsRequest:
        return ListPartitionReassignmentsRequest(
            timeout_ms=timeout_ms,
            topics=None
            if topics is None
            else [
                ListPartitionReassignmentsTopics(name=topic, partition_indexes=[at.partition for at in some])
                for topic, some in topics.items()
            ],
        )

    def read(answer: Any) -> dict[TopicPartition, Reassignment]:
        check(answer.error_code, answer.error_message, subject="the reassignments")
        return {
            TopicPartition(topic.name, told.partition_index): Reassignment(
                told.replicas, told.adding_replicas, told.removing_replicas
            )
            for topic in answer.topics
            for told in topic.partitions
        }

    return (yield from ask_one("listing reassignments", CONTROLLER, make, read))
