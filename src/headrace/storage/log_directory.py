"""One log directory: opening it at a start, the logs in it, and its stop.

meta.properties                     node, cluster and directory id: `directory_identity`
.kafka_cleanshutdown                only between a clean stop and the next start: `stop_record`
.headrace_boot_id                   the kernel's boot id of the last run: `stop_record`
recovery-point-offset-checkpoint    per partition: everything below was flushed: `directory_checkpoints`
log-start-offset-checkpoint         per partition: everything below was deleted
replication-offset-checkpoint       per partition: the high watermark
cleaner-offset-checkpoint           per compacted partition: where its dirty part begins
.headrace_checkpoint_sums           checksums of the four above and of meta.properties: `checkpoint_sums`
<topic>-<partition>/                a log, with partition.metadata
  .headrace_files                   the files that the log must have: `file_list`
  .headrace_fresh.<topic id>        the checkpoints still describe an earlier topic of this name
<topic>-<partition>.<id>-delete/    a log that waits for its removal
<topic>-<partition>.<…>-stray/      a log that the metadata does not know: `strays`
<topic>-<partition>.<id>-future/    a log that comes from another directory, and -moved: `moving`
"""

from collections.abc import Callable, Mapping, Set
from functools import partial

from headrace.base.ids import DirectoryId, TopicId, id_text
from headrace.storage import checkpoints
from headrace.storage.checkpoint_sums import write_checkpoints
from headrace.storage.checkpoints import Partition
from headrace.storage.config import LogConfig
from headrace.storage.damage import Damage
from headrace.storage.directory_checkpoints import DirectoryCheckpoints, mark_path
from headrace.storage.directory_identity import read_identity
from headrace.storage.directory_jobs import CheckpointJob, RemoveDirectoryJob
from headrace.storage.disk import Disk
from headrace.storage.disk_errors import DirectoryStatus, translates_errors
from headrace.storage.errors import DamagedLog, DiskFull, InconsistentTopicId, is_transient
from headrace.storage.file_list import FileList
from headrace.storage.log import PartitionLog
from headrace.storage.lost_segments import LostSegments, lost_segments
from headrace.storage.moving import Arrival, arrive
from headrace.storage.open_files import OpenFiles
from headrace.storage.partition_directories import has_segments, partitions_among, unused_doomed_name
from headrace.storage.recovery import Recovery, Trust
from headrace.storage.stop_record import StopRecord
from headrace.storage.strays import Why, rename_to_stray
from headrace.storage.topic_ids import TopicIds


