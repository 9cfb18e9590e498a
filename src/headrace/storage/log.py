"""One partition's log: a row of segments, of which the last one grows.

Synchronous and without a clock: wall time is handed in. Appending and reading happen here and at once;
whatever takes long leaves as a job (flush, removal, recompression) and counts when its result is handed
back.

A full disk is refused with DiskFull, after the log was cut back to its last whole batch. Any other failure
of the disk takes the whole directory offline (LogOffline) until a restart.
"""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from headrace.base.time import Instant, Now
from headrace.records.batch import (
    CONTROL,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    assign,
    check_batches,
    check_crc,
    check_replicated,
)
from headrace.records.errors import InvalidBatch
from headrace.storage import recovery as recovering
from headrace.storage import retention, timestamps
from headrace.storage.admission import admit, opens_batches
from headrace.storage.config import LogConfig
from headrace.storage.disk import Disk, Span
from headrace.storage.errors import (
    InvalidTimestamp,
    OffsetOutOfRange,
    OffsetsNotRising,
    RecordListTooLarge,
    is_full,
)
from headrace.storage.flushing import FlushClock, Flushed, FlushJob
from headrace.storage.health import Health
from headrace.storage.leader_epochs import FILE_NAME as EPOCHS_FILE
from headrace.storage.leader_epochs import LeaderEpochs
from headrace.storage.open_files import OpenFiles
from headrace.storage.partition_producers import PartitionProducers, end_marker_of
from headrace.storage.producer_state import ProducerEntry, ProducerState
from headrace.storage.recovery import Recovery, Scanned
from headrace.storage.retention import Doomed, RemoveJob
from headrace.storage.segment import Segment
from headrace.storage.segments import Segments
from headrace.storage.survey import survey
from headrace.storage.tail import BATCHES_MAX, Tail
from headrace.storage.timestamps import TimestampedOffset

INT32_MAX = (1 << 31) - 1

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _guarded(
    method: Callable[Concatenate["PartitionLog", _P], _R],
) -> Callable[Concatenate["PartitionLog", _P], _R]:
    """The one door for failures of the disk: DiskFull or LogOffline leave it, never an OSError."""

    @wraps(method)
    def guarded(log: "PartitionLog", /, *arguments: _P.args, **options: _P.kwargs) -> _R:
        if log._health.error is not None:
            raise log._health.offline()
        try:
            return method(log, *arguments, **options)
        except OSError as error:
            raise log._health.met(error) from error

    return guarded


class Appended:
    __slots__ = ("base_offset", "is_duplicate", "last_offset", "log_append_time_ms", "log_start_offset")

    def __init__(
        self,
        base_offset: int,
        last_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
        is_duplicate: bool,
    ) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms  # -1: the records keep the producer's timestamps
        self.log_start_offset = log_start_offset
        self.is_duplicate = is_duplicate  # was in the log already, at these offsets


