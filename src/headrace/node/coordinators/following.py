"""What coordinators are told of committed metadata: topics that came, grew or went, and changed settings."""

from typing import TYPE_CHECKING, Any

from headrace.base.time import Now
from headrace.machines.metadata.image import BROKER_RESOURCE, GROUP_RESOURCE
from headrace.protocol.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

if TYPE_CHECKING:
    from headrace.node.node import Node


def removed_topics(node: "Node", records: list[Any]) -> list[str]:
    """Names of the topics that these records remove; asked before anybody acts on the records."""
    return [
        partitions[0].topic
        for record in records
        if type(record) is RemoveTopicRecord
        and (partitions := node.partitions.of_id(record.topic_id)) is not None
    ]


def follow(node: "Node", now: Now, records: list[Any], removed: list[str]) -> None:
    kinds = {type(record) for record in records}
    for coordinator in (node.groups, node.transactions, node.sinks):
        if coordinator.topic in removed:
            coordinator.topic_removed(now)
    if kinds & {TopicRecord, PartitionRecord, RemoveTopicRecord}:
        node.groups.topics_changed(now, removed)
    if FeatureLevelRecord in kinds or any(
        type(record) is ConfigRecord and record.resource_type in (BROKER_RESOURCE, GROUP_RESOURCE)
        for record in records
    ):
        node.groups.configured()
        node.transactions.configured()
