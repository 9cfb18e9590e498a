"""Decision about the creation of topics: each topic of a request is created or refused on its own."""

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from headrace.base.ids import METADATA_TOPIC_ID, NO_TOPIC_ID, TopicId
from headrace.base.limits import PARTITIONS_MAX, PARTITIONS_PER_REQUEST_MAX
from headrace.base.randomness import Randomness
from headrace.base.values import Value
from headrace.machines.configs.topic import check_topic_overrides
from headrace.machines.configs.values import ConfigValue, InvalidConfig
from headrace.machines.metadata.controller.alter_configs import check_length
from headrace.machines.metadata.controller.decision import (
    Admits,
    MetadataDecision,
    QuotaExceeded,
    Refusal,
    admit_all,
    check_admitted,
)
from headrace.machines.metadata.controller.names import METADATA_TOPIC, check_collision, check_topic_name
from headrace.machines.metadata.controller.placement import Placement, refused_assignment
from headrace.machines.metadata.controller.tenants import TenantBudgets
from headrace.machines.metadata.image import TOPIC_RESOURCE, ClusterImage, collision_name
from headrace.protocol.errors import ErrorCode
from headrace.protocol.metadata_records import ConfigRecord, PartitionRecord, TopicRecord
from headrace.protocol.notation import Data

BROKER_DEFAULT = -1


class NewTopic(Value):
    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignments: Mapping[int, list[int]] = MappingProxyType({})  # partition → replicas; empty: we choose
    configs: Mapping[str, str | None] = MappingProxyType({})


class CreatedTopic(Value):
    name: str
    topic_id: TopicId = NO_TOPIC_ID
    partitions: int = -1
    replication_factor: int = -1
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class TopicDefaults(Value):
    """What a broker fills in for a creator who did not say."""

    partitions: int
    replication_factor: int
    configs: Mapping[str, ConfigValue]


def create_topics(
    image: ClusterImage,
    topics: Sequence[NewTopic],
    defaults: TopicDefaults,
    rng: Randomness,
    *,
    validate_only: bool = False,
    admits: Admits = admit_all,
    tenants: TenantBudgets | None = None,
) -> MetadataDecision[list[CreatedTopic]]:
    placement = Placement(image, rng.randrange(max(1, len(image.brokers))))
    records: list[Data] = []
    created: list[CreatedTopic] = []
    granted: dict[str, str] = {}  # by the name with which they would collide
    budget = partition_budget(image)
    names = Counter(topic.name for topic in topics)
    for topic in topics:
        if names[topic.name] > 1:
            # told once, however often it was asked for
            names[topic.name] = 0
            created.append(
                CreatedTopic(topic.name, error=ErrorCode.INVALID_REQUEST, message="Duplicate topic name.")
            )
        if names[topic.name] != 1:
            continue
        try:
            result, own = create_topic(
                image,
                topic,
                defaults,
                placement,
                rng,
                also=granted,
                budget=budget,
                admits=admits,
                tenants=tenants,
            )
        except QuotaExceeded as refusal:
            created.append(CreatedTopic(topic.name, error=refusal.code))
            continue
        except Refusal as refusal:
            created.append(CreatedTopic(topic.name, error=refusal.code, message=refusal.message))
            continue
        budget -= result.partitions
        granted[collision_name(topic.name)] = topic.name
        created.append(result)
        records += own
    return MetadataDecision(created, [] if validate_only else records)


def create_topic(
    image: ClusterImage,
    topic: NewTopic,
    defaults: TopicDefaults,
    placement: Placement,
    rng: Randomness,
    *,
    also: Mapping[str, str],
    budget: int,
    admits: Admits,
    tenants: TenantBudgets | None,
) -> tuple[CreatedTopic, list[Data]]:
    """One topic's result and records; `also` are those granted before it in the same request."""
    check_topic_name(topic.name)
    if topic.name == METADATA_TOPIC:
        raise Refusal(
            ErrorCode.INVALID_REQUEST, f"Creation of internal topic {METADATA_TOPIC} is prohibited."
        )
    if topic.name in image.topics:
        raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    check_collision(image, topic.name, also)
    configs = checked_configs(topic.configs, defaults.configs)
    assignments = assigned(topic, defaults, placement, budget)
    if tenants is not None:
        tenants.check(topic.name, len(assignments))
    check_admitted(len(assignments), admits)
    if tenants is not None:
        tenants.take(topic.name, len(assignments))
    topic_id = new_topic_id(image, rng)
    records: list[Data] = [TopicRecord(name=topic.name, topic_id=topic_id)]
    for key, value in configs.items():
        records.append(
            ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic.name, name=key, value=value)
        )
    for index, replicas in enumerate(assignments):
        records.append(new_partition(topic_id, index, replicas, placement))
    return CreatedTopic(topic.name, topic_id, len(assignments), len(assignments[0])), records


