"""Disk that fails by script, never at random, so that a failure can be repeated.

It wraps another disk and records every call, unless that is turned off. A `Fault` waits for the calls it is
meant for (an operation, a part of a path, a count of such calls to let pass) and then acts: the host
stops, the call fails with an errno after writing a part, or a bit changes on the way. `space_bytes` may still
be written before ENOSPC.
"""

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from headrace.storage.disk import Disk, File, SyncFailed

Operation = Literal[
    "open", "create", "list", "make_dir", "rename", "remove", "sync_dir", "append", "read", "truncate", "sync"
]
# What leaves a mark on the disk: the places where a crash makes a difference.
CHANGES: frozenset[Operation] = frozenset(
    ("create", "make_dir", "rename", "remove", "sync_dir", "append", "truncate", "sync")
)
# What needs a file descriptor, and so meets EMFILE.
OPENS: frozenset[Operation] = frozenset(("open", "create", "list", "sync_dir"))
# What needs space, and so meets ENOSPC or EDQUOT; on a file system that copies on write even a removal does.
SPACE_NEEDING: frozenset[Operation] = frozenset(
    ("create", "make_dir", "rename", "remove", "append", "truncate")
)


class DiskCrashed(BaseException):
    """The host stopped here. Not an `Exception`, so that no handler takes it for an error to deal with."""


@dataclass(slots=True)
class Call:
    operation: Operation
    path: str
    size: int = 0  # bytes of an append or a read, the new size of a truncate


@dataclass(slots=True)
class Crash:
    """Stop before the call takes effect; of an append, the first `written` bytes still arrive."""

    written: int = 0


@dataclass(slots=True)
class Fail:
    """Raise OSError(code); of an append, the first `written` bytes arrive before."""

    code: int = errno.EIO
    written: int = 0


@dataclass(slots=True)
class Flip:
    """Change one bit of what is appended or read, silently; counted from the first byte's lowest bit."""

    bit: int


@dataclass(slots=True)
class Fault:
    action: Crash | Fail | Flip
    operation: Operation | frozenset[Operation] | None = None  # None: any call that changes something
    path: str = ""  # a part of the path
    skip: int = 0  # matching calls that pass before it strikes
    times: int = 1  # matching calls it then strikes

    def strikes(self, operation: Operation, path: str) -> bool:
        wanted = CHANGES if self.operation is None else self.operation
        if operation != wanted and (isinstance(wanted, str) or operation not in wanted):
            return False
        if self.path not in path or self.times == 0:
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.times -= 1
        return True


class FaultyFile:
    __slots__ = ("_disk", "_file")

    def __init__(self, disk: "FaultyDisk", file: File) -> None:
        self._disk = disk
        self._file = file

    @property
    def path(self) -> str:
        return self._file.path

    def append(self, data: bytes | bytearray | memoryview, /) -> None:
        if self._disk.is_plain:
            self._file.append(data)
            return
        action = self._disk.meet("append", self.path, len(data))
        if isinstance(action, Flip):
            data = _flipped(data, action.bit)
        elif action is not None:
            self._file.append(memoryview(data)[: action.written])
            self._disk.stop(action, self.path)
        room = self._disk.space_bytes
        if room is None:
            self._file.append(data)
            return
        written = min(room, len(data))
        self._file.append(memoryview(data)[:written])
        self._disk.space_bytes = room - written
        if written < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)

    def read(self, position: int, size: int, /) -> bytes:
        if self._disk.is_plain:
            return self._file.read(position, size)
        action = self._disk.meet("read", self.path, size)
        if isinstance(action, Flip):
            return _flipped(self._file.read(position, size), action.bit)
        self._disk.stop(action, self.path)
        return self._file.read(position, size)

    def truncate(self, size: int, /) -> None:
        if self._disk.is_plain:
            self._file.truncate(size)
            return
        self._disk.stop(self._disk.meet("truncate", self.path, size), self.path)
        before = self._file.size()
        self._file.truncate(size)
        self._disk.freed(before - size)

    def size(self) -> int:
        self._disk.refuse_after_crash()
        return self._file.size()

    def sync(self) -> None:
        if self._disk.is_plain:
            self._file.sync()
            return
        self._disk.stop(self._disk.meet("sync", self.path), self.path, SyncFailed)
        self._file.sync()

    def close(self) -> None:
        self._file.close()  # also after a crash: a `finally` must not hide what happened


