"""Disk protocol: the file operations that storage needs. A real disk, memory and a faulty disk implement it.

Paths are strings with forward slashes, relative to the disk's root. Errors are `OSError` with errno:
ENOSPC, EDQUOT, EMFILE, ENFILE and EAGAIN mean that a resource has run out and may be available again later;
ENOENT means that the file does not exist. Any other error is an I/O error, after which the log directory must
not be trusted; so is `SyncFailed`, whatever its errno.

Only data that was `sync`ed survives a power failure; only data that was `append`ed survives a killed process.
A new, renamed or removed name is durable after `sync_dir` of its directory.
"""

from typing import Protocol


class SyncFailed(OSError):
    """An fsync failed: the data may be lost, both in memory and on disk."""


class File(Protocol):
    """An open file that grows at its end. Reading and appending never move a shared cursor."""

    @property
    def path(self) -> str:
        """Where it was opened; follows a rename made through the disk."""
        ...

    def append(self, data: bytes | bytearray | memoryview, /) -> None:
        """Write all of data at the end. On an error an unknown prefix may have been written."""
        ...

    def read(self, position: int, size: int, /) -> bytes:
        """Up to size bytes; fewer only at the end of the file."""
        ...

    def truncate(self, size: int, /) -> None: ...

    def size(self) -> int: ...

    def sync(self) -> None:
        """Make the bytes durable, or raise SyncFailed."""
        ...

    def close(self) -> None:
        """Release the descriptor; idempotent."""
        ...


class Disk(Protocol):
    def open(self, path: str, /, *, create: bool = False) -> File:
        """Open for reading and appending; missing directories are the caller's to make."""
        ...

    def list(self, path: str, /) -> list[str]:
        """Names in a directory, sorted; ENOENT when there is no such directory."""
        ...

    def exists(self, path: str, /) -> bool: ...

    def make_dir(self, path: str, /) -> None:
        """The directory and its parents; fine when it is already there."""
        ...

    def rename(self, old: str, new: str, /) -> None:
        """A file or a directory; replaces a file at the new name, atomically. Open files follow."""
        ...

    def remove(self, path: str, /) -> None:
        """A file, or an empty directory."""
        ...

    def sync_dir(self, path: str, /) -> None:
        """Make the names in it durable, or raise SyncFailed; another OSError when it cannot be opened."""
        ...

    def free_bytes(self) -> int: ...

    def total_bytes(self) -> int: ...


class Span:
    """A range of a file that is sent as it is: the server reads it when it sends it."""

    __slots__ = ("file", "position", "size")

    def __init__(self, file: File, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size

    def __repr__(self) -> str:
        return f"Span({self.file.path}, {self.position}+{self.size})"

    def read(self) -> bytes:
        return self.file.read(self.position, self.size)


def write_atomically(disk: Disk, path: str, data: bytes, *, sync_name: bool = True) -> None:
    """Replace a small file so that a crash leaves the old or the new content, never a mixture.

    Without `sync_name` a crash of the computer may bring the old content back, until somebody syncs the
    directory.
    """
    directory = path.rpartition("/")[0]
    temporary = path + ".tmp"
    file = disk.open(temporary, create=True)
    try:
        file.truncate(0)
        file.append(data)
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    if sync_name:
        disk.sync_dir(directory)


def read_whole(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    try:
        return file.read(0, file.size())
    finally:
        file.close()
