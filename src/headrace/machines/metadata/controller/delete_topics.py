"""Decision about the deletion of topics, by name or by id."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.base.ids import NO_TOPIC_ID, TopicId
from headrace.machines.metadata.controller.decision import (
    Admits,
    MetadataDecision,
    QuotaExceeded,
    admit_all,
    check_admitted,
)
from headrace.machines.metadata.image import ClusterImage
from headrace.protocol.errors import ErrorCode
from headrace.protocol.metadata_records import RemoveTopicRecord
from headrace.protocol.notation import Data


@dataclass(slots=True)
class DoomedTopic:
    """By name, or by id with no name."""

    name: str | None
    topic_id: TopicId = NO_TOPIC_ID


@dataclass(slots=True)
class DeletedTopic:
    name: str | None
    topic_id: TopicId
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


def delete_topics(
    image: ClusterImage, topics: Sequence[DoomedTopic], admits: Admits = admit_all
) -> MetadataDecision[list[DeletedTopic]]:
    records: list[Data] = []
    deleted: list[DeletedTopic] = []
    resolved = [resolve(image, topic) for topic in topics]
    meant = Counter((result.name, result.topic_id) for result in resolved)
    for result in resolved:
        times = meant[result.name, result.topic_id]
        if times == 0:
            continue
        if times > 1:
            # told once, however often it was asked for
            meant[result.name, result.topic_id] = 0
            result.error, result.message = ErrorCode.INVALID_REQUEST, "Duplicate topic name."
        if result.error is ErrorCode.NONE:
            try:
                check_admitted(len(image.topics_by_id[result.topic_id].partitions), admits)
                records.append(RemoveTopicRecord(topic_id=result.topic_id))
            except QuotaExceeded as refusal:
                result.error = refusal.code
        deleted.append(result)
    return MetadataDecision(deleted, records)


def resolve(image: ClusterImage, topic: DoomedTopic) -> DeletedTopic:
    """Which topic is meant; with an error when there is none."""
    if topic.name is not None:
        if topic.topic_id != NO_TOPIC_ID:
            return DeletedTopic(
                topic.name,
                topic.topic_id,
                ErrorCode.INVALID_REQUEST,
                "You may not specify both topic name and topic id.",
            )
        found = image.topics.get(topic.name)
        if found is None:
            return DeletedTopic(
                topic.name,
                NO_TOPIC_ID,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "This server does not host this topic-partition.",
            )
        return DeletedTopic(found.name, found.id)
    if topic.topic_id == NO_TOPIC_ID:
        return DeletedTopic(
            None, NO_TOPIC_ID, ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified."
        )
    found = image.topics_by_id.get(topic.topic_id)
    if found is None:
        return DeletedTopic(
            None, topic.topic_id, ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."
        )
    return DeletedTopic(found.name, found.id)
