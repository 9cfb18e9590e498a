"""The log directories of this node: opening, flushing, checkpoints, removal of files, and disk errors.

Both roles keep logs here, the controller its metadata log and the broker its partitions. A directory whose
disk fails is offline until the next start; when it is the metadata's, the node halts.
"""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from headrace.base.ids import new_id_text, shared_id_text
from headrace.base.randomness import Randomness
from headrace.base.time import Now
from headrace.machines.raft.voters import VoterKey
from headrace.node.group_commit import RETRY_MS, Flushable, GroupCommit
from headrace.node.metadata_check import (
    LastStop,
    SoundLog,
    check_metadata,
    check_vote,
    epoch_max,
    lost_log,
    no_log,
)
from headrace.node.metadata_files import METADATA_DIRECTORY, METADATA_TOPIC
from headrace.node.metrics import Metrics
from headrace.node.ports import Act, Lifecycle, Once, Ports
from headrace.node.previous_epoch import PreviousEpoch
from headrace.node.settings import Settings
from headrace.storage.checkpoints import META_PROPERTIES, parse_properties
from headrace.storage.directory_jobs import CHECKPOINT_QUEUE
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
from headrace.storage.open_files import OpenFiles
from headrace.storage.segment_removal import Doomed
from headrace.storage.stop_record import distrusted_ids

REMOVAL_QUEUE = "removal"


class Tenant(Protocol):
    """The part of the node whose logs are in the directories."""

    def directory_failed(self, now: Now, directory: str, /) -> None:
        """The directory is offline from now on."""
        ...

    def high_watermarks(self, directory: str, /) -> dict[tuple[str, int], int]:
        """The high watermarks of all open logs in the directory, by topic and partition, for the
        checkpoint.
        """
        ...


