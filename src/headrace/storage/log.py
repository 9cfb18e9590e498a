"""One partition's log: a row of segments, of which the last one grows.

Synchronous and without a clock: wall time is an argument. Appending and reading happen at once; whatever
takes long leaves as a job (flush, removal, cleaning, recompression) and counts when its result is handed
back.

A full disk is refused with DiskFull, after the log was cut back to its last whole batch. Any other failure of
the disk takes the whole directory offline (LogOffline) until a restart.

What a log does is written in the modules named below, as functions over a `LogState`. `PartitionLog` is that
state with these functions as methods: a call through it costs no more than the function itself.
"""

from collections.abc import Callable
from typing import Self

from headrace.storage import (
    appending,
    compaction,
    flushing,
    log_producers,
    moving,
    next_segment,
    opening,
    reading,
    recompression,
    replicating,
    retention,
    rolling,
    truncation,
    writing_ahead,
)
from headrace.storage.appending import Appended
from headrace.storage.config import LogConfig
from headrace.storage.disk import Disk
from headrace.storage.disk_errors import DirectoryStatus
from headrace.storage.errors import StorageError
from headrace.storage.log_state import LogState, guarded
from headrace.storage.open_files import OpenFiles
from headrace.storage.recovery import Recovery
from headrace.storage.timestamps import TimestampedOffset

__all__ = ["Appended", "PartitionLog", "Recovery", "TimestampedOffset"]


class PartitionLog(LogState):
    __slots__ = ()

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        config: LogConfig,
        *,
        files: OpenFiles,
        recovery: Recovery,
        wall_ms: int,
        roll_jitter_ms: int = 0,
        producer_id_expiration_ms: int = 86_400_000,
        status: DirectoryStatus | None = None,
        lower_recovery_point: Callable[[], None] | None = None,
    ) -> Self:
        """The log in `directory`, created if it is absent, and recovered as far as `recovery` does not vouch
        for it.

        `lower_recovery_point` is called when a truncation makes a recovery point untrue that may be on the
        disk already, and has to make the lower one durable.
        """
        log = cls(
            disk,
            directory,
            config,
            files=files,
            status=status or DirectoryStatus(),
            wall_ms=wall_ms,
            roll_jitter_ms=roll_jitter_ms,
            producer_id_expiration_ms=producer_id_expiration_ms,
            lower_recovery_point=lower_recovery_point,
        )
        try:
            opening.open_files(log, recovery, wall_ms)
        except StorageError:
            files.forget_directory(disk, directory)  # the next try removes what this one has open
            raise
        return log

    close = opening.close

    append = appending.append
    append_batches = appending.append_batches
    write_ahead = writing_ahead.write_ahead
    write_ahead_as_follower = writing_ahead.write_ahead_as_follower
    checked_ahead = writing_ahead.checked_ahead
    stop_writing_ahead = writing_ahead.stop_writing_ahead
    roll = rolling.roll
    roll_if_old = rolling.roll_if_old
    wants_next_segment = next_segment.wants_next
    next_segment_job = next_segment.next_job
    complete_next_segment = next_segment.complete_next
    append_as_follower = replicating.append_as_follower
    last_record_epoch = replicating.last_record_epoch
    first_damage = replicating.first_damage
    kept_start = replicating.kept_start
    check_batch_at = replicating.check_batch_at
    truncate_to = truncation.truncate_to
    promise_less = truncation.promise_less
    keep_all = truncation.keep_all
    cut_to = truncation.cut_to
    start_over = truncation.start_over

    read = reading.read
    ends_in_later_segment = reading.ends_in_later_segment
    bytes_between = reading.bytes_between
    split_offsets = reading.split_offsets
    offset_for_timestamp = reading.offset_for_timestamp
    max_timestamp = reading.max_timestamp
    aborted_transactions = reading.aborted_transactions
    first_unstable_offset = property(reading.first_unstable_offset)
    last_stable_offset = reading.last_stable_offset

    producer_state = log_producers.producer_state
    producers = log_producers.producers
    expire_producers = log_producers.expire_producers

    flush_due_at = flushing.flush_due_at
    needs_flush = flushing.needs_flush
    flush_job = flushing.flush_job
    flush_now = flushing.flush_now
    complete_flush = flushing.complete_flush
    postpone_flush = flushing.postpone_flush
    fail_flush = flushing.fail_flush
    checkpoint = flushing.checkpoint

    retire = retention.retire
    due_before = retention.due_before
    segment_facts = retention.segment_facts
    prepare_log_start = retention.prepare_log_start
    advance_log_start = retention.advance_log_start
    finish_retiring = retention.finish_retiring

    dirt = compaction.dirt
    clean_job = compaction.clean_job
    complete_cleaning = compaction.complete_cleaning
    recompress_job = recompression.recompress_job
    complete_recompression = recompression.complete_recompression

    settle_names = moving.settle_names
    bytes_without = moving.bytes_without
    sealed_files = moving.sealed_files

    # --- leader epochs ----------------------------------------------------------------------------

    @property
    @guarded
    def latest_epoch(self) -> int:
        return self.epochs.read().latest

    @guarded
    def assign_epoch(self, epoch: int) -> None:
        """A new leader epoch begins at the log's end. It reaches the disk with its first batch."""
        self.epochs.assign(epoch, self.log_end_offset)

    @guarded
    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        return self.epochs.read().end_offset(epoch, self.log_end_offset)

    @guarded
    def epoch_at(self, offset: int) -> int:
        """The leader epoch in which the offset was written; -1 when it is not known."""
        return self.epochs.read().epoch_of(offset)