class PartitionLog:
    __slots__ = (
        "_active",
        "_config",
        "_disk",
        "_epochs",
        "_files",
        "_flush_clock",
        "_health",
        "_is_dirty",
        "_lowered",
        "_opens",
        "_producers",
        "_roll_jitter_ms",
        "_segments",
        "_stamped_epoch",
        "_tail",
        "_unflushed_bytes",
        "_wall_ms",
        "directory",
        "flushed_offset",
        "generation",
        "log_end_offset",
        "log_start_offset",
        "producer_id_expiration_ms",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        files: OpenFiles,
        health: Health,
        wall_ms: int,
    ) -> None:
        """Not for callers: `open` reads what is there."""
        self._disk = disk
        self._files = files
        self._health = health
        self.directory = directory
        self.config = config
        self.generation = 0  # raised when offsets may mean other records than before
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.flushed_offset = 0
        self.producer_id_expiration_ms = 0
        self._roll_jitter_ms = 0
        self._wall_ms = wall_ms  # of the opening: how new the newest write before it may be
        self._segments = Segments(disk, files, directory)
        self._tail = Tail()
        self._epochs: LeaderEpochs | None = None  # None: not read yet
        self._stamped_epoch = -2  # the epoch of the last append by a leader here
        self._flush_clock = FlushClock()
        self._unflushed_bytes = 0
        self._is_dirty = False  # something was written or renamed since the last flush job
        self._lowered: Callable[[], None] | None = None
        self._producers: PartitionProducers
        self._active: Segment

    # --- opening ----------------------------------------------------------------------------------

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
        health: Health | None = None,
        recovery_point_lowered: Callable[[], None] | None = None,
    ) -> "PartitionLog":
        """The log in `directory`, made when absent, and recovered as far as `recovery` does not vouch for it.

        `recovery_point_lowered` is called when a truncation makes a recovery point untrue that may be on
        the disk already, and has to make the lower one durable.
        """
        log = cls(disk, directory, config, files, health or Health(), wall_ms)
        log.producer_id_expiration_ms = producer_id_expiration_ms
        log._roll_jitter_ms = roll_jitter_ms
        log._lowered = recovery_point_lowered
        log._open(recovery, wall_ms)
        return log

    @_guarded
    def _open(self, recovery: Recovery, wall_ms: int) -> None:
        found = survey(self._disk, self.directory)
        segments = self._segments
        for base in found.bases:
            segments.add(base, wall_ms)
        self._producers = PartitionProducers(self._disk, self.directory, segments, found.snapshots)
        start = recovery.log_start_offset
        if not found.bases:
            self._start_empty(max(start, 0), wall_ms)
            return
        is_clean = recovery.trust == "clean" and recovery.recovery_point >= found.bases[-1]
        if is_clean:
            self.log_end_offset = recovery.recovery_point
        else:
            self._recover(recovery, wall_ms)
        self.flushed_offset = min(
            max(recovery.recovery_point, segments.items[0].base_offset), self.log_end_offset
        )
        self.log_start_offset = max(start, segments.items[0].base_offset)
        self._active = segments.active
        if self.log_start_offset > self.log_end_offset:
            # records that were deleted on request were lost too: nothing is left that may be shown
            self._remove_segments(segments.items)
            self._producers.truncate(-1)
            self._start_empty(self.log_start_offset, wall_ms)

    def _start_empty(self, offset: int, wall_ms: int) -> None:
        self._active = self._segments.add(offset, wall_ms, is_new=True)
        self.log_start_offset = self.log_end_offset = self.flushed_offset = offset
        self._producers.truncate(offset)
        self._producers.state = ProducerState()

    def _recover(self, recovery: Recovery, wall_ms: int) -> None:
        items = self._segments.items
        interval = self._config.index_interval_bytes
        has_gaps = "compact" in self._config.cleanup_policy
        if recovery.trust == "killed":
            scanned = recovering.recover_killed(items[-1], interval, has_gaps=has_gaps)
        else:
            if not has_gaps:
                self._remove_segments(items[: recovering.contiguous_from(items, recovery.recovery_point)])
            scanned = recovering.recover_lost(
                self._segments.items, recovery.recovery_point, interval, has_gaps=has_gaps
            )
            self._remove_segments(scanned.removed)
        self._is_dirty = True
        self.log_end_offset = scanned.end_offset
        self._producers.truncate(scanned.end_offset)
        if scanned.has_control:
            self._producers.load(wall_ms, aborts_from=scanned.start_offset)
        self._recover_epochs(scanned)

    def _recover_epochs(self, scanned: Scanned) -> None:
        epochs = self._leader_epochs()
        epochs.truncate_end(scanned.end_offset)
        for epoch, offset in scanned.epochs:
            if epoch > epochs.latest:
                epochs.assign(epoch, offset)
        self._write_epochs(epochs)

    def _remove_segments(self, segments: list[Segment]) -> None:
        """Remove files at once, from the last segment to the first: what a crash leaves is a log without a
        gap.
        """
        for segment in reversed(segments):
            segment.forget_files()
            RemoveJob(segment.paths()).run(self._disk)
        self._segments.drop(segments)

    # --- what it is -------------------------------------------------------------------------------

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._opens = opens_batches(config)

    @property
    def is_offline(self) -> bool:
        return self._health.error is not None

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes()

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def unflushed_bytes(self) -> int:
        """Appended since the last flush that came back."""
        return self._unflushed_bytes

    @property
    @_guarded
    def latest_epoch(self) -> int:
        return self._leader_epochs().latest

    def producer_state(self, wall_ms: int | None = None) -> ProducerState:
        state = self._producers.state
        return state or self._producers.load(self._wall_ms if wall_ms is None else wall_ms)

    @property
    @_guarded
    def first_unstable_offset(self) -> int | None:
        """Where the oldest open transaction begins; None without one."""
        first = self.producer_state().first_open_offset
        return None if first is None else max(first, self.log_start_offset)

    @_guarded
    def last_stable_offset(self, high_watermark: int) -> int:
        return max(self.producer_state().last_stable_offset(high_watermark), self.log_start_offset)

    # --- appending --------------------------------------------------------------------------------

    def append(
        self, records: memoryview, *, wall_ms: int, leader_epoch: int, from_client: bool = True
    ) -> Appended:
        """Write one batch: checked, given its offset and epoch in place, in a single write."""
        if self._health.error is not None:
            raise self._health.offline()
        config = self._config
        if from_client:
            headers = check_batches(records, config.max_message_bytes)
        else:
            headers = check_replicated(records)
        if len(headers) != 1:
            raise InvalidBatch(f"{len(headers)} batches where one is allowed")
        header = headers[0]
        if self._opens:
            records, header = admit(records, header, config, wall_ms)
        elif header[8] - wall_ms > config.message_timestamp_after_max_ms:
            raise InvalidTimestamp(f"timestamp {header[8]} is too far in the future")
        _, length, _, _, _, attributes, delta, _, max_timestamp, producer_id, epoch, sequence, _ = header
        state: ProducerState | None = None
        try:
            if producer_id >= 0:
                state = self._producers.state or self._producers.load(wall_ms)
                if attributes & CONTROL:
                    return self._append_marker(records, header, state, wall_ms, leader_epoch)
                repeated = state.check(
                    producer_id, epoch, sequence, delta, is_transactional=bool(attributes & TRANSACTIONAL)
                )
                if repeated is not None:
                    return Appended(
                        repeated.last_offset - repeated.offset_delta,
                        repeated.last_offset,
                        repeated.timestamp if attributes & LOG_APPEND_TIME else -1,
                        self.log_start_offset,
                        True,
                    )
            offset = self.log_end_offset
            if leader_epoch != self._stamped_epoch:
                self._enter_epoch(leader_epoch)
            assign(records, 0, offset, leader_epoch)
            self._write(records, length + LENGTH_OVERHEAD, offset + delta, max_timestamp, wall_ms)
        except OSError as error:
            raise self._health.met(error) from error
        if state is not None:
            state.appended(
                producer_id,
                epoch,
                sequence,
                offset,
                delta,
                max_timestamp,
                wall_ms,
                is_transactional=bool(attributes & TRANSACTIONAL),
            )
        return Appended(
            offset,
            offset + delta,
            max_timestamp if attributes & LOG_APPEND_TIME else -1,
            self.log_start_offset,
            False,
        )

    def _write(
        self, batch: memoryview, size: int, last_offset: int, max_timestamp: int, wall_ms: int
    ) -> None:
        """Bytes of one batch to the end of the active segment, after a new one was begun if it is time."""
        active = self._active
        if not active.size or active.log is None:
            self._prepare_active(size)
        elif self._must_roll(active, size, last_offset, max_timestamp, wall_ms):
            self._roll(wall_ms)
            self._prepare_active(size)
            active = self._active
        log = active.log
        assert log is not None
        position = active.size
        try:
            log.append(batch)
        except OSError as error:
            if is_full(error):
                log.truncate(position)
            raise
        active.note(size, last_offset, max_timestamp, self._config.index_interval_bytes)
        active.modified_ms = wall_ms
        tail = self._tail
        lasts = tail.lasts
        if not lasts:
            tail.first_offset = self.log_end_offset
        lasts.append(last_offset)
        tail.positions.append(position)
        if len(lasts) > BATCHES_MAX:
            tail.shrink()
        self.log_end_offset = last_offset + 1
        self._unflushed_bytes += size
        self._is_dirty = True

    def _must_roll(
        self, active: Segment, size: int, last_offset: int, max_timestamp: int, wall_ms: int
    ) -> bool:
        config = self._config
        if active.size + size > config.segment_bytes or last_offset - active.base_offset > INT32_MAX:
            return True
        first = active.first_timestamp
        waited_ms = max_timestamp - first if first >= 0 <= max_timestamp else wall_ms - active.created_ms
        return (
            waited_ms > config.segment_ms - self._roll_jitter_ms
            or (active.index_entries + 1) * active.time_index.entry_bytes > config.segment_index_bytes
        )

    def _prepare_active(self, size: int) -> None:
        """The active segment is about to get a batch: have its files open."""
        if size > self._config.segment_bytes:
            raise RecordListTooLarge(f"a batch of {size} bytes exceeds the segment size")
        active = self._active
        if active.is_new:
            try:
                active.create()
            except OSError:
                active.forget_files()
                raise
        else:
            active.load()
            active.hold()

    def _append_marker(
        self, batch: memoryview, header: BatchHeader, state: ProducerState, wall_ms: int, leader_epoch: int
    ) -> Appended:
        """The end of a transaction: the transaction index learns of an abort before the log does."""
        marker = end_marker_of(batch, header)
        if marker is None:
            raise InvalidBatch("a control batch with a producer that is no end marker")
        state.check_marker(header.producer_id, header.producer_epoch, marker.coordinator_epoch)
        if leader_epoch != self._stamped_epoch:
            self._enter_epoch(leader_epoch)
        if self._active.size and self._must_roll(
            self._active, header.size, self.log_end_offset, header.max_timestamp, wall_ms
        ):
            self._roll(wall_ms)
        offset = self.log_end_offset
        aborted = state.aborting(header.producer_id, offset) if marker.is_aborted else None
        index = self._active.transaction_index
        try:
            if aborted is not None:
                index.add(aborted)
            assign(batch, 0, offset, leader_epoch)
            self._write(batch, header.size, offset, header.max_timestamp, wall_ms)
        except OSError as error:
            if aborted is not None and is_full(error):
                index.withdraw()
                index.cut_to(offset)
            raise
        state.ended(
            header.producer_id,
            header.producer_epoch,
            marker.coordinator_epoch,
            offset,
            header.max_timestamp,
            wall_ms,
        )
        return Appended(offset, offset, -1, self.log_start_offset, False)

    @_guarded
    def append_batches(self, records: memoryview, *, wall_ms: int) -> None:
        """Batches that have their offsets and epochs already: from a leader, or of the metadata log."""
        position = 0
        while position < len(records):
            header = check_crc(records, position)
            if header.base_offset < self.log_end_offset:
                raise OffsetsNotRising(
                    f"a batch at offset {header.base_offset} where the log ends at {self.log_end_offset}"
                )
            batch = records[position : position + header.size]
            if header.leader_epoch != self._stamped_epoch:
                self._enter_epoch(header.leader_epoch, header.base_offset)
            if not self._active.size and self._active.is_new and len(self._segments) == 1:
                self._begin_at(header.base_offset, wall_ms)
            self._write(batch, header.size, header.last_offset, header.max_timestamp, wall_ms)
            self._producers.replicated(self._active, header, batch, wall_ms)
            position += header.size

    def _begin_at(self, offset: int, wall_ms: int) -> None:
        """A follower's empty log takes over the leader's start."""
        if offset != self._active.base_offset:
            self._segments.drop(self._segments.items)
            self._start_empty(offset, wall_ms)

    def roll(self, wall_ms: int) -> None:
        """Seal the active segment and begin a new one, unless it is empty."""
        if self._health.error is not None:
            raise self._health.offline()
        try:
            self._active.load()
            if self._active.size:
                self._roll(wall_ms)
        except OSError as error:
            raise self._health.met(error) from error

    def _roll(self, wall_ms: int) -> None:
        sealed = self._active
        sealed.load()
        sealed.seal()
        self._producers.take_snapshot(self.log_end_offset, wall_ms)
        new = Segment(self._disk, self._files, self.directory, self.log_end_offset, wall_ms, is_new=True)
        new.create()
        sealed.release()
        self._segments.append(new)
        self._active = new
        self._tail.clear()
        self._is_dirty = True

    def _enter_epoch(self, epoch: int, offset: int | None = None) -> None:
        """The first batch of a leader epoch is about to come: remember where, before it is there."""
        epochs = self._leader_epochs()
        if epoch > epochs.latest:
            epochs.assign(epoch, self.log_end_offset if offset is None else offset)
        self._write_epochs(epochs)
        self._stamped_epoch = epoch

    def _leader_epochs(self) -> LeaderEpochs:
        if self._epochs is None:
            self._epochs = LeaderEpochs.read(self._disk, f"{self.directory}/{EPOCHS_FILE}")
            if self._epochs is None:
                # every batch carries its epoch, so a lost file costs time and nothing else
                self._epochs = LeaderEpochs()
                for _, _, header in self._segments.headers(0):
                    if header.leader_epoch > self._epochs.latest:
                        self._epochs.assign(header.leader_epoch, header.base_offset)
        return self._epochs

    def _write_epochs(self, epochs: LeaderEpochs) -> None:
        if epochs.is_changed:
            epochs.write(self._disk, f"{self.directory}/{EPOCHS_FILE}")
            self._is_dirty = True

    @_guarded
    def assign_epoch(self, epoch: int) -> None:
        """A new leader epoch begins at the log's end. It reaches the disk with its first batch."""
        epochs = self._leader_epochs()
        if epoch > epochs.latest:
            epochs.assign(epoch, self.log_end_offset)

    @_guarded
    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        return self._leader_epochs().end_offset(epoch, self.log_end_offset)

    @_guarded
    def epoch_at(self, offset: int) -> int:
        """The leader epoch in which the offset was written; -1 when it is not known."""
        return self._leader_epochs().epoch_of(offset)

    @_guarded
    def truncate_to(self, offset: int) -> None:
        """Cut the log so that it ends at `offset`, or at the beginning of the batch that holds it."""
        if offset >= self.log_end_offset:
            return
        self.generation += 1
        if offset < self.flushed_offset:
            # the lower recovery point comes first: nothing written from here on was flushed
            self.flushed_offset = max(offset, 0)
            if self._lowered is not None:
                self._lowered()
        self._tail.clear()
        self._segments.forget_readers()
        placed = self._segments.place(offset)
        if offset <= self._segments.items[0].base_offset or placed is None:
            self._remove_segments(self._segments.items)
            self._start_empty(offset, self._wall_ms)
        else:
            segment, position, _ = placed
            end = min(segment.base_offset_at(position), offset)
            kept = self._segments.number_of(segment.base_offset) + 1
            self._remove_segments(self._segments.items[kept:])
            segment.truncate(position, end)
            self._active = segment
            self.log_end_offset = end
            self._producers.truncate(end)
        epochs = self._leader_epochs()
        epochs.truncate_end(self.log_end_offset)
        self._write_epochs(epochs)
        self._stamped_epoch = -2
        self.flushed_offset = min(self.flushed_offset, self.log_end_offset)
        self.log_start_offset = min(self.log_start_offset, self.log_end_offset)
        self._is_dirty = True

    # --- reading ----------------------------------------------------------------------------------

    def read(self, offset: int, *, max_bytes: int, limit_offset: int, at_least_one: bool) -> Span | None:
        """Whole batches of one segment, from the one that holds `offset`, all of them below `limit_offset`.

        None when nothing is there to read, or the first batch exceeds max_bytes and is not asked for all
        the same.
        """
        if self._health.error is not None:
            raise self._health.offline()
        end = self.log_end_offset
        if offset >= end or offset < self.log_start_offset:
            if offset == end:
                return None
            raise OffsetOutOfRange(offset, self.log_start_offset, end)
        tail = self._tail
        if tail.lasts and offset >= tail.first_offset:
            active = self._active
            found = tail.span(offset, limit_offset, active.size, max_bytes, at_least_one=at_least_one)
            if found is None:
                return None
            assert active.log is not None
            return Span(active.log, found[0], found[1] - found[0])
        return self._read_cold(offset, limit_offset, max_bytes, at_least_one)

    @_guarded
    def _read_cold(self, offset: int, limit_offset: int, max_bytes: int, at_least_one: bool) -> Span | None:
        if limit_offset <= offset:
            return None
        return self._segments.span(
            offset, limit_offset, self.log_end_offset, max_bytes, at_least_one=at_least_one
        )

    @_guarded
    def bytes_between(self, offset: int, limit_offset: int) -> int:
        """Roughly how many bytes lie in [offset, limit_offset): exact where the tail reaches, else by the
        index.
        """
        if limit_offset <= offset:
            return 0
        return max(self._distance(limit_offset) - self._distance(offset), 0)

    def _distance(self, offset: int) -> int:
        """Bytes of the log before `offset`, counted from the first segment."""
        tail = self._tail
        items = self._segments.items
        number = self._segments.number_of(offset)
        before = 0
        for segment in items[:number]:
            segment.load()
            before += segment.size
        segment = items[number]
        if offset >= self.log_end_offset:
            segment.load()
            return before + segment.size
        if segment is self._active and tail.lasts and offset >= tail.first_offset:
            return before + tail.position(offset, segment.size)
        segment.load()
        return before + (segment.index.floor(offset) if segment.size else 0)

    @_guarded
    def offset_for_timestamp(self, timestamp_ms: int, limit_offset: int) -> TimestampedOffset | None:
        """The first record at or after the timestamp, below `limit_offset`."""
        return timestamps.first_since(
            self._segments.items, timestamp_ms, self.log_start_offset, min(limit_offset, self.log_end_offset)
        )

    @_guarded
    def max_timestamp(self, limit_offset: int) -> TimestampedOffset | None:
        """The record with the largest timestamp, below `limit_offset`."""
        return timestamps.largest(
            self._segments.items, self.log_start_offset, min(limit_offset, self.log_end_offset)
        )

    @_guarded
    def aborted_transactions(self, fetch_offset: int, upper_offset: int) -> list[tuple[int, int]]:
        """Producer id and first offset of every aborted transaction that touches [fetch_offset,
        upper_offset).
        """
        found: list[tuple[int, int]] = []
        for segment in self._segments.from_offset(fetch_offset):
            overlapping, is_complete = segment.transaction_index.overlapping(fetch_offset, upper_offset)
            found.extend((aborted.producer_id, aborted.first_offset) for aborted in overlapping)
            if is_complete:
                break
        return found

    # --- producers --------------------------------------------------------------------------------

    @_guarded
    def producers(self) -> list[ProducerEntry]:
        return list(self.producer_state())

    @_guarded
    def expire_producers(self, wall_ms: int) -> int:
        """Forget producers that have been silent for too long; how many. Asks nothing of a log that has
        none loaded.
        """
        state = self._producers.state
        return 0 if state is None else state.expire(wall_ms, self.producer_id_expiration_ms)

    # --- upkeep -----------------------------------------------------------------------------------

    def flush_due_at(self, now: Now) -> Instant | None:
        """When flush.messages or flush.ms ask for a flush; None when they don't."""
        return self._flush_clock.due_at(self._config, self.log_end_offset - self.flushed_offset, now)

    def needs_flush(self, now: Now) -> bool:
        due_at = self.flush_due_at(now)
        return due_at is not None and due_at <= now.mono

    @_guarded
    def flush_job(self) -> FlushJob | None:
        """Everything up to the present end, as a job; None when all of it is durable already."""
        if not self._is_dirty and self.flushed_offset == self.log_end_offset:
            return None
        files: list[str] = []
        for segment in self._segments.from_offset(self.flushed_offset):
            if segment.is_new:
                continue
            segment.write_indexes()
            files += segment.paths()
        if self._epochs is not None:
            files.append(f"{self.directory}/{EPOCHS_FILE}")
        self._is_dirty = False
        return FlushJob(
            self.directory,
            self.generation,
            self.log_end_offset,
            files,
            [self.directory, self.directory.rpartition("/")[0]],
        )

    def flushed(self, result: Flushed) -> None:
        """A flush came back. One that was ordered before a truncation says nothing about what came after."""
        if result.generation != self.generation:
            self._is_dirty = True
            return
        if result.end_offset > self.flushed_offset:
            self.flushed_offset = min(result.end_offset, self.log_end_offset)
        if self.flushed_offset == self.log_end_offset:
            self._unflushed_bytes = 0
        self._flush_clock.reset()

    def flush_failed(self, error: OSError) -> None:
        """Whatever was wrong, the bytes may be gone from memory and disk alike: never tried again."""
        if self._health.error is None:
            self._health.error = error

    @_guarded
    def retire(self, wall_ms: int, *, high_watermark: int | None = None) -> list[Doomed]:
        """Take out what retention lets go, after a new segment was begun if the active one is due."""
        end = self.log_end_offset
        limit = end if high_watermark is None else min(high_watermark, end)
        segments = self._segments
        self._roll_if_quiet(wall_ms)
        count = retention.deletable(
            segments.items,
            self._config,
            log_start_offset=self.log_start_offset,
            log_end_offset=end,
            high_watermark=limit,
            wall_ms=wall_ms,
        )
        if count == len(segments):
            self._roll(wall_ms)
        return self._doom(segments.items[:count], wall_ms)

    def _roll_if_quiet(self, wall_ms: int) -> None:
        """segment.ms holds for a topic that nobody writes to any more."""
        active = self._active
        active.load()
        if not active.size:
            return
        since = active.first_timestamp if active.first_timestamp >= 0 else active.created_ms
        if wall_ms - since > self._config.segment_ms - self._roll_jitter_ms:
            self._roll(wall_ms)

    def _doom(self, segments: list[Segment], wall_ms: int) -> list[Doomed]:
        if not segments:
            return []
        self._segments.drop(segments)
        start = self._segments.items[0].base_offset
        snapshots = self._producers.forget_before(start)
        doomed = [
            retention.doom(self._disk, segment, snapshots if number == 0 else (), self._config, wall_ms)
            for number, segment in enumerate(segments)
        ]
        self._is_dirty = True
        if start > self.log_start_offset:
            self._start_at(start)
        return doomed

    def _start_at(self, offset: int) -> None:
        self.log_start_offset = offset
        epochs = self._leader_epochs()
        epochs.truncate_start(offset)
        self._write_epochs(epochs)

    @_guarded
    def advance_log_start(self, offset: int, wall_ms: int) -> list[Doomed]:
        """Records below `offset` are gone (DeleteRecords); segments that hold nothing else go with them."""
        if offset > self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        if offset <= self.log_start_offset:
            return []
        self._start_at(offset)
        if offset == self.log_end_offset and self._active.size:
            self._active.load()
            self._roll(wall_ms)
        items = self._segments.items
        count = 0
        while count + 1 < len(items) and items[count + 1].base_offset <= offset:
            items[count].load()
            count += 1
        return self._doom(items[:count], wall_ms)

    def remove_job(self, doomed: Doomed) -> RemoveJob:
        """To be run at `doomed.remove_at_ms`."""
        return RemoveJob(doomed.paths)

    def checkpoint(self, wall_ms: int | None = None) -> None:
        """Index entries and producer state to their files, so that a restart has little to walk; not
        synced.
        """
        self._checkpoint(self._wall_ms if wall_ms is None else wall_ms)

    @_guarded
    def _checkpoint(self, wall_ms: int) -> None:
        if self._active.is_new:
            return
        try:
            if self._active.is_loaded:
                self._active.write_indexes()
            self._producers.take_snapshot(self.log_end_offset, wall_ms)
            if self._epochs is not None:
                self._write_epochs(self._epochs)
        except OSError as error:
            if not is_full(error):
                raise  # else: nothing is lost, a restart walks a little more

    def close(self, *, clean: bool) -> None:
        """Let go of all files. Clean: with complete indexes and a snapshot, ready for a flush and the clean
        marker.
        """
        if clean and not self._active.is_new:
            self._close_cleanly()
        for segment in self._segments.items:
            segment.forget_files()

    @_guarded
    def _close_cleanly(self) -> None:
        if self._active.is_loaded:
            self._active.seal()
        self._checkpoint(self._wall_ms)
