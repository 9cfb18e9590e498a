"""Walk over the batches of a segment by their headers, past what is damaged."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.records.batch import HEADER_BYTES, LENGTH_OVERHEAD, MAGIC, BatchHeader, read_header
from headrace.storage.damage import Walk
from headrace.storage.disk import File

if TYPE_CHECKING:
    from headrace.storage.segment import Segment

# A read that walks headers from an index entry on: one default index interval and a header.
WALK_BYTES = 4096 + 128
# A read that walks many batches, one after the other.
_SCAN_BYTES = 1024 * 1024

_OFFSETS_MAX = 1 << 31  # in one segment
LENGTH_MIN = HEADER_BYTES - LENGTH_OVERHEAD


def headers(
    segment: "Segment", position: int = 0, end: int | None = None
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every batch in [position, end), without a look at their checksums; what is
    damaged is left out.
    """
    end = segment.size if end is None else end
    if position >= end:
        return
    file = segment.file()
    chunk_at, chunk = position, b""
    least = segment.base_offset
    is_dense = position == 0  # else an index led here, and which offset is the next is not known yet
    while position + HEADER_BYTES <= end:
        at = position - chunk_at
        if at + HEADER_BYTES > len(chunk):
            wanted = min(_SCAN_BYTES if at <= len(chunk) + HEADER_BYTES else WALK_BYTES, end - position)
            chunk_at, chunk, at = position, file.read(position, wanted), 0
        header = read_header(chunk, at)
        following = position + header.length + LENGTH_OVERHEAD
        is_sound = (
            header.magic == MAGIC
            and position not in segment.damaged
            and header.length >= LENGTH_MIN
            and header.last_offset_delta >= 0
            and following <= end
            and least <= header.base_offset
            and header.last_offset < min(segment.limit_offset, segment.base_offset + _OFFSETS_MAX)
        )
        if is_sound:
            then = following - chunk_at
            is_continued = then + 8 <= len(chunk) and chunk[then : then + 8] == header.next_offset.to_bytes(8)
            if not is_continued and not may_follow(file, following, header.last_offset, end):
                # one of the two is damaged; no checksum covers offset and length
                is_next = header.base_offset == least or not is_dense
                is_sound = is_next and Walk(file, end).valid_at(position) is not None
        is_dense = True
        if not is_sound:
            least += 1  # a damaged batch had an offset, too
            behind = Walk(file, end).behind(position, least)
            if behind is None:
                return
            position = behind
            continue
        yield position, header
        position = following
        least = header.next_offset


def may_follow(file: File, position: int, last_offset: int, end: int) -> bool:
    """Whether what stands at `position` can be a batch behind `last_offset`, by its header."""
    if position + HEADER_BYTES > end:
        return position == end
    header = read_header(file.read(position, HEADER_BYTES))
    return (
        header.magic == MAGIC
        and HEADER_BYTES <= header.size <= end - position
        and last_offset < header.base_offset <= last_offset + _OFFSETS_MAX
    )
