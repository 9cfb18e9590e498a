"""The follower role of one partition: carries out what its `PartitionFollower` orders.

Appending happens at once, except for large batches: their answer is kept and written in pieces, so that
others have their turn in between. A truncation has three steps, one after the other: write checkpoints that
do not promise more than will be left, cut the log, flush the cut. If all records go, the start of the log is
made durable, too: nothing else says where an empty log ends. After that the follower fetches again. Every
answer, job result and timer goes to the machine first. A machine belongs to one leader epoch; what arrives
for the machine of an earlier epoch is ignored.
"""

from collections.abc import Callable
from typing import Any

from headrace.base.limits import KEPT_ANSWER_BYTES_MAX
from headrace.base.time import Now
from headrace.machines.replication.follower import (
    AdvanceLogStart,
    AppendRecords,
    Fact,
    FetchAnswered,
    FetchFailed,
    FlushesChanged,
    LogDamaged,
    LogFlushed,
    LogTruncated,
    PartitionFollower,
    RecordsAppended,
    StartOverAt,
    TruncateTo,
    Woke,
)
from headrace.machines.replication.lineage import Divergence
from headrace.node.append_queue import TURN_MS
from headrace.node.log_directories import LogDirectories
from headrace.node.log_starts import LogStarts
from headrace.node.partition import Partition
from headrace.node.peers import Peers
from headrace.node.ports import Jobs, Once, Ports
from headrace.protocol.messages.fetch import PartitionData
from headrace.storage.directory_jobs import CHECKPOINT_QUEUE
from headrace.storage.errors import StorageError
from headrace.storage.flushing import Flushed
from headrace.storage.log import PartitionLog
from headrace.storage.replicating import Replicated
from headrace.storage.writing_ahead import LARGE_BYTES

# How long to wait before a step that the disk had no space for is tried again.
RETRY_MS = 1_000

# So many times in a row the same gap is refused. Then it is what the leader has: a topic that was compacted
# once keeps its gaps under another policy.
GAPS_REFUSED = 3


class NewStart:
    """The new start of a log that loses all its records, until it is durable."""

    __slots__ = ("_following", "_starts", "_then")

    def __init__(self, following: "Following", starts: LogStarts, then: Callable[[Now], None]) -> None:
        self._following = following
        self._starts = starts
        self._then = then

    @property
    def partition(self) -> Partition:
        return self._following.partition

    @property
    def is_current(self) -> bool:
        return self._following.is_current

    def start_written(self, now: Now, offset: int, outcome: Any) -> None:
        if isinstance(outcome, Exception):
            self._following.try_again(now, lambda now: self._starts.write(self, offset))
        elif self.is_current:
            self._then(now)


class KeptAnswers:
    """Answers of leaders that are kept while they are written in pieces, of all partitions together."""

    __slots__ = ("_bytes", "_peers")

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._bytes = 0

    def keep(self, records: memoryview) -> bool:
        """Whether the answer with these records, which has just come, may be used after this call."""
        if self._bytes + len(records) > KEPT_ANSWER_BYTES_MAX:
            return False
        self._bytes += len(records)
        self._peers.keep_answer()
        return True

    def release(self, size: int) -> None:
        self._bytes -= size


