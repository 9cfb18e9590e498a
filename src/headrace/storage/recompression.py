"""Sealed segments packed tighter: `headrace.sealed.compression.type`.

Offsets, producers, timestamps and order stay; only the codec of the batches changes. Control batches, and
batches that cannot be opened, are kept byte for byte. How the new segment takes the old one's place is told
in `swapping`.
"""

from dataclasses import dataclass

from headrace.records.batch import CODEC_MASK, check_crc
from headrace.records.errors import BadRecords
from headrace.storage.admission import codec_number, recode
from headrace.storage.disk import Disk, File
from headrace.storage.jobs import JobKind
from headrace.storage.offset_index import OffsetIndex
from headrace.storage.open_files import OpenFiles
from headrace.storage.swapping import CLEANED, offer_swap

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
        files = OpenFiles()
        before = source.size()
        index_path = self.path + ".index" + CLEANED
        index = OffsetIndex(disk, files, index_path, self.base_offset)
        index.create()
        target = disk.open(self.path + ".log" + CLEANED, create=True)
        try:
            target.truncate(0)
            after = self._copy(source, target, index)
            if after >= before:
                files.forget(disk, index_path)
                disk.remove(index_path)
                disk.remove(self.path + ".log" + CLEANED)
            else:
                target.sync()
                index.sync()
        finally:
            source.close()
            target.close()
        if after < before:
            disk.sync_dir(self.directory)
            offer_swap(disk, self.path)
        return Recompressed(
            self.directory, self.base_offset, self.generation, self.codec, before, after, after < before
        )

    def _copy(self, source: File, target: File, index: OffsetIndex) -> int:
        codec = codec_number(self.codec)
        position = written = unindexed = 0
        end = source.size()
        waiting = bytearray()
        while position < end:
            batch, size = _batch_at(source, position, end)
            position += size
            kept: bytes | bytearray = batch
            try:
                header = check_crc(batch)
            except BadRecords:
                # damaged at rest: what it means is for whoever verifies, not for us to lose
                waiting += batch
                written += size
                unindexed += size
                continue
            if not header.is_control and header.attributes & CODEC_MASK != codec:
                try:
                    recoded = recode(memoryview(batch), header, codec)
                except BadRecords:
                    recoded = bytearray(batch)
                if len(recoded) < size:
                    kept = recoded
            if unindexed > self.interval_bytes:
                index.add(header.last_offset, written)
                unindexed = 0
            waiting += kept
            written += len(kept)
            unindexed += len(kept)
            if len(waiting) >= _WRITE_BYTES:
                target.append(waiting)
                waiting.clear()
        target.append(waiting)
        return written


def _batch_at(file: File, position: int, end: int) -> tuple[bytes, int]:
    """One batch by its own length; what follows a length that makes no sense is one piece."""
    prefix = file.read(position, 12)
    size = int.from_bytes(prefix[8:12], "big") + 12
    if len(prefix) < 12 or size > end - position:
        size = end - position
    return file.read(position, size), size
