"""Sealed segments packed tighter: `headrace.sealed.compression.type`.

Offsets, producers, timestamps and order stay; only the codec of the batches changes. Control batches, and
batches that cannot be opened, are kept byte for byte. Both indexes are written again: a look-up by time
relies on each entry of the time index having come with one of the offset index. How the new segment takes the
old one's place is told in `swapping`.
"""

from dataclasses import dataclass

from headrace.base.numbers import INT32_MAX
from headrace.records.batch import CODEC_MASK, check_crc
from headrace.records.errors import BadRecords
from headrace.storage.admission import codec_number, recode
from headrace.storage.disk import Disk, File
from headrace.storage.jobs import JobKind
from headrace.storage.segment_writer import SegmentWriter
from headrace.storage.swapping import offer_swap, withdraw_swap

_WRITE_BYTES = 1024 * 1024


@dataclass(slots=True)
class Recompressed:
    directory: str
    base_offset: int
    generation: int
    codec: str
    before_bytes: int
    after_bytes: int
    is_swap_ready: bool  # False: nothing was to be gained, and nothing was written


@dataclass(slots=True)
class RecompressJob:
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
                # damaged at rest: what it means is for whoever verifies, not for us to lose
                writer.add_unread(batch)
                continue
            if not least <= header.base_offset <= header.last_offset <= self.base_offset + INT32_MAX:
                writer.add_unread(batch)  # the same: offsets are outside of the checksum
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
