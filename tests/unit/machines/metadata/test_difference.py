"""Records that turn one image into another, for a node that was away for long."""

from __future__ import annotations

from random import Random

from headrace.machines.metadata.difference import difference
from headrace.machines.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, ClusterImage
from headrace.machines.metadata.snapshot import image_hash
from headrace.protocol.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EntityData,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from headrace.protocol.notation import Data


def history(rng: Random, image: ClusterImage, steps: int) -> None:
    """Changes of every kind, replayed into the image."""
    for _ in range(steps):
        for record in change(rng, image):
            image.replay(record)


def change(rng: Random, image: ClusterImage) -> list[Data]:
    name = f"t{rng.randrange(4)}"
    topic = image.topics.get(name)
    match rng.randrange(11):
        case 0 if topic is None:
            id = rng.randbytes(16)
            return [
                TopicRecord(name=name, topic_id=id),
                *(
                    PartitionRecord(partition_id=index, topic_id=id, replicas=[1], isr=[1], leader=1)
                    for index in range(rng.randrange(1, 4))
                ),
            ]
        case 1 if topic is not None:
            return [RemoveTopicRecord(topic_id=topic.id)]
        case 2 if topic is not None:
            return [PartitionChangeRecord(partition_id=0, topic_id=topic.id, leader=rng.randrange(3))]
        case 3:
            kind, resource = (BROKER_RESOURCE, "") if topic is None else (TOPIC_RESOURCE, name)
            value = rng.choice([None, "1", "2"])
            return [
                ConfigRecord(
                    resource_type=kind, resource_name=resource, name=f"k{rng.randrange(3)}", value=value
                )
            ]
        case 4:
            known = image.brokers.get(broker := rng.randrange(3))
            if known is not None and rng.random() < 0.5:
                return [UnregisterBrokerRecord(broker_id=broker, broker_epoch=known.epoch)]
            return [RegisterBrokerRecord(broker_id=broker, broker_epoch=rng.randrange(100))]
        case 5:
            return [FeatureLevelRecord(name=f"f{rng.randrange(3)}", feature_level=rng.randrange(3))]
        case 6:
            return [ProducerIdsRecord(next_producer_id=image.next_producer_id + 1000)]
        case kind if kind > 6:
            return change_of_security(rng, image, kind)
        case _:
            return []


def change_of_security(rng: Random, image: ClusterImage, kind: int) -> list[Data]:
    security, name = image.security, f"u{rng.randrange(3)}"
    match kind:
        case 7:
            rule = AccessControlEntryRecord(id=rng.randbytes(16), resource_type=2, resource_name=name)
            known = [rule_id for rule_id, other in security.rules.items() if other.name == name]
            return [RemoveAccessControlEntryRecord(id=known[0])] if known else [rule]
        case 8:
            if (name, 1) in security.credentials and rng.random() < 0.5:
                return [RemoveUserScramCredentialRecord(name=name, mechanism=1)]
            return [UserScramCredentialRecord(name=name, mechanism=1, iterations=rng.randrange(4096, 4099))]
        case 9:
            entity = [EntityData(entity_type="user", entity_name=rng.choice([name, None]))]
            removes = rng.random() < 0.3
            key = rng.choice(["producer_byte_rate", "consumer_byte_rate"])
            return [ClientQuotaRecord(entity=entity, key=key, value=rng.randrange(3) + 0.5, remove=removes)]
        case _:
            if rng.random() < 0.3:
                return [RemoveDelegationTokenRecord(token_id=name)]
            return [DelegationTokenRecord(token_id=name, expiration_timestamp=rng.randrange(3))]


def test_the_difference_leads_from_any_image_to_any_later_one() -> None:
    rng = Random(1)
    for _ in range(300):
        before = ClusterImage()
        history(rng, before, rng.randrange(20))
        after = before.copy()
        history(rng, after, rng.randrange(20))
        told = list(difference(before, after))
        for record in told:
            before.replay(record)
        assert image_hash(before) == image_hash(after)


def test_equal_images_do_not_differ() -> None:
    image = ClusterImage()
    history(Random(2), image, 50)
    assert list(difference(image, image.copy())) == []


def test_records_of_what_belongs_to_no_broker() -> None:
    before, after = ClusterImage(), ClusterImage()
    after.replay(ProducerIdsRecord(broker_id=7, broker_epoch=3, next_producer_id=5000))
    assert list(difference(before, after)) == [
        ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=5000)
    ]
