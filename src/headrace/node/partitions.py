"""All partitions that this broker has, by name and by id.

Committed metadata makes, changes and removes partitions here. Where their logs lie is told by
`node/homes.py`; what happens to log directories as a whole is in `node/log_directories.py`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any
from zlib import crc32

from headrace.base.ids import TopicId
from headrace.base.limits import MESSAGE_CHARACTERS_MAX
from headrace.base.time import Now
from headrace.machines.configs.values import InvalidConfig
from headrace.machines.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE, ClusterImage, TopicState
from headrace.node.homes import Awaited, Homes
from headrace.node.log_directories import LogDirectories
from headrace.node.partition import Partition
from headrace.node.partition_gate import Gates
from headrace.node.ports import Ports
from headrace.node.settings import LiveSettings
from headrace.node.strays import Strays
from headrace.node.topic_config import TopicConfigs
from headrace.protocol.metadata_records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from headrace.storage.errors import DiskFull, LogOffline, StorageError, is_transient
from headrace.storage.log import PartitionLog

INTERNAL_TOPICS = frozenset(
    ("__consumer_offsets", "__transaction_state", "__share_group_state", "__sink_sessions")
)


class Partitions:
    def __init__(
        self,
        broker_id: int,
        settings: LiveSettings,
        directories: LogDirectories,
        gates: Gates,
        strays: Strays,
        ports: Ports,
    ) -> None:
        self._broker_id = broker_id
        self._settings = settings
        self._directories = directories
        self._gates = gates
        self._deadlines = ports.deadlines
        self._reports = ports.reports
        self._waiting = ports.waiting
        self._by_name: dict[str, list[Partition]] = {}
        self._by_id: dict[bytes, list[Partition]] = {}
        # the hot path looks topics up with these, without a call in between
        self.of_name: Callable[[str], list[Partition] | None] = self._by_name.get
        self.of_id: Callable[[bytes], list[Partition] | None] = self._by_id.get
        self._homes = Homes(broker_id, settings.current.log_dirs, directories, strays, ports.reports)
        self._arriving: dict[Partition, Awaited] = {}  # logs that have moved and not got their name yet
        self._configs: TopicConfigs | None = None
        directories.house(self)

    # --- questions ---------------------------------------------------------------------------------------

    def all(self) -> list[Partition]:
        return [partition for partitions in self._by_name.values() for partition in partitions]

    def dirty(self) -> list[Partition]:
        """Those with records that no fsync has covered yet."""
        return [
            partition
            for partitions in self._by_name.values()
            for partition in partitions
            if (log := partition.log) is not None
            and log.flushed_offset < log.log_end_offset
            and not partition.is_offline
        ]

    def at(self, topic: str, index: int) -> Partition | None:
        partitions = self.of_name(topic)
        return partitions[index] if partitions is not None and 0 <= index < len(partitions) else None

    # --- committed metadata ------------------------------------------------------------------------------

    def load(self, now: Now, image: ClusterImage, removed: frozenset[bytes]) -> None:
        """Everything the metadata log knew at the start; `removed` are topics that its records removed."""
        self._take_settings(image)
        looked = self._homes.look(now, image, removed)
        for topic in image.topics.values():
            self._take(now, image, topic)
        for (topic_id, index), awaited in looked.unnamed.items():
            self.arrives(self._by_id[topic_id][index], awaited)
        for place, home in looked.lost.items():
            self._leave_offline(now, place, home)
        for partition in self.all():
            # its directory was read, and failed before there was a partition to tell
            if self._directories[partition.directory].is_offline and not partition.is_offline:
                partition.go_offline(now)
        for name, directory in self._directories.items():
            if directory.trust == "lost":
                self._recover_all(now, name)
        self._homes.sweep(now, removed, self._name_of)

    def _name_of(self, topic_id: bytes) -> tuple[str, int] | None:
        partitions = self._by_id.get(topic_id)
        return None if partitions is None else (partitions[0].topic, len(partitions))

    def _leave_offline(self, now: Now, place: tuple[bytes, int], home: str) -> None:
        topic_id, index = place
        partition = self._by_id[topic_id][index]
        self.rehome(partition, home)
        partition.go_offline(now)
        self._reports.report(
            "error",
            "partition_offline",
            partition=f"{partition.topic}-{index}",
            advice="its log directory is offline or not in log.dirs: bring it back, or delete the topic",
        )

    def _recover_all(self, now: Now, name: str) -> None:
        """The machine went down: every log is scanned from its recovery point before anybody is served."""
        on_disk = self._homes.found_in(name)
        for partition in self.all():
            if (partition.topic_id, partition.index) in on_disk:
                try:
                    partition.opened(now)
                except StorageError as fault:
                    self._directories.storage_failed(now, partition, fault)

    def committed(self, now: Now, image: ClusterImage, records: list[Any]) -> None:
        """Records that are durable; `image` is the state after them (or later, which does no harm)."""
        touched: dict[bytes, None] = {}
        for record in records:
            kind = type(record)
            if kind is RemoveTopicRecord:
                self._remove(now, record.topic_id)
            elif kind in (TopicRecord, PartitionRecord, PartitionChangeRecord):
                touched[record.topic_id] = None
            elif kind is ConfigRecord:
                self._configured(image, record)
        for topic_id in touched:
            topic = image.topics_by_id.get(TopicId(topic_id))
            if topic is not None:
                self._take(now, image, topic)

    def _configured(self, image: ClusterImage, record: ConfigRecord) -> None:
        if record.resource_type == TOPIC_RESOURCE:
            self._configure(image, record.resource_name)
        elif record.resource_type == BROKER_RESOURCE:
            self._take_settings(image)
            for name in self._by_name:
                self._configure(image, name)

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

    def _configure(self, image: ClusterImage, name: str) -> None:
        assert self._configs is not None
        config, min_insync_replicas = self._configs.of(image.topic_config(name))
        for partition in self._by_name.get(name, ()):
            partition.configure(config, min_insync_replicas)

    def _take(self, now: Now, image: ClusterImage, topic: TopicState) -> None:
        """Make the partitions that are new, and follow changes of those that are known."""
        assert self._configs is not None
        partitions = self._by_id.get(topic.id)
        if partitions is None:
            partitions = self._by_id[topic.id] = self._by_name[topic.name] = []
        config, min_insync_replicas = self._configs.of(image.topic_config(topic.name))
        for index in range(len(topic.partitions)):
            state = topic.partitions[index]
            if index < len(partitions):
                partitions[index].follow(state.replicas, state.isr, state.leader, state.leader_epoch)
                continue
            partitions.append(
                Partition(
                    self._broker_id,
                    topic.name,
                    topic.id,
                    index,
                    directory=self._homes.give(topic.id, index, state),
                    replicas=state.replicas,
                    isr=state.isr,
                    leader_id=state.leader,
                    leader_epoch=state.leader_epoch,
                    config=config,
                    min_insync_replicas=min_insync_replicas,
                    open_log=self._open_log,
                    gates=self._gates,
                    directories=self._directories,
                    waiting=self._waiting,
                    reports=self._reports,
                    deadlines=self._deadlines,
                )
            )

    def _open_log(self, partition: Partition, now: Now) -> PartitionLog:
        if partition in self._arriving:
            self._adopt(partition, now)
        config = partition.config
        jitter_ms = 0
        if config.segment_jitter_ms > 0:
            # from the partition's own identity: spread over partitions, the same after a restart
            seed = crc32(partition.topic_id + partition.index.to_bytes(4, "big"))
            jitter_ms = seed % min(config.segment_jitter_ms, config.segment_ms)
        return self._directories[partition.directory].open_log(
            partition.topic,
            partition.index,
            partition.topic_id,
            config,
            now.wall_ms,
            roll_jitter_ms=jitter_ms,
            producer_id_expiration_ms=self._settings.current.producer_id_expiration_ms,
        )

    # --- moves between directories -------------------------------------------------------------------------

    def rehome(self, partition: Partition, directory: str) -> None:
        """The partition lies in another directory from now on."""
        self._homes.move(partition.topic_id, partition.index, directory)
        partition.directory = directory
        partition.log = None

    def arrives(self, partition: Partition, awaited: Awaited) -> None:
        """Its whole log lies in its directory, and gets its own name before it is opened."""
        self._arriving[partition] = awaited

    def _adopt(self, partition: Partition, now: Now) -> None:
        awaited = self._arriving[partition]
        try:
            self._directories.disks[awaited.source].sync_dir("")
        except OSError as error:
            if is_transient(error):
                raise DiskFull(str(error)) from error
            self._directories.go_offline(now, awaited.source, error)
            partition.go_offline(now)  # a start finds one whole log, wherever the machine goes down
            raise LogOffline(f"{partition.topic}-{partition.index} has not arrived: {error}") from error
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
        partitions = self._by_id.pop(topic_id, None)
        if partitions is None:
            return
        del self._by_name[partitions[0].topic]
        for partition in partitions:
            partition.delete(now)
            home = self._homes.take(topic_id, partition.index)
            delay_ms = partition.config.file_delete_delay_ms
            doom = partial(self._doom, home, partition.topic, partition.index, topic_id, delay_ms)
            self._directories.insist(now, home, doom)

    def _doom(self, home: str, topic: str, index: int, topic_id: bytes, delay_ms: int, now: Now) -> None:
        directory = self._directories[home]
        is_there = self._directories.disks[home].exists(f"{topic}-{index}")
        if is_there and directory.topic_id_of(topic, index) in (None, topic_id):
            self._directories.remove_later(now, delay_ms, home, directory.doom(topic, index))

    # --- what the log directories ask --------------------------------------------------------------------

    def directory_failed(self, now: Now, directory: str) -> None:
        for partition in self.all():
            if partition.directory == directory:
                partition.go_offline(now)

    def high_watermarks(self, directory: str) -> dict[tuple[str, int], int]:
        return {
            (partition.topic, partition.index): partition.leader.high_watermark
            for partition in self.all()
            if partition.directory == directory and partition.log is not None
        }
