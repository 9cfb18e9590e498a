"""Disks of a broker under test, which survive its restarts: snapshots, crashes and injected disk errors.

In memory a snapshot shares its bytes with the disk until one of them changes; for a real directory it is a
copy. The node uses the disks through a `FaultyDisk`, which can make them fail.
"""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from headrace.base.randomness import Randomness
from headrace.server.disk import RealDisk
from headrace.server.lock import DirectoryLock
from headrace.storage.disk import Disk
from headrace.storage.memory_disk import MemoryDisk


class Storage(Protocol):
    def disk(self, directory: str) -> Disk:
        """The disk of a log directory; created at its first use."""
        ...

    def clear(self) -> None:
        """Removes everything that was written."""
        ...

    def snapshot(self) -> int: ...

    def restore(self, snapshot: int) -> None: ...

    def lose_unsynced(self, rng: Randomness) -> None:
        """Simulates a power failure: data that was not synced is lost, or half of it."""
        ...

    def forget_snapshots(self) -> None: ...

    def close(self) -> None:
        """Releases the directory."""
        ...


class MemoryStorage:
    def __init__(self) -> None:
        self._disks: dict[str, MemoryDisk] = {}
        self._snapshots: list[dict[str, MemoryDisk]] = []

    def disk(self, directory: str) -> Disk:
        return self._disks.setdefault(directory, MemoryDisk())

    def clear(self) -> None:
        self._disks = {}

    def snapshot(self) -> int:
        self._snapshots.append(_clones(self._disks))
        return len(self._snapshots) - 1

    def restore(self, snapshot: int) -> None:
        self._disks = _clones(self._snapshots[snapshot])

    def lose_unsynced(self, rng: Randomness) -> None:
        self._disks = {name: disk.crash("lost", rng) for name, disk in self._disks.items()}

    def forget_snapshots(self) -> None:
        self._snapshots = []

    def close(self) -> None:
        self._disks = {}


def _clones(disks: dict[str, MemoryDisk]) -> dict[str, MemoryDisk]:
    return {name: disk.clone() for name, disk in disks.items()}


class DirectoryStorage:
    """Everything under one directory: `data/` with a folder per log directory, `snapshots/` beside it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = DirectoryLock(str(root))
        self._snapshots = 0
        self.forget_snapshots()

    @property
    def _data(self) -> Path:
        return self._root / "data"

    def disk(self, directory: str) -> Disk:
        return RealDisk(str(self._data / directory))

    def clear(self) -> None:
        shutil.rmtree(self._data, ignore_errors=True)

    def snapshot(self) -> int:
        shutil.copytree(self._data, self._kept(self._snapshots))
        self._snapshots += 1
        return self._snapshots - 1

    def restore(self, snapshot: int) -> None:
        self.clear()
        shutil.copytree(self._kept(snapshot), self._data)

    def lose_unsynced(self, rng: Randomness) -> None:
        raise ValueError("lose_unsynced needs storage='memory'")

    def forget_snapshots(self) -> None:
        shutil.rmtree(self._root / "snapshots", ignore_errors=True)
        self._snapshots = 0

    def close(self) -> None:
        self._lock.release()

    def _kept(self, snapshot: int) -> Path:
        return self._root / "snapshots" / str(snapshot)


def directories_of(log_dirs: Iterable[str], metadata_log_dir: str) -> tuple[str, ...]:
    """Each once, in order."""
    return tuple(dict.fromkeys((*log_dirs, metadata_log_dir)))
