"""The metadata log of this node: where every decision about the cluster is written before it is answered.

A decision's records are one batch, appended and replayed at once, so that the next decision sees it; the
replies wait for the high watermark, which with one voter is what was flushed (`when_committed`). Everything
else in the node learns of a record when it is committed. A failed append changes nothing; a failed flush ends
the node, for nobody can say any more what the disk holds.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from headrace.base.ids import METADATA_TOPIC_ID
from headrace.base.time import Instant, Now
from headrace.machines.metadata.controller.decision import Decision
from headrace.machines.metadata.image import BadMetadata, ClusterImage
from headrace.machines.raft.quorum_state import FILE, QuorumState
from headrace.machines.raft.roles import Leader, recovered
from headrace.node.faults import FAULTS, code_of
from headrace.node.group_commit import RETRY_MS
from headrace.node.log_directories import LogDirectories
from headrace.node.metadata_files import (
    METADATA_DIRECTORY,
    METADATA_TOPIC,
    SnapshotId,
    SnapshotJob,
    metadata_batch,
    remove_unfinished,
)
from headrace.node.ports import Once, Ports
from headrace.node.routes import Request
from headrace.node.settings import LiveSettings, Settings
from headrace.node.waiting import Parked, Waitable, Waiting
from headrace.protocol.compiler import codec
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.control_records import LeaderChangeMessage, Voter
from headrace.protocol.notation import Data
from headrace.records.builder import LEADER_CHANGE, control_batch
from headrace.storage.checkpoints import PARTITION_METADATA
from headrace.storage.config import LogConfig
from headrace.storage.disk import Disk, read_whole, write_atomically
from headrace.storage.errors import DiskFull, LogOffline, is_transient
from headrace.storage.log import PartitionLog

BATCH_BYTES_MAX = 2**31 - 1  # a decision is one batch, however many partitions it creates
FOR_EVER = -1

# Records after which a snapshot is written, however small they are: replaying one takes some 20 µs, so this
# keeps half a second's work for the next start. A start itself writes one for each partition that it leads.
RECORDS_BETWEEN_SNAPSHOTS = 25_000

R = TypeVar("R")


class Follower(Protocol):
    """Whoever acts on committed metadata."""

    def committed(self, now: Now, image: ClusterImage, records: list[Data], /) -> None:
        """These records are durable; the image is the state after them, or later."""
        ...


class MetadataLog(Waitable):
    """Whoever waits for a commit waits for this; `committed_offset` tells how far it is."""

    __slots__ = (
        "_bytes_since_snapshot",
        "_deadlines",
        "_directories",
        "_directory",
        "_is_flushing",
        "_is_making_snapshot",
        "_jobs",
        "_leader",
        "_lifecycle",
        "_log",
        "_records_since_snapshot",
        "_reports",
        "_settings",
        "_snapshot",
        "_snapshot_wall_ms",
        "_uncommitted",
        "_waiting",
        "followers",
        "image",
        "removed",
    )

    def __init__(self, settings: LiveSettings, directories: LogDirectories, ports: Ports, now: Now) -> None:
        """Recovers and replays the log, and stands for election, which the sole voter wins at once."""
        super().__init__()
        self._settings = settings
        self._directories = directories
        self._directory = directories.metadata_home
        self._deadlines = ports.deadlines
        self._jobs = ports.jobs
        self._reports = ports.reports
        self._lifecycle = ports.lifecycle
        self._waiting = ports.waiting
        self.followers: list[Follower] = []
        self._uncommitted: deque[tuple[int, list[Data]]] = deque()  # end offset and records, oldest first
        self._is_flushing = False
        self._is_making_snapshot = False
        self._snapshot_wall_ms = now.wall_ms
        self._bytes_since_snapshot = 0
        loaded = directories.sound_metadata.loaded
        self._snapshot: SnapshotId | None = loaded.snapshot
        self._records_since_snapshot = loaded.replayed
        # ahead of what is committed by what is being flushed: a reply made from it waits for `end_offset`
        self.image = loaded.image
        self.removed = loaded.removed  # ids of topics that the replayed records removed
        self._log = self._open_log(now)
        self._leader = self._elected(settings.current.node_id)
        self._sync_replayed()

    def _open_log(self, now: Now) -> PartitionLog:
        home = self._directory
        directory, disk = self._directories[home], self._directories.disks[home]
        sound = self._directories.sound_metadata
        directory.vouch(METADATA_TOPIC, 0, sound.snapshot_end)
        if directory.topic_id_of(METADATA_TOPIC, 0) not in (None, METADATA_TOPIC_ID):
            # the log was found sound: another id in its directory is damage, and says nothing about it
            self._reports.damage(f"{home}/{METADATA_DIRECTORY}/{PARTITION_METADATA}", "the topic's id")
            directory.correct_topic_id(METADATA_TOPIC, 0, METADATA_TOPIC_ID)
        config = log_config(self._settings.current)
        log = directory.open_log(METADATA_TOPIC, 0, METADATA_TOPIC_ID, config, now.wall_ms)
        remove_unfinished(disk, METADATA_DIRECTORY)
        if sound.log_end_offset == sound.end_offset != log.log_end_offset:
            raise BadMetadata(
                f"the metadata log was sound up to offset {sound.end_offset}, but recovered up to "
                f"{log.log_end_offset}"
            )
        if sound.log_end_offset < sound.end_offset:
            # a lost machine kept a snapshot and lost segments it stands for, whose removal had begun: the
            # log begins again where the snapshot ends
            log.truncate_to(0)
        return log

    def _sync_replayed(self) -> None:
        """A killed process may have left records in the page cache only. Topics that they remove are deleted
        by this start, and must not come back without their records when the machine is lost.
        """
        job = self._log.flush_job()
        if job is None:
            return
        try:
            self._log.complete_flush(job.run(self._directories.disks[self._directory]))
        except OSError as error:
            if not is_transient(error):
                self._directories.distrust(self._directory)
            raise

    def _elected(self, node_id: int) -> Leader:
        loaded = self._directories.sound_metadata.loaded
        disk = self._directories.disks[self._directory]
        role = recovered(read_quorum_state(disk), max(loaded.epoch, self._log.latest_epoch))
        leader = role.stand(node_id, (node_id,), loaded.end_offset)
        write_atomically(disk, f"{METADATA_DIRECTORY}/{FILE}", leader.quorum_state().to_bytes())
        return leader

    # --- questions ---------------------------------------------------------------------------------------

    @property
    def committed_offset(self) -> int:
        return self._leader.high_watermark

    @property
    def end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def epoch(self) -> int:
        return self._leader.epoch

    @property
    def is_committed(self) -> bool:
        """The image tells nothing that could still be lost."""
        return self._leader.high_watermark == self._log.log_end_offset

    @property
    def is_flushed(self) -> bool:
        return not self._is_flushing and self.is_committed

    def when_committed(
        self, request: Request, offset: int, reply: R | Callable[[Now], R]
    ) -> "R | CommittedReply":
        """The reply at once when what it speaks of is durable, and otherwise when it is. `reply` is the
        message, or makes it then.
        """
        if self._leader.high_watermark < offset:
            return CommittedReply(self._waiting, self, request, offset, reply)
        return reply(request.now) if callable(reply) else reply

    # --- decisions ---------------------------------------------------------------------------------------

    def propose(self, now: Now, decision: Decision[Any]) -> int:
        """Append and replay a decision's records. Its reply is true once the offset returned is committed.

        DiskFull or LogOffline: nothing has changed.
        """
        end_offset = self.append(now, decision)
        if not self._is_flushing and self._uncommitted:
            self.flush(now)
        return end_offset

    def append(self, now: Now, decision: Decision[Any]) -> int:
        """The same, without a flush: whoever appends several decisions calls `flush` once."""
        records = decision.records
        if not records:
            return self._log.log_end_offset
        self._write(now, metadata_batch(records, self._log.log_end_offset, self._leader.epoch, now.wall_ms))
        for record in records:
            self.image.replay(record)
        end_offset = self._log.log_end_offset
        self._uncommitted.append((end_offset, records))
        self._records_since_snapshot += len(records)
        return end_offset

    def _write(self, now: Now, batch: bytes) -> None:
        try:
            self._log.append_batches(memoryview(batch), wall_ms=now.wall_ms)
        except LogOffline as error:
            self._directories.go_offline(now, self._directory, error)
            raise
        self._bytes_since_snapshot += len(batch)

    def begin_epoch(self, now: Now) -> None:
        """The first batch of an epoch says who leads; with it all before it is committed (Raft §5.4.2)."""
        voters = [Voter(voter_id=voter) for voter in self._leader.voters]
        message = LeaderChangeMessage(leader_id=self._leader.id, voters=voters, granting_voters=voters)
        self._write(
            now,
            control_batch(
                LEADER_CHANGE,
                codec(LeaderChangeMessage, 0).encode(message),
                timestamp=now.wall_ms,
                base_offset=self._leader.epoch_start_offset,
                leader_epoch=self._leader.epoch,
            ),
        )

    # --- commit --------------------------------------------------------------------------------------------

    def flush(self, now: Now) -> None:
        """Order a flush of all that is appended; at most one is under way, and the next takes what came
        since."""
        try:
            job = self._log.flush_job()
        except LogOffline as error:  # what was committed last met an I/O error, or another log has since
            self._directories.go_offline(now, self._directory, error)
            return
        assert job is not None, "something was appended"
        self._is_flushing = True
        self._jobs.run(self._directory, "metadata", job, self._flush_ended)

    def _flush_ended(self, now: Now, result: Any) -> None:
        if isinstance(result, OSError) and is_transient(result):
            # nothing was flushed, and nothing tried: no descriptor was left
            self._reports.report("error", "flush_postponed", directory=self._directory, error=str(result))
            self._log.postpone_flush()
            Once(self._deadlines, now.after_ms(RETRY_MS), self.flush)
            return
        self._is_flushing = False
        if isinstance(result, Exception):
            self._directories.go_offline(now, self._directory, result)
            return
        self._log.complete_flush(result)
        # the checkpoint that follows tells the next start how far the log has to be sound
        self._directories.offsets_moved()
        if self._leader.held_by(self._leader.id, self._log.flushed_offset):
            self._committed(now)
        if self._log.flushed_offset < self._log.log_end_offset:
            self.flush(now)
        else:
            self._snapshot_if_due(now)

    def _committed(self, now: Now) -> None:
        while self._uncommitted and self._uncommitted[0][0] <= self._leader.high_watermark:
            _, records = self._uncommitted.popleft()
            for follower in self.followers:
                follower.committed(now, self.image, records)
        self._waiting.wake(self)

    # --- snapshots -----------------------------------------------------------------------------------------

    def _snapshot_if_due(self, now: Now) -> None:
        settings = self._settings.current
        interval_ms = settings.metadata_log_max_snapshot_interval_ms
        by_size = self._bytes_since_snapshot >= settings.metadata_log_max_record_bytes_between_snapshots
        by_count = self._records_since_snapshot >= RECORDS_BETWEEN_SNAPSHOTS
        by_time = interval_ms > 0 and now.wall_ms - self._snapshot_wall_ms >= interval_ms
        if self._is_making_snapshot or self._lifecycle.is_stopping or not (by_size or by_count or by_time):
            return
        self._is_making_snapshot = True
        self._bytes_since_snapshot = 0
        self._records_since_snapshot = 0
        self._snapshot_wall_ms = now.wall_ms
        job = SnapshotJob(METADATA_DIRECTORY, self._leader.high_watermark, now.wall_ms)
        self._jobs.run(self._directory, "snapshot", job, self._snapshot_made)

    def _snapshot_made(self, now: Now, result: Any) -> None:
        self._is_making_snapshot = False
        if isinstance(result, Exception):
            # the log is still there and still whole; the next snapshot is tried after as many bytes again
            self._reports.report("error", "metadata_snapshot_failed", error=str(result))
            self._directories.job_failed(now, self._directory, result)
            return
        self._snapshot = result
        self._reports.report("info", "metadata_snapshot", end_offset=result.end_offset, epoch=result.epoch)
        try:
            doomed = self._log.advance_log_start(result.end_offset, now.wall_ms)
        except LogOffline as error:
            self._directories.go_offline(now, self._directory, error)
            return
        except DiskFull:
            return  # the next snapshot frees what this one could not
        for one in doomed:
            self._directories.remove_later(
                now, self._log.config.file_delete_delay_ms, self._directory, one.remove_job()
            )


def log_config(settings: Settings) -> LogConfig:
    """Retention is the snapshots' business; segments are short enough that a snapshot can free one."""
    return LogConfig(
        segment_bytes=min(
            settings.metadata_log_segment_bytes, settings.metadata_log_max_record_bytes_between_snapshots
        ),
        segment_ms=settings.metadata_log_segment_ms,
        retention_ms=FOR_EVER,
        retention_bytes=FOR_EVER,
        max_message_bytes=BATCH_BYTES_MAX,
    )


