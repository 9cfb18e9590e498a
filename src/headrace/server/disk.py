"""Real disk: storage's `Disk` protocol on a directory of the file system.

Files have mode 0600, directories 0700. A path is relative and never leaves the root. A file closes itself
when nothing refers to it any more. Every thread may use the disk, but one thread at a time reads, appends to
or closes a file; a `pin` is another descriptor of the same file, which stays open when the first is closed.
"""

import errno
import os
import sys
from typing import NoReturn

from headrace.storage.disk import SyncFailed

READ_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)  # Linux only; elsewhere every read is a plain one
# Says "this file system has no such flag" (tmpfs, overlays of older kernels), not that the read failed.
NOWAIT_UNKNOWN = (errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS)


Names = list[str]  # a disk has a method of the name `list`


class PathEscapes(ValueError):
    """A path is absolute, empty or outside the root: a bug of the caller, never a user's error."""


class RealFile:
    """An open file. Appending goes through O_APPEND, so that no cursor is shared with the readers."""

    __slots__ = ("_descriptor", "_disk", "_opened_as")

    def __init__(self, disk: "RealDisk", path: str, descriptor: int) -> None:
        self._disk = disk
        self._opened_as = path
        self._descriptor = descriptor  # -1 once closed, which the kernel answers with EBADF

    def __repr__(self) -> str:
        return f"RealFile({self.path})"

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    @property
    def path(self) -> str:
        """Asked of the kernel, which knows of every rename; without books of our own there is
        nothing to leak.
        """
        if self._descriptor < 0 or sys.platform != "linux":
            return self._opened_as
        real = os.readlink(f"/proc/self/fd/{self._descriptor}").removesuffix(" (deleted)")
        return real.removeprefix(self._disk.real_root)

    def append(self, data: bytes | bytearray | memoryview, /) -> None:
        written = os.write(self._descriptor, data)
        if written != len(data):
            # A signal, a nearly full disk, or more than the 2 GiB that one call takes.
            rest = memoryview(data)
            while written != len(rest):
                rest = rest[written:]
                written = os.write(self._descriptor, rest)

    def read(self, position: int, size: int, /) -> bytes:
        data = os.pread(self._descriptor, size, position)
        if len(data) == size or not data:
            return data
        chunks = [data]
        missing = size - len(data)
        while missing:
            data = os.pread(self._descriptor, missing, position + size - missing)
            if not data:
                break  # the end of the file
            chunks.append(data)
            missing -= len(data)
        return b"".join(chunks)

    def try_read_into(self, position: int, view: memoryview) -> bool:
        """Fill the view if that does not wait for the device. False: read it on a pin, in a thread."""
        if self._disk.can_read_nowait:
            try:
                return os.preadv(self._descriptor, [view], position, READ_NOWAIT) == len(view)
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno not in NOWAIT_UNKNOWN:
                    raise
                self._disk.can_read_nowait = False
        return os.preadv(self._descriptor, [view], position) == len(view)

    def truncate(self, size: int, /) -> None:
        os.ftruncate(self._descriptor, size)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def sync(self) -> None:
        # fdatasync writes the size too: without it the data could not be read back. It leaves out the times.
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise SyncFailed(error.errno, error.strerror, self._opened_as) from error

    def pin(self) -> "RealFile":
        """The same open file under another descriptor, for a reader that must not care who closes
        this one.
        """
        return RealFile(self._disk, self._opened_as, os.dup(self._descriptor))

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class RealDisk:
    __slots__ = ("can_read_nowait", "real_root", "root")

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)
        self.can_read_nowait = bool(READ_NOWAIT)  # until the file system says that it cannot
        os.makedirs(self.root, mode=0o700, exist_ok=True)
        self.real_root = os.path.realpath(self.root) + "/"  # as the kernel tells names

    def __repr__(self) -> str:
        return f"RealDisk({self.root})"

    def _real(self, path: str) -> str:
        if path in ("", "."):
            return self.root
        if path[0] == "/" or "\0" in path or ".." in path.split("/"):
            raise PathEscapes(f"{path!r} is not a path inside {self.root}")
        return f"{self.root}/{path}"

    def open(self, path: str, /, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(self, path, os.open(self._real(path), flags, 0o600))

    def list(self, path: str, /) -> Names:
        return sorted(os.listdir(self._real(path)))

    def exists(self, path: str, /) -> bool:
        return os.path.lexists(self._real(path))

    def make_dir(self, path: str, /) -> None:
        os.makedirs(self._real(path), mode=0o700, exist_ok=True)

    def rename(self, old: str, new: str, /) -> None:
        os.rename(self._real(old), self._real(new))

    def remove(self, path: str, /) -> None:
        real = self._real(path)
        try:
            os.unlink(real)
        except (IsADirectoryError, PermissionError):  # macOS says EPERM for a directory
            os.rmdir(real)

    def sync_dir(self, path: str, /) -> None:
        descriptor = os.open(self._real(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            raise SyncFailed(error.errno, error.strerror, path) from error
        finally:
            os.close(descriptor)

    def total_bytes(self) -> int:
        state = os.statvfs(self.root)
        return state.f_blocks * state.f_frsize

    def free_bytes(self) -> int:
        state = os.statvfs(self.root)
        return state.f_bavail * state.f_frsize


class UnusableDisk:
    """A log directory that cannot be used: whatever is asked of it fails with the same error."""

    __slots__ = ("_error",)

    def __init__(self, error: OSError) -> None:
        self._error = error

    def _refuse(self) -> NoReturn:
        raise OSError(self._error.errno, self._error.strerror, self._error.filename)

    def open(self, path: str, /, *, create: bool = False) -> RealFile:
        self._refuse()

    def list(self, path: str, /) -> Names:
        self._refuse()

    def exists(self, path: str, /) -> bool:
        self._refuse()

    def make_dir(self, path: str, /) -> None:
        self._refuse()

    def rename(self, old: str, new: str, /) -> None:
        self._refuse()

    def remove(self, path: str, /) -> None:
        self._refuse()

    def sync_dir(self, path: str, /) -> None:
        self._refuse()

    def free_bytes(self) -> int:
        self._refuse()

    def total_bytes(self) -> int:
        self._refuse()