class LogDirectories:
    def __init__(
        self,
        settings: Settings,
        disks: dict[str, Disk],
        rng: Randomness,
        boot_id: str,
        now: Now,
        ports: Ports,
        metrics: Metrics,
    ) -> None:
        """Looks at all directories before it changes anything on any disk. `settings.metadata_log_dir` is
        where the metadata log lies (`metadata_log_dir`).
        """
        self._deadlines = ports.deadlines
        self._jobs = ports.jobs
        self._reports = ports.reports
        self._lifecycle = ports.lifecycle
        self._metrics = metrics
        self.disks = disks
        self.files = OpenFiles(settings.headrace_open_files_max)
        self.cluster_id = cluster_id_of(settings, disks, rng)
        self.metadata_log_dir = settings.metadata_log_dir
        self._node_id = settings.node_id
        self._may_vote = "controller" in settings.process_roles
        self._directories: dict[str, LogDirectory] = {}
        self._commits: dict[str, GroupCommit] = {}
        self._given_up: set[str] = set()  # directories that went offline since the start
        self._rewriting: set[str] = set()  # directories in which segments are being rewritten
        self._has_moved = False  # something that a checkpoint tells has changed since the last one
        self._tenant: Tenant | None = None
        self.failed: Act = lambda now: None  # called after a directory has gone offline
        # partitions that lay on disk at the start: directory, topic, partition, topic id if it is known
        self.found: list[tuple[str, str, int, bytes | None]] = []
        distrusted = distrusted_ids(disks.values(), boot_id)
        for name, disk in disks.items():
            directory = self._directories[name] = self._look(name, disk, rng, boot_id, distrusted)
            self._commits[name] = self._group_commit(name)
            for topic, index, topic_id in directory.partitions():
                if topic != METADATA_TOPIC:
                    self.found.append((name, topic, index, topic_id))
        self.sound_metadata = self._check_metadata()
        # the node starts: nothing was changed on any disk up to here
        self.previous_epoch = self._previous_epoch()
        for name, directory in self._directories.items():
            directory.vouch_after(self.previous_epoch.is_loss_noted)
            self._take_possession(now, name, directory)

    def _look(
        self, name: str, disk: Disk, rng: Randomness, boot_id: str, distrusted: set[str]
    ) -> LogDirectory:
        """A directory that cannot be read is offline from the start, unless it has the metadata. One that
        belongs to somebody else, or does not say to whom, refuses the start; Kafka does the same.
        """
        try:
            return LogDirectory.look(
                disk,
                name,
                node_id=self._node_id,
                cluster_id=self.cluster_id,
                directory_id_if_new=rng.randbytes(16),
                boot_id=boot_id,
                files=self.files,
                distrusted=distrusted,
            )
        except LogOffline as fault:
            if name == self.metadata_log_dir:
                raise
            self._given_up.add(name)
            self._reports.report("error", "log_directory_offline", directory=name, error=str(fault))
            return LogDirectory.unusable(disk, name, self.files, OSError(str(fault)))

    def _check_metadata(self) -> SoundLog:
        """Where the sound metadata log ends. Raises when it is not there, or is damaged."""
        log_dir = self.metadata_log_dir
        disk, directory = self.disks[log_dir], self._directories[log_dir]
        sound = no_log()
        if disk.exists(METADATA_DIRECTORY):
            stop = LastStop(
                directory.trust,
                directory.recovery_point(METADATA_TOPIC, 0),
                epoch_max(disk, log_dir, METADATA_DIRECTORY),
                directory.are_lists_exact,
            )
            sound = check_metadata(disk, log_dir, METADATA_DIRECTORY, stop)
            check_vote(sound, log_dir, VoterKey(self._node_id, directory.directory_id), stop)
        elif self._may_vote and any(
            each.recovery_point(METADATA_TOPIC, 0) for each in self._directories.values()
        ):
            raise lost_log(log_dir, METADATA_DIRECTORY)
        offline = [name for name, each in self._directories.items() if each.is_offline]
        if not sound.end_offset and (self.found or offline):
            # an empty metadata log would make strays of all partitions
            there = f"{', '.join(self.disks)} have {len(self.found)} partitions"
            if offline:
                there += f" ({', '.join(offline)} cannot be read)"
            raise WrongDirectory(
                f"{there} but no {METADATA_DIRECTORY}: check whether a log directory is missing from "
                "log.dirs, or metadata.log.dir is wrong"
            )
        return sound

    def _previous_epoch(self) -> PreviousEpoch:
        """Of the whole log on this disk: what of it is committed is not known before there is a leader."""
        return PreviousEpoch(
            self.disks[self.metadata_log_dir],
            self.sound_metadata.loaded.image.brokers.get(self._node_id),
            is_lost=any(directory.trust == "lost" for _, directory in self.online()),
        )

    def _take_possession(self, now: Now, name: str, directory: LogDirectory) -> None:
        if directory.is_offline:
            return
        try:
            directory.take_possession()
        except StorageError as fault:
            if name == self.metadata_log_dir:
                raise
            self.go_offline(now, name, fault)
            return
        for damage in directory.damages:
            self._reports.damage(f"{name}/{damage.path}", damage.what)

    def house(self, tenant: Tenant) -> None:
        """From now on the directories also hold the logs of partitions."""
        self._tenant = tenant

    # --- questions ---------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> LogDirectory:
        return self._directories[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._directories)

    def items(self) -> list[tuple[str, LogDirectory]]:
        return list(self._directories.items())

    def online(self) -> list[tuple[str, LogDirectory]]:
        """Those that were not given up."""
        return [(name, each) for name, each in self._directories.items() if not each.is_offline]

    def offline(self) -> list[str]:
        return [name for name, each in self._directories.items() if each.is_offline]

    # --- flushing ----------------------------------------------------------------------------------------

    def _group_commit(self, directory: str) -> GroupCommit:
        def run(job: Job, then: Callable[[Now, Any], None]) -> None:
            def finished(now: Now, result: Any) -> None:
                self._metrics.flushes += 1
                then(now, result)
                self.offsets_moved()  # the next checkpoint tells what is flushed now

            self._jobs.run(directory, "flush", job, finished)

        def failed(now: Now, error: Exception) -> None:
            self.go_offline(now, directory, error)

        return GroupCommit(directory, run, failed, self, self._reports, self._deadlines)

    def want_flush(self, now: Now, partition: Flushable) -> None:
        """Make all that the partition holds now durable, soon."""
        self._commits[partition.directory].want(now, partition)

    @property
    def is_flushed(self) -> bool:
        return all(commit.is_idle for commit in self._commits.values())

    # --- rewriting and removal of files --------------------------------------------------------------------

    # Recompression, compaction and moves write new segments beside the old ones under the same names: one
    # of them at a time in each directory

    def may_rewrite(self, directory: str) -> bool:
        return directory not in self._rewriting

    def begin_rewrite(self, directory: str) -> None:
        self._rewriting.add(directory)

    def end_rewrite(self, directory: str) -> None:
        self._rewriting.discard(directory)

    def remove(self, directory: str, job: Job) -> None:
        """Run a job that removes files. What fails for lack of a descriptor is tried again."""

        def removed(now: Now, result: Any) -> None:
            if isinstance(result, Exception):
                self._removal_failed(now, directory, job, result)

        self._jobs.run(directory, REMOVAL_QUEUE, job, removed)

    def remove_later(self, now: Now, delay_ms: int, directory: str, job: Job) -> None:
        """The same, once those who still read the files have had their time."""
        self._deadlines.add(now.after_ms(delay_ms), Removal(self, self._lifecycle, directory, job))

    def remove_files(self, now: Now, directory: str, log: PartitionLog, doomed: list[Doomed]) -> None:
        """Renamed files stay for a while, for readers that still have them open; then a job unlinks them.
        Another closes what was replaced in the log.
        """
        for one in doomed:
            self.remove_later(now, log.config.file_delete_delay_ms, directory, one.remove_job())
        release = log.release_job()
        if release is not None:
            self.remove(directory, release)

    def remove_segments(self, now: Now, partition: Flushable, doomed: list[Doomed]) -> None:
        """Segments that are out of the partition's log; others wait for a flush before they go."""
        log = partition.log
        assert log is not None
        self.remove_files(now, partition.directory, log, doomed)
        if log.retires_before is not None:
            self.want_flush(now, partition)

    def _removal_failed(self, now: Now, directory: str, job: Job, error: Exception) -> None:
        self._reports.report("warning", "removal_failed", directory=directory, error=str(error))
        if isinstance(error, OSError) and is_transient(error):
            self.remove_later(now, RETRY_MS, directory, job)
        else:
            self.job_failed(now, directory, error)

    def insist(self, now: Now, directory: str, act: Act) -> None:
        """Rename a partition's directory away now, or as soon as there is space. Its name is not free before:
        a topic that gets it meanwhile is refused as inconsistent.
        """
        if self._directories[directory].is_offline:
            return
        try:
            act(now)
        except DiskFull as fault:
            self.is_full(directory, fault)
            Once(self._deadlines, now.after_ms(RETRY_MS), lambda now: self.insist(now, directory, act))
        except StorageError as fault:
            self.go_offline(now, directory, fault)

    # --- disk errors ---------------------------------------------------------------------------------------

    def storage_failed(self, now: Now, partition: Flushable, fault: Exception) -> None:
        """A full disk refuses one write; an I/O error costs the directory."""
        if isinstance(fault, DiskFull):
            self.is_full(partition.directory, fault)
        elif isinstance(fault, LogOffline) and not partition.is_offline:
            self.go_offline(now, partition.directory, fault)

    def is_full(self, directory: str, fault: Exception) -> None:
        self._reports.report("error", "disk_full", directory=directory, error=str(fault))

    def job_failed(self, now: Now, directory: str, error: BaseException) -> None:
        """A job ended with an error, which its owner has reported: an I/O error costs the directory."""
        if is_io_error(error) and not self._directories[directory].is_offline:
            assert isinstance(error, OSError)
            self.go_offline(now, directory, error)

    def go_offline(self, now: Now, directory: str, error: Exception) -> None:
        is_new = directory not in self._given_up
        if is_new:  # else a partition that was made since is the first to notice
            self._given_up.add(directory)
            self._reports.report("error", "log_directory_offline", directory=directory, error=str(error))
            cause = error if isinstance(error, OSError) else OSError(str(error))
            self._directories[directory].go_offline(cause)
            self.distrust(directory)
        if directory == self.metadata_log_dir:
            self._reports.halt(f"the metadata directory {directory} failed: {error}")
        elif self._tenant is not None:
            self._tenant.directory_failed(now, directory)
        if is_new:
            self.failed(now)

    def distrust(self, failed: str) -> None:
        """The next start on this boot must not take the page cache for the disk: said in the directory
        itself, or, where that fails too, in the others.
        """
        if self._directories[failed].distrust():
            return
        for name, directory in self.online():
            if name != failed:
                directory.distrust_other(self._directories[failed].directory_id)

    def note_loss(self, name: str) -> bool:
        """Whether each later start will know that logs of this directory lack records which they had: before
        they are cut, because to a start after that nothing would be wrong with them.
        """
        self.distrust(name)
        return self.previous_epoch.lose()

    def forget_distrust(self, now: Now) -> None:
        """All logs were recovered: what others noted about their directories is settled."""
        settled = {each.directory_id for each in self._directories.values() if each.is_recovered}
        for name, directory in self.online():
            try:
                directory.settle_others(settled)
            except DiskFull:
                pass  # a start on this boot looks at their logs once more
            except StorageError as fault:
                self.go_offline(now, name, fault)

    # --- checkpoints and the end -------------------------------------------------------------------------

    def offsets_moved(self) -> None:
        """An offset that is in a checkpoint has changed."""
        self._has_moved = True

    def checkpoint(self, now: Now) -> None:
        """Write where all logs stand, if any has moved since the last time."""
        for name, directory in self.items():
            if directory.error is not None and name not in self._given_up:
                self.go_offline(now, name, directory.error)  # a read met it, whose client was told
        for name, directory in self.online():
            try:
                directory.mark_recovered()  # there was no space for it, or a job was writing
            except StorageError as fault:
                self.go_offline(now, name, fault)
        if not self._has_moved:
            return
        self._has_moved = False
        for name, directory in self.online():
            job = directory.checkpoint_job(self._high_watermarks(name))
            if job is not None:
                self._jobs.run(name, CHECKPOINT_QUEUE, job, self._checkpointed(name))

    def _checkpointed(self, name: str) -> Callable[[Now, Any], None]:
        def finished(now: Now, result: Any) -> None:
            if isinstance(result, OSError):
                if is_transient(result):
                    self.is_full(name, result)
                    self.offsets_moved()
                else:
                    self.go_offline(now, name, result)

        return finished

    @property
    def is_writing_checkpoints(self) -> bool:
        return self._jobs.is_busy(CHECKPOINT_QUEUE)

    def close_clean(self) -> None:
        """The end of a stop. A directory without its marker costs the next start a look at its logs, and no
        record: the others have theirs all the same.
        """
        self.previous_epoch.sync()
        for name, directory in self.online():
            try:
                directory.close_clean(self._high_watermarks(name))
            except StorageError as fault:
                self._reports.report("error", "stop_not_clean", directory=name, error=str(fault))

    def _high_watermarks(self, directory: str) -> dict[tuple[str, int], int]:
        return self._tenant.high_watermarks(directory) if self._tenant is not None else {}


