"""Decision about requested elections (ElectLeaders): of the preferred replica, or of any live one.

A preferred election makes the first replica of each partition the leader; it must be active and in sync. An
unclean election is for a partition without a leader: an active replica becomes the leader, even if it may
lack records.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from headrace.machines.metadata.controller.brokers import RulesOf
from headrace.machines.metadata.controller.decision import MetadataDecision, Refusal
from headrace.machines.metadata.controller.leadership import Preference
from headrace.machines.metadata.controller.partition_changes import PartitionChanges
from headrace.machines.metadata.image import NO_LEADER, ClusterImage
from headrace.protocol.errors import ErrorCode


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
    image: ClusterImage, election: Election, partitions: Sequence[tuple[str, int]], rules_of: RulesOf
) -> MetadataDecision[list[ElectedPartition]]:
    changes = PartitionChanges(image, rules_of)
    elected: dict[tuple[str, int], ElectedPartition] = {}
    results = []
    for topic, index in partitions:
        if (topic, index) not in elected:
            result = elected[topic, index] = ElectedPartition(topic, index)
            try:
                elect(image, election, topic, index, changes)
            except Refusal as refusal:
                result.error, result.message = refusal.code, refusal.message
        results.append(elected[topic, index])
    return MetadataDecision(results, changes.records(), changes.unclean_elections)


def elect(image: ClusterImage, election: Election, name: str, index: int, changes: PartitionChanges) -> None:
    topic = image.topics.get(name)
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = topic.partitions.get(index)
    if partition is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    if election is Election.PREFERRED:
        if partition.leader == partition.replicas[0]:
            raise not_needed()
        after = changes.settle((topic.id, index), partition.isr, preference=Preference.FIRST)
        if after.leader == partition.leader:
            raise Refusal(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred replica is not alive or not in sync."
            )
        return
    if partition.leader != NO_LEADER:
        raise not_needed()
    after = changes.settle((topic.id, index), partition.isr, allows_unclean=True)
    if after.leader == NO_LEADER:
        raise Refusal(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "No replica of the partition is alive.")


def not_needed() -> Refusal:
    return Refusal(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
