"""Loading of a coordinator's partition: reads and replays it from its start, while the node serves requests.

Jobs read the bytes, a chunk at a time; the records in them are replayed in slices of half a millisecond. The
loader also replays what is appended in the meantime: loading ends at the end of the log.

Committed offsets, of which there may be millions, and the states of transactions are read many at a time by
compiled code.
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
from headrace.protocol._offset_commits import CommitReader
from headrace.protocol._transaction_states import StateReader
from headrace.protocol.coordinator_records import GROUP_RECORDS, TRANSACTION_RECORDS, decode
from headrace.protocol.coordinator_records.offset_commits import CommittedTopic
from headrace.protocol.errors import ProtocolError
from headrace.records.batch import BatchHeader
from headrace.records.errors import BadRecords
from headrace.records.reader import batches, open_records, read_rows
from headrace.storage.disk import Disk
from headrace.storage.errors import DiskFull, StorageError, is_transient
from headrace.storage.jobs import JobKind
from headrace.storage.log import PartitionLog
from headrace.storage.partition_producers import end_marker_of

if TYPE_CHECKING:
    from headrace.node.coordinators.shard import Shard

# The cost of a slice. Decoding and replaying one record costs 1, which is some 6 µs: a slice takes half a
# millisecond. With shorter ones a load takes longer beside clients that ask all the time.
SLICE_COST = 100
# Committed offsets cost less. Compiled code reads so many records at once; so many of them cost 1, and so
# many groups or topics among them.
RECORDS_PER_READ = 256
OFFSETS_PER_COST = 12
NAMES_PER_COST = 4
# So do states of transactions: records and their partitions that are read at once, and how many cost 1.
STATES_PER_READ = 128
STATES_PER_COST = 5
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
        "_reports",
        "_rewrites",
        "_shard",
        "_steps",
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
        self._steps: Iterator[int] | None = None  # each replays some records of the chunk, and tells its cost
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
        self._steps = self._replayed(result)
        self.expired(now)

    def expired(self, now: Now) -> None:
        """The next slice."""
        steps = self._steps
        if steps is None or self._is_pointless:
            return
        left = SLICE_COST
        try:
            while left > 0:
                cost = next(steps, None)
                if cost is None:
                    self._steps = None
                    self.go_on(now)
                    return
                left -= cost
        except BadRecords as fault:
            # a damaged batch: nobody can say what it decided, so nothing is decided on top of it
            self._skipped(self._offset, fault)
            self._shard.load_failed(now)
            return
        self._deadlines.add(Instant(now.mono + PAUSE_SECONDS), self)

    def _replayed(self, chunk: bytes) -> Iterator[int]:
        if self._shard.kinds is TRANSACTION_RECORDS:
            yield from self._replayed_states(chunk)
            return
        for position, header in batches(chunk):
            yield from self._replayed_batch(chunk, position, header)

    def _replayed_states(self, chunk: bytes) -> Iterator[int]:
        """The same for the log of transactions. The batches that compiled code does not know are left to the
        general decoder, which knows why.
        """
        from headrace.machines.transactions.transaction import State, Transaction

        replay = self._machine.replay
        position = 0
        while True:
            reader = StateReader(chunk, position, self._offset, Transaction, tuple(State))
            while (entries := reader.read(STATES_PER_READ)) is not None:
                cost = 1 + reader.items // STATES_PER_COST
                for entry in entries:
                    if type(entry) is tuple:  # another record than a state
                        offset, key, value = entry
                        self._replay(offset, key, value, None)
                        cost += 1
                    else:
                        replay(entry)
                self._offset = reader.next_offset
                yield cost
            found = next(batches(chunk, reader.position), None)
            if found is None:
                return
            yield from self._replayed_batch(chunk, *found)
            position = found[0] + found[1].size

    def _replayed_batch(self, chunk: bytes, position: int, header: BatchHeader) -> Iterator[int]:
        if header.last_offset < self._offset:
            return
        if header.is_control:
            end = position + header.size
            marker = end_marker_of(memoryview(chunk)[position:end], header)
            if marker is not None:
                self._machine.replay_end(header.producer_id, not marker.is_aborted)
            yield 1
        elif self._shard.kinds is GROUP_RECORDS and not header.is_transactional:
            yield from self._many_at_once(chunk, position, header)
        else:
            yield from self._one_by_one(chunk, position, header)
        self._offset = header.last_offset + 1

    def _many_at_once(self, chunk: bytes, position: int, header: BatchHeader) -> Iterator[int]:
        records = open_records(chunk, position, header)
        reader = CommitReader(
            records, header.record_count, header.base_offset, header.base_timestamp, self._offset
        )
        replay = self._machine.replay
        left = header.record_count
        while (entries := reader.read(RECORDS_PER_READ)) is not None:
            cost = 1 + min(left, RECORDS_PER_READ) // OFFSETS_PER_COST + len(entries) // NAMES_PER_COST
            left -= RECORDS_PER_READ
            for entry in entries:
                first, second, third = entry
                if type(first) is str:
                    replay(CommittedTopic(first, second, third))
                else:  # another record than an offset: its offset, key and value
                    self._replay(first, second, third, None)
                    cost += 1
            yield cost

    def _one_by_one(self, chunk: bytes, position: int, header: BatchHeader) -> Iterator[int]:
        writer = None
        if header.is_transactional:
            writer = Writer(header.producer_id, header.producer_epoch)
        for offset, _, key, value, _ in read_rows(chunk, position, header):
            if offset >= self._offset:
                self._replay(offset, key, value, writer)
            yield 1

    def _replay(self, offset: int, key: bytes | None, value: bytes | None, writer: Writer | None) -> None:
        if key is None:
            return
        try:
            record = decode(self._shard.kinds, key, value)
        except ProtocolError as fault:
            self._skipped(offset, fault)
            return
        if record is not None:
            self._machine.replay(record, writer)

    def _skipped(self, offset: int, fault: Exception) -> None:
        """For the operator: what could not be read, and where."""
        self._reports.report(
            "error",
            "coordinator_record_unreadable",
            partition=f"{self._partition.topic}-{self._partition.index}",
            offset=offset,
            error=str(fault),
        )
