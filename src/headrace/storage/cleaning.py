"""One pass of compaction over a log, as a job.

First the job reads the dirty part, from the end of the last pass, into a map from keys to their newest
offsets. Then it writes every segment up to there again, without the records that are removed, and merges
small neighbours. The last offset of a segment is always kept, if necessary by a batch without records: so
each segment still begins where the one before it ends, and a start can check that nothing is missing.

`swapping` describes how new segments replace the old ones.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headrace.records.batch import HEADER_BYTES, BatchHeader, check_crc, read_header
from headrace.records.builder import rebuild_batch
from headrace.records.errors import BadRecords
from headrace.records.reader import read_keys
from headrace.storage.batch_compaction import BatchCompactor, Rules
from headrace.storage.disk import Disk, File
from headrace.storage.ended_transactions import EndedTransactions
from headrace.storage.jobs import JobKind
from headrace.storage.offset_map import OffsetMap
from headrace.storage.open_files import OpenFiles
from headrace.storage.segment import segment_path
from headrace.storage.segment_writer import SegmentWriter
from headrace.storage.swapping import (
    Rewritten,
    offer_swap,
    prepare_rewriting,
    withdraw_swap,
    withdraw_swaps,
)
from headrace.storage.transaction_index import AbortedTransaction, TransactionIndex

_INT32_MAX = (1 << 31) - 1


class Uncleanable(Exception):
    """The log is damaged, and where the next batch begins is not known."""


@dataclass(slots=True)
class Source:
    """A segment as it was found when the pass was ordered."""

    base_offset: int
    end_offset: int
    size: int
    index_bytes: int  # of a time index that has as many entries as its offset index
    has_aborted: bool


@dataclass(slots=True)
class Limits:
    """What new segments may become, and what a pass may use."""

    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    map_bytes: int
    io_bytes: int  # read or written at a time


@dataclass(slots=True)
class Cleaned:
    directory: str
    generation: int
    segments: list[Rewritten]
    first_dirty_offset: int  # the next pass begins here
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int


@dataclass(slots=True)
class CleanJob:
    directory: str
    generation: int
    sources: list[Source]  # from the log's first segment on
    first_dirty_offset: int
    transaction_indexes: list[str]  # paths of all: a transaction may be aborted far behind its data
    rules: Rules
    limits: Limits
    bytes_per_second: float | None = None  # of reading and writing, kept by the process that runs the job

    @property
    def kind(self) -> JobKind:
        return JobKind.CPU

    def run(self, disk: Disk, /) -> Cleaned:
        try:
            return self._run(disk)
        except Exception as error:
            self._withdraw(disk)
            if isinstance(error, FileNotFoundError):
                return self._nothing()  # retention or a deletion came first
            raise

    def _run(self, disk: Disk) -> Cleaned:
        prepare_rewriting(disk, self.directory)
        aborted = self._read_aborted(disk)
        newest, covered_to = self._map(disk, aborted)
        sources = [source for source in self.sources if source.base_offset < covered_to]
        compactor = BatchCompactor(self.rules, newest, covered_to, aborted)
        result = Cleaned(self.directory, self.generation, [], covered_to, 0, 0, 0, 0)
        for group in self._groups(sources):
            is_changed, size = self._rewrite(disk, group, compactor)
            result.bytes_before += sum(source.size for source in group)
            result.bytes_after += size
            base = group[0].base_offset
            if is_changed:
                result.segments.append(Rewritten(base, [source.base_offset for source in group[1:]]))
            else:
                withdraw_swap(disk, segment_path(self.directory, base))
        result.records_before, result.records_after = compactor.records_met, compactor.records_kept
        if result.segments:
            disk.sync_dir(self.directory)
            if not self._is_unchanged(disk, sources):
                self._withdraw(disk)
                return self._nothing()
            for segment in result.segments:
                offer_swap(disk, segment_path(self.directory, segment.base_offset))
        return result

    def _nothing(self) -> Cleaned:
        return Cleaned(self.directory, self.generation, [], self.first_dirty_offset, 0, 0, 0, 0)

    def _withdraw(self, disk: Disk) -> None:
        withdraw_swaps(disk, self.directory, [source.base_offset for source in self.sources])

    def _is_unchanged(self, disk: Disk, sources: list[Source]) -> bool:
        """A log that was truncated or recreated meanwhile must not find these segments at its next start."""
        for source in sources:
            file = self._open(disk, source)
            try:
                if file.size() != source.size:
                    return False
            finally:
                file.close()
        return True

    def _open(self, disk: Disk, source: Source) -> File:
        return disk.open(segment_path(self.directory, source.base_offset) + ".log")

    def _read_aborted(self, disk: Disk) -> list[AbortedTransaction]:
        files = OpenFiles()
        found: list[AbortedTransaction] = []
        for path in self.transaction_indexes:
            found += TransactionIndex(disk, files, path).all()
        return found

    # --- the two walks -----------------------------------------------------------------------------------

    def _map(self, disk: Disk, aborted: list[AbortedTransaction]) -> tuple[Mapping[bytes | None, int], int]:
        """Keys of the dirty part, as much of it as fits, and the offset up to which it did."""
        offsets = OffsetMap(self.limits.map_bytes)
        transactions = EndedTransactions(aborted)
        for source in self.sources:
            if source.end_offset <= self.first_dirty_offset:
                continue
            for batch, header in self._batches(disk, source):
                if header is None or header.last_offset < self.first_dirty_offset or header.is_control:
                    continue
                if not header.record_count or transactions.is_aborted(header):
                    continue
                try:
                    offsets.add(read_keys(batch, 0, header))
                except BadRecords:
                    continue  # it stays as it is, whatever is in it
                if offsets.is_full:
                    return offsets.newest, header.next_offset
        return offsets.newest, self.sources[-1].end_offset

    def _rewrite(self, disk: Disk, group: list[Source], compactor: BatchCompactor) -> tuple[bool, int]:
        """Whether anything changed, and the bytes that are left."""
        base_offset, end_offset = group[0].base_offset, group[-1].end_offset
        writer = SegmentWriter(
            disk,
            segment_path(self.directory, base_offset),
            base_offset,
            interval_bytes=self.limits.index_interval_bytes,
            write_bytes=self.limits.io_bytes,
        )
        try:
            is_changed = len(group) > 1
            last: BatchHeader | None = None
            compactor.aborted = []
            for source in group:
                for batch, header in self._batches(disk, source):
                    if header is None:
                        writer.add_unread(batch)
                        continue
                    last = header
                    left = compactor.compact(batch, header)
                    if left is None and header.next_offset == end_offset and header.is_end_mark:
                        left = batch
                    is_changed |= left is not batch
                    if left is not None:
                        writer.add(left, header.last_offset, read_header(left).max_timestamp)
            if writer.end_offset < end_offset:
                writer.add(_end_mark(writer.end_offset, end_offset, last), end_offset - 1, -1)
            writer.finish(compactor.aborted, had_aborted=any(source.has_aborted for source in group))
        finally:
            writer.close()
        return is_changed, writer.size

    def _batches(self, disk: Disk, source: Source) -> Iterator[tuple[memoryview, BatchHeader | None]]:
        """Every batch with its header, None where the checksum is wrong."""
        file = self._open(disk, source)
        try:
            limit = self.limits.io_bytes
            position, chunk = 0, memoryview(b"")
            while position < source.size:
                if len(chunk) < HEADER_BYTES:
                    chunk = memoryview(file.read(position, min(limit, source.size - position)))
                size = read_header(chunk).size if len(chunk) >= HEADER_BYTES else 0
                if not HEADER_BYTES <= size <= source.size - position:
                    raise Uncleanable(
                        f"no batch at position {position} of the segment {source.base_offset} "
                        f"of {self.directory}"
                    )
                if size > len(chunk):
                    chunk = memoryview(file.read(position, min(max(size, limit), source.size - position)))
                yield chunk[:size], _checked(chunk[:size])
                position += size
                chunk = chunk[size:]
        finally:
            file.close()

    def _groups(self, sources: list[Source]) -> Iterator[list[Source]]:
        """Neighbours that fit into one segment together, by what they are now."""
        limits = self.limits
        group: list[Source] = []
        size = index_bytes = 0
        for source in sources:
            size += source.size
            index_bytes += source.index_bytes
            if group and (
                size > limits.segment_bytes
                or index_bytes > limits.segment_index_bytes
                or source.end_offset - 1 - group[0].base_offset > _INT32_MAX
            ):
                yield group
                group, size, index_bytes = [], source.size, source.index_bytes
            group.append(source)
        if group:
            yield group


def _checked(batch: memoryview) -> BatchHeader | None:
    try:
        return check_crc(batch)
    except BadRecords:
        return None


def _end_mark(written_to: int, end_offset: int, last: BatchHeader | None) -> bytes:
    """A batch without records in the place of the last one, of which nothing is left."""
    base_offset = written_to if last is None else max(last.base_offset, written_to)
    return rebuild_batch(
        (),
        base_offset=base_offset,
        last_offset_delta=end_offset - 1 - base_offset,
        leader_epoch=-1 if last is None else last.leader_epoch,
    )
