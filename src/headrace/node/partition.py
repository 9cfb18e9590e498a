"""One partition of which this broker has a replica: its log, its role, and whoever waits for either.

A replica leads or follows, or does neither while the partition has no leader. As a leader it has a
`PartitionLeader`, one for each leader epoch; as a follower, `replication` fetches for it. The high watermark
exists in each role, and begins with the one of the last checkpoint.

The log is opened at first use or by the background opener, whichever comes first: a restart with ten thousand
partitions serves at once.
"""

from collections.abc import Callable, Iterable

from headrace.base.ids import BrokerId, Epoch, Offset, TopicId
from headrace.base.time import NEVER, Instant, Now
from headrace.machines.metadata.image import PartitionState
from headrace.machines.replication.leader import (
    LogDamaged,
    Order,
    PartitionChanged,
    PartitionLeader,
    RaiseHighWatermark,
)
from headrace.node.append_queue import AppendQueue, AppendQueues
from headrace.node.commit_queue import CommitQueue
from headrace.node.error_codes import NotLeader
from headrace.node.log_directories import LogDirectories
from headrace.node.ports import Deadlines, Once, Reports
from headrace.node.replication_ports import Feed, Follower, Replication
from headrace.node.retirement import retire_waiting
from headrace.node.waiting import Parked, Waitable, Waiting
from headrace.protocol.errors import ErrorCode
from headrace.records.batch import BatchHeader
from headrace.storage.appending import Appended
from headrace.storage.batch_validation import opens_batches
from headrace.storage.config import LogConfig
from headrace.storage.errors import DamagedLog, LogOffline
from headrace.storage.flushing import Flushed
from headrace.storage.log import PartitionLog

READ_COMMITTED = 1
NEVER_FLUSH = 2**63 - 1
NO_EPOCH = -1


