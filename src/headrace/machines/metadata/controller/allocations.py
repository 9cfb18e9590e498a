"""Decisions that give a broker what it asks for: blocks of producer ids, and log directories of replicas."""

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.base.ids import TopicId
from headrace.machines.metadata.controller.brokers import RulesOf, check_epoch
from headrace.machines.metadata.controller.decision import MetadataDecision, Refusal
from headrace.machines.metadata.controller.partition_changes import PartitionChanges
from headrace.machines.metadata.image import ClusterImage
from headrace.protocol.errors import ErrorCode
from headrace.protocol.metadata_records import ProducerIdsRecord

PRODUCER_IDS_PER_BLOCK = 1_000
PRODUCER_IDS_END = 2**63 - 1


def allocate_producer_ids(image: ClusterImage, broker: int, broker_epoch: int) -> MetadataDecision[range]:
    """The next block of producer ids, for one broker alone and never again for anybody.

    Refusal: the broker has registered again since, or there are no more ids.
    """
    check_epoch(image, broker, broker_epoch)
    first = image.next_producer_id
    if first > PRODUCER_IDS_END - PRODUCER_IDS_PER_BLOCK:
        raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids have been used.")
    block = range(first, first + PRODUCER_IDS_PER_BLOCK)
    record = ProducerIdsRecord(broker_id=broker, broker_epoch=broker_epoch, next_producer_id=block.stop)
    return MetadataDecision(block, [record])


@dataclass(slots=True)
class ReplicaPlace:
    """Where a broker has its replica of a partition."""

    topic_id: TopicId
    index: int
    directory: bytes
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


def assign_directories(
    image: ClusterImage, broker: int, broker_epoch: int, places: Sequence[ReplicaPlace], rules_of: RulesOf
) -> MetadataDecision[list[ReplicaPlace]]:
    """Replicas of that broker are in these directories now; the reply is the list with errors filled in.

    Refusal: the broker has registered again since.
    """
    state = check_epoch(image, broker, broker_epoch)
    changes = PartitionChanges(image, rules_of)
    for place in places:
        topic = image.topics_by_id.get(place.topic_id)
        partition = topic.partitions.get(place.index) if topic is not None else None
        if topic is None:
            place.error = ErrorCode.UNKNOWN_TOPIC_ID
        elif partition is None:
            place.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif broker not in partition.replicas:
            place.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            changes.assign((topic.id, place.index), state, place.directory)
    return MetadataDecision(list(places), changes.records(), changes.unclean_elections)