def read_quorum_state(disk: Disk) -> QuorumState:
    path = f"{METADATA_DIRECTORY}/{FILE}"
    return QuorumState.from_bytes(read_whole(disk, path)) if disk.exists(path) else QuorumState()


class CommittedReply(Parked):
    """Waits for the metadata log's commit to reach `offset`. `reply` is the message, or makes it then.

    There is no deadline: the change has been made, and the disk either flushes it or ends the node.
    """

    __slots__ = ("_metadata", "_offset", "_reply")

    def __init__(
        self,
        waiting: Waiting,
        metadata: MetadataLog,
        request: Request,
        offset: int,
        reply: Any | Callable[[Now], Any],
    ) -> None:
        super().__init__(waiting, request)
        self._metadata = metadata
        self._offset = offset
        self._reply = reply
        self.wait_for(metadata)

    def deadline(self) -> Instant | None:
        return None

    def reply(self, now: Now, *, is_expired: bool) -> Any:
        if self._metadata.committed_offset < self._offset:
            return None
        return self._reply(now) if callable(self._reply) else self._reply


class Item(Protocol):
    """What became of one part of a request."""

    error: ErrorCode
    message: str | None


T = TypeVar("T", bound=Item)


def propose(metadata: MetadataLog, now: Now, decision: Decision[list[T]]) -> int:
    """Append a decision's records; the offset that makes its reply true.

    When they cannot be appended, every item that would have succeeded is told why it did not.
    """
    try:
        return metadata.propose(now, decision)
    except FAULTS as fault:
        for item in decision.reply:
            if item.error is ErrorCode.NONE:
                item.error, item.message = code_of(fault), str(fault)
        return metadata.end_offset
