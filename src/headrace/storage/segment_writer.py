"""Writer of a new segment from whole batches (`.cleaned`), for jobs that replace segments."""

from headrace.storage.disk import Disk
from headrace.storage.offset_index import OffsetIndex
from headrace.storage.open_files import OpenFiles
from headrace.storage.swapping import CLEANED
from headrace.storage.time_index import TimeIndex
from headrace.storage.transaction_index import AbortedTransaction, TransactionIndex


class SegmentWriter:
    __slots__ = (
        "_files",
        "_index",
        "_interval_bytes",
        "_log",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_time_index",
        "_transaction_index",
        "_unindexed_bytes",
        "_waiting",
        "_write_bytes",
        "end_offset",
        "size",
    )

    def __init__(
        self, disk: Disk, path: str, base_offset: int, *, interval_bytes: int, write_bytes: int
    ) -> None:
        self._files = OpenFiles()
        self._interval_bytes = interval_bytes
        self._write_bytes = write_bytes
        self._log = disk.open(path + ".log" + CLEANED, create=True)
        self._log.truncate(0)
        self._index = OffsetIndex(disk, self._files, path + ".index" + CLEANED, base_offset)
        self._time_index = TimeIndex(disk, self._files, path + ".timeindex" + CLEANED, base_offset)
        self._transaction_index = TransactionIndex(disk, self._files, path + ".txnindex" + CLEANED)
        self._index.create()
        self._time_index.create()
        self._max_timestamp = -1
        self._max_timestamp_offset = base_offset
        self._unindexed_bytes = 0
        self._waiting = bytearray()
        self.size = 0
        self.end_offset = base_offset  # after the last batch

    def add(self, batch: bytes | memoryview, last_offset: int, max_timestamp: int) -> None:
        """The next batch, indexed as appending would have done it."""
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        if self._unindexed_bytes > self._interval_bytes:
            self._index.add(last_offset, self.size)
            self._time_index.add(self._max_timestamp, self._max_timestamp_offset)
            self._unindexed_bytes = 0
        self.add_unread(batch)
        self.end_offset = last_offset + 1

    def add_unread(self, batch: bytes | memoryview) -> None:
        """A batch of which not even the header can be trusted."""
        self._waiting += batch
        self.size += len(batch)
        self._unindexed_bytes += len(batch)
        if len(self._waiting) >= self._write_bytes:
            self._write()

    def _write(self) -> None:
        self._log.append(self._waiting)
        self._waiting.clear()

    def finish(self, aborted: list[AbortedTransaction], *, had_aborted: bool) -> None:
        """All of it durable, but for the names. A transaction index is written where there was one, even an
        empty one, to replace it.
        """
        self._write()
        self._log.sync()
        self._time_index.add(self._max_timestamp, self._max_timestamp_offset)
        self._time_index.sync()
        self._index.sync()
        if had_aborted:
            self._transaction_index.create()
            for one in aborted:
                self._transaction_index.add(one)
            self._transaction_index.sync()

    def close(self) -> None:
        self._log.close()
