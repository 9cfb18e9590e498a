"""The metadata log of this node: where every decision about the cluster is written before it is answered.

A decision's records are one batch, appended and replayed at once, so that the next decision sees it; the
replies wait for the high watermark, which with one voter is what was flushed. Everything else in the node
learns of a record when it is committed. A failed append changes nothing; a failed flush ends the node, for
nobody can say any more what the disk holds.
"""

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.base.ids import METADATA_TOPIC_ID
from headrace.base.numbers import INT32_MAX, whole_number
from headrace.base.time import Now
from headrace.machines.metadata.controller.brokers import Registration
from headrace.machines.metadata.controller.controller import Controller
from headrace.machines.metadata.controller.decision import Decision
from headrace.machines.metadata.image import ALL_BROKERS, BadMetadata, ClusterImage, Endpoint
from headrace.machines.metadata.versions import FINALIZED_AT_FORMAT, SUPPORTED_FEATURES
from headrace.machines.raft.quorum_state import FILE, QuorumState
from headrace.machines.raft.roles import Leader, recovered
from headrace.node.coordinators.following import follow, removed_topics
from headrace.node.deadlines import Once
from headrace.node.group_commit import RETRY_MS
from headrace.node.metadata_files import SnapshotId, SnapshotJob, metadata_batch, remove_unfinished
from headrace.node.parking import Waitable
from headrace.node.settings import Settings
from headrace.protocol.compiler import codec
from headrace.protocol.messages.control_records import LeaderChangeMessage, Voter
from headrace.protocol.notation import Data
from headrace.records.builder import LEADER_CHANGE, control_batch
from headrace.storage.checkpoints import PARTITION_METADATA
from headrace.storage.config import LogConfig
from headrace.storage.disk import Disk, read_whole, write_atomically
from headrace.storage.errors import DiskFull, LogOffline, is_transient
from headrace.storage.log import PartitionLog

if TYPE_CHECKING:
    from headrace.node.node import Node

TOPIC = "__cluster_metadata"
DIRECTORY = f"{TOPIC}-0"
BATCH_BYTES_MAX = 2**31 - 1  # a decision is one batch, however many partitions it creates
FOR_EVER = -1

# Records after which a snapshot is written, however small they are: replaying one takes some 20 µs, so this
# keeps half a second's work for the next start. A start itself writes one for each partition that it leads.
RECORDS_BETWEEN_SNAPSHOTS = 25_000


