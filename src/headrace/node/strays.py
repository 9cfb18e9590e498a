"""Stray partitions of this node: counts them, reports them at the start, and removes them when they are old.

A stray is a directory whose partition the metadata does not know (`storage/strays.py`). The node keeps it for
`headrace.stray.retention.ms`, so that its records are still there when somebody repairs the metadata.
"""

from typing import Any

from headrace.base.time import Now
from headrace.node.log_directories import REMOVAL_QUEUE, LogDirectories
from headrace.node.metrics import Metrics
from headrace.node.ports import Ports
from headrace.node.settings import LiveSettings
from headrace.storage.directory_jobs import RemoveDirectoryJob
from headrace.storage.errors import DiskFull, StorageError
from headrace.storage.log_directory import LogDirectory
from headrace.storage.strays import Stray, parse_stray, strays

CHECK_INTERVAL_MS = 3_600_000


class Strays:
    __slots__ = (
        "_deadlines",
        "_directories",
        "_is_unsure",
        "_jobs",
        "_metrics",
        "_reports",
        "_settings",
        "count",
        "is_done",
    )

    def __init__(
        self, directories: LogDirectories, settings: LiveSettings, ports: Ports, metrics: Metrics
    ) -> None:
        self._directories = directories
        self._settings = settings
        self._deadlines = ports.deadlines
        self._jobs = ports.jobs
        self._reports = ports.reports
        self._metrics = metrics
        self.count = 0
        self._is_unsure = False  # whether there are more than those
        self.is_done = False

    def report(self, now: Now) -> None:
        """At the start: a line for each, and the first look at their age."""
        found = self._all(now)
        for log_dir, stray in found:
            self._report(log_dir, stray)
        self._remove_old(now, found)

    def add(self, now: Now, log_dir: str, name: str) -> None:
        """One that found no space for its name at the start, and has it now."""
        stray = parse_stray(name)
        assert stray is not None
        self._report(log_dir, stray)
        if not self.count and not self._is_unsure:
            self._deadlines.add(now.after_ms(CHECK_INTERVAL_MS), self)
        self.count += 1
        self._metrics.strays = self.count

    def _report(self, log_dir: str, stray: Stray) -> None:
        self._reports.report(
            "warning",
            "stray_partition",
            partition=stray.original,
            directory=f"{log_dir}/{stray.name}",
            why=stray.why,
            advice=f"`headrace strays {log_dir}` lists, restores and removes strays",
        )

    def expired(self, now: Now) -> None:
        """Remove those whose time is over; the others are looked at again later."""
        self._remove_old(now, self._all(now))

    def _all(self, now: Now) -> list[tuple[str, Stray]]:
        """In all directories, each with its directory."""
        self._is_unsure = False
        return [
            (log_dir, stray)
            for log_dir, directory in self._directories.items()
            for stray in self._found(now, log_dir, directory)
        ]

    def _remove_old(self, now: Now, found: list[tuple[str, Stray]]) -> None:
        self.count = 0
        retention_ms = self._settings.current.headrace_stray_retention_ms
        for log_dir, stray in found:
            age_ms = 0 if stray.since_ms is None else now.wall_ms - stray.since_ms
            if 0 <= retention_ms < age_ms:
                self._remove(log_dir, stray.name)
            else:
                self.count += 1
        self._metrics.strays = self.count
        if self.count or self._is_unsure:
            self._deadlines.add(now.after_ms(CHECK_INTERVAL_MS), self)

    def _found(self, now: Now, log_dir: str, directory: LogDirectory) -> list[Stray]:
        if directory.is_offline:
            return []
        try:
            return strays(directory.names())
        except DiskFull:
            self._is_unsure = True  # no descriptor is left
            return []
        except StorageError as fault:
            self._directories.go_offline(now, log_dir, fault)
            return []

    def _remove(self, log_dir: str, name: str) -> None:
        self._reports.report("warning", "stray_partition_removed", directory=f"{log_dir}/{name}")

        def removed(now: Now, result: Any) -> None:
            if isinstance(result, Exception):
                self._reports.report(
                    "warning", "removal_failed", directory=f"{log_dir}/{name}", error=str(result)
                )

        self._jobs.run(log_dir, REMOVAL_QUEUE, RemoveDirectoryJob(name), removed)
