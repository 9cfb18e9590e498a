"""All partitions this node has, by name and by id, and the log directories they live in.

Committed metadata makes, changes and removes partitions here. Which directory holds a partition is found on
disk at the start; a new one goes where the fewest are.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from zlib import crc32

from headrace.base.ids import TopicId, new_id_text
from headrace.base.limits import MESSAGE_CHARACTERS_MAX
from headrace.base.time import Now
from headrace.machines.configs.values import InvalidConfig
from headrace.machines.metadata.image import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    ClusterImage,
    PartitionState,
    TopicState,
)
from headrace.node.deadlines import Once
from headrace.node.group_commit import RETRY_MS, GroupCommit
from headrace.node.metadata_check import LastStop, SoundLog, check_metadata, epoch_max, no_log
from headrace.node.partition import Partition
from headrace.node.replica_moves import Awaited, ReplicaMoves
from headrace.node.settings import Settings
from headrace.node.strays import Strays
from headrace.node.topic_config import TopicConfigs
from headrace.protocol.metadata_records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from headrace.storage.checkpoints import META_PROPERTIES, PARTITION_METADATA, parse_properties
from headrace.storage.directory_jobs import CHECKPOINT_LANE, RemoveDirectoryJob
from headrace.storage.disk import Disk, read_whole
from headrace.storage.errors import (
    DiskFull,
    LogOffline,
    StorageError,
    WrongDirectory,
    is_io_error,
    is_transient,
)
from headrace.storage.jobs import Job
from headrace.storage.log import PartitionLog
from headrace.storage.log_directory import LogDirectory
from headrace.storage.moving import Arrival, arrivals
from headrace.storage.open_files import OpenFiles
from headrace.storage.partition_directories import DOOMED, doomed_name
from headrace.storage.stop_record import distrusted_ids
from headrace.storage.strays import Why

if TYPE_CHECKING:
    from headrace.node.node import Node

METADATA_TOPIC = "__cluster_metadata"
INTERNAL_TOPICS = frozenset(
    ("__consumer_offsets", "__transaction_state", "__share_group_state", "__sink_sessions")
)
METADATA_DIRECTORY = f"{METADATA_TOPIC}-0"

# Directory ids up to this one have a meaning of their own: unassigned, lost, migrating (KIP-858).
RESERVED_ID_MAX = 100

# Ids are random: two that differ in so few of their 128 bits are one, which was damaged on disk.
DAMAGED_ID_BITS_MAX = 16


class Partitions:
    def __init__(self, node: "Node", disks: dict[str, Disk], boot_id: str, now: Now) -> None:
        self._node = node
        self.disks = disks
        self.files = OpenFiles(node.settings.headrace_open_files_max)
        self._by_name: dict[str, list[Partition]] = {}
        self._by_id: dict[bytes, list[Partition]] = {}
        # the hot path looks topics up with these, without a call in between
        self.of_name: Callable[[str], list[Partition] | None] = self._by_name.get
        self.of_id: Callable[[bytes], list[Partition] | None] = self._by_id.get
        self.cluster_id = cluster_id_of(node, disks)
        home = metadata_home(node.settings, disks)
        node.settings = node.settings.but(metadata_log_dir=home)
        self.directories: dict[str, LogDirectory] = {}
        self._given_up: set[str] = set()  # of these, since the start
        self.commits: dict[str, GroupCommit] = {}
        self._homes: dict[tuple[bytes, int], str] = {}
        self._found: list[tuple[str, str, int, bytes | None]] = []  # what lay on disk at the start
        self._crowds: dict[str, int] = {}  # partitions per directory
        self._departed: set[str] = set()  # what moves to directories that are offline have left behind
        self._arriving: dict[Partition, Awaited] = {}  # logs that have moved and not got their name yet
        self._configs: TopicConfigs | None = None
        self.moves = ReplicaMoves(node)
        self.strays = Strays(node)
        distrusted = distrusted_ids(disks.values(), boot_id)
        for name, disk in disks.items():
            directory = self.directories[name] = self._look(name, disk, boot_id, distrusted)
            self._crowds[name] = 0
            self.commits[name] = self._group_commit(name)
            for topic, index, topic_id in directory.partitions():
                if topic != METADATA_TOPIC:
                    self._found.append((name, topic, index, topic_id))
        self.sound_metadata = self._check_metadata(home)
        # the node starts: nothing was changed on any disk up to here
        for name, directory in self.directories.items():
            self._take_possession(now, name, directory)

    def _look(self, name: str, disk: Disk, boot_id: str, distrusted: set[str]) -> LogDirectory:
        """A directory that cannot be read is offline from the start, unless it has the metadata. One that
        belongs to somebody else, or does not say to whom, refuses the start; Kafka does the same.
        """
        node = self._node
        try:
            return LogDirectory.look(
                disk,
                name,
                node_id=node.id,
                cluster_id=self.cluster_id,
                directory_id_if_new=node.dice.randbytes(16),
                boot_id=boot_id,
                files=self.files,
                distrusted=distrusted,
            )
        except LogOffline as fault:
            if name == node.settings.metadata_log_dir:
                raise
            self._given_up.add(name)
            node.report("error", "log_directory_offline", directory=name, error=str(fault))
            return LogDirectory.unusable(disk, name, self.files, OSError(str(fault)))

    def _check_metadata(self, home: str) -> SoundLog:
        """Where the sound metadata log ends. Raises when it is not there, or is damaged."""
        disk, directory = self.disks[home], self.directories[home]
        sound = no_log()
        if disk.exists(METADATA_DIRECTORY):
            stop = LastStop(
                directory.trust,
                directory.recovery_point(METADATA_TOPIC, 0),
                epoch_max(disk, home, METADATA_DIRECTORY),
            )
            sound = check_metadata(disk, home, METADATA_DIRECTORY, stop)
        offline = [name for name, each in self.directories.items() if each.is_offline]
        if not sound.end_offset and (self._found or offline):
            # an empty metadata log would make strays of all partitions
            there = f"there are {len(self._found)} partitions in {', '.join(self.disks)}"
            if offline:
                there += f" ({', '.join(offline)} cannot be read)"
            raise WrongDirectory(
                f"{there} but no {METADATA_DIRECTORY}: is a log directory missing from log.dirs, or "
                "metadata.log.dir wrong?"
            )
        return sound

    def _take_possession(self, now: Now, name: str, directory: LogDirectory) -> None:
        if directory.is_offline:
            return
        try:
            directory.take_possession()
        except StorageError as fault:
            if name == self._node.settings.metadata_log_dir:
                raise
            self.go_offline(now, name, fault)
            return
        for damage in directory.damages:
            self._node.report_damage(f"{name}/{damage.path}", damage.what)

    def _group_commit(self, directory: str) -> GroupCommit:
        node = self._node

        def run(job: Any, then: Callable[[Now, Any], None]) -> None:
            def finished(now: Now, result: Any) -> None:
                node.metrics.flushes += 1
                then(now, result)
                node.housekeeping.offsets_moved()  # the next checkpoint tells what is flushed now

            node.run(directory, "flush", job, finished)

        def failed(now: Now, error: Exception) -> None:
            self.go_offline(now, directory, error)

        return GroupCommit(run, failed)

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

    @property
    def is_flushed(self) -> bool:
        return all(commit.is_idle for commit in self.commits.values())

    # --- committed metadata ------------------------------------------------------------------------------

    def load(self, now: Now, image: ClusterImage, removed: frozenset[bytes]) -> None:
        """Everything the metadata log knew at the start; `removed` are topics that its records removed."""
        self._take_settings(image)
        self._settle_homes(image)
        self._adopt_nameless(now, image, removed)
        unnamed = self._receive(now, image, removed)
        lost = self._unreachable(image)
        self._report_missing(image, lost)
        for topic in image.topics.values():
            self._take(now, image, topic)
        for (topic_id, index), awaited in unnamed.items():
            self.arrives(self._by_id[topic_id][index], awaited)
        for place, home in lost.items():
            self._leave_offline(now, place, home)
        for partition in self.all():
            # its directory was read, and failed before there was a partition to tell
            if self.directories[partition.directory].is_offline and not partition.is_offline:
                partition.go_offline(now)
        for name, directory in self.directories.items():
            if directory.trust == "lost":
                self._recover_all(now, name)
        self._sweep_strays(now, removed)
        self._forget_distrust(now)

    def _unreachable(self, image: ClusterImage) -> dict[tuple[bytes, int], str]:
        """Partitions whose log was not found, because the metadata places it in a directory that is offline
        or that this node was not given, or because it had just moved to one: to begin them again would give
        their offsets to other records.
        """
        online = {each.directory_id for each in self.directories.values() if not each.is_offline}
        broken = [name for name, each in self.directories.items() if each.is_offline]
        found: dict[tuple[bytes, int], str] = {}
        for topic in image.topics.values():
            for index, state in topic.partitions.items():
                placed = _placed(state, self._node.id)
                if (topic.id, index) in self._homes or placed is None:
                    continue
                if placed in online:
                    # the log that a move leaves behind gets this name before the metadata tells of the move
                    departed = doomed_name(f"{topic.name}-{index}", int.from_bytes(topic.id))
                    if broken and any(self._has(home, departed) for home in self.directories):
                        self._departed.add(departed)
                        found[(topic.id, index)] = min(broken)
                elif int.from_bytes(placed) > RESERVED_ID_MAX:
                    found[(topic.id, index)] = min(broken or self.directories)
        return found

    def _report_missing(self, image: ClusterImage, lost: dict[tuple[bytes, int], str]) -> None:
        """Partitions that a checkpoint knows and whose directory is gone begin again with offset 0."""
        for home, directory in self.directories.items():
            for name, index in directory.missing():
                topic = image.topics.get(name)
                if topic is None or index not in topic.partitions:
                    continue
                place = (topic.id, index)
                if place not in self._homes and place not in lost:
                    self._node.report(
                        "warning",
                        "partition_directory_missing",
                        directory=home,
                        partition=f"{name}-{index}",
                        log_end_offset=directory.recovery_point(name, index),
                        advice="the partition starts empty: to keep its records, stop the broker and restore "
                        "its directory from a backup",
                    )

    def _has(self, home: str, name: str) -> bool:
        try:
            return not self.directories[home].is_offline and self.disks[home].exists(name)
        except OSError:
            return True  # nobody can tell

    def _leave_offline(self, now: Now, place: tuple[bytes, int], home: str) -> None:
        topic_id, index = place
        partition = self._by_id[topic_id][index]
        self.rehome(partition, home)
        partition.go_offline(now)
        self._node.report(
            "error",
            "partition_offline",
            partition=f"{partition.topic}-{index}",
            advice="its log directory is offline or not in log.dirs: bring it back, or delete the topic",
        )

    def _settle_homes(self, image: ClusterImage) -> None:
        """Where each partition lies; of two directories with the same one, where the metadata says."""
        for home, name, index, topic_id in self._found:
            if topic_id is None:
                continue
            topic = image.topics_by_id.get(TopicId(topic_id))
            if topic is not None and topic.name != name:
                continue  # somebody renamed the directory
            state = topic.partitions.get(index) if topic is not None else None
            placed = _placed(state, self._node.id)
            if (topic_id, index) not in self._homes or self.directories[home].directory_id == placed:
                self._homes[(topic_id, index)] = home

    def _recover_all(self, now: Now, name: str) -> None:
        """The machine went down: every log is scanned from its recovery point before anybody is served."""
        on_disk = {(topic_id, index) for home, _, index, topic_id in self._found if home == name}
        for partition in self.all():
            if (partition.topic_id, partition.index) in on_disk:
                try:
                    partition.opened(now)
                except StorageError as fault:
                    self.storage_failed(now, partition, fault)

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
        node = self._node
        dynamic, cluster = image.broker_config(node.id), image.cluster_config
        if dynamic or cluster or self._configs is not None:
            try:
                node.settings = node.settings.overlaid(dynamic, cluster)
            except InvalidConfig as fault:
                # written by an older version: the controller checks what it writes
                node.report("error", "dynamic_settings_ignored", reason=str(fault)[:MESSAGE_CHARACTERS_MAX])
        self._configs = TopicConfigs(node.settings, image)

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
                    self._node,
                    topic.name,
                    topic.id,
                    index,
                    directory=self._home(topic.id, index, state),
                    replicas=state.replicas,
                    isr=state.isr,
                    leader_id=state.leader,
                    leader_epoch=state.leader_epoch,
                    config=config,
                    min_insync_replicas=min_insync_replicas,
                    open_log=self._open_log,
                )
            )

    def _home(self, topic_id: bytes, index: int, state: PartitionState) -> str:
        """Where it lies on disk; for a new one where the controller placed it, or where the fewest are."""
        home = self._homes.get((topic_id, index))
        if home is None:
            data = {
                name: self.directories[name] for name in self._crowds if name in self._node.settings.log_dirs
            }
            placed = _placed(state, self._node.id)
            online = [name for name, directory in data.items() if not directory.is_offline] or list(data)
            home = min(
                (name for name in online if data[name].directory_id == placed),
                default=min(online, key=self._crowds.__getitem__),
            )
            self._homes[(topic_id, index)] = home
        self._crowds[home] += 1
        return home

    def arrives(self, partition: Partition, awaited: Awaited) -> None:
        """Its whole log lies in its directory, and gets its own name before it is opened."""
        self._arriving[partition] = awaited

    def _adopt(self, partition: Partition, now: Now) -> None:
        awaited = self._arriving[partition]
        try:
            self.disks[awaited.source].sync_dir("")
        except OSError as error:
            if is_transient(error):
                raise DiskFull(str(error)) from error
            self.go_offline(now, awaited.source, error)
            partition.go_offline(now)  # a start finds one whole log, wherever the machine goes down
            raise LogOffline(f"{partition.topic}-{partition.index} has not arrived: {error}") from error
        self.directories[partition.directory].adopt(
            partition.topic,
            partition.index,
            awaited.name,
            end_offset=awaited.end_offset,
            first_dirty_offset=awaited.first_dirty_offset,
        )
        del self._arriving[partition]

    def _open_log(self, partition: Partition, now: Now) -> PartitionLog:
        if partition in self._arriving:
            self._adopt(partition, now)
        config = partition.config
        jitter_ms = 0
        if config.segment_jitter_ms > 0:
            # from the partition's own identity: spread over partitions, the same after a restart
            seed = crc32(partition.topic_id + partition.index.to_bytes(4, "big"))
            jitter_ms = seed % min(config.segment_jitter_ms, config.segment_ms)
        return self.directories[partition.directory].open_log(
            partition.topic,
            partition.index,
            partition.topic_id,
            config,
            now.wall_ms,
            roll_jitter_ms=jitter_ms,
            producer_id_expiration_ms=self._node.settings.producer_id_expiration_ms,
        )

    def _remove(self, now: Now, topic_id: bytes) -> None:
        partitions = self._by_id.pop(topic_id, None)
        if partitions is None:
            return
        del self._by_name[partitions[0].topic]
        for partition in partitions:
            partition.delete(now)
            home = self._homes.pop((topic_id, partition.index))
            self._crowds[home] -= 1
            delay_ms = partition.config.file_delete_delay_ms
            doom = partial(self._doom, home, partition.topic, partition.index, topic_id, delay_ms)
            self._insist(now, home, doom)

    def _adopt_nameless(self, now: Now, image: ClusterImage, removed: frozenset[bytes]) -> None:
        """Directories whose partition.metadata is damaged: the name tells whose they are, and no record is
        thrown away on a mere doubt.

        After the loss of a machine one that was never written may be that of an earlier topic, whose removal
        did not last.
        """
        for number, (home, name, index, topic_id) in enumerate(self._found):
            directory = self.directories[home]
            topic = image.topics.get(name)
            if topic is None or topic_id == topic.id or index not in topic.partitions:
                continue
            if topic_id is None:
                if directory.trust == "lost" and directory.has_unflushed_name(name, index, topic.id):
                    continue
            elif topic_id in removed or _bits_apart(topic_id, topic.id) > DAMAGED_ID_BITS_MAX:
                continue
            if self._homes.setdefault((topic.id, index), home) != home:
                continue
            self._found[number] = (home, name, index, topic.id)
            self._node.report_damage(f"{home}/{name}-{index}/{PARTITION_METADATA}", "the topic's id")
            try:
                directory.correct_topic_id(name, index, topic.id)
            except DiskFull:
                pass  # it is written when the log is opened
            except StorageError as fault:
                self.go_offline(now, home, fault)

    def _receive(
        self, now: Now, image: ClusterImage, removed: frozenset[bytes]
    ) -> dict[tuple[bytes, int], Awaited]:
        """Logs on their way from one directory to another: one that had arrived replaces the old one where
        that is gone, and all others are removed. Returns those that have no space for their own name yet.
        """
        unnamed: dict[tuple[bytes, int], Awaited] = {}
        for home, directory in self.directories.items():
            if directory.is_offline:
                continue
            for arrival in arrivals(directory.names()):
                topic = image.topics_by_id.get(arrival.topic_id)
                place = (arrival.topic_id, arrival.partition)
                if arrival.is_whole and topic is not None and place not in self._homes:
                    self._homes[place] = home
                    self._found.append((home, topic.name, arrival.partition, arrival.topic_id))
                    try:
                        directory.adopt(topic.name, arrival.partition, arrival.name)
                    except DiskFull:
                        unnamed[place] = Awaited(home, arrival.name, end_offset=0, first_dirty_offset=0)
                    except StorageError as fault:
                        self.go_offline(now, home, fault)
                elif arrival.is_whole and topic is None and arrival.topic_id not in removed:
                    self._insist(now, home, partial(self._put_arrival_aside, home, arrival))
                else:
                    self._insist(now, home, partial(self._discard, home, arrival))
                if directory.is_offline:
                    break
        return unnamed

    def _put_arrival_aside(self, home: str, arrival: Arrival, now: Now) -> None:
        name = self.directories[home].put_arrival_aside(arrival, now.wall_ms)
        if not self._found:  # the start is over: it has reported the others
            self.strays.add(now, home, name)

    def _discard(self, home: str, arrival: Arrival, now: Now) -> None:
        self._remove_directory(home, self.directories[home].discard(arrival))

    def rehome(self, partition: Partition, directory: str) -> None:
        """The partition lies in another directory from now on."""
        self._crowds[partition.directory] -= 1
        self._crowds[directory] += 1
        self._homes[(partition.topic_id, partition.index)] = directory
        partition.directory = directory
        partition.log = None

    def _sweep_strays(self, now: Now, removed: frozenset[bytes]) -> None:
        """Finish removals that the metadata log tells of, and put aside what it does not know at all: absence
        from the metadata is no reason to delete anything.
        """
        for home, topic, index, topic_id in self._found:
            directory = self.directories[home]
            known = self._by_id.get(topic_id) if topic_id is not None else None
            is_renamed = known is not None and known[0].topic != topic
            is_known = known is not None and index < len(known) and not is_renamed
            if directory.is_offline or (is_known and self._homes[(topic_id or b"", index)] == home):
                continue
            if topic_id in removed:
                self._insist(now, home, partial(self._remove_partition, home, topic, index))
                continue
            why: Why = "unknown"
            if known is not None:
                why = "renamed" if is_renamed else "duplicate" if is_known else "partition"
            self._insist(now, home, partial(self._put_aside, home, topic, index, why))
        self._found.clear()
        for home, directory in self.directories.items():
            if directory.is_offline:
                continue
            try:
                for name in directory.names():
                    if name.endswith(DOOMED) and name not in self._departed:
                        self._remove_directory(home, RemoveDirectoryJob(name))
            except DiskFull as fault:  # no descriptor is left: the next start finds them
                self._node.report("error", "disk_full", directory=home, error=str(fault))
            except StorageError as fault:
                self.go_offline(now, home, fault)
        self.strays.report(now)

    def _remove_directory(self, home: str, job: Job) -> None:
        def removed(now: Now, result: Any) -> None:
            if isinstance(result, Exception):
                self.removal_failed(now, home, job, result)

        self._node.run(home, "removal", job, removed)

    def removal_failed(self, now: Now, home: str, job: Job, error: Exception) -> None:
        self._node.report("warning", "removal_failed", directory=home, error=str(error))
        if isinstance(error, OSError) and is_transient(error):
            self._node.housekeeping.run_later(now, RETRY_MS, home, job)
        else:
            self.job_failed(now, home, error)

    def _remove_partition(self, home: str, topic: str, index: int, now: Now) -> None:
        self._remove_directory(home, self.directories[home].doom(topic, index))

    def _put_aside(self, home: str, topic: str, index: int, why: Why, now: Now) -> None:
        name = self.directories[home].put_aside(topic, index, why, now.wall_ms)
        if not self._found:  # the start is over: it has reported the others
            self.strays.add(now, home, name)

    def _doom(self, home: str, topic: str, index: int, topic_id: bytes, delay_ms: int, now: Now) -> None:
        directory = self.directories[home]
        if self.disks[home].exists(f"{topic}-{index}") and directory.topic_id_of(topic, index) in (
            None,
            topic_id,
        ):
            self._node.housekeeping.run_later(now, delay_ms, home, directory.doom(topic, index))

    def _insist(self, now: Now, home: str, act: Callable[[Now], None]) -> None:
        """Rename a partition's directory away now, or as soon as there is space. Its name is not free before:
        a topic that gets it meanwhile is refused as inconsistent.
        """
        if self.directories[home].is_offline:
            return
        try:
            act(now)
        except DiskFull as fault:
            self._node.report("error", "disk_full", directory=home, error=str(fault))
            self._again(now, lambda now: self._insist(now, home, act))
        except StorageError as fault:
            self.go_offline(now, home, fault)

    def _again(self, now: Now, act: Callable[[Now], None]) -> None:
        Once(self._node.deadlines, now.after_ms(RETRY_MS), act)

    # --- trouble -----------------------------------------------------------------------------------------

    def storage_failed(self, now: Now, partition: Partition, fault: Exception) -> None:
        """A full disk refuses one write; an I/O error costs the directory."""
        if isinstance(fault, DiskFull):
            self._node.report("error", "disk_full", directory=partition.directory, error=str(fault))
        elif isinstance(fault, LogOffline) and not partition.is_offline:
            self.go_offline(now, partition.directory, fault)

    def job_failed(self, now: Now, directory: str, error: BaseException) -> None:
        """A job ended with an error, which its owner has reported: an I/O error costs the directory."""
        if is_io_error(error) and not self.directories[directory].is_offline:
            assert isinstance(error, OSError)
            self.go_offline(now, directory, error)

    def go_offline(self, now: Now, directory: str, error: Exception) -> None:
        node = self._node
        if directory not in self._given_up:  # else a partition that was made since is the first to notice
            self._given_up.add(directory)
            node.report("error", "log_directory_offline", directory=directory, error=str(error))
            cause = error if isinstance(error, OSError) else OSError(str(error))
            self.directories[directory].go_offline(cause)
            self._distrust(directory)
        if directory == node.settings.metadata_log_dir:
            node.halt(f"the metadata directory {directory} failed: {error}")
            return
        for partition in self.all():
            if partition.directory == directory:
                partition.go_offline(now)

    def _distrust(self, failed: str) -> None:
        """The next start on this boot must not take the page cache for the disk: said in the directory
        itself, or, where that fails too, in the others.
        """
        if self.directories[failed].distrust():
            return
        for name, directory in self.directories.items():
            if name != failed and not directory.is_offline:
                directory.distrust_other(self.directories[failed].directory_id)

    def _forget_distrust(self, now: Now) -> None:
        """All logs were recovered: what others noted about their directories is settled."""
        settled = {each.directory_id for each in self.directories.values() if each.is_recovered}
        for name, directory in self.directories.items():
            if directory.is_offline:
                continue
            try:
                directory.settle_others(settled)
            except DiskFull:
                pass  # a start on this boot looks at their logs once more
            except StorageError as fault:
                self.go_offline(now, name, fault)

    # --- checkpoints and the end -------------------------------------------------------------------------

    def checkpoint(self, now: Now) -> None:
        for name, directory in self.directories.items():
            if directory.is_offline:
                continue
            job = directory.checkpoint_job(self._high_watermarks(name))
            if job is not None:
                self._node.run(name, CHECKPOINT_LANE, job, self._checkpointed(name))

    def _checkpointed(self, name: str) -> Callable[[Now, Any], None]:
        def finished(now: Now, result: Any) -> None:
            if isinstance(result, OSError):
                if is_transient(result):
                    self._node.report("error", "disk_full", directory=name, error=str(result))
                    self._node.housekeeping.offsets_moved()
                else:
                    self.go_offline(now, name, result)

        return finished

    def close_clean(self, now: Now) -> None:
        """The end of a stop. A directory without its marker costs the next start a look at its logs, and no
        record: the others have theirs all the same.
        """
        for name, directory in self.directories.items():
            if directory.is_offline:
                continue
            try:
                directory.close_clean(self._high_watermarks(name))
            except StorageError as fault:
                self._node.report("error", "stop_not_clean", directory=name, error=str(fault))

    def _high_watermarks(self, directory: str) -> dict[tuple[str, int], int]:
        return {
            (partition.topic, partition.index): partition.leader.high_watermark
            for partition in self.all()
            if partition.directory == directory and partition.log is not None
        }


def metadata_home(settings: Settings, disks: dict[str, Disk]) -> str:
    """The directory of the metadata log: as it is set, else where it lies, else the first."""
    if "metadata.log.dir" not in settings.texts:
        for name, disk in disks.items():
            try:
                if disk.exists(METADATA_DIRECTORY):
                    return name
            except OSError:
                continue  # it cannot be read, and will be offline
    return settings.metadata_log_dir


def _placed(state: PartitionState | None, node_id: int) -> bytes | None:
    """The directory that the metadata names for this node's replica."""
    return None if state is None else dict(zip(state.replicas, state.directories)).get(node_id)


def _bits_apart(one: bytes, other: bytes) -> int:
    return (int.from_bytes(one) ^ int.from_bytes(other)).bit_count()


def cluster_id_of(node: "Node", disks: dict[str, Disk]) -> str:
    """What the directories say, or the setting says, or a new one; one value for all of them."""
    for disk in disks.values():
        try:
            known = parse_properties(read_whole(disk, META_PROPERTIES)).get("cluster.id")
        except OSError:
            continue  # a new directory, or one that will be offline
        if known:
            return known
    return node.settings.cluster_id or new_id_text(node.dice)
