"""Compaction: which log is cleaned next.

Every log.cleaner.backoff.ms the compacted partitions are looked at, a few at a time. In each directory the
dirtiest log is cleaned first, one pass at a time. A log whose pass failed is reported and left alone until
the next start: to try again in a loop would cost much and gain nothing.
"""

import sys
from typing import TYPE_CHECKING, Any

from headrace.base.time import Now
from headrace.node.partition import Partition
from headrace.storage.cleaning import Cleaned
from headrace.storage.errors import StorageError, is_transient

if TYPE_CHECKING:
    from headrace.node.housekeeping import Housekeeping
    from headrace.node.node import Node


class Cleaner:
    __slots__ = ("_dirty", "_housekeeping", "_node", "_uncleanable")

    def __init__(self, node: "Node", housekeeping: "Housekeeping") -> None:
        self._node = node
        self._housekeeping = housekeeping
        self._dirty: dict[str, list[tuple[float, int, Partition]]] = {}  # by directory: due, dirtiest last
        self._uncleanable: set[tuple[bytes, int]] = set()

    def partitions(self) -> list[Partition]:
        """A round begins: those that want to be compacted, and can be."""
        self._dirty.clear()
        if not self._node.settings.log_cleaner_enable or self._node.is_stopping:
            return []
        return [
            partition
            for partition in self._node.partitions.all()
            if "compact" in partition.config.cleanup_policy
            and (partition.topic_id, partition.index) not in self._uncleanable
        ]

    def look_at(self, now: Now, partition: Partition) -> None:
        try:
            log = partition.opened(now)
            log.roll_if_old(now.wall_ms)
            dirt = log.dirt(now.wall_ms, partition.leader.high_watermark)
        except StorageError as fault:
            self._node.partitions.storage_failed(now, partition, fault)
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
        while waiting and not self._node.is_stopping and self._housekeeping.may_rewrite(directory):
            _, _, partition = waiting.pop()
            if not partition.is_deleted and not partition.is_offline and partition.log is not None:
                self._clean(now, partition)

    def _clean(self, now: Now, partition: Partition) -> None:
        node, log, settings = self._node, partition.log, self._node.settings
        assert log is not None
        budget = settings.log_cleaner_dedupe_buffer_size * settings.log_cleaner_io_buffer_load_factor
        rate = settings.log_cleaner_io_max_bytes_per_second
        try:
            job = log.clean_job(
                now.wall_ms,
                partition.leader.high_watermark,
                map_bytes=int(budget),
                io_bytes=settings.log_cleaner_io_buffer_size,
                bytes_per_second=rate if rate < sys.float_info.max else None,
            )
        except StorageError as fault:
            node.partitions.storage_failed(now, partition, fault)
            return
        if job is None:
            return

        def finished(now: Now, result: Any) -> None:
            self._housekeeping.rewritten(partition.directory)
            if isinstance(result, BaseException):
                self._failed(partition, result)
                node.partitions.job_failed(now, partition.directory, result)
            elif partition.log is log:
                self._cleaned(now, partition, result)
            self._clean_next(now, partition.directory)

        self._housekeeping.rewrites(partition.directory)
        node.run(partition.directory, "rewriting", job, finished)

    def _cleaned(self, now: Now, partition: Partition, result: Cleaned) -> None:
        node, log = self._node, partition.log
        assert log is not None
        try:
            doomed = log.complete_cleaning(result, now.wall_ms)
        except StorageError as fault:
            node.partitions.storage_failed(now, partition, fault)
            return
        self._housekeeping.remove_later(now, partition, doomed)
        self._housekeeping.offsets_moved()
        node.metrics.cleanings += 1
        node.metrics.cleaned_bytes += result.bytes_before
        node.report(
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
            self._node.report("warning", "cleaning_postponed", partition=name, error=str(error))
        elif not partition.is_deleted:
            self._uncleanable.add((partition.topic_id, partition.index))
            self._node.report("error", "partition_uncleanable", partition=name, error=str(error))