def checked_configs(given: Mapping[str, str | None], defaults: Mapping[str, ConfigValue]) -> dict[str, str]:
    configs: dict[str, str] = {}
    for key, value in given.items():
        if value is None:
            raise Refusal(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {key}")
        check_length(key, value)
        configs[key] = value
    try:
        check_topic_overrides(configs, defaults)
    except InvalidConfig as fault:
        raise Refusal(ErrorCode.INVALID_CONFIG, str(fault)) from fault
    return configs


def assigned(topic: NewTopic, defaults: TopicDefaults, placement: Placement, budget: int) -> list[list[int]]:
    """The replicas of each partition, as the creator said or as we place them."""
    if topic.assignments:
        return manual_assignment(topic, placement, budget)
    partitions = defaults.partitions if topic.partitions == BROKER_DEFAULT else topic.partitions
    factor = (
        defaults.replication_factor
        if topic.replication_factor == BROKER_DEFAULT
        else topic.replication_factor
    )
    if partitions <= 0:
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
        )
    if factor <= 0:
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    check_budget(partitions, budget)
    return [placement.replicas(factor) for _ in range(partitions)]


def manual_assignment(topic: NewTopic, placement: Placement, budget: int) -> list[list[int]]:
    if topic.replication_factor != BROKER_DEFAULT:
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        )
    if topic.partitions != BROKER_DEFAULT:
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    check_budget(len(topic.assignments), budget)
    if sorted(topic.assignments) != list(range(len(topic.assignments))):
        raise refused_assignment("partitions should be a consecutive 0-based integer sequence")
    assignments = [topic.assignments[index] for index in range(len(topic.assignments))]
    for replicas in assignments:
        placement.check_assignment(replicas)
        if len(replicas) != len(assignments[0]):
            raise refused_assignment(
                "The manual partition assignment includes partitions with different numbers of replicas."
            )
        check_live(replicas, placement)
    return assignments


def check_live(replicas: Sequence[int], placement: Placement) -> None:
    if not placement.live(replicas):
        raise refused_assignment(
            "All brokers specified in the manual partition assignment are fenced or in controlled shutdown."
        )


def partition_budget(image: ClusterImage) -> int:
    """How many partitions a request may create."""
    present = sum(len(topic.partitions) for topic in image.topics.values())
    return max(0, min(PARTITIONS_PER_REQUEST_MAX, PARTITIONS_MAX - present))


def check_budget(partitions: int, budget: int) -> None:
    if partitions > budget:
        raise Refusal(
            ErrorCode.POLICY_VIOLATION,
            f"Excessively large number of partitions: {partitions} where {budget} more can be created, "
            f"at most {PARTITIONS_PER_REQUEST_MAX} per request and {PARTITIONS_MAX} in all.",
        )


def new_partition(
    topic_id: bytes, index: int, replicas: Sequence[int], placement: Placement
) -> PartitionRecord:
    isr = placement.live(replicas)
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=placement.directories(replicas),
    )


def new_topic_id(image: ClusterImage, rng: Randomness) -> TopicId:
    """A random id in the form of a version-4 UUID, as Kafka makes them: never a reserved one, never one in
    use.

    Like Kafka we take none whose text begins with '-', which command lines would read as an option.
    """
    while True:
        raw = bytearray(rng.randbytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        topic_id = TopicId(bytes(raw))
        starts_with_dash = raw[0] >> 2 == 62
        if topic_id not in image.topics_by_id and topic_id != METADATA_TOPIC_ID and not starts_with_dash:
            return topic_id
