"""Disk errors of a log directory: its first I/O error, which all its logs share (`DirectoryStatus`).

After an I/O error the content of the disk is unknown, and a later fsync that succeeds proves nothing: the
error stays until the process starts again and reads everything.
"""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from headrace.storage.errors import DiskFull, LogClosed, LogOffline, StorageError, is_transient


class DirectoryStatus:
    __slots__ = ("error", "is_closed")

    def __init__(self) -> None:
        self.error: OSError | None = None  # the first one, for ever
        self.is_closed = False

    def close(self) -> None:
        """A clean shutdown: every log of the directory refuses from now on, by the check it makes anyway."""
        self.is_closed = True
        self.error = self.error or OSError("the broker has stopped")

    def offline(self) -> StorageError:
        if self.is_closed:
            return LogClosed("the broker has stopped and closed its logs")
        return LogOffline(f"the log directory is offline: {self.error}")

    def met(self, error: OSError) -> StorageError:
        """The error to raise for a failed call to the disk."""
        if is_transient(error):
            return DiskFull(str(error))
        if self.error is None:
            self.error = error
        return self.offline()


class HasStatus(Protocol):
    _status: DirectoryStatus


_H = TypeVar("_H", bound=HasStatus)
_P = ParamSpec("_P")
_R = TypeVar("_R")


def translates_errors(
    method: Callable[Concatenate[_H, _P], _R],
) -> Callable[Concatenate[_H, _P], _R]:
    """Errors of the disk leave the method as DiskFull or LogOffline, never as OSError."""

    @wraps(method)
    def checked(owner: _H, /, *arguments: _P.args, **options: _P.kwargs) -> _R:
        try:
            return method(owner, *arguments, **options)
        except OSError as error:
            raise owner._status.met(error) from error

    return checked
