"""Lock of a log directory: one process at a time; the kernel releases it when the process ends."""

import fcntl
import os

LOCK_NAME = ".lock"


class DirectoryInUse(Exception):
    """Another process serves from this log directory; the message names it."""

    def __init__(self, directory: str, holder: str) -> None:
        super().__init__(
            f"log directory {directory} is in use by process {holder}; end it, or choose another log.dirs"
        )
        self.holder = holder  # its process id, or "unknown"


class DirectoryLock:
    """Held from its making until `release`, or until the process ends."""

    __slots__ = ("_descriptor",)

    def __init__(self, directory: str) -> None:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        descriptor = os.open(f"{directory}/{LOCK_NAME}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 64, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise DirectoryInUse(directory, holder) from None
        # Only for the message above: the lock is the kernel's, so a stale number harms nobody.
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
