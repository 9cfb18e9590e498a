"""Orders of segment files ahead of the roll: a job creates them, and the event loop only renames them.

Housekeeping shows all logs that are written to, every few seconds (`look_at`). One that will soon be rolled
gets its files, and from then on says itself when it was rolled again soon after.
"""

from functools import partial
from typing import Any

from headrace.base.time import Now
from headrace.node.log_directories import LogDirectories
from headrace.node.partition import Partition
from headrace.node.ports import Ports

QUEUE = "segments"


class NextSegments:
    __slots__ = ("_directories", "_jobs", "_lifecycle", "_under_way")

    def __init__(self, directories: LogDirectories, ports: Ports) -> None:
        self._directories = directories
        self._jobs = ports.jobs
        self._lifecycle = ports.lifecycle
        self._under_way: set[Partition] = set()

    def look_at(self, now: Now, partition: Partition) -> None:
        log = partition.log
        if log is not None and log.wants_next_segment(now.wall_ms):
            log.rolled = partial(self._order, partition)
            self._order(partition)

    def _order(self, partition: Partition) -> None:
        log = partition.log
        if log is None or partition in self._under_way or self._lifecycle.is_stopping:
            return
        directory = partition.directory

        def finished(now: Now, result: Any) -> None:
            self._under_way.discard(partition)
            if isinstance(result, str):
                log.complete_next_segment(result)
            elif not isinstance(result, FileNotFoundError):  # else the topic was deleted, or the log moved
                self._directories.job_failed(now, directory, result)

        self._under_way.add(partition)
        self._jobs.run(directory, QUEUE, log.next_segment_job(), finished)
