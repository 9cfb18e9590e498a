"""Scheduling of compaction: which log is compacted next.

Every log.cleaner.backoff.ms the cleaner examines the compacted partitions, a few at a time. In each directory
it compacts the dirtiest log first, one pass at a time. If a pass fails, the cleaner reports the log and skips
it until the next start: retries would cost much and most likely fail again.
"""

import sys
from typing import TYPE_CHECKING, Any

from headrace.base.time import Now
from headrace.node.log_directories import LogDirectories
from headrace.node.metrics import Metrics
from headrace.node.partition import Partition
from headrace.node.partitions import Partitions
from headrace.node.ports import Ports
from headrace.node.settings import LiveSettings
from headrace.storage.errors import StorageError, is_transient

if TYPE_CHECKING:
    from headrace.storage.cleaning import Cleaned


class Cleaner:
    __slots__ = (
        "_directories",
        "_dirty",
        "_jobs",
        "_lifecycle",
        "_metrics",
        "_partitions",
        "_reports",
        "_settings",
        "_uncleanable",
    )

    def __init__(
        self,
        partitions: Partitions,
        directories: LogDirectories,
        settings: LiveSettings,
        ports: Ports,
        metrics: Metrics,
    ) -> None:
        self._partitions = partitions
        self._directories = directories
        self._settings = settings
        self._jobs = ports.jobs
        self._reports = ports.reports
        self._lifecycle = ports.lifecycle
        self._metrics = metrics
        self._dirty: dict[str, list[tuple[float, int, Partition]]] = {}  # by directory: due, dirtiest last
        self._uncleanable: set[tuple[bytes, int]] = set()

    def partitions(self) -> list[Partition]:
        """A round begins: those that want to be compacted, and can be."""
        self._dirty.clear()
        if not self._settings.current.log_cleaner_enable or self._lifecycle.is_stopping:
            return []
        return [
            partition
            for partition in self._partitions.all()
            if "compact" in partition.config.cleanup_policy
            and (partition.topic_id, partition.index) not in self._uncleanable
        ]

    def look_at(self, now: Now, partition: Partition) -> None:
        try:
            log = partition.opened(now)
            log.roll_if_old(now.wall_ms)
            dirt = log.dirt(now.wall_ms, partition.high_watermark)
        except StorageError as fault:
            self._directories.storage_failed(now, partition, fault)
            return
        if dirt is not None and dirt.is_due(partition.config):
            waiting = self._dirty.setdefault(partition.directory, [])
            waiting.append((dirt.ratio, len(waiting), partition))

    def start(self, now: Now) -> None:
        """A round is over: in each directory clean what was found, the dirtiest first."""
        for directory, waiting in self._dirty.items():
            waiting.sort()
            self._clean_next(now, directory)

    def _clean_next(self, now: Now, directory: str) -> None:
        waiting = self._dirty.get(directory, [])
        while waiting and not self._lifecycle.is_stopping and self._directories.may_rewrite(directory):
            _, _, partition = waiting.pop()
            if partition.directory != directory:
                continue  # it has moved since, to where others may be at work: the next round finds it there
            if not partition.is_deleted and not partition.is_offline and partition.log is not None:
                self._clean(now, partition)

    def _clean(self, now: Now, partition: Partition) -> None:
        log, settings = partition.log, self._settings.current
        assert log is not None
        budget = settings.log_cleaner_dedupe_buffer_size * settings.log_cleaner_io_buffer_load_factor
        rate = settings.log_cleaner_io_max_bytes_per_second
        try:
            job = log.clean_job(
                now.wall_ms,
                partition.high_watermark,
                map_bytes=int(budget),
                io_bytes=settings.log_cleaner_io_buffer_size,
                bytes_per_second=rate if rate < sys.float_info.max else None,
            )
        except StorageError as fault:
            self._directories.storage_failed(now, partition, fault)
            return
        if job is None:
            return

        def finished(now: Now, result: Any) -> None:
            self._directories.end_rewrite(partition.directory)
            if isinstance(result, BaseException):
                self._failed(partition, result)
                self._directories.job_failed(now, partition.directory, result)
            elif partition.log is log:
                self._cleaned(now, partition, result)
            self._clean_next(now, partition.directory)

        self._directories.begin_rewrite(partition.directory)
        self._jobs.run(partition.directory, "rewriting", job, finished)

    def _cleaned(self, now: Now, partition: Partition, result: "Cleaned") -> None:
        log = partition.log
        assert log is not None
        try:
            doomed = log.complete_cleaning(result, now.wall_ms)
        except StorageError as fault:
            self._directories.storage_failed(now, partition, fault)
            return
        self._directories.remove_segments(now, partition, doomed)
        self._directories.offsets_moved()
        self._metrics.cleanings += 1
        self._metrics.cleaned_bytes += result.bytes_before
        self._reports.report(
            "info",
            "segments_cleaned",
            partition=f"{partition.topic}-{partition.index}",
            segments=sum(1 + len(one.merged) for one in result.segments),
            bytes_before=result.bytes_before,
            bytes_after=result.bytes_after,
            records_before=result.records_before,
            records_after=result.records_after,
            first_dirty_offset=log.first_dirty_offset,
        )

    def _failed(self, partition: Partition, error: BaseException) -> None:
        name = f"{partition.topic}-{partition.index}"
        if isinstance(error, OSError) and is_transient(error):
            self._reports.report("warning", "cleaning_postponed", partition=name, error=str(error))
        elif not partition.is_deleted:
            self._uncleanable.add((partition.topic_id, partition.index))
            self._reports.report("error", "partition_uncleanable", partition=name, error=str(error))
