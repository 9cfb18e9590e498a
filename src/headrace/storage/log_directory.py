"""One data directory: which node it belongs to, whether its last stop was clean, and the logs in it.

    meta.properties                     node, cluster and directory id
    .kafka_cleanshutdown                only between a clean stop and the next start
    .headrace_boot_id                   the kernel's boot id of the last run
    recovery-point-offset-checkpoint    per partition: everything below was flushed
    log-start-offset-checkpoint         per partition: everything below was deleted
    replication-offset-checkpoint       per partition: the high watermark
    cleaner-offset-checkpoint           per compacted partition: where its dirty part begins
    .headrace_checkpoint_sums           checksums of the four above and of meta.properties
    <topic>-<partition>/                a log, with partition.metadata
      .headrace_fresh.<topic id>        the checkpoints still speak of an earlier topic of this name
    <topic>-<partition>.<id>-delete/    a log that waits for its removal
    <topic>-<partition>.<…>-stray/      a log that the metadata does not know: see `strays`
    <topic>-<partition>.<id>-future/    a log that comes from another directory, and -moved: see `moving`

The boot id is renewed at once after a clean stop or a kill, but after the loss of the machine only when
every log was recovered: a second crash in between must not pass for a mere kill.
"""

import re
from collections.abc import Iterable, Mapping, Set

from headrace.base.ids import DirectoryId, TopicId, id_from_text, id_text
from headrace.storage import checkpoints
from headrace.storage.checkpoint_sums import (
    CLEAN_MARKER_CONTENT,
    SUMS,
    DamagedSums,
    Sums,
    are_replaced,
    read_sums,
    sum_of,
    write_checkpoints,
)
from headrace.storage.checkpoints import MalformedCheckpoint, Partition
from headrace.storage.config import LogConfig
from headrace.storage.damage import Damage
from headrace.storage.directory_jobs import FRESH, CheckpointJob, RemoveDirectoryJob
from headrace.storage.disk import Disk, read_whole, write_atomically
from headrace.storage.errors import (
    DamagedProperties,
    DiskFull,
    InconsistentTopicId,
    WrongDirectory,
    is_transient,
)
from headrace.storage.health import Health
from headrace.storage.log import PartitionLog
from headrace.storage.moving import Arrival, arrivals, arrive
from headrace.storage.open_files import OpenFiles
from headrace.storage.recovery import Recovery, Trust
from headrace.storage.strays import Stray, Why, parse_stray, stray_name

CLEAN_MARKER = ".kafka_cleanshutdown"
BOOT_ID = ".headrace_boot_id"
# Takes the place of the boot id after an I/O error: the page cache may hold bytes that the disk never got.
_DISTRUSTED = "distrusted "
# The same about other directories, one directory id and boot id per line, where they could not be written to.
DISTRUSTED_OTHERS = ".headrace_distrusted"
DOOMED = "-delete"

_NAME_BYTES_MAX = 255
_NUMBER = re.compile("[1-9][0-9]{0,9}")
# A partition.metadata that is cut short still tells whose it is, if it has four of the id's 22 characters.
_ID_CHARACTERS_MAX_LOST = 18


def _mark(directory: str, topic_id: bytes) -> str:
    return f"{directory}/{FRESH}.{topic_id.hex()}"


def distrusted_ids(disks: Iterable[Disk], boot_id: str) -> set[str]:
    """Directories about which others noted an I/O error on this boot."""
    found: set[str] = set()
    for disk in disks:
        try:
            lines = read_whole(disk, DISTRUSTED_OTHERS).decode(errors="replace").splitlines()
        except OSError:
            continue
        found.update(line.partition(" ")[0] for line in lines if line.partition(" ")[2] == boot_id)
    return found


def doomed_name(directory: str, number: int) -> str:
    suffix = f".{number:032x}{DOOMED}"
    return directory[: _NAME_BYTES_MAX - len(suffix)] + suffix