class Following:
    __slots__ = (
        "_answers",
        "_changed",
        "_cut_generation",
        "_deadlines",
        "_directories",
        "_gap_offset",
        "_gaps",
        "_is_cut",
        "_jobs",
        "_kept_bytes",
        "_next_start",
        "_reports",
        "_start_is_durable",
        "_starts",
        "_timer",
        "_unwritten",
        "log",
        "machine",
        "partition",
    )

    def __init__(
        self,
        partition: Partition,
        log: PartitionLog,
        machine: PartitionFollower,
        changed: "Callable[[Following], None]",
        starts: LogStarts,
        answers: KeptAnswers,
        directories: LogDirectories,
        ports: Ports,
    ) -> None:
        self.partition = partition
        self.log = log
        self.machine = machine
        self._changed = changed  # told when there is something new to fetch, or to tell the leader
        self._starts = starts
        self._answers = answers
        self._directories = directories
        self._jobs: Jobs = ports.jobs
        self._deadlines = ports.deadlines
        self._reports = ports.reports
        self._cut_generation: int | None = None  # of a log that was cut, until that is flushed
        self._is_cut = False  # the same, also for a cut that a full disk has stopped halfway
        self._start_is_durable = True  # of the log, since it was cut
        self._next_start: int | None = None  # of the log, when a flush is done
        self._timer: Once | None = None
        self._unwritten: memoryview | None = None  # of a large answer
        self._kept_bytes = 0  # of that answer
        self._gap_offset = -1  # where a batch was refused because it left a gap
        self._gaps = 0

    @property
    def high_watermark(self) -> int:
        return self.machine.high_watermark

    @property
    def is_current(self) -> bool:
        return self.partition.follower is self

    @property
    def is_fetching(self) -> bool:
        return self.machine.is_fetching and not self.partition.is_offline

    # --- facts -------------------------------------------------------------------------------------------

    def repair(self, now: Now, offset: int) -> None:
        """The log is damaged from this offset on: the leader has intact records."""
        self._step(now, LogDamaged(offset))

    def answered(self, now: Now, asked: tuple[int, int], data: PartitionData) -> None:
        """The leader's answer to a fetch from that offset on, with that epoch of the record before."""
        diverging = data.diverging_epoch
        divergence = None
        if diverging is not None and diverging.end_offset >= 0:
            divergence = Divergence(diverging.epoch, diverging.end_offset)
        records = data.records
        answer = FetchAnswered(
            asked[0],
            asked[1],
            data.error_code,
            data.high_watermark,
            data.log_start_offset,
            divergence,
            has_records=bool(records),
        )
        self._step(now, answer, records)

    def flushed(self, now: Now, result: Flushed) -> None:
        start, self._next_start = self._next_start, None
        if start is not None:
            self._advance_start(now, start)
        if self._cut_generation is None:
            self._step(now, LogFlushed(self.log.flushed_offset))
        elif result.generation == self._cut_generation:
            self._cut_generation = None
            self._is_cut = False
            if self._start_is_durable:
                self._truncated(now)
            else:
                self._write_start(self.log.log_start_offset, self._truncated)

    def configured(self, now: Now) -> None:
        self._step(now, FlushesChanged(self.partition.flushes_each, self.log.flushed_offset))

    def _truncated(self, now: Now) -> None:
        log = self.log
        try:
            last_epoch = log.last_record_epoch()
        except StorageError as fault:
            self._directories.storage_failed(now, self.partition, fault)
            self.try_again(now, self._truncated)
            return
        self._step(now, LogTruncated(log.log_end_offset, last_epoch, log.flushed_offset))

    def _woke(self, now: Now) -> None:
        self._timer = None
        if self.is_current:
            self._step(now, Woke())

    def _step(self, now: Now, fact: Fact, records: Any = None) -> None:
        machine = self.machine
        before = machine.fetch_offset if machine.is_fetching else None
        committed = machine.high_watermark
        try:
            orders = machine.step(now.mono, fact)
        except StorageError as fault:  # it asks the log for its lineage
            self._directories.storage_failed(now, self.partition, fault)
            return
        for order in orders:
            match order:
                case AppendRecords():
                    self._append(now, records)
                case TruncateTo(offset):
                    self._truncate(now, offset, committed, is_start=False)
                case StartOverAt(offset):
                    self._truncate(now, offset, committed, is_start=True)
                case AdvanceLogStart(offset):
                    self._advance_start(now, offset)
                case _:
                    self._directories.offsets_moved()  # the next checkpoint has the high watermark
        at = machine.deadline()
        if at is not None and self._timer is None:
            self._timer = Once(self._deadlines, at, self._woke)
        if machine.is_fetching and machine.fetch_offset != before:
            self._changed(self)

    # --- orders ------------------------------------------------------------------------------------------

    def _append(self, now: Now, records: Any) -> None:
        records = memoryview(records)
        if len(records) >= LARGE_BYTES and self._answers.keep(records):
            self._unwritten = records
            self._kept_bytes = len(records)
            self._go_on_writing(now)
        else:
            self._write(now, records)

    def _go_on_writing(self, now: Now) -> None:
        """The next piece of a large answer."""
        records = self._unwritten
        if records is None:
            return
        try:
            ready = self.log.write_ahead_as_follower(
                records, leader_epoch=self.machine.epoch, wall_ms=now.wall_ms
            )
        except StorageError as fault:
            self._write_failed(now, fault)
            return
        if ready == len(records):
            self._drop_answer()
            self._write(now, records)
            return
        if ready and not self._write_part(now, records[:ready]):
            return
        self._unwritten = records[ready:]
        Once(self._deadlines, now.after_ms(TURN_MS), self._go_on_writing)

    def _write_part(self, now: Now, records: memoryview) -> bool:
        """The beginning of an answer. False: the rest of it is not written."""
        result = self._append_batches(now, records)
        if result is None:
            return False
        if result.refusal is None:
            self.partition.replicated(now)
            return True
        self._drop_answer()
        self._appended(now, result)
        return False

    def _write(self, now: Now, records: memoryview) -> None:
        """All of an answer, or its end."""
        result = self._append_batches(now, records)
        if result is not None:
            self._appended(now, result)

    def _append_batches(self, now: Now, records: memoryview) -> Replicated | None:
        """None: they could not be written."""
        policy = self.partition.config.cleanup_policy
        try:
            return self.log.append_as_follower(
                records,
                leader_epoch=self.machine.epoch,
                allows_gaps=self._gaps >= GAPS_REFUSED or "compact" in policy,
                wall_ms=now.wall_ms,
            )
        except StorageError as fault:
            self._write_failed(now, fault)
            return None

    def _write_failed(self, now: Now, fault: StorageError) -> None:
        self._drop_answer()
        self._directories.storage_failed(now, self.partition, fault)
        if self.is_current:
            self._step(now, FetchFailed())

    def _drop_answer(self) -> None:
        self._unwritten = None
        self._answers.release(self._kept_bytes)
        self._kept_bytes = 0

    def _appended(self, now: Now, result: Replicated) -> None:
        partition, log = self.partition, self.log
        try:
            last_epoch = log.last_record_epoch()
        except StorageError as fault:
            self._write_failed(now, fault)
            return
        if result.refusal is not None:
            self._report_refusal(result.end_offset, result.refusal)
        else:
            self._gaps = 0
        partition.replicated(now)
        self._step(
            now,
            RecordsAppended(
                log.log_end_offset,
                last_epoch,
                log.flushed_offset,
                is_complete=result.refusal is None,
            ),
        )

    def _report_refusal(self, offset: int, refusal: str) -> None:
        self._gaps = self._gaps + 1 if offset == self._gap_offset else 1
        self._gap_offset = offset
        self._reports.report(
            "warning",
            "replica_records_refused",
            partition=f"{self.partition.topic}-{self.partition.index}",
            leader=self.machine.leader_id,
            reason=refusal,
        )

    def _truncate(self, now: Now, offset: int, committed: int, *, is_start: bool) -> None:
        """`committed` is the high watermark before."""
        log = self.log
        if offset >= log.log_end_offset and not is_start:
            self._cut(now, offset, is_start=False)
            return
        self._reports.report(
            "warning" if offset < committed else "info",
            "replica_starts_over" if is_start else "replica_truncated",
            partition=f"{self.partition.topic}-{self.partition.index}",
            offset=offset,
            log_end_offset=log.log_end_offset,
            leader=self.machine.leader_id,
            leader_epoch=self.machine.epoch,
        )
        self._start_is_durable = not is_start
        if is_start and log.log_start_offset < offset <= log.log_end_offset:
            # it may be in sync: if it ends now, it must not come back with an end before this one
            self._write_start(offset, lambda now: self._start_over(now, offset))
            return
        self._lower(now, offset, is_start=is_start)

    def _write_start(self, offset: int, then: Callable[[Now], None]) -> None:
        self._starts.write(NewStart(self, self._starts, then), offset)

    def _start_over(self, now: Now, offset: int) -> None:
        self._start_is_durable = True
        self._lower(now, offset, is_start=True)

    def _lower(self, now: Now, offset: int, *, is_start: bool) -> None:
        """No checkpoint may promise what will be gone."""
        partition = self.partition
        directory = self._directories[partition.directory]
        try:
            job = directory.lower_job(partition.topic, partition.index, 0 if is_start else offset, offset)
        except StorageError as fault:  # another log of the directory has met an I/O error since
            self._directories.storage_failed(now, partition, fault)
            return
        if job is None:
            self._cut(now, offset, is_start=is_start)
            return

        def finished(now: Now, outcome: Any) -> None:
            if not self.is_current:
                return
            if isinstance(outcome, Exception):
                self._directories.job_failed(now, partition.directory, outcome)
                self.try_again(now, lambda now: self._lower(now, offset, is_start=is_start))
            else:
                self._cut(now, offset, is_start=is_start)

        self._jobs.run(partition.directory, CHECKPOINT_QUEUE, job, finished)

    def _cut(self, now: Now, offset: int, *, is_start: bool) -> None:
        partition, log = self.partition, self.log
        end = log.log_end_offset
        self._is_cut |= is_start or offset < end
        try:
            if is_start:
                log.start_over(offset, now.wall_ms)
            else:
                log.cut_to(offset, now.wall_ms)
            self._directories[partition.directory].complete_cut(partition.topic, partition.index)
            self._directories.remove_segments(now, partition, log.take_doomed())
        except StorageError as fault:
            self._directories.storage_failed(now, partition, fault)
            self.try_again(now, lambda now: self._cut(now, offset, is_start=is_start))
            return
        if offset >= end and not is_start and not self._is_cut:  # only epochs without records were forgotten
            partition.replicated(now)
            self._truncated(now)
            return
        self._cut_generation = log.generation
        log.postpone_flush()  # so that there is a job, whatever another flush has covered since
        self._directories.want_flush(now, partition)

    def end(self, now: Now) -> None:
        """It follows no more. Whoever has the log next appends to it: what was cut off must not come back
        between those records when the host goes down. This waits for the disk, but only if the leader changes
        in the moment between the cut and its flush.
        """
        partition = self.partition
        is_writing = self._unwritten is not None
        self._drop_answer()
        if partition.log is not self.log:
            return  # deleted, or moved, which flushes all of it
        if is_writing:
            try:
                self.log.stop_writing_ahead()
            except StorageError as fault:
                self._directories.storage_failed(now, partition, fault)
        if self._directories[partition.directory].give_up_cut(partition.topic, partition.index):
            self._directories.offsets_moved()
        if self._is_cut:
            try:
                self.log.flush_now()
            except StorageError as fault:
                self._directories.storage_failed(now, partition, fault)

    def try_again(self, now: Now, act: Callable[[Now], None]) -> None:
        def again(now: Now) -> None:
            if self.is_current and not self.partition.is_offline:
                act(now)

        Once(self._deadlines, now.after_ms(RETRY_MS), again)

    def _advance_start(self, now: Now, offset: int) -> None:
        """The leader has deleted records: write the new start, after the flush of what stands for them."""
        try:
            is_prepared = self.log.prepare_log_start(offset, now.wall_ms)
        except StorageError as fault:
            self._directories.storage_failed(now, self.partition, fault)
            is_prepared = True  # whatever is missing is made up for when the records go
        if is_prepared:
            self._starts.write(self, offset)
        else:
            self._next_start = max(offset, self._next_start or 0)
            self._directories.want_flush(now, self.partition)

    def start_written(self, now: Now, offset: int, outcome: Any) -> None:
        """The leader has deleted records. It is told when the new start is durable here, too."""
        if isinstance(outcome, Exception):
            self.try_again(now, lambda now: self._starts.write(self, offset))
        elif self.is_current:
            self._delete_before(now, offset)

    def _delete_before(self, now: Now, offset: int) -> None:
        partition = self.partition
        try:
            doomed = self.log.advance_log_start(offset, now.wall_ms)
            self._directories.remove_segments(now, partition, doomed)
        except StorageError as fault:
            self._directories.storage_failed(now, partition, fault)
        # also if there was no descriptor to remove the files, which retention does later: the start is there
        if self.is_current and self.log.log_start_offset >= offset:
            self._changed(self)
