"""The cluster as its metadata log tells it: topics, partitions, brokers, settings, features.

Only `replay` changes an image, one record after the other, and it does so in place: the same records give the
same image on every node, after every restart. Replay trusts the log. A record that does not fit what came
before (a partition of an unknown topic) means that the log is not ours or was damaged, and raises
`BadMetadata`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headrace.base.ids import BrokerId, TopicId
from headrace.protocol.metadata_records import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from headrace.protocol.notation import Data

NO_LEADER = -1
UNCHANGED_LEADER = -2

# Resource types of settings, in Kafka's numbers.
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
BROKER_LOGGER_RESOURCE = 8
GROUP_RESOURCE = 32

# The name under which settings for all brokers are kept.
ALL_BROKERS = ""


class BadMetadata(Exception):
    """The metadata log says something that cannot be true."""


@dataclass(slots=True)
class PartitionState:
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int  # NO_LEADER while there is none
    leader_epoch: int  # rises with every change of leader, and at every start of it
    partition_epoch: int  # rises with every change of the partition
    directories: tuple[bytes, ...]  # one per replica
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader_recovery_state: int = 0


@dataclass(slots=True)
class TopicState:
    name: str
    id: TopicId
    partitions: dict[int, PartitionState] = field(default_factory=dict)  # by number, without gaps


class Endpoint(NamedTuple):
    host: str
    port: int
    security_protocol: int


@dataclass(slots=True)
class BrokerState:
    id: BrokerId
    epoch: int
    incarnation_id: bytes
    endpoints: dict[str, Endpoint]  # by listener name
    features: dict[str, tuple[int, int]]
    rack: str | None
    is_fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[bytes, ...]


class ClusterImage:
    __slots__ = (
        "brokers",
        "colliding_names",
        "configs",
        "controllers",
        "features",
        "next_producer_id",
        "partitions_by_directory",
        "topics",
        "topics_by_id",
    )

    def __init__(self) -> None:
        self.topics: dict[str, TopicState] = {}
        self.topics_by_id: dict[TopicId, TopicState] = {}
        # names with '.' or '_', by the name in which both are '_': metrics cannot tell such names apart
        self.colliding_names: dict[str, set[str]] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.brokers: dict[int, BrokerState] = {}
        self.controllers: dict[int, RegisterControllerRecord] = {}
        self.features: dict[str, int] = {}
        self.next_producer_id = 0
        self.partitions_by_directory: Counter[bytes] = Counter()  # replicas in each directory

    # --- questions ---------------------------------------------------------------------------------------

    def topic_config(self, name: str) -> dict[str, str]:
        return self.configs.get((TOPIC_RESOURCE, name), {})

    def broker_config(self, broker: int) -> dict[str, str]:
        return self.configs.get((BROKER_RESOURCE, str(broker)), {})

    def group_config(self, group: str) -> dict[str, str]:
        return self.configs.get((GROUP_RESOURCE, group), {})

    @property
    def cluster_config(self) -> dict[str, str]:
        return self.configs.get((BROKER_RESOURCE, ALL_BROKERS), {})

    def partitions(self) -> Iterator[tuple[TopicState, int, PartitionState]]:
        for topic in self.topics.values():
            for index, partition in topic.partitions.items():
                yield topic, index, partition

    def partition(self, topic_id: bytes, index: int) -> PartitionState:
        topic = self.topics_by_id.get(TopicId(topic_id))
        if topic is None or index not in topic.partitions:
            raise BadMetadata(f"partition {index} of topic id {topic_id.hex()} was never made")
        return topic.partitions[index]

    def endpoint(self, broker_id: int, listener: str) -> Endpoint | None:
        """Where clients of that listener reach a broker; None when it is not registered or has no such
        listener.
        """
        broker = self.brokers.get(broker_id)
        return broker.endpoints.get(listener) if broker is not None else None

    def endpoints(self, broker_ids: Iterable[int], listener: str) -> list[tuple[int, Endpoint]]:
        """Of these brokers, by id. KIP-951: a refusal carries the leader and its address, so that the client
        need not ask for metadata first.
        """
        found = ((id, self.endpoint(id, listener)) for id in sorted(set(broker_ids)))
        return [(id, endpoint) for id, endpoint in found if endpoint is not None]

    def live_brokers(self) -> list[BrokerState]:
        """Registered and not fenced, by id."""
        return [self.brokers[broker] for broker in sorted(self.brokers) if not self.brokers[broker].is_fenced]

    # --- the one way to change ----------------------------------------------------------------------------

    def replay(self, record: Data) -> None:
        replay = REPLAY.get(type(record))
        if replay is None:
            raise BadMetadata(f"{type(record).__name__} is not understood by this version")
        replay(self, record)

    def _topic(self, record: TopicRecord) -> None:
        if record.name in self.topics:
            raise BadMetadata(f"topic {record.name} was made twice")
        topic = TopicState(record.name, TopicId(record.topic_id))
        self.topics[topic.name] = topic
        self.topics_by_id[topic.id] = topic
        if has_colliding_characters(topic.name):
            self.colliding_names.setdefault(collision_name(topic.name), set()).add(topic.name)

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        topic = self.topics_by_id.pop(TopicId(record.topic_id), None)
        if topic is None:
            raise BadMetadata(f"topic id {record.topic_id.hex()} was removed but never made")
        del self.topics[topic.name]
        for partition in topic.partitions.values():
            self.partitions_by_directory.subtract(partition.directories)
        self.configs.pop((TOPIC_RESOURCE, topic.name), None)
        if has_colliding_characters(topic.name):
            names = self.colliding_names[collision_name(topic.name)]
            names.discard(topic.name)
            if not names:
                del self.colliding_names[collision_name(topic.name)]

    def _partition(self, record: PartitionRecord) -> None:
        topic = self.topics_by_id.get(TopicId(record.topic_id))
        if topic is None:
            raise BadMetadata(f"partition of topic id {record.topic_id.hex()}, which was never made")
        partition = topic.partitions[record.partition_id] = PartitionState(
            replicas=tuple(record.replicas),
            isr=tuple(record.isr),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            directories=tuple(record.directories) or (bytes(16),) * len(record.replicas),
            removing_replicas=tuple(record.removing_replicas),
            adding_replicas=tuple(record.adding_replicas),
            eligible_leader_replicas=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
            leader_recovery_state=record.leader_recovery_state,
        )
        self.partitions_by_directory.update(partition.directories)

    def _partition_change(self, record: PartitionChangeRecord) -> None:
        partition = self.partition(record.topic_id, record.partition_id)
        if record.replicas is not None:
            partition.replicas = tuple(record.replicas)
        if record.isr is not None:
            partition.isr = tuple(record.isr)
        if record.removing_replicas is not None:
            partition.removing_replicas = tuple(record.removing_replicas)
        if record.adding_replicas is not None:
            partition.adding_replicas = tuple(record.adding_replicas)
        if record.directories is not None:
            self.partitions_by_directory.subtract(partition.directories)
            self.partitions_by_directory.update(record.directories)
            partition.directories = tuple(record.directories)
        if record.eligible_leader_replicas is not None:
            partition.eligible_leader_replicas = tuple(record.eligible_leader_replicas)
        if record.last_known_elr is not None:
            partition.last_known_elr = tuple(record.last_known_elr)
        if record.leader_recovery_state >= 0:
            partition.leader_recovery_state = record.leader_recovery_state
        if record.leader != UNCHANGED_LEADER:
            # naming a leader, even the same one, begins a new epoch
            partition.leader = record.leader
            partition.leader_epoch += 1
        partition.partition_epoch += 1

    def _config(self, record: ConfigRecord) -> None:
        resource = (record.resource_type, record.resource_name)
        if record.value is not None:
            self.configs.setdefault(resource, {})[record.name] = record.value
            return
        overrides = self.configs.get(resource, {})
        overrides.pop(record.name, None)
        if not overrides:
            self.configs.pop(resource, None)

    def _register_broker(self, record: RegisterBrokerRecord) -> None:
        self.brokers[record.broker_id] = BrokerState(
            id=BrokerId(record.broker_id),
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints={
                end.name: Endpoint(end.host, end.port, end.security_protocol) for end in record.end_points
            },
            features={
                feature.name: (feature.min_supported_version, feature.max_supported_version)
                for feature in record.features
            },
            rack=record.rack,
            is_fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            directories=tuple(record.log_dirs),
        )

    def _broker(self, broker: int, epoch: int) -> BrokerState:
        state = self.brokers.get(broker)
        if state is None or state.epoch != epoch:
            raise BadMetadata(f"broker {broker} was not registered with epoch {epoch}")
        return state

    def _unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id, record.broker_epoch)
        del self.brokers[record.broker_id]

    def _broker_change(self, record: BrokerRegistrationChangeRecord) -> None:
        state = self._broker(record.broker_id, record.broker_epoch)
        if record.fenced:
            state.is_fenced = record.fenced > 0
        if record.in_controlled_shutdown:
            state.in_controlled_shutdown = record.in_controlled_shutdown > 0
        if record.log_dirs:
            state.directories = tuple(record.log_dirs)

    def _fence(self, record: FenceBrokerRecord) -> None:
        self._broker(record.id, record.epoch).is_fenced = True

    def _unfence(self, record: UnfenceBrokerRecord) -> None:
        self._broker(record.id, record.epoch).is_fenced = False

    def _register_controller(self, record: RegisterControllerRecord) -> None:
        self.controllers[record.controller_id] = record

    def _feature(self, record: FeatureLevelRecord) -> None:
        if record.feature_level:
            self.features[record.name] = record.feature_level
        else:
            self.features.pop(record.name, None)

    def _producer_ids(self, record: ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id

    def _clear_elr(self, record: ClearElrRecord) -> None:
        names = [record.topic_name] if record.topic_name else list(self.topics)
        for name in names:
            if name not in self.topics:
                raise BadMetadata(f"topic {name} was never made")
            for partition in self.topics[name].partitions.values():
                partition.eligible_leader_replicas = ()
                partition.last_known_elr = ()

    def _nothing(self, record: NoOpRecord) -> None:
        """It only moves the log forward."""


REPLAY: dict[type[Data], Callable[[ClusterImage, Any], None]] = {
    TopicRecord: ClusterImage._topic,
    RemoveTopicRecord: ClusterImage._remove_topic,
    PartitionRecord: ClusterImage._partition,
    PartitionChangeRecord: ClusterImage._partition_change,
    ConfigRecord: ClusterImage._config,
    RegisterBrokerRecord: ClusterImage._register_broker,
    UnregisterBrokerRecord: ClusterImage._unregister_broker,
    BrokerRegistrationChangeRecord: ClusterImage._broker_change,
    FenceBrokerRecord: ClusterImage._fence,
    UnfenceBrokerRecord: ClusterImage._unfence,
    RegisterControllerRecord: ClusterImage._register_controller,
    FeatureLevelRecord: ClusterImage._feature,
    ProducerIdsRecord: ClusterImage._producer_ids,
    ClearElrRecord: ClusterImage._clear_elr,
    NoOpRecord: ClusterImage._nothing,
}


def has_colliding_characters(name: str) -> bool:
    return "." in name or "_" in name


def collision_name(name: str) -> str:
    return name.replace(".", "_")
