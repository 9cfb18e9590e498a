"""A log whose old records go when newer ones of the same key have come (cleanup.policy compact).

The third layer of one log. A pass is a job that works on sealed segments beside appends and reads; its result
is taken only if the log still has those segments.
"""

from itertools import pairwise

from headrace.storage import retention
from headrace.storage.cleanable import Dirt, find_dirt
from headrace.storage.cleaning import Cleaned, CleanJob, Limits, Rewritten, Source
from headrace.storage.errors import is_transient
from headrace.storage.growing_log import GrowingLog
from headrace.storage.opened_log import guarded
from headrace.storage.retention import Doomed
from headrace.storage.segment import Segment, segment_path
from headrace.storage.sieve import Rules
from headrace.storage.swapping import swap_indexes, swap_log, withdraw_swap

# log.cleaner.dedupe.buffer.size times log.cleaner.io.buffer.load.factor, as they are by default
MAP_BYTES = 120_795_955
# log.cleaner.io.buffer.size, and what it is at least: several batches of usual size
IO_BYTES = 512 * 1024
IO_BYTES_MIN = 64 * 1024


class CompactedLog(GrowingLog):
    __slots__ = ()

    @guarded
    def dirt(self, wall_ms: int, high_watermark: int) -> Dirt | None:
        """What compaction could take up now; None without any, and for a log that is not compacted."""
        if "compact" not in self._config.cleanup_policy or len(self._segments) < 2:
            return None
        limit = min(self.last_stable_offset(high_watermark), self.flushed_offset)
        return find_dirt(self._segments.items, self._config, self.first_dirty_offset, limit, wall_ms)

    def clean_job(
        self,
        wall_ms: int,
        high_watermark: int,
        *,
        map_bytes: int = MAP_BYTES,
        io_bytes: int = IO_BYTES,
        bytes_per_second: float | None = None,
    ) -> CleanJob | None:
        """A pass over all that may be cleaned, when enough of it is dirty or has been for too long."""
        dirt = self.dirt(wall_ms, high_watermark)
        if dirt is None or self._unfinished or not dirt.is_due(self._config):
            return None
        config = self._config
        limits = Limits(
            config.segment_bytes,
            config.segment_index_bytes,
            config.index_interval_bytes,
            map_bytes,
            max(io_bytes, IO_BYTES_MIN),
        )
        return self._clean_job(dirt, wall_ms, limits, bytes_per_second)

    @guarded
    def _clean_job(
        self, dirt: Dirt, wall_ms: int, limits: Limits, bytes_per_second: float | None
    ) -> CleanJob:
        segments = self._segments.items
        return CleanJob(
            self.directory,
            self.generation,
            [
                self._source(segment, following)
                for segment, following in pairwise(segments)
                if following.base_offset <= dirt.end_offset
            ],
            dirt.first_offset,
            [one.transaction_index.path for one in segments if len(one.transaction_index)],
            Rules(
                self.log_start_offset,
                {
                    entry.producer_id: (entry.last_offset, entry.epoch)
                    for entry in self.producer_state(wall_ms)
                },
                wall_ms,
                self._config.delete_retention_ms,
            ),
            limits,
            bytes_per_second,
        )

    @staticmethod
    def _source(segment: Segment, following: Segment) -> Source:
        segment.load()
        return Source(
            segment.base_offset,
            following.base_offset,
            segment.size,
            segment.index_entries * segment.time_index.entry_bytes,
            len(segment.transaction_index) > 0,
        )

    @guarded
    def cleaned(self, result: Cleaned, wall_ms: int) -> list[Doomed]:
        """Put new segments in the place of the old ones, unless the log has changed under them."""
        if result.generation != self.generation or not all(map(self._still_has, result.segments)):
            for rewritten in result.segments:
                withdraw_swap(self._disk, segment_path(self.directory, rewritten.base_offset))
            return []
        self.first_dirty_offset = max(self.first_dirty_offset, result.first_dirty_offset)
        return self._swap_all(result.segments, wall_ms)

    def _swap_all(self, rewritten: list[Rewritten], wall_ms: int) -> list[Doomed]:
        """What there is no space for now is swapped before anything else touches the sealed segments."""
        self._unfinished += rewritten
        try:
            return self._finish_swaps(wall_ms)
        except OSError as error:
            if not is_transient(error):
                raise
            return []

    def _finish_swaps(self, wall_ms: int) -> list[Doomed]:
        doomed: list[Doomed] = []
        while self._unfinished:
            doomed += self._swap(self._unfinished[0], wall_ms)
            del self._unfinished[0]
        return doomed

    def _still_has(self, rewritten: Rewritten) -> bool:
        first = self._segments.number_of(rewritten.base_offset)
        found = self._segments.items[first : first + 1 + len(rewritten.merged)]
        return [one.base_offset for one in found] == [rewritten.base_offset, *rewritten.merged]

    def _swap(self, rewritten: Rewritten, wall_ms: int) -> list[Doomed]:
        first = self._segments.number_of(rewritten.base_offset)
        segment, *merged = self._segments.items[first : first + 1 + len(rewritten.merged)]
        # a rename that fails leaves some names to the new segment: until all are, the old files are read
        for one in (segment, *merged):
            one.pin()
        swap_indexes(self._disk, segment.path)
        doomed = [retention.doom(self._disk, one, self._config, wall_ms) for one in merged]
        swap_log(self._disk, segment.path)
        for one in merged:
            one.forget_files()
        self._segments.drop(merged)
        segment.replaced()
        if merged:
            segment.modified_ms = merged[-1].modified_ms
        self._segments.forget_readers()
        self._is_renamed = True
        self.rewrites += 1
        return doomed
