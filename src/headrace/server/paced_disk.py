"""Disk with a rate limit, for background work that must not slow down clients.

Each call is made at once, and then the thread sleeps as long as the rate requires. It is never used in the
event loop's thread.
"""

import time
from collections.abc import Callable

from headrace.storage.disk import Disk, File

Names = list[str]  # a disk has a method of the name `list`


class Pace:
    """So many bytes per second since the first of them."""

    __slots__ = ("_bytes", "_bytes_per_second", "_clock", "_sleep", "_started")

    def __init__(
        self,
        bytes_per_second: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._bytes = 0
        self._started: float | None = None

    def spend(self, size: int) -> None:
        now = self._clock()
        if self._started is None:
            self._started = now
        self._bytes += size
        ahead = self._bytes / self._bytes_per_second - (now - self._started)
        if ahead > 0:
            self._sleep(ahead)


class PacedFile:
    __slots__ = ("_file", "_pace")

    def __init__(self, file: File, pace: Pace) -> None:
        self._file = file
        self._pace = pace

    @property
    def path(self) -> str:
        return self._file.path

    def append(self, data: bytes | bytearray | memoryview, /) -> None:
        self._file.append(data)
        self._pace.spend(len(data))

    def read(self, position: int, size: int, /) -> bytes:
        data = self._file.read(position, size)
        self._pace.spend(len(data))
        return data

    def truncate(self, size: int, /) -> None:
        self._file.truncate(size)

    def size(self) -> int:
        return self._file.size()

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()


class PacedDisk:
    __slots__ = ("_disk", "_pace")

    def __init__(self, disk: Disk, pace: Pace) -> None:
        self._disk = disk
        self._pace = pace

    def open(self, path: str, /, *, create: bool = False) -> PacedFile:
        return PacedFile(self._disk.open(path, create=create), self._pace)

    def list(self, path: str, /) -> Names:
        return self._disk.list(path)

    def exists(self, path: str, /) -> bool:
        return self._disk.exists(path)

    def make_dir(self, path: str, /) -> None:
        self._disk.make_dir(path)

    def rename(self, old: str, new: str, /) -> None:
        self._disk.rename(old, new)

    def remove(self, path: str, /) -> None:
        self._disk.remove(path)

    def sync_dir(self, path: str, /) -> None:
        self._disk.sync_dir(path)

    def free_bytes(self) -> int:
        return self._disk.free_bytes()

    def total_bytes(self) -> int:
        return self._disk.total_bytes()
