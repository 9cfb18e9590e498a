"""Records that turn one image into another: what a node applies when it was so far behind that its leader
sent it a snapshot instead of the log.
"""

from collections.abc import Iterator

from headrace.machines.metadata.image import TOPIC_RESOURCE, ClusterImage
from headrace.machines.metadata.security_image import security_records
from headrace.machines.metadata.snapshot import broker_record, partition_record
from headrace.protocol.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from headrace.protocol.notation import Data


def difference(before: ClusterImage, after: ClusterImage) -> Iterator[Data]:
    """In an order in which they can be replayed. A partition that changed gets its whole state again."""
    for name in sorted(before.features.keys() | after.features.keys()):
        if before.features.get(name) != after.features.get(name):
            yield FeatureLevelRecord(name=name, feature_level=after.features.get(name, 0))
    for id in sorted(before.brokers.keys() - after.brokers.keys()):
        yield UnregisterBrokerRecord(broker_id=id, broker_epoch=before.brokers[id].epoch)
    for id in sorted(after.brokers):
        if before.brokers.get(id) != after.brokers[id]:
            yield broker_record(after.brokers[id])
    for id in sorted(after.controllers):
        if before.controllers.get(id) != after.controllers[id]:
            yield after.controllers[id]
    yield from _topics(before, after)
    yield from _configs(before, after)
    if before.next_producer_id != after.next_producer_id:
        yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=after.next_producer_id)
    yield from security_records(after.security, before.security)


def _topics(before: ClusterImage, after: ClusterImage) -> Iterator[Data]:
    for name in sorted(before.topics):
        if before.topics[name].id not in after.topics_by_id:
            yield RemoveTopicRecord(topic_id=before.topics[name].id)
    for name in sorted(after.topics):
        topic = after.topics[name]
        earlier = before.topics_by_id.get(topic.id)
        if earlier is None:
            yield TopicRecord(name=name, topic_id=topic.id)
        known = earlier.partitions if earlier is not None else {}
        for index in sorted(topic.partitions):
            if known.get(index) != topic.partitions[index]:
                yield partition_record(topic.id, index, topic.partitions[index])


def _configs(before: ClusterImage, after: ClusterImage) -> Iterator[Data]:
    for kind, name in sorted(before.configs.keys() | after.configs.keys()):
        old, new = before.configs.get((kind, name), {}), after.configs.get((kind, name), {})
        topic = before.topics.get(name) if kind == TOPIC_RESOURCE else None
        if topic is not None and topic.id not in after.topics_by_id:
            old = {}  # they went with the topic
        for key in sorted(old.keys() | new.keys()):
            if old.get(key) != new.get(key):
                yield ConfigRecord(resource_type=kind, resource_name=name, name=key, value=new.get(key))
