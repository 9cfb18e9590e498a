"""Which brokers hold a partition and which of them leads it: reassignments and elections."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from headrace.client.admin.asking import (
    CONTROLLER,
    Ask,
    ByPartition,
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
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from headrace.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from headrace.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

PREFERRED, UNCLEAN = 0, 1
# They tell of the replicas that are there now: waiting for others to come back is the caller's business.
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
    """Makes the preferred replica of those partitions, or of all, their leader; whether that was needed.

    `unclean` lets a replica lead that may lack records, where no other is left: they are lost.

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
    """Moves partitions to other brokers, the preferred leader first; None gives up a move under way.

    Returns when the moves have begun; `list_reassignments` shows which are not done.

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
    """The moves under way: of those partitions, or all.

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