class Partition(Waitable):
    __slots__ = (
        "_append_queue",
        "_append_queues",
        "_broker_id",
        "_commits",
        "_configured_min_insync",
        "_deadlines",
        "_directories",
        "_flush_messages",
        "_flush_timer",
        "_has_flush_ms",
        "_high_watermark",
        "_replica_starts",
        "_replication",
        "_reports",
        "_waiting",
        "config",
        "counts_messages",
        "directory",
        "feeds",
        "flushes_each",
        "follower",
        "has_queue",
        "index",
        "is_deleted",
        "is_led_here",
        "is_offline",
        "leader",
        "leader_epoch",
        "leader_id",
        "log",
        "min_insync_replicas",
        "open_log",
        "opens_batches",
        "places",
        "replicas",
        "takes_fast_path",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        broker_id: int,
        topic: str,
        topic_id: TopicId,
        index: int,
        state: PartitionState,
        *,
        directory: str,
        config: LogConfig,
        min_insync_replicas: int,
        open_log: "Callable[[Partition, Now], PartitionLog]",
        replication: Replication,
        append_queues: AppendQueues,
        directories: LogDirectories,
        waiting: Waiting,
        reports: Reports,
        deadlines: Deadlines,
    ) -> None:
        """Without a role: `take` gives it one."""
        super().__init__()
        self._broker_id = broker_id
        self._replication = replication
        self._append_queues = append_queues
        self._directories = directories
        self._waiting = waiting
        self._reports = reports
        self._deadlines = deadlines
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.directory = directory
        self.replicas = state.replicas
        self.places = state.directories  # of the replicas, in the same order
        self.leader_id = -1
        self.leader_epoch = NO_EPOCH
        self.is_led_here = False  # exactly while there is a `leader`
        self.leader: PartitionLeader | None = None
        self.follower: Follower | None = None
        self.feeds: list[Feed] = []  # of followers that fetch from here
        self._replica_starts: dict[BrokerId, int] = {}  # where the logs of followers start, as they told
        self._high_watermark = Offset(0)  # while it does not lead
        self.open_log = open_log
        self.log: PartitionLog | None = None
        self.is_deleted = False
        self.is_offline = False
        self.has_queue = False  # batches wait in the append queue
        self._append_queue: AppendQueue | None = None
        self._commits: CommitQueue | None = None
        self._flush_timer: Once | None = None
        self._take_config(config, min_insync_replicas)
        self._judge_fast_path()

    # --- settings ----------------------------------------------------------------------------------------

    def configure(self, now: Now, config: LogConfig, min_insync_replicas: int) -> None:
        """Take new settings at once; nothing else reads topic configs on the hot path."""
        self._take_config(config, min_insync_replicas)
        log, leader = self.log, self.leader
        if log is not None:
            log.configure(config)
            if log.flushed_offset < log.log_end_offset and not self.is_offline:
                self.replicated(now)  # that may be too much now
            # what was promised only when flushed may be promised now, and nobody else would say so
            if leader is not None and leader.local_end_moved(self.promised_end(log)):
                self._raised()
        if leader is not None:
            orders = leader.configure(now.mono, self.min_insync_replicas, self._replication.lag_seconds)
            self.carry_out(now, orders)
        elif self.follower is not None:
            self.follower.configured(now)
        self._judge_fast_path()

    def _take_config(self, config: LogConfig, min_insync_replicas: int) -> None:
        self.config = config
        self._configured_min_insync = min_insync_replicas
        self._limit_min_insync()
        self._flush_messages = config.flush_messages
        self.flushes_each = config.flush_messages <= 1  # a record counts only when it is flushed
        self.counts_messages = config.flush_messages < NEVER_FLUSH
        self._has_flush_ms = config.flush_ms < NEVER_FLUSH
        self.opens_batches = opens_batches(config)  # looks into clients' batches, and may change them

    def _limit_min_insync(self) -> None:
        """More than all replicas cannot be in sync: Kafka demands no more than there are."""
        self.min_insync_replicas = min(self._configured_min_insync, len(self.replicas))

    def _judge_fast_path(self) -> None:
        """Whether a write can be answered without a look at anything else: `node/produce_fast_path.py`."""
        is_special = self.has_queue or self.counts_messages or self.is_deleted or self.is_offline
        self.takes_fast_path = self.is_led_here and not is_special

    @property
    def append_queue(self) -> AppendQueue:
        """Where batches wait that cannot be appended at once; most partitions never need one."""
        queue = self._append_queue
        if queue is None:
            queue = self._append_queue = self._append_queues.make(self)
        return queue

    def set_has_queue(self, has_queue: bool) -> None:
        if has_queue != self.has_queue:
            self.has_queue = has_queue
            self._judge_fast_path()

    # --- roles -------------------------------------------------------------------------------------------

    def take(self, now: Now, state: PartitionState) -> None:
        """The partition's committed metadata: a higher epoch begins a new role."""
        self.replicas = state.replicas
        self.places = state.directories
        self._limit_min_insync()
        if state.leader_epoch > self.leader_epoch:
            self._begin_role(now, state)
        elif self.leader is not None:
            change = PartitionChanged(
                state.partition_epoch, tuple(map(BrokerId, state.isr)), tuple(map(BrokerId, state.replicas))
            )
            self.carry_out(now, self.leader.step(now.mono, change))
        self._judge_fast_path()

    def _begin_role(self, now: Now, state: PartitionState) -> None:
        before = self.leader
        self._high_watermark = Offset(self.high_watermark)
        self.leader_id = state.leader
        self.leader_epoch = state.leader_epoch
        if self.follower is not None:
            self._replication.unfollow(now, self)
        self.is_led_here = state.leader == self._broker_id
        self.leader = self._leader_of(now, state) if self.is_led_here else None
        if before is not None:
            self._step_down(now)
        if self.leader is not None and self.log is not None and not self.log.is_offline:
            self._start_leading(now, self.log)
        elif self.leader is None and state.leader >= 0:
            self._replication.follow(now, self)

    def _leader_of(self, now: Now, state: PartitionState) -> PartitionLeader:
        return PartitionLeader(
            BrokerId(self._broker_id),
            Epoch(state.leader_epoch),
            map(BrokerId, state.isr),
            self._high_watermark,
            replicas=map(BrokerId, state.replicas),
            partition_epoch=state.partition_epoch,
            min_insync_replicas=self.min_insync_replicas,
            lag_seconds=self._replication.lag_seconds,
            live=self._replication.live,
            is_online=self._is_online,
            isr_counts=self._replication.isr_counts,
            now=now.mono,
        )

    def _is_online(self, replica: BrokerId) -> bool:
        """Whether its broker can read the replica, according to the metadata."""
        return self._replication.has_directory(replica, self.places[self.replicas.index(replica)])

    def _step_down(self, now: Now) -> None:
        """Tells whoever waits for records of the leader before: their offsets may come to hold others."""
        if self._append_queue is not None and not self.is_led_here:
            self._append_queue.refuse_all(now, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        feeds, self.feeds = self.feeds, []
        for feed in feeds:
            feed.leader_changed(now)
        self._replica_starts.clear()
        self._wake_all()

    def _start_leading(self, now: Now, log: PartitionLog) -> None:
        """The epoch begins at the log's end. Only leaders give epochs: a follower takes them from records."""
        leader = self.leader
        assert leader is not None
        log.assign_epoch(leader.epoch)
        committed = max(self._high_watermark, log.log_start_offset)
        leader.begin(now.mono, log.kept_start(), log.log_end_offset, committed)
        if leader.local_end_moved(self.promised_end(log)):
            self._raised()
        if log.damages:
            self.carry_out(now, leader.step(now.mono, LogDamaged()))

    def carry_out(self, now: Now, orders: Iterable[Order]) -> None:
        """What the leader's machine has ordered."""
        for order in orders:
            if isinstance(order, RaiseHighWatermark):
                self._raised()
            else:
                self._replication.propose(now, self, order)

    @property
    def high_watermark(self) -> int:
        """Everything before it is committed, as far as this replica knows."""
        if self.leader is not None:
            return self.leader.high_watermark
        return self._high_watermark if self.follower is None else self.follower.high_watermark

    def drop_follower(self) -> None:
        """It follows nobody any more, and keeps what it knows. Its log may just have been cut."""
        log, known = self.log, self.high_watermark
        self._high_watermark = Offset(known if log is None else min(known, log.log_end_offset))
        self.follower = None

    def replica_told(self, replica: BrokerId, log_start_offset: int) -> None:
        """Where a follower's log starts."""
        if self._replica_starts.get(replica) != log_start_offset:
            self._replica_starts[replica] = log_start_offset
            if self.waiters:
                self._waiting.wake(self)

    def lowest_start(self, log: PartitionLog) -> int:
        """The lowest log start of all replicas that are alive."""
        others = self.leader.followers if self.leader is not None else ()
        live = self._replication.live
        starts = (self._replica_starts.get(replica, -1) for replica in others if replica in live)
        return min((log.log_start_offset, *starts))

    def leadership_fault(self, known_epoch: int = NO_EPOCH) -> ErrorCode | None:
        """KIP-320: only the leader answers, and only to clients of its own epoch (-1: not checked)."""
        if not self.is_led_here:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if known_epoch == NO_EPOCH or known_epoch == self.leader_epoch:
            return None
        if known_epoch < self.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    # --- the log -----------------------------------------------------------------------------------------

    def opened(self, now: Now) -> PartitionLog:
        """The log, opened if it was not yet; LogOffline when its directory is."""
        log = self.log
        if log is None:
            if self.is_offline:
                raise LogOffline(f"the log directory of {self.topic}-{self.index} is offline")
            try:
                log = self.log = self.open_log(self, now)
            except DamagedLog as fault:
                self._reports.report(
                    "error", "damaged_log", partition=f"{self.topic}-{self.index}", error=str(fault)
                )
                self.go_offline(now)
                raise LogOffline(str(fault)) from fault
            for damage in log.damages:
                self._reports.damage(f"{self.directory}/{damage.path}", damage.what)
            known = self._directories[self.directory].high_watermark(self.topic, self.index)
            self._high_watermark = Offset(max(self._high_watermark, min(known, log.log_end_offset)))
            if self.leader is not None:
                self._start_leading(now, log)
        return log

    @property
    def is_damaged(self) -> bool:
        """Whether the open log lacks or cannot read records of which other replicas may have copies."""
        return self.log is not None and bool(self.log.damages) and len(self.replicas) > 1

    def cut_damage(self) -> None:
        """Cut the open log before what is damaged in it: a later flush would vouch for that. Only before the
        broker is registered and taken out of the in-sync set.
        """
        log = self.log
        assert log is not None, "it was opened"
        log.truncate_to(min(damage.offset for damage in log.damages))
        # it may begin earlier now: where its first segments were missing, what is left had begun behind them
        self._directories[self.directory].complete_cut(self.topic, self.index)
        self._high_watermark = Offset(min(self._high_watermark, log.log_end_offset))

    def moved(self, now: Now) -> None:
        """The same log lies elsewhere now, whole and durable: whoever waits for that has it."""
        if self.follower is not None:  # it lets go of the old one first: the new one may not open at once
            self._replication.unfollow(now, self)
            self._replication.follow(now, self)
        self.opened(now)
        self._wake_all()

    def promised_end(self, log: PartitionLog) -> int:
        """The offset up to which this replica may acknowledge its records."""
        return log.flushed_offset if self.flushes_each else log.log_end_offset

    def append(
        self,
        records: memoryview,
        now: Now,
        *,
        from_client: bool = True,
        validated: BatchHeader | None = None,
    ) -> Appended:
        """One batch from a client, or, unquestioned, from a coordinator of this node."""
        leader = self.leader
        if leader is None:
            raise NotLeader(f"this broker does not lead {self.topic}-{self.index}")
        log = self.log or self.opened(now)
        appended = log.append(
            records,
            wall_ms=now.wall_ms,
            leader_epoch=leader.epoch,
            from_client=from_client,
            validated=validated,
        )
        end = log.log_end_offset
        if self.counts_messages and end - log.flushed_offset >= self._flush_messages:
            self._directories.want_flush(now, self)
        elif self._has_flush_ms and self._flush_timer is None:
            self.start_flush_timer(now)
        if (
            not self.flushes_each
            and leader.local_end_moved(end)
            and (self.waiters or self.feeds or self._commits)
        ):
            self._raised()
        if self.feeds:
            for feed in self.feeds:
                feed.records_appended()
        return appended

    def replicated(self, now: Now) -> None:
        """Records of the leader were appended to the log, or the settings have changed."""
        log = self.log
        assert log is not None
        if self.counts_messages and log.log_end_offset - log.flushed_offset >= self._flush_messages:
            self._directories.want_flush(now, self)
        elif self._has_flush_ms and self._flush_timer is None:
            self.start_flush_timer(now)

    def start_flush_timer(self, now: Now) -> None:
        """flush.ms, since the first append that is not flushed."""
        at = now.after_ms(self.config.flush_ms)
        self._flush_timer = Once(self._deadlines, at, self.flush_timer_fired)

    def must_await_flush(self, appended: Appended) -> bool:
        """flush.messages was reached by this very append: the acknowledgement speaks of durable records."""
        log = self.log
        assert log is not None
        return appended.last_offset + 1 - log.flushed_offset >= self._flush_messages

    def flushed(self, now: Now, result: Flushed) -> None:
        log = self.log
        if log is None:
            return
        log.complete_flush(result)
        if log.retires_before is not None:
            retire_waiting(now, self, self._directories, self._reports)
        if self.follower is not None:
            self.follower.flushed(now, result)
        elif self.flushes_each and self.leader and self.leader.local_end_moved(log.flushed_offset):
            self._raised()
        if log.log_end_offset - log.flushed_offset >= self._flush_messages:
            self._directories.want_flush(now, self)
        if self.waiters:
            self._waiting.wake(self)

    def flush_timer_fired(self, now: Now) -> None:
        self._flush_timer = None
        if self.log is not None and not self.is_offline:
            self._directories.want_flush(now, self)

    def log_start_moved(self) -> None:
        """Records at the beginning were deleted: followers, and fetches from there, learn of it."""
        for feed in self.feeds:
            feed.log_start_moved()
        self._waiting.wake(self)

    def visible_end(self, isolation: int) -> int:
        """What a consumer may see: below the high watermark, or below the last stable offset."""
        high_watermark = self.high_watermark
        if isolation == READ_COMMITTED and self.log is not None:
            return self.log.last_stable_offset(high_watermark)
        return high_watermark

    # --- whoever waits -----------------------------------------------------------------------------------

    def await_commit(self, end: int, waiter: Parked, expires_at: Instant = NEVER) -> None:
        """Wake the waiter when everything before `end` is committed, or when that can no longer be told."""
        commits = self._commits
        if commits is None:
            commits = self._commits = CommitQueue(self._deadlines, self._waiting)
        commits.add(end, waiter, expires_at)

    def _raised(self) -> None:
        for feed in self.feeds:
            feed.high_watermark_raised()
        if self.waiters:
            self._waiting.wake(self)
        if self._commits is not None:
            self._commits.free(self.high_watermark)

    def _wake_all(self) -> None:
        self._waiting.wake(self)
        if self._commits is not None:
            self._commits.free_all()

    # --- its end -----------------------------------------------------------------------------------------

    def go_offline(self, now: Now) -> None:
        self.is_offline = True
        self._judge_fast_path()
        if self.follower is not None:
            self._replication.unfollow(now, self)
        if self._append_queue is not None:
            self._append_queue.refuse_all(now, ErrorCode.KAFKA_STORAGE_ERROR)
        self._wake_all()

    def delete(self, now: Now) -> None:
        """The topic was deleted: waiting requests get an error."""
        self.is_deleted = True
        self._judge_fast_path()
        if self.follower is not None:
            self._replication.unfollow(now, self)
        if self._append_queue is not None:
            self._append_queue.refuse_all(now, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        feeds, self.feeds = self.feeds, []
        for feed in feeds:
            feed.leader_changed(now)
        if self.log is not None:
            self.log.close(clean=False)
            self.log = None
        self._wake_all()
