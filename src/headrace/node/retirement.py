"""Retirement of a partition's oldest segments by retention.

Before segments go, the snapshot of the producers that stands for them must be durable. If it is not, the log
remembers what is to go (`retires_before`), the group commit is asked for a flush, and the segments go when
that is done: the event loop does not wait for the disk.
"""

from typing import TYPE_CHECKING

from headrace.base.time import Now
from headrace.node.log_directories import LogDirectories
from headrace.node.ports import Reports
from headrace.storage.errors import StorageError
from headrace.storage.segment_removal import Doomed

if TYPE_CHECKING:
    from headrace.node.partition import Partition


def note_retired(
    now: Now, partition: "Partition", doomed: list[Doomed], directories: LogDirectories, reports: Reports
) -> None:
    """Segments are out of the log, or none."""
    directories.remove_segments(now, partition, doomed)
    if doomed and partition.log is not None:
        reports.report(
            "info",
            "segments_retired",
            partition=f"{partition.topic}-{partition.index}",
            segments=len(doomed),
            log_start_offset=partition.log.log_start_offset,
        )
        partition.log_start_moved()


def retire_waiting(now: Now, partition: "Partition", directories: LogDirectories, reports: Reports) -> None:
    """A flush of the partition is done."""
    assert partition.log is not None
    try:
        doomed = partition.log.finish_retiring(now.wall_ms)
    except StorageError as fault:
        directories.storage_failed(now, partition, fault)
        return
    note_retired(now, partition, doomed, directories, reports)
