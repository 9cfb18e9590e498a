"""All topics of the cluster with the partitions of which this broker has a replica, by name and by id.

Committed metadata creates, changes and removes partitions. `node/partition_locations.py` knows their log
directories; `node/log_directories.py` handles log directories as a whole.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from zlib import crc32

from headrace.base.ids import TopicId
from headrace.base.limits import MESSAGE_CHARACTERS_MAX
from headrace.base.time import Now
from headrace.machines.configs.values import InvalidConfig
from headrace.machines.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, ClusterImage, TopicState
from headrace.node.append_queue import AppendQueues
from headrace.node.log_directories import LogDirectories
from headrace.node.partition import Partition
from headrace.node.partition_locations import Awaited, PartitionLocations
from headrace.node.ports import Ports
from headrace.node.replication_ports import Replication
from headrace.node.settings import LiveSettings
from headrace.node.strays import Strays
from headrace.node.topic_config import TopicConfigs
from headrace.protocol.errors import ErrorCode
from headrace.protocol.metadata_records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from headrace.storage.errors import DiskFull, LogOffline, StorageError, is_transient
from headrace.storage.log import PartitionLog
from headrace.storage.lost_segments import LostSegments
from headrace.storage.moving import Arrival

INTERNAL_TOPICS = frozenset(
    ("__consumer_offsets", "__transaction_state", "__share_group_state", "__sink_sessions")
)


class TopicReplicas:
    """A topic of the cluster: how many partitions it has, and those of which this broker has a replica."""

    __slots__ = ("count", "id", "name", "replicas")

    def __init__(self, name: str, id: TopicId) -> None:
        self.name = name
        self.id = id
        self.count = 0
        self.replicas: dict[int, Partition] = {}

    def absence(self, index: int) -> ErrorCode:
        """Why a partition is not among the replicas: others have it, or nobody."""
        if 0 <= index < self.count:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Partitions:
    def __init__(
        self,
        broker_id: int,
        settings: LiveSettings,
        directories: LogDirectories,
        append_queues: AppendQueues,
        strays: Strays,
        replication: Replication,
        ports: Ports,
    ) -> None:
        self._broker_id = broker_id
        self._settings = settings
        self._directories = directories
        self._append_queues = append_queues
        self._replication = replication
        self._deadlines = ports.deadlines
        self._reports = ports.reports
        self._waiting = ports.waiting
        self.damaged: dict[str, None] = {}  # directories with logs that the start has cut
        self._by_name: dict[str, TopicReplicas] = {}
        self._by_id: dict[bytes, TopicReplicas] = {}
        self._all: list[Partition] | None = None  # None: to be listed again
        # the hot path looks topics up with these, without a call in between
        self.of_name: Callable[[str], TopicReplicas | None] = self._by_name.get
        self.of_id: Callable[[bytes], TopicReplicas | None] = self._by_id.get
        self._locations = PartitionLocations(
            broker_id, settings.current.log_dirs, directories, strays, ports.reports
        )
        self._arriving: dict[Partition, Awaited] = {}  # logs that have moved and not got their name yet
        self._configs: TopicConfigs | None = None
        self._have_roles = False  # those that the metadata give them
        self.lacking: set[str] = set()  # see `Looked`
        directories.house(self)

    # --- questions ---------------------------------------------------------------------------------------

    def all(self) -> list[Partition]:
        listed = self._all
        if listed is None:
            topics = self._by_name.values()
            listed = self._all = [one for topic in topics for one in topic.replicas.values()]
        return listed.copy()

    def dirty(self) -> list[Partition]:
        """Those with records that no fsync has covered yet."""
        return [
            partition
            for topic in self._by_name.values()
            for partition in topic.replicas.values()
            if (log := partition.log) is not None
            and log.flushed_offset < log.log_end_offset
            and not partition.is_offline
        ]

    def at(self, topic: str, index: int) -> Partition | None:
        found = self.of_name(topic)
        return found.replicas.get(index) if found is not None else None

    @property
    def has_lost_logs(self) -> bool:
        """Whether a directory is gone, and partitions begin again that other brokers have."""
        return self._locations.has_lost_logs

    # --- committed metadata ------------------------------------------------------------------------------

    def load(self, now: Now, image: ClusterImage, removed: frozenset[bytes]) -> None:
        """Everything the metadata log knew at the start, without roles; `removed` are topics that its records
        removed.
        """
        self._take_settings(image)
        looked = self._locations.look(now, image, removed)
        self.lacking = looked.lacking
        for topic in image.topics.values():
            self._make(image, topic, topic.partitions)
        for (topic_id, index), awaited in looked.unnamed.items():
            self.arrives(self._by_id[topic_id].replicas[index], awaited)
        for place, log_dir in looked.lost.items():
            self._leave_offline(now, place, log_dir)
        for partition in self.all():
            # its directory was read, and failed before there was a partition to tell
            if self._directories[partition.directory].is_offline and not partition.is_offline:
                partition.go_offline(now)
        for name, directory in self._directories.items():
            if directory.trust != "clean":
                self._recover_all(now, name, image, are_shared=directory.trust == "killed")
        for (topic_id, index), lost in looked.incomplete.items():
            self._doubt(now, self._by_id[topic_id].replicas[index], lost)
        self._locations.sweep(now, removed, self._name_of)

    def take_roles(self, now: Now, image: ClusterImage) -> None:
        """This run of the broker is registered. Before, the metadata speak of its last run, which may have
        had records that are lost: in leader epochs of that run nothing is appended or told.
        """
        self._have_roles = True
        for topic in image.topics.values():
            self._take(now, image, topic, topic.partitions)

    def _name_of(self, topic_id: bytes) -> tuple[str, int] | None:
        topic = self._by_id.get(topic_id)
        return None if topic is None else (topic.name, topic.count)

    def _leave_offline(self, now: Now, place: tuple[bytes, int], log_dir: str) -> None:
        topic_id, index = place
        partition = self._by_id[topic_id].replicas[index]
        self.relocate(partition, log_dir)
        partition.go_offline(now)
        self._reports.report(
            "error",
            "partition_offline",
            partition=f"{partition.topic}-{index}",
            advice="its log directory is offline or not in log.dirs: bring it back, or delete the topic",
        )

    def _doubt(self, now: Now, partition: Partition, lost: LostSegments) -> None:
        """Some of its segments are missing, and others have them. Nothing of it is removed before another
        replica leads: whether the others are still in sync is known to the controller alone.
        """
        try:
            partition.opened(now)
            self._directories[partition.directory].doubt(partition.topic, partition.index, lost)
        except StorageError as fault:
            self._directories.storage_failed(now, partition, fault)

    def _recover_all(self, now: Now, name: str, image: ClusterImage, *, are_shared: bool) -> None:
        """The host went down: every log is scanned from its recovery point before anybody is served. After a
        kill it is enough to look at those that have other replicas: a replica whose log is damaged must not
        be taken for one in sync. If no other replica has the rest of a damaged log, it stays as it is, and
        also if there is no space to note the loss.
        """
        on_disk = self._locations.found_in(name)
        is_noted = False
        for partition in self.all():
            if are_shared and len(partition.replicas) < 2:
                continue
            if (partition.topic_id, partition.index) in on_disk:
                try:
                    partition.opened(now)
                    state = image.topics_by_id[partition.topic_id].partitions[partition.index]
                    if not partition.is_damaged or self._locations.is_counted_on(state):
                        continue
                    is_noted = is_noted or self._directories.note_loss(name)
                    if is_noted:
                        partition.cut_damage()
                        self.damaged[name] = None
                except StorageError as fault:
                    self._directories.storage_failed(now, partition, fault)

    def committed(self, now: Now, image: ClusterImage, records: list[Any]) -> None:
        """Records that are durable; `image` is the state after them (or later, which does no harm)."""
        touched: dict[bytes, dict[int, None]] = {}
        for record in records:
            kind = type(record)
            if kind is RemoveTopicRecord:
                self._remove(now, record.topic_id)
            elif kind is TopicRecord:
                touched.setdefault(record.topic_id, {})
            elif kind is PartitionRecord or kind is PartitionChangeRecord:
                touched.setdefault(record.topic_id, {})[record.partition_id] = None
            elif kind is ConfigRecord:
                self._configured(now, image, record)
        for topic_id, indexes in touched.items():
            topic = image.topics_by_id.get(TopicId(topic_id))
            if topic is not None:
                self._take(now, image, topic, indexes)

    def _configured(self, now: Now, image: ClusterImage, record: ConfigRecord) -> None:
        if record.resource_type == TOPIC_RESOURCE:
            self._configure(now, image, record.resource_name)
        elif record.resource_type == BROKER_RESOURCE:
            self._take_settings(image)
            for name in self._by_name:
                self._configure(now, image, name)

    def _take_settings(self, image: ClusterImage) -> None:
        """The file's settings with the dynamic ones over them, and what topics get from both."""
        settings = self._settings
        dynamic, cluster = image.broker_config(self._broker_id), image.cluster_config
        if dynamic or cluster or self._configs is not None:
            try:
                settings.current = settings.current.overlaid(dynamic, cluster)
            except InvalidConfig as fault:
                # written by an older version: the controller checks what it writes
                reason = str(fault)[:MESSAGE_CHARACTERS_MAX]
                self._reports.report("error", "dynamic_settings_ignored", reason=reason)
        self._configs = TopicConfigs(settings.current, image)

    def _configure(self, now: Now, image: ClusterImage, name: str) -> None:
        assert self._configs is not None
        config, min_insync_replicas = self._configs.of(image.topic_config(name))
        topic = self._by_name.get(name)
        for partition in topic.replicas.values() if topic is not None else ():
            partition.configure(now, config, min_insync_replicas)

    def _take(self, now: Now, image: ClusterImage, topic: TopicState, indexes: Iterable[int]) -> None:
        """Make partitions that are new and have a replica here, and tell all what has changed."""
        known = self._make(image, topic, indexes)
        for index in indexes if self._have_roles else ():
            partition = known.replicas.get(index)
            if partition is not None:
                partition.take(now, topic.partitions[index])

    def _make(self, image: ClusterImage, topic: TopicState, indexes: Iterable[int]) -> TopicReplicas:
        """Make those that are new and have a replica here. They have no role before they `take` one."""
        known = self._by_id.get(topic.id)
        if known is None:
            known = self._by_id[topic.id] = self._by_name[topic.name] = TopicReplicas(topic.name, topic.id)
        known.count = len(topic.partitions)
        new = [
            index
            for index in indexes
            if index not in known.replicas and self._broker_id in topic.partitions[index].replicas
        ]
        if new:
            self._all = None
            assert self._configs is not None
            config, min_insync_replicas = self._configs.of(image.topic_config(topic.name))
        for index in new:
            state = topic.partitions[index]
            known.replicas[index] = Partition(
                self._broker_id,
                topic.name,
                topic.id,
                index,
                state,
                directory=self._locations.give(topic.id, index, state),
                config=config,
                min_insync_replicas=min_insync_replicas,
                open_log=self._open_log,
                replication=self._replication,
                append_queues=self._append_queues,
                directories=self._directories,
                waiting=self._waiting,
                reports=self._reports,
                deadlines=self._deadlines,
            )
        return known

    def _open_log(self, partition: Partition, now: Now) -> PartitionLog:
        awaited = self._arriving.get(partition)
        if awaited is not None:
            self._adopt(partition, awaited, now)
        config = partition.config
        jitter_ms = 0
        if config.segment_jitter_ms > 0:
            # from the partition's own identity: spread over partitions, the same after a restart
            seed = crc32(partition.topic_id + partition.index.to_bytes(4, "big"))
            jitter_ms = seed % min(config.segment_jitter_ms, config.segment_ms)
        log = self._directories[partition.directory].open_log(
            partition.topic,
            partition.index,
            partition.topic_id,
            config,
            now.wall_ms,
            roll_jitter_ms=jitter_ms,
            producer_id_expiration_ms=self._settings.current.producer_id_expiration_ms,
            has_copies=len(partition.replicas) > 1,
        )
        if awaited is not None:  # what is missing is not found again: the copy is durable up to its end
            log.damages += (damage for damage in awaited.damages if damage not in log.damages)
        return log

    # --- moves between directories -------------------------------------------------------------------------

    def relocate(self, partition: Partition, directory: str) -> None:
        """The partition lies in another directory from now on."""
        self._locations.move(partition.topic_id, partition.index, directory)
        partition.directory = directory
        partition.log = None

    def arrives(self, partition: Partition, awaited: Awaited) -> None:
        """Its whole log lies in its directory, and gets its own name before it is opened."""
        self._arriving[partition] = awaited

    def _adopt(self, partition: Partition, awaited: Awaited, now: Now) -> None:
        try:
            self._directories.disks[awaited.source].sync_dir("")
        except OSError as error:
            if is_transient(error):
                raise DiskFull(str(error)) from error
            self._directories.go_offline(now, awaited.source, error)
            partition.go_offline(now)  # a start finds one whole log, wherever the host goes down
            raise LogOffline(
                f"the moved log of {partition.topic}-{partition.index} cannot be renamed yet: {error}"
            ) from error
        self._directories[partition.directory].adopt(
            partition.topic,
            partition.index,
            awaited.name,
            end_offset=awaited.end_offset,
            first_dirty_offset=awaited.first_dirty_offset,
        )
        del self._arriving[partition]

    # --- removal -------------------------------------------------------------------------------------------

    def _remove(self, now: Now, topic_id: bytes) -> None:
        topic = self._by_id.pop(topic_id, None)
        if topic is None:
            return
        del self._by_name[topic.name]
        self._all = None
        for partition in topic.replicas.values():
            partition.delete(now)
            log_dir = self._locations.take(topic_id, partition.index)
            awaited = self._arriving.pop(partition, None)
            if awaited is not None:  # it never got its name
                arrival = Arrival(awaited.name, TopicId(topic_id), partition.index, is_whole=True)
                self._directories.insist(now, log_dir, partial(self._discard, log_dir, arrival))
                continue
            delay_ms = partition.config.file_delete_delay_ms
            doom = partial(self._doom, log_dir, partition.topic, partition.index, topic_id, delay_ms)
            self._directories.insist(now, log_dir, doom)

    def _discard(self, log_dir: str, arrival: Arrival, now: Now) -> None:
        self._directories.remove(log_dir, self._directories[log_dir].discard(arrival))

    def _doom(self, log_dir: str, topic: str, index: int, topic_id: bytes, delay_ms: int, now: Now) -> None:
        directory = self._directories[log_dir]
        is_there = self._directories.disks[log_dir].exists(f"{topic}-{index}")
        if is_there and directory.topic_id_of(topic, index) in (None, topic_id):
            self._directories.remove_later(now, delay_ms, log_dir, directory.doom(topic, index))

    # --- what the log directories ask --------------------------------------------------------------------

    def directory_failed(self, now: Now, directory: str) -> None:
        for partition in self.all():
            if partition.directory == directory:
                partition.go_offline(now)

    def high_watermarks(self, directory: str) -> dict[tuple[str, int], int]:
        return {
            (partition.topic, partition.index): partition.high_watermark
            for partition in self.all()
            if partition.directory == directory and partition.log is not None
        }
