"""Decides the registration of a broker, and hands out producer ids by the block; notes where replicas lie.

A registration is told apart from those before it by its epoch, the offset of its record. The broker's
partitions get a new leader epoch with it: whatever an earlier life of the same broker wrote is then told from
what this one writes, and requests that were meant for the earlier life are fenced.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.machines.metadata.controller.decision import Decision
from headrace.machines.metadata.image import NO_LEADER, ClusterImage, Endpoint, PartitionState
from headrace.protocol.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    FeatureLevelRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
)
from headrace.protocol.notation import Data

PRODUCER_IDS_PER_BLOCK = 1_000


@dataclass(slots=True)
class Registration:
    broker: int
    incarnation_id: bytes  # new at every start of the process
    endpoints: Mapping[str, Endpoint]
    features: Mapping[str, tuple[int, int]]
    rack: str | None
    directories: Sequence[bytes]


def register_broker(
    image: ClusterImage, registration: Registration, next_offset: int, *, is_fenced: bool = False
) -> Decision[int]:
    """Registers a broker that has just started; the reply is its epoch. `next_offset` is the log's end."""
    epoch = next_offset
    records: list[Data] = [
        RegisterBrokerRecord(
            broker_id=registration.broker,
            incarnation_id=registration.incarnation_id,
            broker_epoch=epoch,
            end_points=[
                BrokerEndpoint(
                    name=name, host=end.host, port=end.port, security_protocol=end.security_protocol
                )
                for name, end in registration.endpoints.items()
            ],
            features=[
                BrokerFeature(name=name, min_supported_version=least, max_supported_version=most)
                for name, (least, most) in sorted(registration.features.items())
            ],
            rack=registration.rack,
            fenced=is_fenced,
            log_dirs=sorted(registration.directories),
        )
    ]
    for topic, index, partition in image.partitions():
        change = leadership_change(partition, registration.broker)
        if change is not None:
            change.partition_id, change.topic_id = index, topic.id
            records.append(change)
    return Decision(epoch, records)


def leadership_change(partition: PartitionState, broker: int) -> PartitionChangeRecord | None:
    """What a start of `broker` means to a partition: a new epoch, or a leader where there was none.

    Only a replica that has all that was acknowledged may lead: one in sync, or an eligible one (KIP-966).
    """
    if partition.leader == broker:
        return PartitionChangeRecord(leader=broker)
    if partition.leader != NO_LEADER:
        return None
    if broker in partition.isr:
        return PartitionChangeRecord(leader=broker)
    if not partition.isr and broker in partition.eligible_leader_replicas:
        others = [replica for replica in partition.eligible_leader_replicas if replica != broker]
        return PartitionChangeRecord(leader=broker, isr=[broker], eligible_leader_replicas=others)
    return None


def allocate_producer_ids(image: ClusterImage, broker: int, broker_epoch: int) -> Decision[range]:
    """The next block of producer ids, for one broker alone and never again for anybody."""
    first = image.next_producer_id
    block = range(first, first + PRODUCER_IDS_PER_BLOCK)
    record = ProducerIdsRecord(broker_id=broker, broker_epoch=broker_epoch, next_producer_id=block.stop)
    return Decision(block, [record])


def assign_directory(
    image: ClusterImage, topic_id: bytes, index: int, broker: int, directory: bytes
) -> Decision[None]:
    """A replica of that broker lies in that directory now. Nobody cares if its topic is about to go."""
    if topic_id not in image.topics_by_id:
        return Decision(None)
    partition = image.partition(topic_id, index)
    directories = [
        directory if replica == broker else before
        for replica, before in zip(partition.replicas, partition.directories, strict=True)
    ]
    if directories == list(partition.directories):
        return Decision(None)
    record = PartitionChangeRecord(partition_id=index, topic_id=topic_id, directories=directories)
    return Decision(None, [record])


def finalize_features(image: ClusterImage, levels: Mapping[str, int]) -> Decision[None]:
    """Sets the levels that are not set already: of a new cluster, or of one that an older version made."""
    records: list[Data] = [
        FeatureLevelRecord(name=name, feature_level=level)
        for name, level in sorted(levels.items())
        if name not in image.features
    ]
    return Decision(None, records)
