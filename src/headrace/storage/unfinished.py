"""Bytes behind the end of a log: pieces of a batch that is written ahead, or what a failed write left.

They are not a part of the log, and have to be gone before anything else is written to the active segment.
"""

from typing import TYPE_CHECKING

from headrace.records.batch import ATTRIBUTES_AT, HEADER_BYTES, BatchHeader
from headrace.records.checksum import crc32c
from headrace.records.errors import CorruptBatch
from headrace.storage.config import LogConfig
from headrace.storage.disk import File
from headrace.storage.errors import is_transient

if TYPE_CHECKING:
    from headrace.storage.log_state import LogState


class Unfinished:
    """A batch of which the first `written` bytes lie behind the end of the log."""

    __slots__ = ("_batch", "_begins_with", "_config", "_crc", "_header", "_summed", "written")

    def __init__(self, batch: memoryview, header: BatchHeader, config: LogConfig) -> None:
        """It has its offset and its leader epoch, and was checked by these settings; not its checksum."""
        self._batch = batch
        self._begins_with = bytes(batch[:HEADER_BYTES])
        self._header = header
        self._config = config
        self._summed = ATTRIBUTES_AT  # up to here the checksum is known
        self._crc = 0
        self.written = 0

    def next_piece(self, piece_bytes: int) -> memoryview:
        """Its checksum is computed, too. Empty: not more than such a piece is left. CorruptBatch: all bytes
        were looked at, and one of them is wrong.
        """
        batch, written = self._batch, self.written
        is_last = len(batch) - written <= piece_bytes
        end = len(batch) if is_last else written + piece_bytes
        if end > self._summed:
            self._crc = crc32c(batch[self._summed : end], self._crc)
            self._summed = end
        if not is_last:
            return batch[written:end]
        if self._crc != self._header.crc:
            raise CorruptBatch("the batch's checksum does not match its bytes")
        return batch[:0]

    def checked(self, batch: memoryview, config: LogConfig) -> BatchHeader | None:
        """The header of this batch, if all of it was checked, by these settings."""
        is_checked = self._summed == len(batch) and self._crc == self._header.crc
        return self._header if is_checked and self._config is config and self.is_of(batch) else None

    def is_of(self, batch: memoryview) -> bool:
        """Whether it is this batch, with the same offset and epoch."""
        return (
            batch.obj is self._batch.obj
            and len(batch) == len(self._batch)
            and batch[:HEADER_BYTES] == self._begins_with
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
