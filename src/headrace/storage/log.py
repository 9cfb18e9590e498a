"""One partition's log: a row of segments, of which the last one grows.

Synchronous and without a clock: wall time is handed in. Appending and reading happen here and at once;
whatever takes long leaves as a job (flush, removal, recompression) and counts when its result is handed
back.

A full disk is refused with DiskFull, after the log was cut back to its last whole batch. Any other failure
of the disk takes the whole directory offline (LogOffline) until a restart.
"""

from collections.abc import Container

from headrace.base.time import Instant, Now
from headrace.storage import retention, timestamps
from headrace.storage.batch_opener import PATIENT, BatchOpener
from headrace.storage.checkpoints import PARTITION_METADATA
from headrace.storage.cleaning import Rewritten
from headrace.storage.compacted_log import CompactedLog
from headrace.storage.disk import Span
from headrace.storage.errors import DiskFull, OffsetOutOfRange, is_transient
from headrace.storage.flushing import Flushed, FlushJob
from headrace.storage.growing_log import Appended
from headrace.storage.leader_epochs import FILE_NAME as EPOCHS_FILE
from headrace.storage.moving import files_of
from headrace.storage.opened_log import guarded
from headrace.storage.producer_state import ProducerEntry
from headrace.storage.recompression import Recompressed, RecompressJob
from headrace.storage.recovery import Recovery
from headrace.storage.retention import Doomed, RemoveJob
from headrace.storage.segment import Segment, segment_path
from headrace.storage.snapshots import snapshot_path
from headrace.storage.swapping import withdraw_swap
from headrace.storage.timestamps import TimestampedOffset

# A log that was not written to for so long gives its file descriptor and its tail back: ten thousand
# partitions are never busy at once, and a descriptor is had again in some ten microseconds.
QUIET_MS = 60_000

__all__ = ["Appended", "PartitionLog", "Recovery", "TimestampedOffset"]