class Removal:
    """A removal that waits for its time."""

    __slots__ = ("_directories", "_directory", "_job", "_lifecycle", "is_done")

    def __init__(self, directories: LogDirectories, lifecycle: Lifecycle, directory: str, job: Job) -> None:
        self._directories = directories
        self._lifecycle = lifecycle
        self._directory = directory
        self._job = job
        self.is_done = False

    def expired(self, now: Now) -> None:
        if not self._lifecycle.is_stopping:  # else the next start removes what is left
            self._directories.remove(self._directory, self._job)


def find_metadata_log_dir(settings: Settings, disks: dict[str, Disk]) -> str:
    """The directory of the metadata log: as it is set, else where it lies, else the first."""
    if "metadata.log.dir" not in settings.texts:
        for name, disk in disks.items():
            try:
                if disk.exists(METADATA_DIRECTORY):
                    return name
            except OSError:
                continue  # it cannot be read, and will be offline
    return settings.metadata_log_dir


def cluster_id_of(settings: Settings, disks: dict[str, Disk], rng: Randomness) -> str:
    """The cluster id of the directories, or of the setting, or a new one; the same for all directories. New
    nodes with the same voters come to the same one.
    """
    for disk in disks.values():
        try:
            known = parse_properties(read_whole(disk, META_PROPERTIES)).get("cluster.id")
        except OSError:
            continue  # a new directory, or one that will be offline
        if known:
            return known
    if settings.cluster_id is None and settings.quorum_voters:
        return shared_id_text(f"{id}@{host.lower()}:{port}" for id, host, port in settings.quorum_voters)
    return settings.cluster_id or new_id_text(rng)
