"""The file of the audit log: JSON lines, only for the broker's own user, rotated by size.

A thread writes, so that a slow disk holds up no client. The entries that wait for it are limited: what is too
much, or cannot be written because the disk is full, is counted, the operator's log says so, and the audit log
itself has an entry about the gap once it can be written again. The broker serves on.
"""

import asyncio
import errno
import os
import time
from collections.abc import Iterable
from json import dumps
from typing import Any, Final, Protocol

from headrace.server.jobs import Threads
from headrace.server.logs import Log

OWN_USER_ONLY: Final = 0o600

# Entries that wait for the disk: a few megabytes. One request of a client may change thousands of things.
WAITING_MAX: Final = 20_000

# Errors that do not keep the broker from starting: it would serve on, too, if they came later.
FULL: Final = (errno.ENOSPC, errno.EDQUOT)

Entries = list[tuple[int, dict[str, Any]]]  # wall time in milliseconds, facts


class AuditFile:
    """The current file and the older ones: `audit.log`, `audit.log.1`, … One thread at a time uses it."""

    def __init__(self, path: str, *, bytes_max: int, files: int) -> None:
        """`files`: how many there are at the most, with the current one."""
        self.path = path
        self._bytes_max = bytes_max
        self._files = files
        self._descriptor = -1
        self._size = 0

    def open(self) -> None:
        """OSError if that is not possible."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self.path, flags, OWN_USER_ONLY)
        try:
            os.fchmod(descriptor, OWN_USER_ONLY)  # also one that was there before
            self._size = os.fstat(descriptor).st_size
            if self._size and os.pread(descriptor, 1, self._size - 1) != b"\n":
                self._size += os.write(descriptor, b"\n")  # a process ended in the middle of a line
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def write(self, lines: Iterable[bytes]) -> None:
        """OSError: nothing of the last lines was written, and earlier ones may have been."""
        self._reopen_if_moved()
        batch: list[bytes] = []
        size = 0
        for line in lines:
            if self._size + size + len(line) > self._bytes_max and self._size + size:
                self._append(b"".join(batch))
                self._rotate()
                batch, size = [], 0
            batch.append(line)
            size += len(line)
        self._append(b"".join(batch))

    def _append(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError:
            os.ftruncate(self._descriptor, self._size)  # no half line
            raise
        self._size += len(data)

    def _rotate(self) -> None:
        self.close()
        for number in range(self._files - 1, 0, -1):
            newer = self.path if number == 1 else f"{self.path}.{number - 1}"
            try:
                os.replace(newer, f"{self.path}.{number}")
            except FileNotFoundError:
                pass
        if self._files == 1:
            os.unlink(self.path)
        self.open()

    def _reopen_if_moved(self) -> None:
        """Somebody else may have moved or removed the file; and after an error there is none."""
        if self._descriptor >= 0:
            try:
                there, ours = os.stat(self.path, follow_symlinks=False), os.fstat(self._descriptor)
                if (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino):
                    return
            except FileNotFoundError:
                pass
            self.close()
        self.open()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Counts(Protocol):
    """For metrics: entries that were written, and those that were not."""

    audit_written: int
    audit_lost: int


class AuditLog:
    """Takes entries in the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, file: AuditFile, log: Log, counts: "Counts") -> None:
        self._thread = Threads(loop, "audit", 1)
        self._file = file
        self._log = log
        self._counts = counts
        self._waiting: Entries = []
        self._under_way = 0  # entries that the thread writes now
        self._gap = 0  # lost, and not told in the file yet
        self._told = 0  # how many of those the entries under way tell

    def open(self) -> None:
        """OSError if the file cannot be used. A full disk is reported: there may be room later."""
        try:
            self._file.open()
        except OSError as error:
            if error.errno not in FULL:
                raise
            self._report(error)

    @property
    def is_idle(self) -> bool:
        """Everything is written, or lost."""
        return not self._waiting and not self._under_way

    def write(self, wall_ms: int, entries: list[dict[str, Any]]) -> None:
        room = max(0, WAITING_MAX - len(self._waiting))
        self._waiting += [(wall_ms, entry) for entry in entries[:room]]
        if len(entries) > room:
            self.lose(len(entries) - room, "the disk is too slow")
        self._begin()

    def _begin(self) -> None:
        if self._under_way or not self._waiting:
            return
        entries, self._waiting = self._waiting, []
        self._under_way = len(entries)
        self._told = self._gap
        if self._told:
            lost = {"event": "lost", "count": self._told, "text": "entries could not be written"}
            entries.insert(0, (entries[0][0], lost))
        file = self._file
        try:
            self._thread.run(lambda: file.write(map(line_of, entries)), self._done)
        except BlockingIOError as error:  # no thread can be started
            self._done(error)

    def _done(self, result: Any) -> None:
        count, self._under_way = self._under_way, 0
        if isinstance(result, Exception):
            self.lose(count, result)
        else:
            self._counts.audit_written += count
            self._gap -= self._told
        self._begin()

    def lose(self, count: int, reason: object) -> None:
        """The file has an entry about it before the next one."""
        self._counts.audit_lost += count
        self._gap += count
        self._report(reason)

    def _report(self, reason: object) -> None:
        error = f"{reason.strerror}" if isinstance(reason, OSError) else str(reason)
        self._log.sometimes(
            time.monotonic(),
            "error",
            "audit_log_failed",
            path=self._file.path,
            error=error,
            lost=self._counts.audit_lost,
        )

    def close(self) -> None:
        """After the node has stopped, and `is_idle`."""
        self._thread.stop()
        self._file.close()


def line_of(entry: tuple[int, dict[str, Any]]) -> bytes:
    """Whatever clients wrote in names is escaped: a line is ASCII without control characters."""
    wall_ms, facts = entry
    seconds, milliseconds = divmod(wall_ms, 1000)
    moment = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{milliseconds:03d}Z"
    text = dumps({"time": moment} | facts, default=str)
    return text.replace("\x7f", "\\u007f").encode() + b"\n"