class FaultyDisk:
    def __init__(
        self,
        disk: Disk,
        faults: Iterable[Fault] = (),
        *,
        space_bytes: int | None = None,
        keeps_calls: bool = True,
    ) -> None:
        self.disk = disk
        self.faults = list(faults)
        self.space_bytes = space_bytes  # None: without end
        self.calls: list[Call] = []
        self._keeps_calls = keeps_calls  # not where it serves for hours: they are one object each
        self.is_crashed = False

    @property
    def is_plain(self) -> bool:
        """Nothing is recorded and no fault waits: a broker in a test mostly has such a disk, and starts on it
        in milliseconds.
        """
        return not (self.faults or self._keeps_calls or self.is_crashed or self.space_bytes is not None)

    def changes(self) -> list[Call]:
        """The calls so far that left a mark: each is a point where a crash would have cut."""
        return [call for call in self.calls if call.operation in CHANGES]

    # --- the Disk protocol ---------------------------------------------------------------------------------

    def open(self, path: str, /, *, create: bool = False) -> FaultyFile:
        if self.is_plain:
            return FaultyFile(self, self.disk.open(path, create=create))
        operation: Operation = "create" if create and not self.disk.exists(path) else "open"
        self.stop(self.meet(operation, path), path)
        return FaultyFile(self, self.disk.open(path, create=create))

    def list(self, path: str, /) -> list[str]:
        if not self.is_plain:
            self.stop(self.meet("list", path), path)
        return self.disk.list(path)

    def exists(self, path: str, /) -> bool:
        self.refuse_after_crash()
        return self.disk.exists(path)

    def make_dir(self, path: str, /) -> None:
        self.stop(self.meet("make_dir", path), path)
        self.disk.make_dir(path)

    def rename(self, old: str, new: str, /) -> None:
        if not self.is_plain:
            self.stop(self.meet("rename", new), new)
        self.disk.rename(old, new)

    def remove(self, path: str, /) -> None:
        self.stop(self.meet("remove", path), path)
        size = self._size_of(path)
        self.disk.remove(path)
        self.freed(size)

    def sync_dir(self, path: str, /) -> None:
        if self.is_plain:
            self.disk.sync_dir(path)
            return
        action = self.meet("sync_dir", path)
        is_unopened = isinstance(action, Fail) and action.code in (errno.EMFILE, errno.ENFILE)
        self.stop(action, path, OSError if is_unopened else SyncFailed)
        self.disk.sync_dir(path)

    def total_bytes(self) -> int:
        return self.disk.total_bytes()

    def free_bytes(self) -> int:
        self.refuse_after_crash()
        return self.disk.free_bytes() if self.space_bytes is None else self.space_bytes

    # --- what its files and itself ask before each call ----------------------------------------------------

    def meet(self, operation: Operation, path: str, size: int = 0) -> Crash | Fail | Flip | None:
        """Records the call and returns the fault for it, if there is one."""
        self.refuse_after_crash()
        if self._keeps_calls:
            self.calls.append(Call(operation, path, size))
        struck: Crash | Fail | Flip | None = None
        for fault in self.faults:
            if fault.strikes(operation, path) and struck is None:
                struck = fault.action
        return struck

    def stop(self, action: Crash | Fail | Flip | None, path: str, failure: type[OSError] = OSError) -> None:
        if isinstance(action, Crash):
            self.is_crashed = True
            raise DiskCrashed(f"at call {len(self.calls)}: {self.calls[-1] if self.calls else path}")
        if isinstance(action, Fail):
            raise failure(action.code, os.strerror(action.code), path)

    def refuse_after_crash(self) -> None:
        if self.is_crashed:
            raise DiskCrashed("the host has stopped already")

    def freed(self, size: int) -> None:
        if self.space_bytes is not None:
            self.space_bytes += max(size, 0)

    def _size_of(self, path: str) -> int:
        if self.space_bytes is None:
            return 0
        try:
            file = self.disk.open(path)
        except IsADirectoryError:
            return 0
        try:
            return file.size()
        finally:
            file.close()


def _flipped(data: bytes | bytearray | memoryview, bit: int) -> bytes:
    damaged = bytearray(data)
    if damaged:
        damaged[(bit >> 3) % len(damaged)] ^= 1 << (bit & 7)
    return bytes(damaged)