class LogDirectory:
    __slots__ = (
        "_checkpoints",
        "_disk",
        "_files",
        "_found",
        "_is_possessed",
        "_logs",
        "_new_properties",
        "_status",
        "_stop",
        "_topic_ids",
        "_unopened",
        "_unwanted",
        "directory_id",
        "name",
    )

    def __init__(self, disk: Disk, name: str, files: OpenFiles, boot_id: str) -> None:
        """Not for callers: `look` reads what is there."""
        self._disk = disk
        self._files = files
        self._status = DirectoryStatus()
        self._stop = StopRecord(disk, boot_id)
        self._checkpoints = DirectoryCheckpoints(disk)
        self.name = name
        self.directory_id = DirectoryId(bytes(16))
        self._new_properties: dict[str, str] = {}  # to be written when the node takes possession
        self._is_possessed = False
        self._logs: dict[Partition, PartitionLog] = {}
        self._found: set[Partition] = set()  # with a directory since the start
        self._topic_ids = TopicIds(disk)
        self._unopened: set[Partition] = set()  # not looked at since a stop that did not vouch for them
        self._unwanted: set[Partition] = set()  # strays that cannot be renamed before there is space

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
            names = frozenset(disk.list(""))
            directory._checkpoints.read_sums(names)
            directory.directory_id, directory._new_properties = read_identity(
                disk,
                name,
                names,
                directory._checkpoints.sums,
                node_id=node_id,
                cluster_id=cluster_id,
                directory_id_if_new=directory_id_if_new,
            )
            directory._checkpoints.read(names)
            directory._found = partitions_among(names)
            directory._read_topic_ids()
            directory._stop.read(names, directory.directory_id, distrusted)
            if not directory._stop.vouches_for_all:
                directory._unopened = set(directory._found)
        except OSError as error:
            raise directory._status.met(error) from error
        return directory

    @classmethod
    def unusable(cls, disk: Disk, name: str, files: OpenFiles, error: OSError) -> "LogDirectory":
        """One that cannot be read: it is offline from the start."""
        directory = cls(disk, name, files, "")
        directory.go_offline(error)
        return directory

    def take_possession(self) -> None:
        """The node starts: from here on the marker of the last clean stop is gone. What there is no space for
        is done before the first log is opened.
        """
        try:
            if not self._stop.is_same_boot:
                self._stop.is_boot_marked = False
                if not self._unopened:
                    self._stop.mark_boot()
            self._possess()
        except OSError as error:
            fault = self._status.met(error)
            if not isinstance(fault, DiskFull):
                raise fault from error

    def _possess(self) -> None:
        """It may be tried again."""
        if self._is_possessed:
            return
        if self._checkpoints.has_old_sums:
            for topic, partition in sorted(self._found):  # whoever ran here does not know them
                FileList(self._disk, f"{topic}-{partition}").remove()
        self._checkpoints.remove_old_sums()
        if self._new_properties:
            data = checkpoints.render_properties(self._new_properties)
            write_checkpoints(self._disk, {checkpoints.META_PROPERTIES: data})
            self._new_properties = {}
        self._stop.remove_marker()
        self._is_possessed = True

    def _read_topic_ids(self) -> None:
        for topic, partition in sorted(self._found):
            try:
                self._topic_ids.read(f"{topic}-{partition}")
            except NotADirectoryError:
                self._found.remove((topic, partition))  # somebody's file

    # --- logs -------------------------------------------------------------------------------------

    @property
    def is_offline(self) -> bool:
        return self._status.error is not None

    @property
    def error(self) -> OSError | None:
        """What took it offline."""
        return self._status.error

    def go_offline(self, error: OSError) -> None:
        """A job failed on this disk: nothing in the directory is trusted any more."""
        if self._status.error is None:
            self._status.error = error

    @property
    def trust(self) -> Trust:
        """How the last run stopped."""
        return self._stop.trust

    @property
    def damages(self) -> list[Damage]:
        """What was found at the start, to be reported."""
        return self._checkpoints.damages

    def distrust(self) -> bool:
        """Note an I/O error in the directory; False when the disk refuses even that."""
        return self._stop.distrust()

    def distrust_other(self, directory_id: bytes) -> None:
        """Note here an I/O error of another directory, which can no longer take the note."""
        self._stop.distrust_other(directory_id)

    @translates_errors
    def settle_others(self, recovered: Set[bytes]) -> None:
        """Directories that were recovered since are trusted again."""
        self._stop.settle_others(recovered)

    def vouch_after(self, may_vouch: Callable[[], bool]) -> None:
        """Has the directory marked as sound, after a recovery or a clean stop, only if this returns True."""
        self._stop.may_vouch = may_vouch

    @property
    def is_recovered(self) -> bool:
        """Every log was looked at, and what this boot finds on the disk is trusted."""
        return self._stop.is_boot_marked and not self._stop.is_doubted and self._status.error is None

    @translates_errors
    def names(self) -> list[str]:
        """The names of all entries in the directory."""
        return list(self._disk.list(""))

    @property
    def logs(self) -> Mapping[Partition, PartitionLog]:
        return self._logs

    def partitions(self) -> list[tuple[str, int, TopicId | None]]:
        """What was found at the start and what was made since; None for a topic id that cannot be read."""
        return [
            (topic, partition, self._topic_ids.read(f"{topic}-{partition}"))
            for topic, partition in sorted({*self._found, *self._logs})
        ]

    def topic_id_of(self, topic: str, partition: int) -> TopicId | None:
        """Whose directory that is; None when that cannot be read."""
        try:
            return self._topic_ids.read(f"{topic}-{partition}")
        except OSError:
            return None

    def recovery_point(self, topic: str, partition: int) -> int | None:
        """As checkpointed last; None when no checkpoint says."""
        return self._checkpoints.recovery_points.get((topic, partition))

    def vouch(self, topic: str, partition: int, end_offset: int) -> None:
        """Something else than the checkpoint tells that the log was flushed up to `end_offset`: for a host
        that was lost. After a clean stop the recovery point is the log's end, and nobody else knows it.
        """
        if end_offset and self._stop.trust == "lost":
            points = self._checkpoints.recovery_points
            points[topic, partition] = max(end_offset, points.get((topic, partition), 0))

    def missing(self) -> list[Partition]:
        """Partitions that had records by the checkpoints, and have no directory here, or an empty one."""
        known = [*self._checkpoints.recovery_points.items()]
        if self._stop.trust != "lost":  # else they may never have reached the disk
            known += self._checkpoints.high_watermarks.items()
        had_records = {key for key, offset in known if offset}
        return sorted(key for key in had_records if key not in self._found or self._is_empty(key))

    def _is_empty(self, key: Partition) -> bool:
        """Whether nothing of a log is in its directory, not even the mark of one that was about to be made
        for another topic of this name.
        """
        directory = f"{key[0]}-{key[1]}"
        try:
            return (
                self._topic_ids.read(directory) is None
                and not has_segments(self._disk, directory)
                and not self._checkpoints.marks_in(directory)
            )
        except OSError:
            return False  # nobody can tell: whoever opens it meets the error

    @property
    def believes_lists(self) -> bool:
        """Whether the lists of files are right: another program that ran here did not know them."""
        return not self._checkpoints.has_old_sums

    @property
    def are_lists_exact(self) -> bool:
        """And name no file that was removed; a lost host may have kept an older list."""
        return self._stop.trust != "lost" and self.believes_lists

    def lost_segments(self, topic: str, partition: int) -> LostSegments | None:
        """What its log has lost, if that can be told before it is opened."""
        known, directory = self._checkpoints, f"{topic}-{partition}"
        if not self.believes_lists:
            return None
        start = known.log_starts.get((topic, partition), 0)
        # Kafka names only starts that lie inside a segment
        is_start_known = known.are_starts_checked
        try:
            if known.marks_in(directory):  # it is an earlier log's
                start, is_start_known = 0, False
            is_start_known = is_start_known and self._stop.trust != "lost"
            return lost_segments(self._disk, directory, start, is_start_known=is_start_known)
        except OSError:
            return None  # whoever opens it meets the error

    def doubt(self, topic: str, partition: int, lost: LostSegments) -> None:
        """An open log counts as damaged from there on. If its beginning is lost, checkpoints say until it is
        cut that it begins where it did: else the next start would find nothing wrong.
        """
        log = self._logs[topic, partition]
        what = f"the segments from offset {lost.offset} on are missing"
        if not lost.is_end:
            what = f"the segments from offset {lost.offset} to {lost.next_offset - 1} are missing"
        log.damages.append(Damage(log.directory, what, lost.offset))
        if lost.offset < log.log_start_offset:
            self._checkpoints.promise_less((topic, partition), log.log_end_offset, lost.offset)

    @property
    def has_lost_starts(self) -> bool:
        """Nobody can say what was deleted from the logs here: the checkpoint with their starts is missing or
        damaged.
        """
        return self._checkpoints.has_lost_starts

    def high_watermark(self, topic: str, partition: int) -> int:
        """As checkpointed last; 0 when unknown."""
        return self._checkpoints.high_watermarks.get((topic, partition), 0)

    @translates_errors
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
        has_copies: bool = False,
    ) -> PartitionLog:
        """The partition's log, made when absent. InconsistentTopicId when another topic had this name.
        DamagedLog, unless other replicas have copies: then it ends before the damage, and says so.
        """
        key = (topic, partition)
        directory = f"{topic}-{partition}"
        log = self._logs.get(key)
        if log is not None:
            if self._topic_ids.known(directory) != topic_id:  # its removal has no space for the new name yet
                raise InconsistentTopicId(f"{directory} still holds the log of an earlier topic of this name")
            return log
        if self._status.error is not None:
            raise self._status.offline()
        self._possess()
        self._claim(key, directory, topic_id)
        open_log = partial(
            PartitionLog.open,
            self._disk,
            directory,
            config,
            files=self._files,
            wall_ms=wall_ms,
            roll_jitter_ms=roll_jitter_ms,
            producer_id_expiration_ms=producer_id_expiration_ms,
            status=self._status,
            lower_recovery_point=self._write_recovery_points,
        )
        recovery = self._recovery(key, topic_id)
        recovery.has_copies = has_copies
        try:
            log = open_log(recovery=recovery)
        except DamagedLog as fault:
            if not has_copies:
                raise
            recovery.trust = "lost"
            log = open_log(recovery=recovery)
            log.damages.append(Damage(directory, str(fault), log.log_end_offset))
        log.first_dirty_offset = min(self._checkpoints.cleaner_offsets.get(key, 0), log.flushed_offset)
        if config.flush_messages <= 1 and log.flushed_offset < log.log_end_offset:
            # What a killed process left unflushed, and what it had flushed since the last checkpoint: the
            # first answer after a restart must not go back, nor promise what may be lost.
            job = log.flush_job()
            if job is not None:
                log.complete_flush(job.run(self._disk))
        self._logs[key] = log
        self._topic_ids.set(directory, TopicId(topic_id))
        self._checkpoints.lower(key, log.log_end_offset)
        self._note_recovered(key)
        return log

    def _claim(self, key: Partition, directory: str, topic_id: bytes) -> None:
        if key in self._unwanted:
            raise InconsistentTopicId(
                f"{directory} holds the log of an unknown topic, which has to be renamed first"
            )
        is_new = key not in self._found
        known = None if is_new else self._topic_ids.read(directory)
        if known is None:
            self._disk.make_dir(directory)
            if is_new or not has_segments(self._disk, directory):
                self._checkpoints.begin(key, directory, topic_id)
            self._topic_ids.write(directory, topic_id)
        elif known != topic_id:
            raise InconsistentTopicId(f"{directory} holds the log of another topic, with id {id_text(known)}")

    def _recovery(self, key: Partition, topic_id: bytes) -> Recovery:
        known = self._checkpoints
        if key in self._found:
            known.heed_mark(key, f"{key[0]}-{key[1]}", topic_id)
        trust = self._stop.trust
        if trust == "clean" and not (self._stop.is_boot_marked and key in known.recovery_points):
            # The host was down since: the clean stop has flushed the log, but not its indexes. Or nobody
            # vouches for this log at all.
            trust = "lost"
        return Recovery(
            trust,
            known.recovery_points.get(key, 0),
            known.log_starts.get(key, 0),
            known.are_checked,
            known.high_watermarks.get(key, 0),
            is_cached_only=self._stop.is_distrusted,
            is_settled=self._stop.trust == "clean",
            is_listed=self.believes_lists,
            is_list_exact=self.are_lists_exact,
        )

    def _note_recovered(self, key: Partition) -> None:
        self._unopened.discard(key)
        self.mark_recovered()

    def mark_recovered(self) -> None:
        """Once every log was looked at, a start on this boot can trust what it finds. It may be tried again:
        until the directory is marked, a kill of the process counts as a power loss.
        """
        if self._stop.is_boot_marked or self._unopened:
            return
        try:
            if self._checkpoints.is_lowered:
                if self._checkpoints.has_jobs:
                    return
                self._checkpoints.write_lowered()
            self._stop.mark_boot()
        except OSError as error:
            if not is_transient(error):
                raise self._status.met(error) from error

    @translates_errors
    def doom(self, topic: str, partition: int) -> RemoveDirectoryJob:
        """Rename the partition's directory away, so that its name is free at once; the job removes it for
        good.
        """
        key = (topic, partition)
        directory = f"{topic}-{partition}"
        topic_id = self._topic_ids.read(directory) or TopicId(bytes(16))
        doomed = unused_doomed_name(self._disk, directory, topic_id)
        self._disk.rename(directory, doomed)
        log = self._logs.pop(key, None)
        if log is not None:
            log.close(clean=False)
        self._files.forget_directory(self._disk, directory)
        self._note_recovered(key)
        self._found.discard(key)
        self._topic_ids.forget(directory)
        self._checkpoints.drop(key)
        return RemoveDirectoryJob(doomed)

    # --- logs that the metadata does not know -----------------------------------------------------

    def put_aside(self, topic: str, partition: int, why: Why, wall_ms: int) -> str:
        """Keep a partition's directory under a name that says since when it is a stray, and why."""
        key = (topic, partition)
        directory = f"{topic}-{partition}"
        self._unwanted.add(key)
        name = self._put_aside(directory, directory, self._topic_ids.read(directory), why, wall_ms)
        self._unwanted.remove(key)
        self._found.discard(key)
        self._topic_ids.forget(directory)
        # the checkpoints go on telling where it starts; where it ends is looked for, should it come back
        self._checkpoints.recovery_points.pop(key, None)
        self._note_recovered(key)
        return name

    def put_arrival_aside(self, arrival: Arrival, wall_ms: int) -> str:
        """The same for a whole log that came from another directory."""
        return self._put_aside(arrival.name, arrival.original, arrival.topic_id, "unknown", wall_ms)

    @translates_errors
    def _put_aside(
        self, directory: str, original: str, topic_id: bytes | None, why: Why, wall_ms: int
    ) -> str:
        self._files.forget_directory(self._disk, directory)
        return rename_to_stray(self._disk, directory, original, topic_id or bytes(16), wall_ms, why)

    def has_unflushed_name(self, topic: str, partition: int, topic_id: bytes) -> bool:
        """Whether the file with its topic's id may never have been flushed: after a power loss that is not
        damage, and unless something else names `topic_id`, the directory may be that of an
        earlier topic of this name.
        """
        directory = f"{topic}-{partition}"
        if self._topic_ids.is_written_for(directory, topic_id):
            return False
        marks = self._checkpoints.marks_in(directory)
        if marks:  # the recovery point is an earlier log's
            return mark_path(directory, topic_id) not in marks
        return not self._checkpoints.recovery_points.get((topic, partition))

    @translates_errors
    def correct_topic_id(self, topic: str, partition: int, topic_id: TopicId) -> None:
        """Write the partition's damaged partition.metadata again."""
        self._topic_ids.correct(f"{topic}-{partition}", topic_id)

    # --- logs that come from another directory ----------------------------------------------------

    def log_start(self, topic: str, partition: int) -> int:
        """Everything below was deleted, or is about to be."""
        self._checkpoints.note(self._logs)
        return self._checkpoints.log_start((topic, partition))

    def expect(self, topic: str, partition: int, log_start: int) -> CheckpointJob:
        """A log will come that begins there; from this job on the checkpoints say nothing else of it."""
        key = (topic, partition)
        self._checkpoints.forget(key)
        self._checkpoints.recovery_points[key] = 0
        self._checkpoints.log_starts[key] = log_start
        return self.checkpoint_job({})

    @translates_errors
    def adopt(
        self, topic: str, partition: int, name: str, *, end_offset: int = 0, first_dirty_offset: int = 0
    ) -> None:
        """The whole log under that name is the partition's now; it is durable up to `end_offset`."""
        key = (topic, partition)
        directory = f"{topic}-{partition}"
        if key in self._unwanted:
            raise DiskFull(
                f"{directory} cannot be renamed for lack of space, and the moved log needs its name"
            )
        self._possess()
        arrive(self._disk, name, directory)
        self._found.add(key)
        self._unopened.add(key)
        self._topic_ids.forget(directory)
        self._checkpoints.recovery_points[key] = end_offset
        if first_dirty_offset:
            self._checkpoints.cleaner_offsets[key] = first_dirty_offset

    @translates_errors
    def discard(self, arrival: Arrival) -> RemoveDirectoryJob:
        """Renames a directory that is no longer needed, so that its name says so."""
        doomed = unused_doomed_name(self._disk, arrival.name.partition(".")[0], arrival.topic_id)
        arrive(self._disk, arrival.name, doomed)
        return RemoveDirectoryJob(doomed)

    # --- checkpoints ------------------------------------------------------------------------------

    def checkpoint_job(self, high_watermarks: Mapping[Partition, int]) -> CheckpointJob:
        """Where all logs stand, as a job; logs that were not opened yet keep what was known of them."""
        self._checkpoints.note(self._logs)
        self._checkpoints.high_watermarks.update(high_watermarks)
        return self._checkpoints.job()

    def lower_job(
        self, topic: str, partition: int, end_offset: int, start_offset: int | None = None
    ) -> CheckpointJob | None:
        """Before an open log is cut so that it ends there, and starts there at the latest: no checkpoint on
        the disk may promise more of it, or take for deleted what is written later. None: none does. A cut
        that is announced with a start ends with `complete_cut` or `give_up_cut`.
        """
        key = (topic, partition)
        was_flushed = self._logs[key].promise_less(end_offset)
        if not self._checkpoints.promise_less(key, end_offset, start_offset) and not was_flushed:
            return None
        self._checkpoints.note(self._logs)
        return self._checkpoints.lower_job(key)

    def complete_cut(self, topic: str, partition: int) -> None:
        """The log was cut, maybe before the offset that was asked for: a batch is not divided."""
        key = (topic, partition)
        log = self._logs[key]
        self._checkpoints.promise_less(key, log.log_end_offset, log.log_start_offset)
        self._checkpoints.end_cut(key)

    def give_up_cut(self, topic: str, partition: int) -> bool:
        """The log will not be cut; whether that was to be. Its start counts again from the next checkpoint
        on.
        """
        key = (topic, partition)
        if key in self._logs:
            self._logs[key].keep_all()
        return self._checkpoints.end_cut(key)

    def log_start_job(self, starts: Mapping[Partition, int]) -> CheckpointJob:
        """Make the log starts durable to which records are about to be deleted.

        `complete_log_starts` has to follow, however the job ends.
        Later checkpoints keep them, too, so that all of these jobs have to run one after the other.
        """
        self._checkpoints.note(self._logs)
        return self._checkpoints.log_start_job(starts)

    def complete_log_starts(self, job: CheckpointJob, *, are_durable: bool) -> None:
        self._checkpoints.complete_log_starts(job, are_durable=are_durable)

    @translates_errors
    def checkpoint(self, high_watermarks: Mapping[Partition, int]) -> None:
        """The same, here and now."""
        if self._status.error is not None:
            raise self._status.offline()
        self.checkpoint_job(high_watermarks).run(self._disk)

    def _write_recovery_points(self) -> None:
        self._checkpoints.note(self._logs)
        self._checkpoints.write_recovery_points()

    def close_clean(self, high_watermarks: Mapping[Partition, int]) -> None:
        """Flush and close every log, write the checkpoints and then, last of all, the clean marker. Whatever
        comes of it, no log takes another record.
        """
        try:
            self._close_clean(high_watermarks)
        finally:
            self._status.close()

    @translates_errors
    def _close_clean(self, high_watermarks: Mapping[Partition, int]) -> None:
        for log in self._logs.values():
            log.close(clean=True)
            job = log.flush_job()
            if job is not None:
                log.complete_flush(job.run(self._disk))
        self.checkpoint(high_watermarks)
        # a log that nobody opened since a kill may be longer than its recovery point says
        if not self._unopened:
            self._stop.write_marker()
