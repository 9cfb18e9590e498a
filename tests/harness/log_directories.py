"""A log directory, opened as a node opens it."""

from __future__ import annotations

from typing import Any

from headrace.storage.disk import Disk
from headrace.storage.log_directory import LogDirectory


def open_log_directory(disk: Disk, name: str, **owner: Any) -> LogDirectory:
    directory = LogDirectory.look(disk, name, **owner)
    directory.take_possession()
    return directory
