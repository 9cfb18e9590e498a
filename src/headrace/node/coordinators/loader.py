"""Loading of a coordinator's partition: reads and replays it from its start, while the node serves requests.

Jobs read the bytes, a chunk at a time; the records in them are replayed in slices of about a millisecond. The
loader also replays what is appended in the meantime: loading ends at the end of the log.
"""

from collections.abc import Iterator
from errno import ENOENT
from typing import TYPE_CHECKING, Any

from headrace.base.time import Instant, Now
from headrace.base.values import Value
from headrace.machines.coordination import CoordinatorMachine, Writer
from headrace.node.log_directories import LogDirectories
from headrace.node.partition import Partition
from headrace.node.ports import Ports
from headrace.protocol.coordinator_records import Record, decode
from headrace.protocol.errors import ProtocolError
from headrace.records.batch import BatchHeader
from headrace.records.errors import BadRecords
from headrace.records.reader import batches, read_rows
from headrace.storage.disk import Disk
from headrace.storage.errors import DiskFull, StorageError, is_transient
from headrace.storage.jobs import JobKind
from headrace.storage.log import PartitionLog
from headrace.storage.partition_producers import end_marker_of

if TYPE_CHECKING:
    from headrace.node.coordinators.shard import Shard

# Decoding and replaying a record takes some 6 µs: a slice is two to three milliseconds.
RECORDS_PER_SLICE = 400
# Between slices whoever else is ready has a turn; a deadline that is over already would come without one.
PAUSE_SECONDS = 0.000_1


class ReadChunk(Value):
    path: str
    position: int
    size: int
    kind: JobKind = JobKind.IO

    def run(self, disk: Disk) -> bytes:
        file = disk.open(self.path)
        try:
            return file.read(self.position, self.size)
        finally:
            file.close()


class Loader:
    __slots__ = (
        "_chunk_bytes",
        "_deadlines",
        "_directories",
        "_jobs",
        "_lifecycle",
        "_log",
        "_machine",
        "_offset",
        "_partition",
        "_records",
        "_reports",
        "_rewrites",
        "_shard",
        "is_done",
    )

    def __init__(
        self,
        shard: "Shard[Any]",
        partition: Partition,
        log: PartitionLog,
        machine: CoordinatorMachine,
        directories: LogDirectories,
        ports: Ports,
        *,
        chunk_bytes: int,
    ) -> None:
        self._directories = directories
        self._deadlines = ports.deadlines
        self._jobs = ports.jobs
        self._reports = ports.reports
        self._lifecycle = ports.lifecycle
        self._chunk_bytes = chunk_bytes
        self._partition = partition
        self._log = log
        self._machine = machine
        self._shard = shard
        self._offset = log.log_start_offset
        self._records: Iterator[None] | None = None  # each step replays one record of the chunk
        self._rewrites = 0  # of the log, when the chunk was ordered
        self.is_done = False

    def go_on(self, now: Now) -> None:
        """Order the next chunk, or be done."""
        if self._is_pointless:
            return
        try:
            # asked each time: the partition may have moved to another directory since
            log = self._log = self._partition.opened(now)
            span = None
            if self._offset < log.log_end_offset:
                span = log.read(
                    max(self._offset, log.log_start_offset),
                    max_bytes=self._chunk_bytes,
                    limit_offset=log.log_end_offset,
                    at_least_one=True,
                )
        except StorageError as fault:
            self._shard.disk_refused(now, fault)
            return
        if span is None:
            self._shard.loaded(now, self._machine)
            return
        self._rewrites = log.rewrites
        job = ReadChunk(span.file.path, span.position, span.size)
        self._jobs.run(self._partition.directory, "loading", job, self._chunk_read)

    @property
    def _is_pointless(self) -> bool:
        return self._partition.is_deleted or self._shard.is_done or self._lifecycle.is_stopping

    def _chunk_read(self, now: Now, result: Any) -> None:
        if self._partition.log is not self._log:
            self.go_on(now)  # it moved meanwhile: the same log lies elsewhere
            return
        if isinstance(result, OSError):
            if result.errno == ENOENT:
                self.go_on(now)  # the segment was cleaned or deleted meanwhile: its successor has it
            elif is_transient(result):
                self._shard.disk_refused(now, DiskFull(str(result)))
            else:
                self._directories.go_offline(now, self._partition.directory, result)
                self._shard.load_failed(now)
            return
        if isinstance(result, BaseException):
            raise result
        if self._log.rewrites != self._rewrites:
            self.go_on(now)  # the name may have meant another file already
            return
        self._records = self._replayed(result)
        self.expired(now)

    def expired(self, now: Now) -> None:
        """The next slice."""
        records = self._records
        if records is None or self._is_pointless:
            return
        try:
            for _ in range(RECORDS_PER_SLICE):
                if next(records, self) is self:
                    self._records = None
                    self.go_on(now)
                    return
        except BadRecords as fault:
            # a damaged batch: nobody can say what it decided, so nothing is decided on top of it
            self._skipped(self._offset, fault)
            self._shard.load_failed(now)
            return
        self._deadlines.add(Instant(now.mono + PAUSE_SECONDS), self)

    def _replayed(self, chunk: bytes) -> Iterator[None]:
        for position, header in batches(chunk):
            if header.last_offset < self._offset:
                continue
            if header.is_control:
                end = position + header.size
                marker = end_marker_of(memoryview(chunk)[position:end], header)
                if marker is not None:
                    self._machine.replay_end(header.producer_id, not marker.is_aborted)
                yield
            else:
                yield from self._records_of(chunk, position, header)
            self._offset = header.last_offset + 1

    def _records_of(self, chunk: bytes, position: int, header: BatchHeader) -> Iterator[None]:
        writer = None
        if header.is_transactional:
            writer = Writer(header.producer_id, header.producer_epoch)
        kinds = self._shard.kinds
        replay = self._machine.replay
        for offset, _, key, value, _ in read_rows(chunk, position, header):
            if offset >= self._offset:
                record = self._decoded(kinds, offset, key, value)
                if record is not None:
                    replay(record, writer)
            yield

    def _decoded(self, kinds: Any, offset: int, key: bytes | None, value: bytes | None) -> Record | None:
        if key is None:
            return None
        try:
            return decode(kinds, key, value)
        except ProtocolError as fault:
            self._skipped(offset, fault)
            return None

    def _skipped(self, offset: int, fault: Exception) -> None:
        """For the operator: what could not be read, and where."""
        self._reports.report(
            "error",
            "coordinator_record_unreadable",
            partition=f"{self._partition.topic}-{self._partition.index}",
            offset=offset,
            error=str(fault),
        )
