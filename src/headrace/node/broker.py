"""The broker role: partitions and their logs, fetch sessions, coordinators, and housekeeping.

It follows the committed metadata: records make, change and remove its partitions, and its coordinators learn
what happened to topics and settings.
"""

from headrace.base.dice import Dice
from headrace.base.time import Now
from headrace.machines.metadata.controller.brokers import Registration
from headrace.machines.metadata.controller.controller import ControllerDecisions
from headrace.machines.metadata.image import BROKER_RESOURCE, GROUP_RESOURCE, ClusterImage, Endpoint
from headrace.machines.metadata.versions import SUPPORTED_FEATURES
from headrace.node.authorization import Access
from headrace.node.broker_handlers import BrokerHandlers
from headrace.node.coordinators.groups import GroupCoordinator, ImageTopics
from headrace.node.coordinators.markers import Markers
from headrace.node.coordinators.sinks import SinkCoordinator
from headrace.node.coordinators.transactions import TransactionCoordinator
from headrace.node.fetch_sessions import FetchSessions
from headrace.node.housekeeping import Housekeeping
from headrace.node.log_directories import LogDirectories
from headrace.node.metadata_log import MetadataLog
from headrace.node.metrics import Metrics
from headrace.node.partition import Partition
from headrace.node.partition_gate import Gates
from headrace.node.partitions import Partitions
from headrace.node.ports import Ports
from headrace.node.producer_ids import ProducerIds
from headrace.node.replica_moves import ReplicaMoves
from headrace.node.routes import Routes
from headrace.node.settings import LiveSettings
from headrace.node.sliced_reply import Slicing
from headrace.node.strays import Strays
from headrace.protocol.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from headrace.protocol.notation import Data


class Broker:
    def __init__(
        self,
        settings: LiveSettings,
        directories: LogDirectories,
        metadata: MetadataLog,
        decisions: ControllerDecisions,
        access: Access,
        dice: Dice,
        ports: Ports,
        metrics: Metrics,
        now: Now,
    ) -> None:
        """Makes the partitions that the metadata knows. `start` begins what is done without being asked."""
        self.id = settings.current.node_id
        self.settings = settings
        self.directories = directories
        self.metadata = metadata
        self.decisions = decisions
        self.access = access
        self.ports = ports
        self.metrics = metrics
        self._dice = dice
        self.fetch_sessions = FetchSessions(
            dice, slots=settings.current.max_incremental_fetch_session_cache_slots
        )
        self.gates = Gates(directories, ports, metrics)
        self.strays = Strays(directories, settings, ports, metrics)
        self.partitions = Partitions(self.id, settings, directories, self.gates, self.strays, ports)
        self.producer_ids = ProducerIds(self.id, metadata, decisions)
        self.slicing = Slicing(ports.deadlines, ports.reports, ports.waiting, metadata)
        self.partitions.load(now, metadata.image, metadata.removed)
        self.strays.report(now)
        directories.forget_distrust(now)
        parts = (self.partitions, directories, metadata, decisions, settings, ports)
        self.topics = ImageTopics(metadata.image)
        self.groups = GroupCoordinator(*parts, access, self.topics, dice)
        self.markers = Markers(self.partitions, directories, ports, self.groups.marker_appended)
        self.sinks = SinkCoordinator(*parts, self.markers)
        self.transactions = TransactionCoordinator(*parts, access, self.markers, self.sinks)
        self.coordinators = (self.groups, self.transactions, self.sinks)
        self.moves = ReplicaMoves(
            self.id, self.partitions, directories, metadata, decisions, ports, self._log_not_opened
        )
        metadata.followers.append(self)

    def registration(self) -> Registration:
        """What the controller has to know of this broker."""
        settings = self.settings.current
        return Registration(
            broker=self.id,
            incarnation_id=self._dice.randbytes(16),
            endpoints={
                listener.name: Endpoint(listener.host, listener.port, listener.security_protocol_id)
                for listener in settings.advertised_listeners
            },
            features=SUPPORTED_FEATURES,
            rack=settings.broker_rack,
            directories=[
                directory.directory_id
                for name, directory in self.directories.online()
                if name in settings.log_dirs
            ],
        )

    def start(self, now: Now) -> None:
        """Begin housekeeping, and load the coordinators in the background."""
        self.housekeeping = Housekeeping(
            self.partitions, self.directories, self.settings, self.ports, self.metrics, now
        )
        for coordinator in self.coordinators:
            coordinator.load_all(now)

    def _log_not_opened(self, now: Now, partition: Partition, fault: Exception) -> None:
        for coordinator in self.coordinators:
            coordinator.log_not_opened(now, partition, fault)

    def serve(self, routes: Routes) -> None:
        BrokerHandlers(self).register(routes)

    def committed(self, now: Now, image: ClusterImage, records: list[Data]) -> None:
        """Metadata that is durable: partitions follow it first, then coordinators."""
        removed = [
            partitions[0].topic
            for record in records
            if isinstance(record, RemoveTopicRecord)
            and (partitions := self.partitions.of_id(record.topic_id)) is not None
        ]
        self.partitions.committed(now, image, records)
        for coordinator in self.coordinators:
            if coordinator.topic in removed:
                coordinator.topic_removed(now)
        kinds = {type(record) for record in records}
        if kinds & {TopicRecord, PartitionRecord, RemoveTopicRecord}:
            self.groups.topics_changed(now, removed)
        if FeatureLevelRecord in kinds or any(
            isinstance(record, ConfigRecord) and record.resource_type in (BROKER_RESOURCE, GROUP_RESOURCE)
            for record in records
        ):
            self.groups.configured()
            self.transactions.configured()

    def is_drained(self, now: Now) -> bool:
        """Whether all that was accepted is in its log and flushed; orders the flushes that are missing."""
        if self.gates.held.count:
            return False
        for partition in self.partitions.dirty():
            self.directories.want_flush(now, partition)
        return self.directories.is_flushed

    def log_sizes(self) -> list[tuple[str, int, int]]:
        """Topic, partition and bytes of every log that is open, for whoever reports metrics."""
        return [
            (partition.topic, partition.index, partition.log.size_bytes)
            for partition in self.partitions.all()
            if partition.log is not None
        ]
