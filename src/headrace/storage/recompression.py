"""Recompression of sealed segments with another codec (`headrace.sealed.compression.type`).

Offsets, producers, timestamps and order stay; only the codec of the batches changes. Control batches, and
batches that cannot be opened, are kept byte for byte. Both indexes are written again: a look-up by time
relies on each entry of the time index having come with one of the offset index. `swapping` describes how the
new segment replaces the old one.
"""

from contextlib import suppress

from headrace.base.numbers import INT32_MAX
from headrace.base.values import Value
from headrace.records.batch import CODEC_MASK, check_crc
from headrace.records.errors import BadRecords
from headrace.storage.batch_validation import codec_number, recode
from headrace.storage.disk import Disk, File
from headrace.storage.jobs import JobKind
from headrace.storage.log_state import LogState, guarded
from headrace.storage.segment import segment_path
from headrace.storage.segment_writer import SegmentWriter
from headrace.storage.swapping import (
    Rewritten,
    offer_swap,
    prepare_rewriting,
    swap_all,
    withdraw_swap,
)

_WRITE_BYTES = 1024 * 1024


class Recompressed(Value):
    directory: str
    base_offset: int
    generation: int
    codec: str
    before_bytes: int
    after_bytes: int
    is_swap_ready: bool  # False: nothing was to be gained, and nothing was written


class RecompressJob(Value):
    directory: str
    path: str  # of the segment, without suffix
    base_offset: int
    generation: int
    codec: str
    interval_bytes: int

    @property
    def kind(self) -> JobKind:
        return JobKind.CPU

    def run(self, disk: Disk, /) -> Recompressed:
        try:
            prepare_rewriting(disk, self.directory)
            return self._run(disk)
        except Exception:
            with suppress(OSError):  # the first error counts
                withdraw_swap(disk, self.path)
            raise

    def _run(self, disk: Disk) -> Recompressed:
        source = disk.open(self.path + ".log")
        try:
            before = source.size()
            writer = SegmentWriter(
                disk,
                self.path,
                self.base_offset,
                interval_bytes=self.interval_bytes,
                write_bytes=_WRITE_BYTES,
            )
            try:
                self._copy(source, writer)
                after = writer.size
                if after < before:
                    writer.finish([], had_aborted=False)
            finally:
                writer.close()
        finally:
            source.close()
        if after < before:
            disk.sync_dir(self.directory)
            offer_swap(disk, self.path)
        else:
            withdraw_swap(disk, self.path)
        return Recompressed(
            self.directory, self.base_offset, self.generation, self.codec, before, after, after < before
        )

    def _copy(self, source: File, writer: SegmentWriter) -> None:
        codec = codec_number(self.codec)
        position = 0
        least = self.base_offset
        end = source.size()
        while position < end:
            batch, size = _batch_at(source, position, end)
            position += size
            try:
                header = check_crc(batch)
            except BadRecords:
                # damaged on disk: kept as it is, for a later verification
                writer.add_unread(batch)
                continue
            if not least <= header.base_offset <= header.last_offset <= self.base_offset + INT32_MAX:
                writer.add_unread(batch)  # the same: no checksum covers offsets
                continue
            if position + 8 <= end and int.from_bytes(source.read(position, 8)) <= header.last_offset:
                writer.add_unread(batch)  # one of the two is
                continue
            least = header.next_offset
            kept: bytes | memoryview = batch
            if not header.is_control and header.attributes & CODEC_MASK != codec:
                try:
                    recoded = recode(memoryview(batch), header, codec)
                except BadRecords:
                    recoded = bytearray(batch)
                if len(recoded) < size:
                    kept = memoryview(recoded)
            writer.add(kept, header.last_offset, header.max_timestamp)


def _batch_at(file: File, position: int, end: int) -> tuple[bytes, int]:
    """One batch by its own length; what follows a length that makes no sense is one piece."""
    prefix = file.read(position, 12)
    size = int.from_bytes(prefix[8:12], "big") + 12
    if len(prefix) < 12 or size > end - position:
        size = end - position
    return file.read(position, size), size


@guarded
def recompress_job(log: LogState) -> RecompressJob | None:
    """The oldest sealed segment that is not yet packed as the topic wants it, below the last flush."""
    codec = log.config.sealed_compression_type
    if not codec or log.unfinished_swaps:
        return None
    for segment in log.segments.items[:-1]:
        end = log.segments.end_of(segment, log.log_end_offset)
        if segment.packed_as == codec or end > log.flushed_offset:
            continue
        return RecompressJob(
            log.directory,
            segment.path,
            segment.base_offset,
            log.generation,
            codec,
            log.config.index_interval_bytes,
        )
    return None


@guarded
def complete_recompression(log: LogState, result: Recompressed) -> None:
    """Put the packed segment in the place of the old one, unless the log has changed under it."""
    segment = next((one for one in log.segments.items[:-1] if one.base_offset == result.base_offset), None)
    if segment is None or result.generation != log.generation:
        if result.is_swap_ready:
            withdraw_swap(log.disk, segment_path(log.directory, result.base_offset))
        return
    if result.is_swap_ready:
        swap_all(log, [Rewritten(result.base_offset, [])], log.opened_ms)
    segment.packed_as = result.codec