class PartitionLog(CompactedLog):
    __slots__ = ()

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
            assert active.log is not None, "the tail is forgotten when the file is let go"
            return Span(active.log, found[0], found[1] - found[0])
        return self._read_cold(offset, limit_offset, max_bytes, at_least_one)

    @guarded
    def _read_cold(self, offset: int, limit_offset: int, max_bytes: int, at_least_one: bool) -> Span | None:
        if limit_offset <= offset:
            return None
        return self._segments.span(
            offset, limit_offset, self.log_end_offset, max_bytes, at_least_one=at_least_one
        )

    def ends_in_later_segment(self, offset: int, limit_offset: int) -> bool:
        """Whether a read from `offset` ends with its segment though more follows below `limit_offset`."""
        if offset >= self._active.base_offset:
            return False
        return self._segments.number_of(offset) < self._segments.number_of(limit_offset)

    @guarded
    def bytes_between(self, offset: int, limit_offset: int) -> int:
        """Roughly how many bytes lie in [offset, limit_offset): exact where the tail reaches, else by the
        index.
        """
        if limit_offset <= offset:
            return 0
        segments = self._segments
        first, last = segments.number_of(offset), segments.number_of(limit_offset)
        between = sum(segment.measure() for segment in segments.items[first:last])
        return max(between + self._place(last, limit_offset) - self._place(first, offset), 0)

    @guarded
    def split_offsets(self, offset: int, limit_offset: int, part_bytes: int) -> list[int]:
        """Offsets that cut [offset, limit_offset) into parts of about so many bytes, as far as the indexes
        know: each is the first one of a batch, so that nobody opens a batch for its half.
        """
        if limit_offset <= offset:
            return []
        segments = self._segments
        first, last = segments.number_of(offset), segments.number_of(limit_offset)
        cuts: list[int] = []
        taken = 0  # bytes since the last cut
        for number in range(first, last + 1):
            segment = segments.items[number]
            segment.load()
            position = self._place(number, offset) if number == first else 0
            end = self._place(number, limit_offset) if number == last else segment.size
            if taken >= part_bytes:
                cuts.append(segment.base_offset)
                taken = 0
            while taken + end - position > part_bytes:
                cut = segment.index.first_cut(position, position + part_bytes - taken)
                if cut is None or cut[1] >= end:
                    break
                cuts.append(cut[0])
                position, taken = cut[1], 0
            taken += max(end - position, 0)
        return sorted({cut for cut in cuts if offset < cut < limit_offset})

    def _place(self, number: int, offset: int) -> int:
        """Roughly where `offset` lies in the segment of that number."""
        segment = self._segments.items[number]
        tail = self._tail
        if segment is self._active and tail.lasts and offset >= tail.first_offset:
            return tail.position(offset, segment.size)
        segment.load()
        if offset >= self.log_end_offset or not segment.size:
            return segment.size
        return segment.index.floor(offset)

    @guarded
    def offset_for_timestamp(
        self, timestamp_ms: int, limit_offset: int, opener: BatchOpener = PATIENT
    ) -> TimestampedOffset | None:
        """The first record at or after the timestamp, below `limit_offset`."""
        limit_offset = min(limit_offset, self.log_end_offset)
        return timestamps.first_since(
            self._segments.items, timestamp_ms, self.log_start_offset, limit_offset, opener
        )

    @guarded
    def max_timestamp(self, limit_offset: int, opener: BatchOpener = PATIENT) -> TimestampedOffset | None:
        """The record with the largest timestamp, below `limit_offset`."""
        limit_offset = min(limit_offset, self.log_end_offset)
        return timestamps.largest(self._segments.items, self.log_start_offset, limit_offset, opener)

    @guarded
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

    @guarded
    def producers(self) -> list[ProducerEntry]:
        return list(self.producer_state())

    @guarded
    def expire_producers(self, wall_ms: int) -> int:
        """Forget producers that have been silent for too long; how many. Asks nothing of a log that has
        none loaded.
        """
        state = self._producers.state
        return 0 if state is None else state.expire(wall_ms, self.producer_id_expiration_ms)

    # --- moving -----------------------------------------------------------------------------------

    @guarded
    def bytes_without(self, copied: Container[str]) -> int:
        """Of all segments whose log is not among those names."""
        return sum(
            segment.measure()
            for segment in self._segments.items
            if not segment.is_new and f"{segment.base_offset:020d}.log" not in copied
        )

    @guarded
    def sealed_files(self) -> list[str]:
        """Names of the files before the active segment, which change no more unless they are rewritten."""
        if self._unfinished:
            raise DiskFull("rewritten segments wait for space to take the place of the old ones")
        end = self._active.base_offset
        return [
            name
            for name in files_of(self._disk.list(self.directory))
            if (stem := name.partition(".")[0]).isdigit() and int(stem) < end
        ]

    # --- upkeep -----------------------------------------------------------------------------------

    def flush_due_at(self, now: Now) -> Instant | None:
        """When flush.messages or flush.ms ask for a flush; None when they don't."""
        return self._flush_clock.due_at(self._config, self.log_end_offset - self.flushed_offset, now)

    def needs_flush(self, now: Now) -> bool:
        due_at = self.flush_due_at(now)
        return due_at is not None and due_at <= now.mono

    @guarded
    def flush_job(self) -> FlushJob | None:
        """Everything up to the present end, as a job; None when all of it is durable already.

        Of the active segment only the log is synced, since recovery can do without an index; a sealed one is
        synced whole, once.
        """
        if self.flushed_offset == self.log_end_offset and not self._is_dirty and not self._is_renamed:
            return None
        files: list[str] = []
        # a segment that was sealed at exactly the flushed offset has its indexes still to be synced
        for segment in self._segments.from_offset(self.flushed_offset - 1):
            if segment.is_new:
                continue
            files.append(segment.path + ".log")
            if segment is not self._active:
                files += (segment.index.path, segment.time_index.path)
            if len(segment.transaction_index):
                files.append(segment.transaction_index.path)
        snapshots = self._producers.unsynced()
        files += [snapshot_path(self.directory, offset) for offset in snapshots]
        if self._is_dirty:
            files.append(f"{self.directory}/{EPOCHS_FILE}")
        directories = [self.directory] if self._is_renamed or self._is_unlisted or snapshots else []
        if self._is_unlisted:  # first: where a record is durable, it is known whose it is
            files.insert(0, f"{self.directory}/{PARTITION_METADATA}")
            directories.append(self.directory.rpartition("/")[0])
        self._is_dirty = self._is_renamed = self._is_unlisted = False
        return FlushJob(self.directory, self.generation, self.log_end_offset, files, directories, snapshots)

    def flushed(self, result: Flushed) -> None:
        """A flush came back. One that was ordered before a truncation says nothing about what came after."""
        if result.generation != self.generation:
            return
        self._producers.synced(result.snapshots)
        if result.end_offset > self.flushed_offset:
            self.flushed_offset = min(result.end_offset, self.log_end_offset)
        if self.flushed_offset == self.log_end_offset:
            self._unflushed_bytes = 0
        self._flush_clock.reset()

    def flush_postponed(self) -> None:
        """A flush could not be begun, for want of descriptors: nothing of it counts, and the next one has all
        of it to do.
        """
        self._is_dirty = self._is_renamed = self._is_unlisted = True

    def flush_failed(self, error: OSError) -> None:
        """Whatever was wrong, the bytes may be gone from memory and disk alike: never tried again."""
        if self._health.error is None:
            self._health.error = error

    @guarded
    def retire(self, wall_ms: int, *, high_watermark: int | None = None) -> list[Doomed]:
        """Take out what retention lets go, after a new segment was begun if the active one is due."""
        swapped = self._finish_swaps(wall_ms)
        end = self.log_end_offset
        limit = end if high_watermark is None else min(high_watermark, end)
        segments = self._segments
        self.roll_if_old(wall_ms)
        self._rest_if_quiet(wall_ms)
        count = retention.deletable(
            segments.items,
            self._config,
            log_start_offset=self.log_start_offset,
            log_end_offset=end,
            high_watermark=limit,
            wall_ms=wall_ms,
        )
        if count == len(segments) and not self._roll_if_room(wall_ms):
            count -= 1  # the active segment has to wait for the space that the others leave
        return swapped + self._doom(segments.items[:count], wall_ms)

    @guarded
    def roll_if_old(self, wall_ms: int) -> None:
        """segment.ms and max.compaction.lag.ms hold for a topic that nobody writes to any more."""
        active = self._active
        active.load()
        if not active.size:
            return
        since = active.first_timestamp if active.first_timestamp >= 0 else active.created_ms
        if wall_ms - since > self._roll_ms:
            self._roll_if_room(wall_ms)

    def _rest_if_quiet(self, wall_ms: int) -> None:
        """A log that nobody writes to needs no open file and no tail; the next append has them back."""
        active = self._active
        if active.log is not None and wall_ms - active.modified_ms > QUIET_MS:
            active.write_indexes()
            active.release()
            self._tail.clear()

    def _roll_if_room(self, wall_ms: int) -> bool:
        """A full disk must not keep retention from making room."""
        try:
            self._roll(wall_ms)
        except OSError as error:
            if not is_transient(error):
                raise
            return False
        return True

    def _doom(self, segments: list[Segment], wall_ms: int) -> list[Doomed]:
        if not segments:
            return []
        items = self._segments.items
        self._producers.outlive(items[len(segments)].base_offset, wall_ms)
        doomed: list[Doomed] = []
        for segment in segments:
            try:
                doomed.append(retention.doom(self._disk, segment, self._config, wall_ms))
            except OSError as error:
                if not is_transient(error):
                    raise
                break  # it stays, and so do those after it: a log has no gaps
            segment.forget_files()
        if not doomed:
            return []
        start = items[len(doomed)].base_offset
        self._segments.drop(segments[: len(doomed)])
        self._is_renamed = True
        if start > self.log_start_offset:
            self._start_at(start)
        if len(doomed) < len(segments):
            self._producers.outlive(start, wall_ms)
        doomed[0].paths += retention.rename_away(self._disk, self._producers.forget_before(start))
        return doomed

    def _start_at(self, offset: int) -> None:
        self.log_start_offset = offset
        epochs = self._leader_epochs()
        epochs.truncate_start(offset)
        try:
            self._write_epochs(epochs)
        except OSError as error:
            if not is_transient(error):
                raise  # else: the next checkpoint writes it

    @guarded
    def advance_log_start(self, offset: int, wall_ms: int) -> list[Doomed]:
        """Records below `offset` are gone (DeleteRecords); segments that hold nothing else go with them."""
        if offset > self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        if offset <= self.log_start_offset:
            return []
        swapped = self._finish_swaps(wall_ms)
        self._start_at(offset)
        self._active.load()
        if offset == self.log_end_offset and self._active.size:
            self._roll_if_room(wall_ms)
        items = self._segments.items
        count = 0
        while count + 1 < len(items) and items[count + 1].base_offset <= offset:
            items[count].measure()
            count += 1
        return swapped + self._doom(items[:count], wall_ms)

    @guarded
    def recompress_job(self) -> RecompressJob | None:
        """The oldest sealed segment that is not yet packed as the topic wants it, below the last flush."""
        codec = self._config.sealed_compression_type
        if not codec or self._unfinished:
            return None
        for segment in self._segments.items[:-1]:
            end = self._segments.end_of(segment, self.log_end_offset)
            if segment.packed_as == codec or end > self.flushed_offset:
                continue
            return RecompressJob(
                self.directory,
                segment.path,
                segment.base_offset,
                self.generation,
                codec,
                self._config.index_interval_bytes,
            )
        return None

    @guarded
    def recompressed(self, result: Recompressed) -> None:
        """Put the packed segment in the place of the old one, unless the log has changed under it."""
        segment = next(
            (one for one in self._segments.items[:-1] if one.base_offset == result.base_offset), None
        )
        if segment is None or result.generation != self.generation:
            if result.is_swap_ready:
                withdraw_swap(self._disk, segment_path(self.directory, result.base_offset))
            return
        if result.is_swap_ready:
            self._swap_all([Rewritten(result.base_offset, [])], self._wall_ms)
        segment.packed_as = result.codec

    def remove_job(self, doomed: Doomed) -> RemoveJob:
        """To be run at `doomed.remove_at_ms`."""
        return RemoveJob(doomed.paths)

    def checkpoint(self, wall_ms: int | None = None) -> None:
        """Index entries and producer state to their files, so that a restart has little to walk; not
        synced.
        """
        self._checkpoint(self._wall_ms if wall_ms is None else wall_ms)

    @guarded
    def _checkpoint(self, wall_ms: int) -> None:
        if self._active.is_new or not self._active.is_loaded:
            return  # nothing was written since it was opened
        try:
            self._active.write_indexes()
            self._producers.take_snapshot(self.log_end_offset, wall_ms)
            if self._epochs is not None:
                self._write_epochs(self._epochs)
        except OSError as error:
            if not is_transient(error):
                raise  # else: nothing is lost, a restart walks a little more

    def close(self, *, clean: bool) -> None:
        """Let go of all files. Clean: with complete indexes and a snapshot, ready for a flush and the clean
        marker.
        """
        if clean:
            self._close_cleanly()
        for segment in self._segments.items:
            segment.forget_files()

    @guarded
    def _close_cleanly(self) -> None:
        self._finish_swaps(self._wall_ms)  # what was merged away is removed by the next start
        if self._active.is_new:
            return
        if self._active.is_loaded:
            self._active.hold()
            self._active.seal()
        self._checkpoint(self._wall_ms)
