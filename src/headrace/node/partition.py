"""One partition that this node leads: its log, its high watermark, and whoever waits for either.

The log is opened at first use or by the background opener, whichever comes first: a restart with ten thousand
partitions serves at once.
"""

from collections.abc import Callable
from typing import Any

from headrace.base.ids import BrokerId, Epoch, Offset, TopicId
from headrace.base.time import Now
from headrace.machines.replication.leader import PartitionLeader
from headrace.node.log_directories import LogDirectories
from headrace.node.partition_gate import Gates, PartitionGate
from headrace.node.ports import Deadlines, Reports
from headrace.node.waiting import Waitable, Waiting
from headrace.protocol.errors import ErrorCode
from headrace.records.batch import BatchHeader
from headrace.storage.admission import opens_batches
from headrace.storage.appending import Appended
from headrace.storage.config import LogConfig
from headrace.storage.errors import DamagedLog, LogOffline
from headrace.storage.flushing import Flushed
from headrace.storage.log import PartitionLog

READ_COMMITTED = 1
NEVER_FLUSH = 2**63 - 1
NO_EPOCH = -1


class Partition(Waitable):
    __slots__ = (
        "_broker_id",
        "_deadlines",
        "_directories",
        "_flush_each",
        "_flush_messages",
        "_flush_timer",
        "_gate",
        "_gates",
        "_has_flush_ms",
        "_reports",
        "_waiting",
        "config",
        "counts_messages",
        "directory",
        "index",
        "is_closed",
        "is_deleted",
        "is_led_here",
        "is_offline",
        "leader",
        "leader_id",
        "log",
        "min_insync_replicas",
        "open_log",
        "opens_batches",
        "replicas",
        "takes_express",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        broker_id: int,
        topic: str,
        topic_id: TopicId,
        index: int,
        *,
        directory: str,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
        leader_id: int,
        leader_epoch: int,
        config: LogConfig,
        min_insync_replicas: int,
        open_log: "Callable[[Partition, Now], PartitionLog]",
        gates: Gates,
        directories: LogDirectories,
        waiting: Waiting,
        reports: Reports,
        deadlines: Deadlines,
    ) -> None:
        super().__init__()
        self._broker_id = broker_id
        self._gates = gates
        self._directories = directories
        self._waiting = waiting
        self._reports = reports
        self._deadlines = deadlines
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.directory = directory
        self.replicas = replicas
        self.leader_id = leader_id
        self.is_led_here = leader_id == broker_id
        self.leader = PartitionLeader(BrokerId(broker_id), Epoch(leader_epoch), map(BrokerId, isr), Offset(0))
        self.open_log = open_log
        self.log: PartitionLog | None = None
        self.is_deleted = False
        self.is_offline = False
        self.is_closed = False  # batches wait in front of the log, and others behind them
        self._gate: PartitionGate | None = None
        self._flush_timer: FlushTimer | None = None
        self.configure(config, min_insync_replicas)

    def configure(self, config: LogConfig, min_insync_replicas: int) -> None:
        """Take new settings at once; nothing else reads topic configs on the hot path."""
        self.config = config
        self.min_insync_replicas = min_insync_replicas
        self._flush_messages = config.flush_messages
        self._flush_each = config.flush_messages <= 1
        self.counts_messages = config.flush_messages < NEVER_FLUSH
        self._has_flush_ms = config.flush_ms < NEVER_FLUSH
        self.opens_batches = opens_batches(config)  # looks into clients' batches, and may change them
        log = self.log
        if log is not None:
            log.configure(config)
            # what was promised only when flushed may be promised now, and nobody else would say so
            if self.leader.local_end_moved(self.promised_end(log)) and self.waiters:
                self._waiting.wake(self)
        self._judge_express()

    def _judge_express(self) -> None:
        """Whether a write can be answered at once, without looking at anything else (node/express.py)."""
        self.takes_express = (
            self.is_led_here
            and not self.is_closed
            and not self.counts_messages
            and not self.is_deleted
            and not self.is_offline
        )

    @property
    def gate(self) -> PartitionGate:
        """Where batches wait that cannot be appended at once; most partitions never need one."""
        gate = self._gate
        if gate is None:
            gate = self._gate = self._gates.make(self)
        return gate

    def gate_moved(self, *, is_closed: bool) -> None:
        if is_closed != self.is_closed:
            self.is_closed = is_closed
            self._judge_express()

    def follow(
        self, replicas: tuple[int, ...], isr: tuple[int, ...], leader_id: int, leader_epoch: int
    ) -> None:
        """A committed change: a higher epoch begins at our log's end."""
        self.replicas = replicas
        self.leader_id = leader_id
        self.is_led_here = leader_id == self._broker_id
        leader = self.leader
        if leader_epoch > leader.epoch:
            leader.epoch = Epoch(leader_epoch)
            if self.log is not None and not self.log.is_offline:
                self.log.assign_epoch(leader_epoch)
        end = self.promised_end(self.log) if self.log is not None else 0
        if leader.isr_changed(map(BrokerId, isr), end) and self.waiters:
            self._waiting.wake(self)
        self._judge_express()

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
            log.assign_epoch(self.leader.epoch)
            self.leader.local_end_moved(self.promised_end(log))
        return log

    def moved(self, now: Now) -> None:
        """The same log lies elsewhere now, whole and durable: whoever waits for that has it."""
        self.opened(now)
        self._waiting.wake(self)

    def promised_end(self, log: PartitionLog) -> int:
        """Up to where this replica can vouch for its records."""
        return log.flushed_offset if self._flush_each else log.log_end_offset

    def append(
        self,
        records: memoryview,
        now: Now,
        *,
        from_client: bool = True,
        admitted: BatchHeader | None = None,
    ) -> Appended:
        """One batch from a client, or, unquestioned, from a coordinator of this node."""
        log = self.log or self.opened(now)
        appended = log.append(
            records,
            wall_ms=now.wall_ms,
            leader_epoch=self.leader.epoch,
            from_client=from_client,
            admitted=admitted,
        )
        end = log.log_end_offset
        if self.counts_messages and end - log.flushed_offset >= self._flush_messages:
            self._directories.want_flush(now, self)
        elif self._has_flush_ms and self._flush_timer is None:
            self._flush_timer = FlushTimer(self)
            self._deadlines.add(now.after_ms(self.config.flush_ms), self._flush_timer)
        if not self._flush_each and self.leader.local_end_moved(end) and self.waiters:
            self._waiting.wake(self)
        return appended

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
        if self._flush_each:
            self.leader.local_end_moved(log.flushed_offset)
        if log.log_end_offset - log.flushed_offset >= self._flush_messages:
            self._directories.want_flush(now, self)
        if self.waiters:
            self._waiting.wake(self)

    def flush_timer_fired(self, now: Now) -> None:
        self._flush_timer = None
        if self.log is not None and not self.is_offline:
            self._directories.want_flush(now, self)

    def leadership_fault(self, known_epoch: int = NO_EPOCH) -> ErrorCode | None:
        """KIP-320: only the leader answers, and only to clients of its own epoch (-1: not checked)."""
        if not self.is_led_here:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if known_epoch == NO_EPOCH or known_epoch == self.leader.epoch:
            return None
        if known_epoch < self.leader.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.UNKNOWN_LEADER_EPOCH

    def remove_later(self, now: Now, doomed: list[Any]) -> None:
        """Renamed files stay for a while, for readers that still have them open; then a job unlinks them."""
        log = self.log
        assert log is not None
        for one in doomed:
            self._directories.remove_later(
                now, self.config.file_delete_delay_ms, self.directory, one.remove_job()
            )

    def visible_end(self, isolation: int) -> int:
        """What a consumer may see: below the high watermark, or below the last stable offset."""
        high_watermark = self.leader.high_watermark
        if isolation == READ_COMMITTED and self.log is not None:
            return self.log.last_stable_offset(high_watermark)
        return high_watermark

    def go_offline(self, now: Now) -> None:
        self.is_offline = True
        self._judge_express()
        if self._gate is not None:
            self._gate.refuse_all(now, ErrorCode.KAFKA_STORAGE_ERROR)
        self._waiting.wake(self)

    def delete(self, now: Now) -> None:
        """The topic is gone: whoever waits is told so."""
        self.is_deleted = True
        self._judge_express()
        if self._gate is not None:
            self._gate.refuse_all(now, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self.log is not None:
            self.log.close(clean=False)
            self.log = None
        self._waiting.wake(self)


class FlushTimer:
    """flush.ms of one partition, running since its first unflushed append."""

    __slots__ = ("_partition", "is_done")

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self.is_done = False

    def expired(self, now: Now) -> None:
        self._partition.flush_timer_fired(now)
