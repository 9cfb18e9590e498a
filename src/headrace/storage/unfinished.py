"""Bytes behind the end of a log: pieces of a batch that is written ahead, or what a failed write left.

They are not a part of the log, and have to be gone before anything else is written to the active segment.
"""

from typing import TYPE_CHECKING

from headrace.records.batch import HEADER_BYTES
from headrace.storage.disk import File
from headrace.storage.errors import is_transient

if TYPE_CHECKING:
    from headrace.storage.log_state import LogState


class Unfinished:
    """A batch of which the first `written` bytes lie behind the end of the log."""

    __slots__ = ("_batch", "_header", "written")

    def __init__(self, batch: memoryview) -> None:
        """It has its offset and its leader epoch."""
        self._batch = batch
        self._header = bytes(batch[:HEADER_BYTES])
        self.written = 0

    def is_of(self, batch: memoryview) -> bool:
        """Whether it is this batch, with the same offset and epoch."""
        return (
            batch.obj is self._batch.obj
            and len(batch) == len(self._batch)
            and batch[:HEADER_BYTES] == self._header
        )


def drop_others(log: "LogState", batch: memoryview) -> None:
    """Only pieces of this batch may stay. Before the file is used: it may be closed."""
    if log.unfinished is not None and not log.unfinished.is_of(batch):
        drop_unfinished(log)


def take_rest(log: "LogState", batch: memoryview) -> memoryview:
    """What is still to be written of the batch: all of it is a part of the log then."""
    unfinished, log.unfinished = log.unfinished, None
    return batch if unfinished is None else batch[unfinished.written :]


def drop_unfinished(log: "LogState") -> None:
    """Cut the pieces off. Where that has to wait for space, the file is closed: see `release_active`."""
    if log.unfinished is not None:
        log.unfinished = None
        if log.active.log is not None:
            cut_back(log, log.active.log, log.active.size)


def cut_back(log: "LogState", file: File, position: int) -> None:
    """A part of a batch may lie behind the end."""
    try:
        file.truncate(position)
    except OSError as error:
        if not is_transient(error):
            raise
        release_active(log)


def release_active(log: "LogState") -> None:
    """The files hold more than they should: close them. The next use opens them again, which repairs them or
    fails.
    """
    log.unfinished = None
    log.active.release()
    log.tail.clear()
