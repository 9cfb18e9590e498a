"""Records of `__consumer_offsets`: committed offsets, classic groups, and groups of the new protocol."""

from __future__ import annotations

from headrace.protocol.notation import BYTES, INT8, INT32, INT64, STRING, UUID, Data, Struct, array, field


class OffsetCommitKey(Data, key=1, versions="0"):
    group: str = field(STRING)
    topic: str = field(STRING)
    partition: int = field(INT32)


class OffsetCommitValue(Data, key=1, versions="0-4", flexible="4+"):
    offset: int = field(INT64)
    leader_epoch: int = field(INT32, "3+", default=-1, ignorable=True)
    metadata: str = field(STRING)
    commit_timestamp: int = field(INT64)
    expire_timestamp: int = field(INT64, "1", default=-1, ignorable=True)
    topic_id: bytes = field(UUID, "4+", tag=0, ignorable=True)


class GroupMetadataKey(Data, key=2, versions="0"):
    group: str = field(STRING)


class MemberMetadata(Struct):
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, "3+", nullable="3+", default=None, ignorable=True)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    rebalance_timeout: int = field(INT32, "1+", default=-1, ignorable=True)
    session_timeout: int = field(INT32)
    subscription: bytes = field(BYTES)
    assignment: bytes = field(BYTES)


class GroupMetadataValue(Data, key=2, versions="0-4", flexible="4+"):
    protocol_type: str = field(STRING)
    generation: int = field(INT32)
    protocol: str | None = field(STRING, nullable="0+")
    leader: str | None = field(STRING, nullable="0+")
    current_state_timestamp: int = field(INT64, "2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = field(array(MemberMetadata))


class ConsumerGroupMetadataKey(Data, key=3, versions="0"):
    group_id: str = field(STRING)


class ConsumerGroupMetadataValue(Data, key=3, versions="0", flexible="0+"):
    epoch: int = field(INT32)
    metadata_hash: int = field(INT64, tag=0)


class ConsumerGroupPartitionMetadataKey(Data, key=4, versions="0"):
    """Written by Kafka 4.0 and before; later ones write only its tombstone."""

    group_id: str = field(STRING)


class PartitionRacks(Struct):
    partition: int = field(INT32)
    racks: list[str] = field(array(STRING))


class SubscribedTopic(Struct):
    topic_id: bytes = field(UUID)
    topic_name: str = field(STRING)
    num_partitions: int = field(INT32)
    partition_metadata: list[PartitionRacks] = field(array(PartitionRacks))


class ConsumerGroupPartitionMetadataValue(Data, key=4, versions="0", flexible="0+"):
    topics: list[SubscribedTopic] = field(array(SubscribedTopic))


class ConsumerGroupMemberMetadataKey(Data, key=5, versions="0"):
    group_id: str = field(STRING)
    member_id: str = field(STRING)


class ClassicProtocol(Struct):
    name: str = field(STRING)
    metadata: bytes = field(BYTES)


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = field(INT32)
    supported_protocols: list[ClassicProtocol] = field(array(ClassicProtocol))


class ConsumerGroupMemberMetadataValue(Data, key=5, versions="0", flexible="0+"):
    instance_id: str | None = field(STRING, nullable="0+")
    rack_id: str | None = field(STRING, nullable="0+")
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    subscribed_topic_names: list[str] = field(array(STRING))
    subscribed_topic_regex: str | None = field(STRING, nullable="0+")
    rebalance_timeout_ms: int = field(INT32, default=-1)
    server_assignor: str | None = field(STRING, nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = field(
        ClassicMemberMetadata, nullable="0+", default=None, tag=0
    )


class ConsumerGroupTargetAssignmentMetadataKey(Data, key=6, versions="0"):
    group_id: str = field(STRING)


class ConsumerGroupTargetAssignmentMetadataValue(Data, key=6, versions="0", flexible="0+"):
    assignment_epoch: int = field(INT32)
    assignment_timestamp: int = field(INT64, tag=0, ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(Data, key=7, versions="0"):
    group_id: str = field(STRING)
    member_id: str = field(STRING)


class TargetPartitions(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[int] = field(array(INT32))


class ConsumerGroupTargetAssignmentMemberValue(Data, key=7, versions="0", flexible="0+"):
    topic_partitions: list[TargetPartitions] = field(array(TargetPartitions))


class ConsumerGroupCurrentMemberAssignmentKey(Data, key=8, versions="0"):
    group_id: str = field(STRING)
    member_id: str = field(STRING)


class CurrentPartitions(Struct):
    topic_id: bytes = field(UUID)
    partitions: list[int] = field(array(INT32))
    assignment_epochs: list[int] | None = field(array(INT32), nullable="0+", tag=0)  # one per partition


class ConsumerGroupCurrentMemberAssignmentValue(Data, key=8, versions="0", flexible="0+"):
    member_epoch: int = field(INT32)
    previous_member_epoch: int = field(INT32)
    state: int = field(INT8)
    assigned_partitions: list[CurrentPartitions] = field(array(CurrentPartitions))
    partitions_pending_revocation: list[CurrentPartitions] = field(array(CurrentPartitions))


class ConsumerGroupRegularExpressionKey(Data, key=16, versions="0"):
    group_id: str = field(STRING)
    regular_expression: str = field(STRING)


class ConsumerGroupRegularExpressionValue(Data, key=16, versions="0", flexible="0+"):
    topics: list[str] = field(array(STRING))
    version: int = field(INT64)
    timestamp: int = field(INT64)


class LegacyOffsetCommitKey(Data, key=0, versions="0"):
    """Read like an OffsetCommitKey, never written."""

    group: str = field(STRING)
    topic: str = field(STRING)
    partition: int = field(INT32)


class LegacyOffsetCommitValue(Data, key=0, versions="0"):
    offset: int = field(INT64)
    metadata: str = field(STRING)
    commit_timestamp: int = field(INT64)
