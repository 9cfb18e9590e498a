"""Decides elections that somebody asks for: of the preferred replica, or of any live one.

A preferred election wants the first replica of each partition to lead; it must be alive and in sync. An
unclean one is for a partition without a leader: a live replica takes over though it may lack records.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from headrace.machines.metadata.controller.decision import Decision, Refusal
from headrace.machines.metadata.image import NO_LEADER, ClusterImage, PartitionState
from headrace.protocol.errors import ErrorCode
from headrace.protocol.metadata_records import PartitionChangeRecord
from headrace.protocol.notation import Data

RECOVERING = 1  # the leader may lack records that were acknowledged


class Election(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


@dataclass(slots=True)
class ElectedPartition:
    topic: str
    index: int
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


def elect_leaders(
    image: ClusterImage, election: Election, partitions: Sequence[tuple[str, int]]
) -> Decision[list[ElectedPartition]]:
    records: dict[tuple[str, int], Data] = {}
    elected = []
    for topic, index in partitions:
        result = ElectedPartition(topic, index)
        elected.append(result)
        try:
            records[topic, index] = elect(image, election, topic, index)
        except Refusal as refusal:
            result.error, result.message = refusal.code, refusal.message
    return Decision(elected, list(records.values()))


def elect(image: ClusterImage, election: Election, name: str, index: int) -> PartitionChangeRecord:
    topic = image.topics.get(name)
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = topic.partitions.get(index)
    if partition is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    live = {broker: not state.is_fenced for broker, state in image.brokers.items()}
    change = preferred(partition, live) if election is Election.PREFERRED else unclean(partition, live)
    change.topic_id, change.partition_id = topic.id, index
    return change


def preferred(partition: PartitionState, live: Mapping[int, bool]) -> PartitionChangeRecord:
    first = partition.replicas[0]
    if partition.leader == first:
        raise not_needed()
    if first not in partition.isr or not live.get(first):
        raise Refusal(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred replica is not alive or not in sync."
        )
    return PartitionChangeRecord(leader=first)


def unclean(partition: PartitionState, live: Mapping[int, bool]) -> PartitionChangeRecord:
    """One in sync if there is any, otherwise the first that lives, which then is all of the ISR."""
    if partition.leader != NO_LEADER:
        raise not_needed()
    for replica in partition.replicas:
        if replica in partition.isr and live.get(replica):
            return PartitionChangeRecord(leader=replica)
    for replica in partition.replicas:
        if live.get(replica):
            return PartitionChangeRecord(leader=replica, isr=[replica], leader_recovery_state=RECOVERING)
    raise Refusal(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "No replica of the partition is alive.")


def not_needed() -> Refusal:
    return Refusal(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