class LogDirectory:
    __slots__ = (
        "_boot_id",
        "_cleaner_offsets",
        "_disk",
        "_files",
        "_found",
        "_fresh",
        "_has_jobs",
        "_has_marker",
        "_has_old_sums",
        "_health",
        "_high_watermarks",
        "_is_distrusted",
        "_is_lowered",
        "_is_marked",
        "_is_possessed",
        "_is_same_boot",
        "_log_starts",
        "_logs",
        "_mentioned",
        "_new_properties",
        "_recovery_points",
        "_sums",
        "_topic_ids",
        "_unopened",
        "_unwanted",
        "damages",
        "directory_id",
        "name",
        "trust",
    )

    def __init__(self, disk: Disk, name: str, files: OpenFiles, boot_id: str) -> None:
        """Not for callers: `open` reads what is there."""
        self._disk = disk
        self._files = files
        self._boot_id = boot_id
        self._health = Health()
        self.name = name
        self.directory_id = DirectoryId(bytes(16))
        self.trust: Trust = "lost"
        self._logs: dict[Partition, PartitionLog] = {}
        self._found: set[Partition] = set()  # with a directory since the start
        self._topic_ids: dict[str, TopicId] = {}  # by directory, once read
        self._unopened: set[Partition] = set()  # not looked at since a stop that did not vouch for them
        self._recovery_points: dict[Partition, int] = {}
        self._sums: Sums = {}  # of the files below, as the last run left them
        self._log_starts: dict[Partition, int] = {}
        # What the checkpoints on the disk may speak of, now or when a job has run. They name a partition by
        # its topic's name: a new log under one of these names is marked.
        self._mentioned: set[Partition] = set()
        self._fresh: dict[
            Partition, str
        ] = {}  # by log, until a checkpoint is right about it: the mark's path
        self._high_watermarks: dict[Partition, int] = {}
        self._cleaner_offsets: dict[Partition, int] = {}
        self._is_marked = True  # the boot id on the disk is this one
        self._is_same_boot = False
        self._is_distrusted = False  # the last run on this boot met an I/O error
        self._is_lowered = False  # a lost machine has lost records below the high watermark on the disk
        self._has_jobs = False  # that write checkpoints, maybe at this moment
        self._new_properties: dict[str, str] = {}  # to be written when the node takes possession
        self._has_old_sums = False  # from before another program ran in the directory
        self._has_marker = False  # of a clean stop
        self._is_possessed = False
        self._unwanted: set[Partition] = set()  # strays that cannot be renamed before there is space
        self.damages: list[Damage] = []  # what was found at the start, to be reported

    @classmethod
    def open(
        cls,
        disk: Disk,
        name: str,
        *,
        node_id: int,
        cluster_id: str,
        directory_id_if_new: bytes,
        boot_id: str,
        files: OpenFiles,
        wall_ms: int,
    ) -> "LogDirectory":
        """Look, and take possession at once."""
        directory = cls.look(
            disk,
            name,
            node_id=node_id,
            cluster_id=cluster_id,
            directory_id_if_new=directory_id_if_new,
            boot_id=boot_id,
            files=files,
        )
        directory.take_possession()
        return directory

    @classmethod
    def look(
        cls,
        disk: Disk,
        name: str,
        *,
        node_id: int,
        cluster_id: str,
        directory_id_if_new: bytes,
        boot_id: str,
        files: OpenFiles,
        distrusted: Set[str] = frozenset(),
    ) -> "LogDirectory":
        """Read what is there, and change nothing: the node may yet refuse to start.

        WrongDirectory when it is another node's, DamagedProperties when nobody can tell whose it is;
        LogOffline when the disk fails.
        """
        directory = cls(disk, name, files, boot_id)
        try:
            directory._sums = directory._read_sums()
            directory._identify(node_id, cluster_id, directory_id_if_new)
            directory._read_checkpoints()
            directory._found = directory._partitions_by_name()
            directory._read_topic_ids()
            directory._judge_last_stop(distrusted)
        except OSError as error:
            raise directory._health.met(error) from error
        return directory

    @classmethod
    def unusable(cls, disk: Disk, name: str, files: OpenFiles, error: OSError) -> "LogDirectory":
        """One that cannot be read: it is offline from the start."""
        directory = cls(disk, name, files, "")
        directory.went_offline(error)
        return directory

    def take_possession(self) -> None:
        """The node starts: from here on the marker of the last clean stop is gone. What there is no space for
        is done before the first log is opened.
        """
        try:
            if not self._is_same_boot:
                self._is_marked = False
                if not self._unopened:
                    self._try_to_mark_boot()
            self._possess()
        except OSError as error:
            fault = self._health.met(error)
            if not isinstance(fault, DiskFull):
                raise fault from error

    def _possess(self) -> None:
        """It may be tried again."""
        if self._is_possessed:
            return
        disk = self._disk
        if self._has_old_sums:
            if disk.exists(SUMS):
                disk.remove(SUMS)
            disk.sync_dir("")
            self._has_old_sums = False
        if self._new_properties:
            data = checkpoints.render_properties(self._new_properties)
            write_checkpoints(disk, {checkpoints.META_PROPERTIES: data})
            self._new_properties = {}
        if self._has_marker:
            if disk.exists(CLEAN_MARKER):
                disk.remove(CLEAN_MARKER)
            disk.sync_dir("")  # before anything is appended: the marker must not come back
            self._has_marker = False
        self._is_possessed = True

    def _identify(self, node_id: int, cluster_id: str, directory_id_if_new: bytes) -> None:
        path = f"{self.name}/{checkpoints.META_PROPERTIES}"
        try:
            data = read_whole(self._disk, checkpoints.META_PROPERTIES)
        except FileNotFoundError:
            self.directory_id = DirectoryId(directory_id_if_new)
            self._new_properties = {
                "version": "1",
                "cluster.id": cluster_id,
                "node.id": str(node_id),
                "directory.id": id_text(directory_id_if_new),
            }
            return
        properties = checkpoints.parse_properties(data)
        try:
            self._check_sum(checkpoints.META_PROPERTIES, data)
        except MalformedCheckpoint as error:
            raise DamagedProperties(
                f"{path} is damaged: {error}. Restore the file from a backup; if it was changed on purpose, "
                f"remove {self.name}/{SUMS}"
            ) from error
        if properties.get("version") not in ("0", "1"):
            raise DamagedProperties(f"{path} says version {properties.get('version')!r}, not 1")
        for key, ours in (("node.id", str(node_id)), ("cluster.id", cluster_id)):
            if key not in properties:
                raise DamagedProperties(f"{path} has no {key}")
            if properties[key] != ours:
                raise WrongDirectory(f"{self.name} belongs to {key} {properties[key]!r}, not {ours!r}")
        if "directory.id" not in properties:  # written before directories had ids: it gets one, as in Kafka
            self.directory_id = DirectoryId(directory_id_if_new)
            self._new_properties = {**properties, "directory.id": id_text(directory_id_if_new)}
            return
        try:
            self.directory_id = DirectoryId(id_from_text(properties["directory.id"]))
        except ValueError as error:
            raise DamagedProperties(f"{path} has no readable directory.id") from error

    def _read_checkpoints(self) -> None:
        contents = {
            name: data
            for name in (
                checkpoints.RECOVERY_POINTS,
                checkpoints.LOG_STARTS,
                checkpoints.HIGH_WATERMARKS,
                checkpoints.CLEANER_OFFSETS,
            )
            if (data := self._read_if_there(name)) is not None
        }
        if are_replaced(self._sums, contents, self._read_if_there(CLEAN_MARKER)):
            self._has_old_sums = True
            self._sums = {}
        self._recovery_points = self._parse_offsets(checkpoints.RECOVERY_POINTS, contents)
        self._log_starts = self._parse_offsets(checkpoints.LOG_STARTS, contents)
        self._high_watermarks = self._parse_offsets(checkpoints.HIGH_WATERMARKS, contents)
        self._cleaner_offsets = self._parse_offsets(checkpoints.CLEANER_OFFSETS, contents)
        for offsets in self._offsets():
            self._mentioned.update(offsets)

    def _offsets(self) -> tuple[dict[Partition, int], ...]:
        return (self._recovery_points, self._log_starts, self._high_watermarks, self._cleaner_offsets)

    def _read_if_there(self, path: str) -> bytes | None:
        try:
            return read_whole(self._disk, path)
        except FileNotFoundError:
            return None

    def _parse_offsets(self, path: str, contents: Mapping[str, bytes]) -> dict[Partition, int]:
        if path not in contents:
            return {}
        try:
            self._check_sum(path, contents[path])
            return checkpoints.parse_offsets(contents[path])
        except MalformedCheckpoint as error:
            # nothing is vouched for then, and recovery looks at everything
            self.damages.append(Damage(path, str(error)))
            return {}

    def _check_sum(self, path: str, data: bytes) -> None:
        if path in self._sums and sum_of(path, data) not in self._sums[path]:
            raise MalformedCheckpoint("the checksum is wrong")

    def _read_sums(self) -> Sums:
        try:
            return read_sums(self._disk) or {}
        except DamagedSums as error:
            self.damages.append(Damage(SUMS, str(error)))
            return {}

    def _partitions_by_name(self) -> set[Partition]:
        found: set[Partition] = set()
        for name in self._disk.list(""):
            topic, dash, number = name.rpartition("-")
            if dash and topic and (number == "0" or _NUMBER.fullmatch(number)):
                found.add((topic, int(number)))
        return found

    def _read_topic_ids(self) -> None:
        for topic, partition in sorted(self._found):
            try:
                self._topic_id(f"{topic}-{partition}")
            except NotADirectoryError:
                self._found.remove((topic, partition))  # somebody's file

    def _judge_last_stop(self, distrusted: Set[str]) -> None:
        known = self._read_boot_id()
        self._has_marker = self._disk.exists(CLEAN_MARKER)
        self._is_same_boot = known == self._boot_id
        self._is_distrusted = known == _DISTRUSTED + self._boot_id or id_text(self.directory_id) in distrusted
        if self._is_distrusted:
            self._is_same_boot = False
            self.trust = "lost"
        elif self._has_marker:
            self.trust = "clean"
        else:
            self.trust = "killed" if self._is_same_boot else "lost"
        if self.trust != "clean" or not self._is_same_boot:
            self._unopened = set(self._found)

    def _read_boot_id(self) -> str:
        try:
            data = read_whole(self._disk, BOOT_ID)
        except FileNotFoundError:
            return ""
        if not data.endswith(b"\n"):  # a note of distrust that the failing disk has cut short
            return _DISTRUSTED + self._boot_id
        return data.decode(errors="replace").strip()

    def _try_to_mark_boot(self) -> None:
        """If there is no space, a start on this boot looks at everything once more."""
        try:
            write_atomically(self._disk, BOOT_ID, f"{self._boot_id}\n".encode())
        except OSError as error:
            if not is_transient(error):
                raise
        else:
            self._is_marked = True

    # --- logs -------------------------------------------------------------------------------------

    @property
    def is_offline(self) -> bool:
        return self._health.error is not None

    @property
    def error(self) -> OSError | None:
        """What took it offline."""
        return self._health.error

    def went_offline(self, error: OSError) -> None:
        """A job failed on this disk: it is trusted no more."""
        if self._health.error is None:
            self._health.error = error

    def distrust(self) -> bool:
        """After an I/O error: a start on the same boot writes again what was not flushed before. Not synced,
        since another boot trusts no page cache anyway; False when the disk refuses even that.
        """
        return self._try_to_write(BOOT_ID, f"{_DISTRUSTED}{self._boot_id}\n", is_new=True)

    def distrust_other(self, directory_id: bytes) -> None:
        """Note here what another directory can no longer take."""
        self._try_to_write(DISTRUSTED_OTHERS, f"{id_text(directory_id)} {self._boot_id}\n", is_new=False)

    def _try_to_write(self, path: str, text: str, *, is_new: bool) -> bool:
        try:
            file = self._disk.open(path, create=True)
            try:
                if is_new:
                    file.truncate(0)
                file.append(text.encode())
            finally:
                file.close()
        except OSError:
            return False
        return True

    def settle_others(self, recovered: Set[bytes]) -> None:
        """Directories that were recovered since are trusted again."""
        try:
            if not self._disk.exists(DISTRUSTED_OTHERS):
                return
            lines = read_whole(self._disk, DISTRUSTED_OTHERS).decode(errors="replace").splitlines()
            texts = {id_text(each) for each in recovered}
            left = [line for line in lines if line.partition(" ")[0] not in texts]
            if left:
                write_atomically(self._disk, DISTRUSTED_OTHERS, "".join(f"{one}\n" for one in left).encode())
            else:
                self._disk.remove(DISTRUSTED_OTHERS)
        except OSError as error:
            raise self._health.met(error) from error

    @property
    def is_recovered(self) -> bool:
        """Every log was looked at, and what this boot finds on the disk is trusted."""
        return self._is_marked and self._health.error is None

    @property
    def logs(self) -> Mapping[Partition, PartitionLog]:
        return self._logs

    def partitions(self) -> list[tuple[str, int, TopicId | None]]:
        """What was found at the start and what was made since; None for a topic id that cannot be read."""
        return [
            (topic, partition, self._topic_id(f"{topic}-{partition}"))
            for topic, partition in sorted({*self._found, *self._logs})
        ]

    def topic_id_of(self, topic: str, partition: int) -> TopicId | None:
        """Whose directory that is; None when that cannot be read."""
        try:
            return self._topic_id(f"{topic}-{partition}")
        except OSError:
            return None

    def _topic_id(self, directory: str) -> TopicId | None:
        known = self._topic_ids.get(directory)
        if known is not None:
            return known
        try:
            data = read_whole(self._disk, f"{directory}/{checkpoints.PARTITION_METADATA}")
            topic_id = checkpoints.parse_partition_metadata(data)
        except (FileNotFoundError, MalformedCheckpoint):
            return None
        self._topic_ids[directory] = topic_id
        return topic_id

    def recovery_point(self, topic: str, partition: int) -> int | None:
        """As checkpointed last; None when no checkpoint says."""
        return self._recovery_points.get((topic, partition))

    def vouch(self, topic: str, partition: int, end_offset: int) -> None:
        """Something else than the checkpoint tells that the log was flushed up to `end_offset`: for a machine
        that was lost. After a clean stop the recovery point is the log's end, and nobody else knows it.
        """
        if end_offset and self.trust == "lost":
            key = (topic, partition)
            self._recovery_points[key] = max(end_offset, self._recovery_points.get(key, 0))

    def missing(self) -> list[Partition]:
        """Partitions that had records by the checkpoints, and have no directory here."""
        return sorted(
            key for key, offset in self._recovery_points.items() if offset and key not in self._found
        )

    def high_watermark(self, topic: str, partition: int) -> int:
        """As checkpointed last; 0 when unknown."""
        return self._high_watermarks.get((topic, partition), 0)

    def open_log(
        self,
        topic: str,
        partition: int,
        topic_id: bytes,
        config: LogConfig,
        wall_ms: int,
        *,
        roll_jitter_ms: int = 0,
        producer_id_expiration_ms: int = 86_400_000,
    ) -> PartitionLog:
        """The partition's log, made when absent. InconsistentTopicId when another topic had this name."""
        key = (topic, partition)
        directory = f"{topic}-{partition}"
        log = self._logs.get(key)
        if log is not None:
            if self._topic_ids.get(directory) != topic_id:  # its removal has no space for the new name yet
                raise InconsistentTopicId(f"{directory} still belongs to an earlier topic of its name")
            return log
        if self._health.error is not None:
            raise self._health.offline()
        try:
            self._possess()
            self._claim(key, directory, topic_id)
            log = PartitionLog.open(
                self._disk,
                directory,
                config,
                files=self._files,
                recovery=self._recovery(key, topic_id),
                wall_ms=wall_ms,
                roll_jitter_ms=roll_jitter_ms,
                producer_id_expiration_ms=producer_id_expiration_ms,
                health=self._health,
                lower_recovery_point=self._write_recovery_points,
            )
            log.first_dirty_offset = min(self._cleaner_offsets.get(key, 0), log.flushed_offset)
            if config.flush_messages <= 1 and log.flushed_offset < log.log_end_offset:
                # What a killed process left unflushed, and what it had flushed since the last checkpoint
                # alike: the first to ask after a restart is told no less than before, and nothing that may be
                # lost.
                job = log.flush_job()
                if job is not None:
                    log.complete_flush(job.run(self._disk))
            self._logs[key] = log
            self._topic_ids[directory] = TopicId(topic_id)
            for offsets in (self._high_watermarks, self._recovery_points):
                if offsets.get(key, 0) > log.log_end_offset:
                    offsets[key] = log.log_end_offset
                    self._is_lowered = True
            self._recovered(key)
        except OSError as error:
            raise self._health.met(error) from error
        return log

    def _claim(self, key: Partition, directory: str, topic_id: bytes) -> None:
        if key in self._unwanted:
            raise InconsistentTopicId(f"{directory} still belongs to a topic that the metadata does not know")
        is_new = key not in self._found
        known = None if is_new else self._topic_id(directory)
        if known is None:
            self._disk.make_dir(directory)
            if is_new or not any(name.endswith(".log") for name in self._disk.list(directory)):
                self._begin_afresh(key, directory, topic_id)
            file = self._disk.open(f"{directory}/{checkpoints.PARTITION_METADATA}", create=True)
            try:
                if file.size():
                    file.truncate(0)
                file.append(checkpoints.render_partition_metadata(topic_id))
            finally:
                file.close()
        elif known != topic_id:
            raise InconsistentTopicId(f"{directory} belongs to topic id {id_text(known)}")

    def _begin_afresh(self, key: Partition, directory: str, topic_id: bytes) -> None:
        """A new log: what the checkpoints on the disk say of an earlier one of its name is never believed."""
        self._forget_offsets(key)
        if key in self._mentioned:
            mark = _mark(directory, topic_id)
            self._disk.open(mark, create=True).close()
            self._disk.sync_dir(directory)  # where a record survives, the mark must
            self._fresh[key] = mark

    def _forget_offsets(self, key: Partition) -> None:
        for offsets in self._offsets():
            offsets.pop(key, None)

    def _recovery(self, key: Partition, topic_id: bytes) -> Recovery:
        mark = _mark(f"{key[0]}-{key[1]}", topic_id)
        if key in self._found and self._disk.exists(mark):
            self._forget_offsets(key)
            self._fresh[key] = mark
        trust = self.trust
        if trust == "clean" and not (self._is_marked and key in self._recovery_points):
            # The machine was down since: the clean stop has flushed the log, but not its indexes. Or nobody
            # vouches for this log at all.
            trust = "lost"
        return Recovery(
            trust,
            self._recovery_points.get(key, 0),
            self._log_starts.get(key, 0),
            checkpoints.RECOVERY_POINTS in self._sums,
            self._high_watermarks.get(key, 0),
            is_cached_only=self._is_distrusted,
        )

    def _recovered(self, key: Partition) -> None:
        self._unopened.discard(key)
        if self._is_marked or self._unopened:
            return
        try:
            if self._is_lowered:
                if self._has_jobs:
                    return  # a start on this boot looks at everything once more
                # or a kill would seem to have lost what the machine has lost
                files = {
                    checkpoints.RECOVERY_POINTS: self._rendered(self._recovery_points),
                    checkpoints.HIGH_WATERMARKS: self._rendered(self._high_watermarks),
                }
                write_checkpoints(self._disk, files)
                self._is_lowered = False
            self._try_to_mark_boot()
        except OSError as error:
            if not is_transient(error):
                raise self._health.met(error) from error
            # else: the same

    def doom(self, topic: str, partition: int) -> RemoveDirectoryJob:
        """Rename the partition's directory away, so that its name is free at once; the job removes it for
        good.
        """
        key = (topic, partition)
        directory = f"{topic}-{partition}"
        try:
            topic_id = self._topic_id(directory) or TopicId(bytes(16))
            doomed = self._doomed_name(directory, topic_id)
            self._disk.rename(directory, doomed)
        except OSError as error:
            raise self._health.met(error) from error  # if there is no space, all is as before
        log = self._logs.pop(key, None)
        if log is not None:
            log.close(clean=False)
        self._files.forget_directory(self._disk, directory)
        self._recovered(key)
        self._found.discard(key)
        self._topic_ids.pop(directory, None)
        self._forget_offsets(key)
        self._fresh.pop(key, None)
        return RemoveDirectoryJob(doomed)

    def _doomed_name(self, directory: str, topic_id: bytes) -> str:
        """As Kafka names it: a long topic name loses its end, the id keeps it unique."""
        number = int.from_bytes(topic_id, "big")
        while self._disk.exists(name := doomed_name(directory, number)):
            number = (number + 1) % (1 << 128)
        return name

    # --- logs that the metadata does not know -----------------------------------------------------

    def put_aside(self, topic: str, partition: int, why: Why, wall_ms: int) -> str:
        """Keep a partition's directory under a name that says since when it is a stray, and why."""
        key = (topic, partition)
        directory = f"{topic}-{partition}"
        self._unwanted.add(key)
        name = self._put_aside(directory, directory, self._topic_id(directory), why, wall_ms)
        self._unwanted.remove(key)
        self._found.discard(key)
        self._topic_ids.pop(directory, None)
        # the checkpoints go on telling where it starts; where it ends is looked for, should it come back
        self._recovery_points.pop(key, None)
        self._recovered(key)
        return name

    def put_arrival_aside(self, arrival: Arrival, wall_ms: int) -> str:
        """The same for a whole log that came from another directory."""
        return self._put_aside(arrival.name, arrival.original, arrival.topic_id, "unknown", wall_ms)

    def _put_aside(
        self, directory: str, original: str, topic_id: bytes | None, why: Why, wall_ms: int
    ) -> str:
        self._files.forget_directory(self._disk, directory)
        try:
            while self._disk.exists(name := stray_name(original, topic_id or bytes(16), wall_ms, why)):
                wall_ms += 1000
            self._disk.rename(directory, name)
            self._disk.sync_dir("")
        except OSError as error:
            raise self._health.met(error) from error
        return name

    def strays(self) -> list[Stray]:
        return [stray for name in self._names() if (stray := parse_stray(name)) is not None]

    def has_unflushed_name(self, topic: str, partition: int, topic_id: bytes) -> bool:
        """Whether the file with its topic's id may never have been flushed: after a power loss that is no
        damage, and unless something is left that speaks for `topic_id`, the directory may be that of an
        earlier topic of this name.
        """
        directory = f"{topic}-{partition}"
        try:
            data = read_whole(self._disk, f"{directory}/{checkpoints.PARTITION_METADATA}")
        except FileNotFoundError:
            data = b""
        whole = checkpoints.render_partition_metadata(topic_id)
        if len(data) >= len(whole) and b"\0" not in data:
            return False
        begun = data.rstrip(b"\0")
        if whole.startswith(begun) and len(begun) >= len(whole) - _ID_CHARACTERS_MAX_LOST:
            return False
        marks = [name for name in self._disk.list(directory) if name.startswith(FRESH)]
        if marks:  # the recovery point is an earlier log's
            return _mark(directory, topic_id) not in [f"{directory}/{name}" for name in marks]
        return not self._recovery_points.get((topic, partition))

    def correct_topic_id(self, topic: str, partition: int, topic_id: TopicId) -> None:
        """Write the partition's damaged partition.metadata again."""
        directory = f"{topic}-{partition}"
        try:
            write_atomically(
                self._disk,
                f"{directory}/{checkpoints.PARTITION_METADATA}",
                checkpoints.render_partition_metadata(topic_id),
            )
        except OSError as error:
            raise self._health.met(error) from error
        self._topic_ids[directory] = topic_id

    # --- logs that come from another directory ----------------------------------------------------

    def log_start(self, topic: str, partition: int) -> int:
        """Everything below was deleted, or is about to be."""
        self._note_offsets()
        return self._log_starts.get((topic, partition), 0)

    def expect(self, topic: str, partition: int, log_start: int) -> CheckpointJob:
        """A log will come that begins there; from this job on the checkpoints say nothing else of it."""
        key = (topic, partition)
        self._forget_offsets(key)
        self._recovery_points[key] = 0
        self._log_starts[key] = log_start
        return self.checkpoint_job({})

    def adopt(
        self, topic: str, partition: int, name: str, *, end_offset: int = 0, first_dirty_offset: int = 0
    ) -> None:
        """The whole log under that name is the partition's now; it is durable up to `end_offset`."""
        key = (topic, partition)
        directory = f"{topic}-{partition}"
        if key in self._unwanted:
            raise DiskFull(
                f"{directory} has no space to be put aside, and takes the name of the log that came"
            )
        try:
            self._possess()
            arrive(self._disk, name, directory)
        except OSError as error:
            raise self._health.met(error) from error
        self._found.add(key)
        self._unopened.add(key)
        self._topic_ids.pop(directory, None)
        self._recovery_points[key] = end_offset
        if first_dirty_offset:
            self._cleaner_offsets[key] = first_dirty_offset

    def arrivals(self) -> list[Arrival]:
        """Logs that were on their way here when the node stopped."""
        return arrivals(self._names())

    def _names(self) -> list[str]:
        try:
            return list(self._disk.list(""))
        except OSError as error:
            raise self._health.met(error) from error

    def discard(self, arrival: Arrival) -> RemoveDirectoryJob:
        """Nobody needs it; its name says so at once."""
        doomed = self._doomed_name(arrival.name.partition(".")[0], arrival.topic_id)
        try:
            arrive(self._disk, arrival.name, doomed)
        except OSError as error:
            raise self._health.met(error) from error
        return RemoveDirectoryJob(doomed)

    def leftovers(self) -> list[str]:
        """Directories whose removal the last run did not live to see."""
        return [name for name in self._names() if name.endswith(DOOMED)]

    # --- checkpoints ------------------------------------------------------------------------------

    def checkpoint_job(self, high_watermarks: Mapping[Partition, int]) -> CheckpointJob:
        """Where all logs stand, as a job; logs that were not opened yet keep what was known of them."""
        self._has_jobs = True
        self._note_offsets()
        self._high_watermarks.update(high_watermarks)
        return CheckpointJob(
            {
                checkpoints.RECOVERY_POINTS: self._rendered(self._recovery_points),
                checkpoints.LOG_STARTS: self._rendered(self._log_starts),
                checkpoints.HIGH_WATERMARKS: self._rendered(self._high_watermarks),
                checkpoints.CLEANER_OFFSETS: self._rendered(self._cleaner_offsets),
            },
            self._marks(),
        )

    def _rendered(self, offsets: dict[Partition, int]) -> bytes:
        """All that is written into checkpoints comes through here."""
        self._mentioned.update(offsets)
        return checkpoints.render_offsets(offsets)

    def _marks(self) -> list[str]:
        """Of logs about which the checkpoint that is being made is right, at last."""
        # a job may fail on a full disk: a log counts as fresh until its mark is seen to be gone
        self._fresh = {key: mark for key, mark in self._fresh.items() if self._disk.exists(mark)}
        return sorted(self._fresh.values())

    def log_start_job(self, starts: Mapping[Partition, int]) -> CheckpointJob:
        """Make the log starts durable to which records are about to be deleted.

        Later checkpoints keep them, too, so that all of these jobs have to run one after the other.
        """
        self._has_jobs = True
        self._note_offsets()
        for key, offset in starts.items():
            self._log_starts[key] = max(offset, self._log_starts.get(key, 0))
        files = {checkpoints.LOG_STARTS: self._rendered(self._log_starts)}
        marks = self._marks()
        if marks:
            files[checkpoints.RECOVERY_POINTS] = self._rendered(self._recovery_points)
            files[checkpoints.CLEANER_OFFSETS] = self._rendered(self._cleaner_offsets)
            files[checkpoints.HIGH_WATERMARKS] = self._rendered(self._high_watermarks)
        return CheckpointJob(files, marks)

    def checkpoint(self, high_watermarks: Mapping[Partition, int]) -> None:
        """The same, here and now."""
        if self._health.error is not None:
            raise self._health.offline()
        try:
            self.checkpoint_job(high_watermarks).run(self._disk)
        except OSError as error:
            raise self._health.met(error) from error

    def _note_offsets(self) -> None:
        for key, log in self._logs.items():
            self._recovery_points[key] = log.flushed_offset
            if log.log_start_offset > self._log_starts.get(key, 0):
                self._log_starts[key] = log.log_start_offset
            if log.first_dirty_offset or key in self._cleaner_offsets:
                self._cleaner_offsets[key] = log.first_dirty_offset

    def _write_recovery_points(self) -> None:
        self._note_offsets()
        data = self._rendered(self._recovery_points)
        write_checkpoints(self._disk, {checkpoints.RECOVERY_POINTS: data})

    def close_clean(self, high_watermarks: Mapping[Partition, int]) -> None:
        """Flush and close every log, write the checkpoints and then, last of all, the clean marker. Whatever
        comes of it, no log takes another record.
        """
        try:
            self._close_clean(high_watermarks)
        finally:
            self._health.close()

    def _close_clean(self, high_watermarks: Mapping[Partition, int]) -> None:
        for log in self._logs.values():
            log.close(clean=True)
            job = log.flush_job()
            if job is not None:
                try:
                    log.complete_flush(job.run(self._disk))
                except OSError as error:
                    raise self._health.met(error) from error
        self.checkpoint(high_watermarks)
        try:
            # a log that nobody opened since a kill may be longer than its recovery point says
            if not self._unopened:
                write_atomically(self._disk, CLEAN_MARKER, CLEAN_MARKER_CONTENT)
        except OSError as error:
            raise self._health.met(error) from error
