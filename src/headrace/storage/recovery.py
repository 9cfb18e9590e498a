"""What of a log can be trusted after a restart, and what has to be looked at again.

    clean   everything: the last stop wrote its marker after a flush
    killed  what was written, since the machine went on running: only the end of the active segment, from
    its last
            index entry on, is walked to find where the log ends
    lost    what was flushed: from the recovery point on every checksum is computed

Exactly the valid prefix is kept: the log ends before the first batch that is torn or wrong.
"""

from dataclasses import dataclass
from typing import Literal

from headrace.records.batch import (
    ATTRIBUTES_AT,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
    read_header,
)
from headrace.records.checksum import crc32c
from headrace.storage.disk import File
from headrace.storage.segment import Segment

Trust = Literal["clean", "killed", "lost"]

_CHUNK_BYTES = 1024 * 1024


@dataclass(slots=True)
class Recovery:
    """What is known of a log before it is opened."""

    trust: Trust
    recovery_point: int = 0  # everything below was flushed; with a clean marker, the log's end
    log_start_offset: int = 0


@dataclass(slots=True)
class Scanned:
    """The part of the log that was looked at."""

    start_offset: int
    end_offset: int
    has_control: bool
    epochs: list[tuple[int, int]]  # leader epochs met, each with the offset where it was met first
    removed: list[Segment]  # segments behind the valid prefix; their files are still there


class _Walk:
    """Valid batches from a position on, read in chunks; a batch larger than a chunk is never held whole."""

    __slots__ = ("_chunk", "_chunk_at", "_end", "_file")

    def __init__(self, file: File) -> None:
        self._file = file
        self._end = file.size()
        self._chunk = memoryview(b"")
        self._chunk_at = 0

    def valid_at(self, position: int) -> BatchHeader | None:
        """The batch at `position`, if it is whole and its checksum right."""
        if position + HEADER_BYTES > self._end:
            return None
        at = position - self._chunk_at
        if not 0 <= at <= len(self._chunk) - HEADER_BYTES:
            self._read(position)
            at = 0
        header = read_header(self._chunk, at)
        size = header.length + LENGTH_OVERHEAD
        if header.magic != MAGIC or not HEADER_BYTES <= size <= self._end - position:
            return None
        if at + size > len(self._chunk) and size <= _CHUNK_BYTES:
            self._read(position)
            at = 0
        if at + size <= len(self._chunk):
            crc = crc32c(self._chunk[at + ATTRIBUTES_AT : at + size])
        else:
            crc = self._long_crc(position, size)
        return header if crc == header.crc else None

    def _read(self, position: int) -> None:
        self._chunk = memoryview(self._file.read(position, _CHUNK_BYTES))
        self._chunk_at = position

    def _long_crc(self, position: int, size: int) -> int:
        crc = 0
        at, end = position + ATTRIBUTES_AT, position + size
        while at < end:
            piece = self._file.read(at, min(_CHUNK_BYTES, end - at))
            if not piece:
                return -1
            crc = crc32c(piece, crc)
            at += len(piece)
        return crc


def recover_killed(active: Segment, recovery_point: int, interval_bytes: int, *, has_gaps: bool) -> Scanned:
    """Find the end of a log whose process was killed."""
    position, offset = _last_indexed(active)
    active.restart(position, offset)
    scanned = Scanned(offset, offset, False, [], [])
    _scan(active, scanned, interval_bytes, has_gaps=has_gaps, flushed_offset=recovery_point)
    return scanned


def recover_lost(
    segments: list[Segment], recovery_point: int, interval_bytes: int, *, has_gaps: bool
) -> Scanned:
    """Find the end of a log whose machine was lost; what lies behind it is named in `removed`.

    Offsets are outside of the checksum. Unless compaction may have left gaps, each batch must begin where
    the one before it ended; without a recovery point that is asked of the last segment only, since sealed
    ones may have been compacted under an earlier policy.
    """
    has_old_gaps = has_gaps or recovery_point <= segments[0].base_offset
    # a segment that ends at the recovery point may have been sealed after the flush, its indexes not synced
    first = 0
    while first + 1 < len(segments) and segments[first + 1].base_offset < recovery_point:
        first += 1
    offset = _reindex(segments[first], recovery_point, interval_bytes)
    scanned = Scanned(offset, offset, False, [], [])
    last = len(segments) - 1
    is_whole = _scan(
        segments[first], scanned, interval_bytes, has_gaps=has_gaps if first == last else has_old_gaps
    )
    for number, segment in enumerate(segments[first + 1 :], first + 1):
        # every segment begins where the one before it ended, so a gap is a tail that was lost
        if not is_whole or segment.base_offset != scanned.end_offset:
            scanned.removed = segments[number:]
            return scanned
        segments[number - 1].seal()
        segment.restart(0, segment.base_offset)
        is_whole = _scan(
            segment, scanned, interval_bytes, has_gaps=has_gaps if number == last else has_old_gaps
        )
    return scanned


