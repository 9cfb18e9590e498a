"""Image of the cluster from its metadata log: topics, partitions, brokers, settings, features, security.

Only `replay` changes an image, one record after the other, in place: the same records give the same image on
every node and after every restart. The state of a partition or of a broker is a value: a record replaces it
and never changes it, so that copies of an image share it. A record that contradicts the records before it (a
partition of an unknown topic) means that the log is damaged or of another cluster, and raises `BadMetadata`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from headrace.base.ids import BrokerId, TopicId
from headrace.machines.metadata import security_image
from headrace.machines.metadata.errors import BadMetadata
from headrace.machines.metadata.replica_index import ReplicaIndex
from headrace.machines.metadata.security_image import SecurityImage
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


@dataclass(slots=True)
class PartitionState:
    """A value: changes make another one (`changed_partition`)."""

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
    security_protocol: int  # PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL from 0 on

    @property
    def uses_tls(self) -> bool:
        return self.security_protocol in (1, 3)


@dataclass(slots=True)
class BrokerState:
    """A registered broker. A value: changes make another one."""

    id: BrokerId
    epoch: int  # offset of the registration's record
    incarnation_id: bytes  # new at every start of the process
    endpoints: dict[str, Endpoint]  # by listener name
    features: dict[str, tuple[int, int]]
    rack: str | None
    is_fenced: bool  # it leads nothing, is in no ISR, and clients are not told about it
    in_controlled_shutdown: bool  # its leaders move away, and it joins no ISR
    directories: tuple[bytes, ...]  # those that are online
    cordoned_directories: tuple[bytes, ...] = ()

    @property
    def is_active(self) -> bool:
        """It may lead partitions and join their ISR."""
        return not self.is_fenced and not self.in_controlled_shutdown


class ClusterImage:
    __slots__ = (
        "_replica_index",
        "brokers",
        "colliding_names",
        "configs",
        "controllers",
        "features",
        "next_producer_id",
        "partitions_by_directory",
        "security",
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
        self.security = SecurityImage()
        self._replica_index: ReplicaIndex | None = None  # made when the controller first asks

    def copy(self) -> "ClusterImage":
        """An image that changes on its own from now on."""
        other = ClusterImage()
        for topic in self.topics.values():
            twin = TopicState(topic.name, topic.id, dict(topic.partitions))
            other.topics[topic.name] = other.topics_by_id[topic.id] = twin
        other.colliding_names = {name: set(names) for name, names in self.colliding_names.items()}
        other.configs = {resource: dict(values) for resource, values in self.configs.items()}
        other.brokers = dict(self.brokers)
        other.controllers = dict(self.controllers)
        other.features = dict(self.features)
        other.next_producer_id = self.next_producer_id
        other.partitions_by_directory = Counter(self.partitions_by_directory)
        other.security = self.security.copy()
        return other

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
            raise BadMetadata(f"partition {index} of topic id {topic_id.hex()} was never created")
        return topic.partitions[index]

    @property
    def replica_index(self) -> ReplicaIndex:
        """For the controller. Brokers never ask, and keep no index."""
        if self._replica_index is None:
            index = self._replica_index = ReplicaIndex()
            for topic, number, partition in self.partitions():
                index.change((topic.id, number), None, partition)
        return self._replica_index

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
            raise BadMetadata(f"this version of Headrace does not support {type(record).__name__}")
        replay(self, record)

    def _topic(self, record: TopicRecord) -> None:
        if record.name in self.topics:
            raise BadMetadata(f"topic {record.name} was created twice")
        topic = TopicState(record.name, TopicId(record.topic_id))
        self.topics[topic.name] = topic
        self.topics_by_id[topic.id] = topic
        if has_colliding_characters(topic.name):
            self.colliding_names.setdefault(collision_name(topic.name), set()).add(topic.name)

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        topic = self.topics_by_id.pop(TopicId(record.topic_id), None)
        if topic is None:
            raise BadMetadata(f"topic id {record.topic_id.hex()} was removed but never created")
        del self.topics[topic.name]
        for number, partition in topic.partitions.items():
            self.partitions_by_directory.subtract(partition.directories)
            if self._replica_index is not None:
                self._replica_index.change((topic.id, number), partition, None)
        self.configs.pop((TOPIC_RESOURCE, topic.name), None)
        if has_colliding_characters(topic.name):
            names = self.colliding_names[collision_name(topic.name)]
            names.discard(topic.name)
            if not names:
                del self.colliding_names[collision_name(topic.name)]

    def _partition(self, record: PartitionRecord) -> None:
        topic = self.topics_by_id.get(TopicId(record.topic_id))
        if topic is None:
            raise BadMetadata(f"partition of topic id {record.topic_id.hex()}, which was never created")
        before = topic.partitions.get(record.partition_id)
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
        if before is not None:
            self.partitions_by_directory.subtract(before.directories)
        self.partitions_by_directory.update(partition.directories)
        if self._replica_index is not None:
            self._replica_index.change((topic.id, record.partition_id), before, partition)

    def _partition_change(self, record: PartitionChangeRecord) -> None:
        before = self.partition(record.topic_id, record.partition_id)
        self._replace(
            TopicId(record.topic_id), record.partition_id, before, changed_partition(before, record)
        )

    def _replace(self, topic_id: TopicId, number: int, before: PartitionState, after: PartitionState) -> None:
        if after.directories != before.directories:
            self.partitions_by_directory.subtract(before.directories)
            self.partitions_by_directory.update(after.directories)
        self.topics_by_id[topic_id].partitions[number] = after
        if self._replica_index is not None:
            self._replica_index.change((topic_id, number), before, after)

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
            cordoned_directories=tuple(record.cordoned_log_dirs or ()),
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
        cordoned = record.cordoned_log_dirs
        self.brokers[state.id] = replace(
            state,
            is_fenced=record.fenced > 0 if record.fenced else state.is_fenced,
            in_controlled_shutdown=record.in_controlled_shutdown > 0
            if record.in_controlled_shutdown
            else state.in_controlled_shutdown,
            directories=tuple(record.log_dirs) or state.directories,
            cordoned_directories=state.cordoned_directories if cordoned is None else tuple(cordoned),
        )

    def _fence(self, record: FenceBrokerRecord) -> None:
        self.brokers[record.id] = replace(self._broker(record.id, record.epoch), is_fenced=True)

    def _unfence(self, record: UnfenceBrokerRecord) -> None:
        self.brokers[record.id] = replace(self._broker(record.id, record.epoch), is_fenced=False)

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
                raise BadMetadata(f"topic {name} was never created")
            topic = self.topics[name]
            for number, partition in list(topic.partitions.items()):
                if partition.eligible_leader_replicas or partition.last_known_elr:
                    cleared = replace(partition, eligible_leader_replicas=(), last_known_elr=())
                    self._replace(topic.id, number, partition, cleared)

    def _security(self, record: Data) -> None:
        self.security.replay(record)

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
    **dict.fromkeys(security_image.REPLAY, ClusterImage._security),
}


def changed_partition(partition: PartitionState, record: PartitionChangeRecord) -> PartitionState:
    """What a record makes of a partition. Naming a leader, even the same one, begins a new epoch."""
    leads_anew = record.leader != UNCHANGED_LEADER
    recovery = record.leader_recovery_state
    elr, last_known = record.eligible_leader_replicas, record.last_known_elr
    return PartitionState(
        partition.replicas if record.replicas is None else tuple(record.replicas),
        partition.isr if record.isr is None else tuple(record.isr),
        record.leader if leads_anew else partition.leader,
        partition.leader_epoch + leads_anew,
        partition.partition_epoch + 1,
        partition.directories if record.directories is None else tuple(record.directories),
        partition.removing_replicas if record.removing_replicas is None else tuple(record.removing_replicas),
        partition.adding_replicas if record.adding_replicas is None else tuple(record.adding_replicas),
        partition.eligible_leader_replicas if elr is None else tuple(elr),
        partition.last_known_elr if last_known is None else tuple(last_known),
        partition.leader_recovery_state if recovery < 0 else recovery,
    )


def has_colliding_characters(name: str) -> bool:
    return "." in name or "_" in name


def collision_name(name: str) -> str:
    return name.replace(".", "_")
