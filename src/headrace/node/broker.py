"""The broker role: partitions and their logs, fetch sessions, coordinators, and housekeeping.

It follows the committed metadata: records create, change and remove its partitions, and tell its coordinators
about changes of topics and settings.
"""

from typing import TYPE_CHECKING, TypeGuard

from headrace.base.ids import TopicId
from headrace.base.randomness import Randomness
from headrace.base.time import Instant, Now
from headrace.machines.metadata.controller.brokers import Registration
from headrace.machines.metadata.image import (
    BROKER_RESOURCE,
    GROUP_RESOURCE,
    UNCHANGED_LEADER,
    ClusterImage,
    Endpoint,
)
from headrace.machines.metadata.versions import SUPPORTED_FEATURES
from headrace.node.append_queue import AppendQueues
from headrace.node.authorization import Access
from headrace.node.broker_handlers import BrokerHandlers
from headrace.node.broker_lifecycle import BrokerLifecycle
from headrace.node.committed_offsets import CommittedOffsets
from headrace.node.controller_channel import ControllerChannel
from headrace.node.coordinators.groups import GroupCoordinator, ImageTopics
from headrace.node.coordinators.markers import Markers
from headrace.node.coordinators.permits import Permits
from headrace.node.coordinators.sinks import SinkCoordinator
from headrace.node.coordinators.transactions import TransactionCoordinator
from headrace.node.directory_assignments import DirectoryAssignments
from headrace.node.fetch_sessions import FetchSessions
from headrace.node.housekeeping import Housekeeping
from headrace.node.log_directories import LogDirectories
from headrace.node.metadata_log import MetadataLog
from headrace.node.metrics import Metrics
from headrace.node.partition import Partition
from headrace.node.partitions import Partitions
from headrace.node.ports import Once, Ports
from headrace.node.producer_ids import ProducerIds
from headrace.node.replica_feeds import ReplicaFeeds
from headrace.node.replica_moves import ReplicaMoves
from headrace.node.replication import BrokerReplication
from headrace.node.routes import Routes
from headrace.node.settings import LiveSettings
from headrace.node.sliced_reply import Slicing
from headrace.node.strays import Strays
from headrace.node.topic_creation import TopicCreations
from headrace.node.vanished_brokers import VanishedBrokers
from headrace.protocol.errors import ErrorCode
from headrace.protocol.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from headrace.protocol.notation import Data
from headrace.storage.errors import StorageError

if TYPE_CHECKING:
    from headrace.node.cluster_metrics import BrokerNumbers

# How long a stop waits for batches that were accepted and are not in their logs, because other nodes have to
# agree first.
DRAIN_MS_MAX = 2_000