def overlapped(segments: list[Segment]) -> list[Segment]:
    """Segments that compaction merged into the one before them, and whose removal a lost machine forgot."""
    found: list[Segment] = []
    end_offset = -1
    for number, segment in enumerate(segments):
        if segment.base_offset < end_offset:
            found.append(segment)
        elif number + 1 < len(segments):
            end_offset = _valid_end(segment)
    return found


def _valid_end(segment: Segment) -> int:
    """Where its last valid batch ends."""
    position, end_offset = _last_indexed(segment)
    walk = _Walk(segment.file())
    while (header := walk.valid_at(position)) is not None:
        position += header.size
        end_offset = header.next_offset
    return end_offset


def contiguous_from(segments: list[Segment], recovery_point: int) -> int:
    """The number of the first segment after which no flushed one is missing.

    Retention takes segments away from the front; a lost machine may have kept a later removal without an
    earlier one.
    """
    start = 0
    for number in range(len(segments) - 1):
        following = segments[number + 1].base_offset
        if following > recovery_point:
            break
        segments[number].load()
        if segments[number].end_offset() != following:
            start = number + 1
    return start


def _last_indexed(segment: Segment) -> tuple[int, int]:
    """Position and base offset of the last batch that the index leads to.

    Without a sound index: the segment's beginning.
    """
    beginning = 0, segment.base_offset
    index = segment.index
    try:
        index.cut(len(index))
        segment.time_index.cut(len(segment.time_index))
    except FileNotFoundError:
        return beginning
    if not len(index):
        return beginning
    last_offset, position = index.at(-1)
    header = _Walk(segment.file()).valid_at(position)
    if header is None or header.last_offset != last_offset or header.base_offset < segment.base_offset:
        return beginning
    return position, header.base_offset


def _reindex(segment: Segment, recovery_point: int, interval_bytes: int) -> int:
    """Make the indexes of the flushed part anew, which a flush does not sync; the offset where it ends.

    No checksum is computed: the batches themselves were flushed.
    """
    offset = segment.base_offset
    segment.restart(0, offset)
    for _, header in segment.headers(0, segment.file().size()):
        if header.last_offset >= recovery_point or header.magic != MAGIC:
            break
        segment.note(header.size, header.last_offset, header.max_timestamp, interval_bytes)
        offset = header.next_offset
    return offset


def _scan(
    segment: Segment, scanned: Scanned, interval_bytes: int, *, has_gaps: bool, flushed_offset: int = 0
) -> bool:
    """Walk on to the first invalid batch, index what is valid, cut off the rest; whether nothing was cut.

    Aborted transactions below `flushed_offset` stay in their index: they are durable there, and one that is
    written again would not be.
    """
    offset = max(scanned.end_offset, segment.base_offset)
    segment.is_loaded = True
    segment.transaction_index.cut_to(max(offset, flushed_offset))
    file = segment.file()
    walk = _Walk(file)
    while (header := walk.valid_at(segment.size)) is not None:
        if header.base_offset < offset or header.last_offset_delta < 0:
            break
        if header.base_offset > offset and not has_gaps:
            break
        segment.note(header.size, header.last_offset, header.max_timestamp, interval_bytes)
        offset = header.next_offset
        scanned.has_control |= header.is_control
        if header.leader_epoch >= 0 and (not scanned.epochs or header.leader_epoch > scanned.epochs[-1][0]):
            scanned.epochs.append((header.leader_epoch, header.base_offset))
    scanned.end_offset = offset
    segment.transaction_index.cut_to(offset)
    segment.write_indexes()
    if segment.size == file.size():
        return True
    file.truncate(segment.size)
    file.sync()  # what is cut off must not come back behind records that are written now
    return False
