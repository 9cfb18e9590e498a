"""Stray partitions of this node: counts them, reports them at the start, and removes them when they are old.

A stray is a directory whose partition the metadata does not know (`storage/strays.py`). The node keeps it for
`headrace.stray.retention.ms`, so that its records are still there when somebody repairs the metadata.
"""

from typing import TYPE_CHECKING, Any

from headrace.base.time import Now
from headrace.storage.directory_jobs import RemoveDirectoryJob
from headrace.storage.errors import DiskFull, StorageError
from headrace.storage.log_directory import LogDirectory
from headrace.storage.strays import Stray, parse_stray, strays

if TYPE_CHECKING:
    from headrace.node.node import Node

CHECK_INTERVAL_MS = 3_600_000


class Strays:
    __slots__ = ("_is_unsure", "_node", "count", "is_done")

    def __init__(self, node: "Node") -> None:
        self._node = node
        self.count = 0
        self._is_unsure = False  # whether there are more than those
        self.is_done = False

    def report(self, now: Now) -> None:
        """At the start: a line for each, and the first look at their age."""
        for home, directory in self._node.partitions.directories.items():
            for stray in self._found(now, home, directory):
                self._report(home, stray)
        self.expired(now)

    def add(self, now: Now, home: str, name: str) -> None:
        """One that found no space for its name at the start, and has it now."""
        stray = parse_stray(name)
        assert stray is not None
        self._report(home, stray)
        if not self.count and not self._is_unsure:
            self._node.deadlines.add(now.after_ms(CHECK_INTERVAL_MS), self)
        self.count += 1
        self._node.metrics.strays = self.count

    def _report(self, home: str, stray: Stray) -> None:
        self._node.report(
            "warning",
            "stray_partition",
            partition=stray.original,
            directory=f"{home}/{stray.name}",
            why=stray.why,
            advice=f"`headrace strays {home}` lists, restores and removes strays",
        )

    def expired(self, now: Now) -> None:
        """Remove those whose time is over; the others are looked at again later."""
        node = self._node
        self.count = 0
        self._is_unsure = False
        retention_ms = node.settings.headrace_stray_retention_ms
        for home, directory in node.partitions.directories.items():
            for stray in self._found(now, home, directory):
                age_ms = 0 if stray.since_ms is None else now.wall_ms - stray.since_ms
                if 0 <= retention_ms < age_ms:
                    self._remove(home, stray.name)
                else:
                    self.count += 1
        node.metrics.strays = self.count
        if self.count or self._is_unsure:
            node.deadlines.add(now.after_ms(CHECK_INTERVAL_MS), self)

    def _found(self, now: Now, home: str, directory: LogDirectory) -> list[Stray]:
        if directory.is_offline:
            return []
        try:
            return strays(directory.names())
        except DiskFull:
            self._is_unsure = True  # no descriptor is left
            return []
        except StorageError as fault:
            self._node.partitions.go_offline(now, home, fault)
            return []

    def _remove(self, home: str, name: str) -> None:
        node = self._node
        node.report("warning", "stray_partition_removed", directory=f"{home}/{name}")

        def removed(now: Now, result: Any) -> None:
            if isinstance(result, Exception):
                node.report("warning", "removal_failed", directory=f"{home}/{name}", error=str(result))

        node.run(home, "removal", RemoveDirectoryJob(name), removed)