class Broker:
    def __init__(
        self,
        settings: LiveSettings,
        directories: LogDirectories,
        metadata: MetadataLog,
        channel: ControllerChannel,
        access: Access,
        rng: Randomness,
        ports: Ports,
        metrics: Metrics,
        now: Now,
    ) -> None:
        """Creates the partitions that the metadata has. `start` begins background work."""
        self.id = settings.current.node_id
        self.settings = settings
        self.directories = directories
        self.metadata = metadata
        self.access = access
        self.ports = ports
        self.metrics = metrics
        self._drains_by: Instant | None = None  # in a stop
        self._has_roles = False  # it leads and follows
        self.registration = self._registration(rng)
        self.lifecycle = BrokerLifecycle(self.registration, settings, directories, metadata, channel, ports)
        self.creations = TopicCreations(channel, ports.waiting, ports.reports)
        self.fetch_sessions = FetchSessions(
            rng, slots=settings.current.max_incremental_fetch_session_cache_slots
        )
        self.append_queues = AppendQueues(directories, ports, metrics)
        self.strays = Strays(directories, settings, ports, metrics)
        self.vanished = VanishedBrokers(ports.waiting)
        self.replication = BrokerReplication(
            self.id, metadata, channel, settings, directories, self.vanished, ports
        )
        self.partitions = Partitions(
            self.id, settings, directories, self.append_queues, self.strays, self.replication, ports
        )
        self.feeds = ReplicaFeeds(self.id, self.partitions, metadata, access, rng, ports)
        self.producer_ids = ProducerIds(self.id, self.lifecycle, channel, ports.waiting)
        self.slicing = Slicing(ports.deadlines, ports.reports, ports.waiting, metadata)
        if metadata.is_caught_up:
            self._open_partitions(now)
        parts = (self.partitions, directories, metadata, self.creations, settings, ports)
        self.topics = ImageTopics(metadata.image)
        self.groups = GroupCoordinator(*parts, access, self.topics, rng)
        self.markers = Markers(self.partitions, directories, metadata, settings, ports, self._marker_appended)
        self.sinks = SinkCoordinator(*parts, access, self.markers)
        self.transactions = TransactionCoordinator(*parts, access, self.markers)
        self.permits = Permits(self.transactions, self.sinks, metadata, settings, ports, access)
        self.coordinators = (self.groups, self.transactions, self.sinks)
        self._coordinator_of = {coordinator.topic: coordinator for coordinator in self.coordinators}
        self._assignments = DirectoryAssignments(
            self.id, directories, metadata, self.lifecycle, channel, ports
        )
        self.moves = ReplicaMoves(
            self.partitions, directories, self._assignments, ports, self._log_not_opened
        )

    def _open_partitions(self, now: Now) -> None:
        """Creates the partitions that the metadata has; from now on they follow it. They lead and follow once
        this run is registered.
        """
        self.partitions.load(now, self.metadata.image, self.metadata.removed)
        self._admit_damage()
        self.strays.report(now)
        self.directories.forget_distrust(now)
        self.metadata.followers.append(self)

    def _admit_damage(self) -> None:
        """A replica whose log is damaged gets the rest of it from its leader, and is not in sync before. A
        start before that is over must not take it for complete.
        """
        damaged = self.partitions.damaged | {
            partition.directory: None for partition in self.partitions.all() if partition.is_damaged
        }
        for directory in sorted({*damaged, *self.partitions.lacking}):
            self.directories.distrust(directory)
        if damaged or self.partitions.lacking or self.partitions.has_lost_logs:
            self.directories.previous_epoch.lose()  # also if this run ends before the controller knows it
            self.registration.previous_epoch = -1

    def _registration(self, rng: Randomness) -> Registration:
        """What the controller has to know of this run of the broker."""
        settings = self.settings.current
        incarnation_id = rng.randbytes(16)
        previous = self.directories.previous_epoch
        previous.begin(incarnation_id)
        return Registration(
            broker=self.id,
            incarnation_id=incarnation_id,
            endpoints={
                listener.name: Endpoint(listener.host, listener.port, listener.security_protocol_id)
                for listener in settings.advertised_listeners
            },
            features=SUPPORTED_FEATURES,
            rack=settings.broker_rack,
            directories=list(
                dict.fromkeys(  # a copied directory has the id of another
                    directory.directory_id
                    for name, directory in self.directories.online()
                    if name in settings.log_dirs
                )
            ),
            previous_epoch=previous.told(),
        )

    def start(self, now: Now) -> None:
        """Takes up its work when it knows the cluster: outdated metadata would make strays of partitions."""
        if self.metadata.is_caught_up:
            self._start(now)
        else:
            self.metadata.caught_up.append(self._caught_up)

    def _caught_up(self, now: Now) -> None:
        try:
            self._open_partitions(now)
        except StorageError as fault:
            # a disk that fails takes its directory offline; without descriptors nothing can be said of any
            self.ports.reports.halt(f"the logs cannot be opened: {fault}. Raise the limit of open files")
            return
        self.groups.configured()
        self.transactions.configured()
        self._start(now)

    def _start(self, now: Now) -> None:
        """Register, and begin housekeeping."""
        self.lifecycle.start(now)
        self.replication.start(now, self.partitions.all)
        self._assignments.correct(now, self.partitions.all())
        offsets = CommittedOffsets(self.groups, self.metadata, self.settings, self.ports)
        self.housekeeping = Housekeeping(
            self.partitions, self.directories, self.settings, self.ports, self.metrics, offsets, now
        )
        self._take_roles(now, self.metadata.image)

    def _take_roles(self, now: Now, image: ClusterImage) -> None:
        """Once, when the metadata has the registration of this run: partitions lead or follow, and
        coordinators are loaded in the background.
        """
        state = image.brokers.get(self.id)
        if self._has_roles or state is None or state.incarnation_id != self.registration.incarnation_id:
            return
        self._has_roles = True
        self.partitions.take_roles(now, image)
        for coordinator in self.coordinators:
            coordinator.load_all(now)

    def _log_not_opened(self, now: Now, partition: Partition, fault: Exception) -> None:
        for coordinator in self.coordinators:
            coordinator.log_not_opened(now, partition, fault)

    def _marker_appended(self, partition: Partition, producer_id: int, is_commit: bool) -> None:
        self.groups.marker_appended(partition, producer_id, is_commit)
        self.permits.marker_appended(partition, producer_id)

    def serve(self, routes: Routes) -> None:
        BrokerHandlers(self).register(routes)

    def committed(self, now: Now, image: ClusterImage, records: list[Data]) -> None:
        """Metadata that is durable: partitions follow it first, then coordinators."""
        removed = [
            topic.name
            for record in records
            if isinstance(record, RemoveTopicRecord)
            and (topic := self.partitions.of_id(record.topic_id)) is not None
        ]
        self.vanished.committed(now, records)
        self.replication.committed(now, image, records)
        self.partitions.committed(now, image, records)
        self._take_roles(now, image)
        self.lifecycle.committed(now, image, records)
        made = {record.topic_id for record in records if isinstance(record, PartitionRecord)}
        for topic_id in made:
            if (made_topic := self.partitions.of_id(topic_id)) is not None:
                self._assignments.correct(now, made_topic.replicas.values())
        for coordinator in self.coordinators:
            if coordinator.topic in removed:
                coordinator.topic_removed(now)
        for record in records:
            if _begins_epoch(record):
                self._leader_changed(now, image, record)
        kinds = {type(record) for record in records}
        if kinds & {TopicRecord, PartitionRecord, RemoveTopicRecord}:
            self.groups.topics_changed(now, removed)
        has_settings = ConfigRecord in kinds and any(
            isinstance(record, ConfigRecord) and record.resource_type in (BROKER_RESOURCE, GROUP_RESOURCE)
            for record in records
        )
        if has_settings:
            self.groups.configured()
        if has_settings or FeatureLevelRecord in kinds:
            self.transactions.configured()

    def has_left(self, now: Now) -> bool:
        """Whether other brokers lead what this one led, or nobody can; asked again after every call."""
        return self.lifecycle.has_left(now)

    def _leader_changed(
        self, now: Now, image: ClusterImage, record: PartitionChangeRecord | PartitionRecord
    ) -> None:
        """Coordinators are where their partitions are led."""
        topic = image.topics_by_id.get(TopicId(record.topic_id))
        coordinator = self._coordinator_of.get(topic.name) if topic is not None else None
        if coordinator is not None:
            coordinator.leader_changed(now, record.partition_id)

    def is_drained(self, now: Now) -> bool:
        """Whether all that was accepted is in its log and flushed; orders the flushes that are missing. What
        waits for other nodes does not wait for ever: it was not acknowledged, and is sent again elsewhere.
        """
        if self.append_queues.held.undecided:
            if self._drains_by is None:
                self._drains_by = now.after_ms(DRAIN_MS_MAX)
                Once(self.ports.deadlines, self._drains_by, lambda now: None)  # then the node asks again
            if now.mono < self._drains_by:
                return False
            for partition in self.partitions.all():
                if partition.has_queue:
                    partition.append_queue.refuse_all(now, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self.ports.waiting.ask_awake(now)  # whoever sent them is told
        for partition in self.partitions.dirty():
            self.directories.want_flush(now, partition)
        return self.directories.is_flushed

    def numbers(self) -> "BrokerNumbers":
        """Its replicas and in-sync sets, for metrics."""
        from headrace.node.cluster_metrics import BrokerNumbers, replica_numbers

        counts = self.replication.isr_counts
        return BrokerNumbers(replica_numbers(self.partitions.all()), counts.shrinks, counts.expands)

    def log_sizes(self) -> list[tuple[str, int, int]]:
        """Topic, partition and bytes of every open log, for metrics."""
        return [
            (partition.topic, partition.index, partition.log.size_bytes)
            for partition in self.partitions.all()
            if partition.log is not None
        ]


def _begins_epoch(record: Data) -> TypeGuard[PartitionChangeRecord | PartitionRecord]:
    """Whether a partition that existed before may have another leader epoch now. After a snapshot, a
    partition that changed gets its whole state again.
    """
    if isinstance(record, PartitionChangeRecord):
        return record.leader != UNCHANGED_LEADER
    return isinstance(record, PartitionRecord) and record.leader_epoch > 0