class MetadataLog(Waitable):
    """Whoever waits for a commit waits for this; `committed_offset` tells how far it is."""

    __slots__ = (
        "_bytes_since_snapshot",
        "_directory",
        "_is_flushing",
        "_is_making_snapshot",
        "_leader",
        "_log",
        "_node",
        "_ready_at",
        "_records_since_snapshot",
        "_snapshot",
        "_snapshot_wall_ms",
        "_uncommitted",
        "controller",
        "image",
    )

    def __init__(
        self, node: "Node", log: PartitionLog, leader: Leader, image: ClusterImage, now: Now
    ) -> None:
        super().__init__()
        settings = node.settings
        self._node = node
        self._log = log
        self._leader = leader
        self._directory = settings.metadata_log_dir
        self._uncommitted: deque[tuple[int, list[Data]]] = deque()  # end offset and records, oldest first
        self._is_flushing = False
        self._ready_at = 0
        self._is_making_snapshot = False
        self._snapshot: SnapshotId | None = None
        self._snapshot_wall_ms = now.wall_ms
        self._bytes_since_snapshot = 0
        self._records_since_snapshot = 0
        # ahead of what is committed by what is being flushed: a reply made from it waits for `end_offset`
        self.image = image
        self.controller = Controller(
            image,
            node.dice,
            settings.texts,
            partitions=settings.num_partitions,
            replication_factor=settings.default_replication_factor,
            check_settings=self._check_settings,
        )

    def _check_settings(self, name: str, after: Mapping[str, str]) -> None:
        """InvalidConfig: this node could not take such dynamic settings of its own, or of all brokers."""
        dynamic, cluster = self.image.broker_config(self._node.id), self.image.cluster_config
        if name == ALL_BROKERS:
            self._node.settings.overlaid(dynamic, after)
        elif whole_number(name, INT32_MAX) == self._node.id:
            self._node.settings.overlaid(after, cluster)

    @classmethod
    def open(cls, node: "Node", now: Now) -> "MetadataLog":
        """Recover and replay the log, lead it in a new epoch, and register this broker."""
        settings = node.settings
        directory = node.partitions.directories[settings.metadata_log_dir]
        disk = node.partitions.disks[settings.metadata_log_dir]
        sound = node.partitions.sound_metadata
        directory.vouch(TOPIC, 0, sound.snapshot_end)
        if directory.topic_id_of(TOPIC, 0) not in (None, METADATA_TOPIC_ID):
            # the log was found sound: another id in its directory is damage, and says nothing about it
            node.report_damage(
                f"{settings.metadata_log_dir}/{DIRECTORY}/{PARTITION_METADATA}", "the topic's id"
            )
            directory.correct_topic_id(TOPIC, 0, METADATA_TOPIC_ID)
        log = directory.open_log(TOPIC, 0, METADATA_TOPIC_ID, log_config(settings), now.wall_ms)
        remove_unfinished(disk, DIRECTORY)
        loaded = sound.loaded
        if sound.log_end_offset == loaded.end_offset != log.log_end_offset:
            raise BadMetadata(
                f"the metadata log was sound up to offset {loaded.end_offset}, but recovered up to "
                f"{log.log_end_offset}"
            )
        if sound.log_end_offset < loaded.end_offset:
            # a lost machine kept a snapshot and lost segments it stands for, whose removal had begun: the
            # log begins anew where the snapshot ends
            log.truncate_to(0)
        role = recovered(read_quorum_state(disk), max(loaded.epoch, log.latest_epoch))
        leader = role.stand(node.id, (node.id,), loaded.end_offset)
        write_atomically(disk, f"{DIRECTORY}/{FILE}", leader.quorum_state().to_bytes())
        metadata = cls(node, log, leader, loaded.image, now)
        metadata._snapshot = loaded.snapshot
        metadata._records_since_snapshot = loaded.replayed
        node.partitions.load(now, loaded.image, loaded.removed)
        metadata._begin_epoch(now, loaded.end_offset)
        metadata._register(now)
        metadata._flush(now)
        return metadata

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

    @property
    def is_ready(self) -> bool:
        """This broker's registration is durable: it may serve."""
        return self._leader.high_watermark >= self._ready_at

    # --- decisions ---------------------------------------------------------------------------------------

    def propose(self, now: Now, decision: Decision[Any]) -> int:
        """Append and replay a decision's records. Its reply is true once the offset returned is committed.

        DiskFull or LogOffline: nothing has changed.
        """
        end_offset = self._propose(now, decision)
        if not self._is_flushing and self._uncommitted:
            self._flush(now)
        return end_offset

    def _propose(self, now: Now, decision: Decision[Any]) -> int:
        records = decision.records
        if not records:
            return self._log.log_end_offset
        self._append(now, metadata_batch(records, self._log.log_end_offset, self._leader.epoch, now.wall_ms))
        for record in records:
            self.image.replay(record)
        end_offset = self._log.log_end_offset
        self._uncommitted.append((end_offset, records))
        self._records_since_snapshot += len(records)
        return end_offset

    def _append(self, now: Now, batch: bytes) -> None:
        try:
            self._log.append_batches(memoryview(batch), wall_ms=now.wall_ms)
        except LogOffline as error:
            self._node.partitions.go_offline(now, self._directory, error)
            raise
        self._bytes_since_snapshot += len(batch)

    def _begin_epoch(self, now: Now, offset: int) -> None:
        """The first batch of an epoch says who leads; with it all before it is committed (Raft §5.4.2)."""
        voters = [Voter(voter_id=voter) for voter in self._leader.voters]
        message = LeaderChangeMessage(leader_id=self._leader.id, voters=voters, granting_voters=voters)
        self._append(
            now,
            control_batch(
                LEADER_CHANGE,
                codec(LeaderChangeMessage, 0).encode(message),
                timestamp=now.wall_ms,
                base_offset=offset,
                leader_epoch=self._leader.epoch,
            ),
        )

    def _register(self, now: Now) -> None:
        node = self._node
        self._propose(now, self.controller.finalize_features(FINALIZED_AT_FORMAT))
        registration = Registration(
            broker=node.id,
            incarnation_id=node.dice.randbytes(16),
            endpoints={
                listener.name: Endpoint(listener.host, listener.port, listener.security_protocol_id)
                for listener in node.settings.advertised_listeners
            },
            features=SUPPORTED_FEATURES,
            rack=node.settings.broker_rack,
            directories=[
                directory.directory_id
                for name, directory in node.partitions.directories.items()
                if name in node.settings.log_dirs and not directory.is_offline
            ],
        )
        decision = self.controller.register_broker(registration, self._log.log_end_offset)
        self._ready_at = self._propose(now, decision)

    # --- commit --------------------------------------------------------------------------------------------

    def _flush(self, now: Now) -> None:
        """Order a flush of all that is appended; at most one is under way, and the next takes what came
        since."""
        try:
            job = self._log.flush_job()
        except LogOffline as error:  # what was committed last met an I/O error, or another log has since
            self._node.partitions.go_offline(now, self._directory, error)
            return
        assert job is not None, "something was appended"
        self._is_flushing = True
        self._node.run(self._directory, "metadata", job, self._flush_ended)

    def _flush_ended(self, now: Now, result: Any) -> None:
        node = self._node
        if isinstance(result, OSError) and is_transient(result):
            # nothing was flushed, and nothing tried: no descriptor was left
            node.report("error", "flush_postponed", directory=self._directory, error=str(result))
            self._log.postpone_flush()
            Once(node.deadlines, now.after_ms(RETRY_MS), self._flush)
            return
        self._is_flushing = False
        if isinstance(result, Exception):
            node.partitions.go_offline(now, self._directory, result)
            return
        self._log.complete_flush(result)
        # the checkpoint that follows tells the next start how far the log has to be sound
        node.housekeeping.offsets_moved()
        if self._leader.held_by(node.id, self._log.flushed_offset):
            self._committed(now)
        if self._log.flushed_offset < self._log.log_end_offset:
            self._flush(now)
        else:
            self._snapshot_if_due(now)

    def _committed(self, now: Now) -> None:
        node = self._node
        while self._uncommitted and self._uncommitted[0][0] <= self._leader.high_watermark:
            _, records = self._uncommitted.popleft()
            removed = removed_topics(node, records)
            node.partitions.committed(now, self.image, records)
            follow(node, now, records, removed)
        node.wake_waiters(self)

    # --- snapshots -----------------------------------------------------------------------------------------

    def _snapshot_if_due(self, now: Now) -> None:
        settings = self._node.settings
        interval_ms = settings.metadata_log_max_snapshot_interval_ms
        by_size = self._bytes_since_snapshot >= settings.metadata_log_max_record_bytes_between_snapshots
        by_count = self._records_since_snapshot >= RECORDS_BETWEEN_SNAPSHOTS
        by_time = interval_ms > 0 and now.wall_ms - self._snapshot_wall_ms >= interval_ms
        if self._is_making_snapshot or self._node.is_stopping or not (by_size or by_count or by_time):
            return
        self._is_making_snapshot = True
        self._bytes_since_snapshot = 0
        self._records_since_snapshot = 0
        self._snapshot_wall_ms = now.wall_ms
        job = SnapshotJob(DIRECTORY, self._leader.high_watermark, now.wall_ms)
        self._node.run(self._directory, "snapshot", job, self._snapshot_made)

    def _snapshot_made(self, now: Now, result: Any) -> None:
        node = self._node
        self._is_making_snapshot = False
        if isinstance(result, Exception):
            # the log is still there and still whole; the next snapshot is tried after as many bytes again
            node.report("error", "metadata_snapshot_failed", error=str(result))
            node.partitions.job_failed(now, self._directory, result)
            return
        self._snapshot = result
        node.report("info", "metadata_snapshot", end_offset=result.end_offset, epoch=result.epoch)
        try:
            doomed = self._log.advance_log_start(result.end_offset, now.wall_ms)
        except LogOffline as error:
            node.partitions.go_offline(now, self._directory, error)
            return
        except DiskFull:
            return  # the next snapshot frees what this one could not
        for one in doomed:
            node.housekeeping.run_later(
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
    path = f"{DIRECTORY}/{FILE}"
    return QuorumState.from_bytes(read_whole(disk, path)) if disk.exists(path) else QuorumState()
