"""Requests about partition 0 of one topic, which is all that most tests of a node ask about."""

from __future__ import annotations

from typing import Any

from headrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)


def creation(
    topic: str, configs: dict[str, str], *, partitions: int = 1, timeout_ms: int = 10_000
) -> CreateTopicsRequest:
    """In keys of settings an underscore stands for a dot, so that they can be keyword arguments."""
    wanted = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    created = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1, configs=wanted)
    return CreateTopicsRequest(topics=[created], timeout_ms=timeout_ms)


def setting(topic: str, key: str, value: str) -> IncrementalAlterConfigsRequest:
    configs = [AlterableConfig(name=key, config_operation=0, value=value)]
    resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[resource])


def deletion_before(topic: str, offset: int, *, timeout_ms: int) -> DeleteRecordsRequest:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    topics = [DeleteRecordsTopic(name=topic, partitions=[partition])]
    return DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)


def commit_of(group: str, topic: str, offset: int, **member: Any) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata="here"
    )
    topics = [OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    return OffsetCommitRequest(group_id=group, topics=topics, **member)


def committed_of(group: str, topic: str) -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)])
