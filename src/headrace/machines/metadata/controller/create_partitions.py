"""Decision about more partitions for topics; never fewer, because keys would move and records be lost."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.base.randomness import Randomness
from headrace.machines.metadata.controller.create_topics import (
    check_budget,
    check_live,
    new_partition,
    partition_budget,
)
from headrace.machines.metadata.controller.decision import (
    Admits,
    MetadataDecision,
    QuotaExceeded,
    Refusal,
    admit_all,
    check_admitted,
)
from headrace.machines.metadata.controller.placement import Placement, refused_assignment
from headrace.machines.metadata.controller.tenants import TenantBudgets
from headrace.machines.metadata.image import ClusterImage
from headrace.protocol.errors import ErrorCode
from headrace.protocol.notation import Data


@dataclass(slots=True)
class MorePartitions:
    topic: str
    count: int  # the new total
    assignments: list[list[int]] | None = None  # replicas of each added partition; None: we choose


@dataclass(slots=True)
class GrownTopic:
    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


def create_partitions(
    image: ClusterImage,
    topics: Sequence[MorePartitions],
    rng: Randomness,
    *,
    validate_only: bool = False,
    admits: Admits = admit_all,
    tenants: TenantBudgets | None = None,
) -> MetadataDecision[list[GrownTopic]]:
    placement = Placement(image, rng.randrange(max(1, len(image.brokers))))
    records: list[Data] = []
    grown: list[GrownTopic] = []
    budget = partition_budget(image)
    names = Counter(topic.topic for topic in topics)
    for topic in topics:
        if names[topic.topic] > 1:
            # told once, however often it was asked for
            names[topic.topic] = 0
            grown.append(GrownTopic(topic.topic, ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        if names[topic.topic] != 1:
            continue
        try:
            own = grow(image, topic, placement, budget)
            if tenants is not None:
                tenants.check(topic.topic, len(own))
            check_admitted(len(own), admits)
            if tenants is not None:
                tenants.take(topic.topic, len(own))
        except QuotaExceeded as refusal:
            grown.append(GrownTopic(topic.topic, refusal.code))
            continue
        except Refusal as refusal:
            grown.append(GrownTopic(topic.topic, refusal.code, refusal.message))
            continue
        budget -= len(own)
        grown.append(GrownTopic(topic.topic))
        records += own
    return MetadataDecision(grown, [] if validate_only else records)


def grow(image: ClusterImage, wanted: MorePartitions, placement: Placement, budget: int) -> list[Data]:
    topic = image.topics.get(wanted.topic)
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    present = len(topic.partitions)
    if wanted.count == present:
        raise Refusal(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if wanted.count < present:
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {present} partition(s); "
            f"{wanted.count} would not be an increase.",
        )
    added = wanted.count - present
    check_budget(added, budget)
    factor = len(topic.partitions[0].replicas)
    if wanted.assignments is None:
        assignments = [placement.replicas(factor) for _ in range(added)]
    else:
        assignments = wanted.assignments
        if len(assignments) != added:
            raise refused_assignment(
                f"Attempted to add {added} additional partition(s), "
                f"but only {len(assignments)} assignment(s) were specified."
            )
        for replicas in assignments:
            placement.check_assignment(replicas)
            if len(replicas) != factor:
                raise refused_assignment(
                    f"The manual partition assignment includes a partition with {len(replicas)} replica(s), "
                    f"but this is not consistent with previous partitions, which have {factor} replica(s)."
                )
            check_live(replicas, placement)
    return [
        new_partition(topic.id, present + step, replicas, placement)
        for step, replicas in enumerate(assignments)
    ]
