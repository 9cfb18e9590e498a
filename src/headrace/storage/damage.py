"""Damaged and torn batches: which of the two it is, and where the next intact batch begins.

A killed process leaves at most one incomplete batch at the end of the last segment. A power failure may also
leave sectors of zeros, but only after the flushed part. All other bytes that are not a valid batch are
damage: it is reported, and the batches after it are kept.
"""

from struct import Struct
from typing import NamedTuple

from headrace.records.batch import (
    ATTRIBUTES_AT,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    read_header,
)
from headrace.records.checksum import crc32c
from headrace.storage.disk import File

_CRC = Struct(">I")
_LENGTH = Struct(">i")

# A sector that a device did not write reads as zeros. A batch has runs of zeros of its own (small numbers in
# wide fields), but not of this length unless its records are zeros.
HOLE_BYTES = 256

_CHUNK_BYTES = 1024 * 1024
_OFFSETS_MAX = 1 << 31  # in one segment

Data = bytes | memoryview


class Damage(NamedTuple):
    """Something on disk that is not what it should be, for a report."""

    path: str
    what: str
    offset: int = 0  # of a log: the records before it are there


def intact_at(data: Data, position: int) -> BatchHeader | None:
    """The header of the whole batch at `position` whose checksum is right; None if there is none."""
    left = len(data) - position
    if left < HEADER_BYTES:
        return None
    header = read_header(data, position)
    size = header.length + LENGTH_OVERHEAD
    if header.magic != MAGIC or not HEADER_BYTES <= size <= left or header.last_offset_delta < 0:
        return None
    return header if crc32c(data[position + ATTRIBUTES_AT : position + size]) == header.crc else None


def next_intact(data: Data, position: int, offset: int) -> int | None:
    """Where the next whole batch with a right checksum begins that has offsets from `offset` on."""
    whole = bytes(data)
    found = whole.find(MAGIC, position + MAGIC_AT)
    while found >= 0:
        at = found - MAGIC_AT
        header = intact_at(data, at)
        if header is not None and header.base_offset >= offset:
            return at
        found = whole.find(MAGIC, found + 1)
    return None


def is_cut_short(rest: Data, offset: int) -> bool:
    """Whether the last bytes of a segment are the beginning of a batch for `offset`, whose write a kill
    interrupted.
    """
    size = len(rest)
    if bytes(rest[:8]) != offset.to_bytes(8, "big")[:size]:
        return False
    if size > MAGIC_AT and rest[MAGIC_AT] != MAGIC:
        return False
    if size >= LENGTH_OVERHEAD and _LENGTH.unpack_from(rest, 8)[0] + LENGTH_OVERHEAD <= max(
        size, HEADER_BYTES - 1
    ):
        return False  # by its own length it is whole
    if size < HEADER_BYTES:
        return True
    # a whole batch whose length alone was damaged keeps its checksum
    if crc32c(rest[ATTRIBUTES_AT:]) == _CRC.unpack_from(rest, 17)[0]:
        return False
    return next_intact(rest, 1, offset) is None


def is_lost_write(rest: Data, offset: int) -> bool:
    """Whether the bytes from here on may be writes that a power loss interrupted: no batch behind them is
    intact, or a sector in front of it was never written.
    """
    following = next_intact(rest, 1, offset)
    return following is None or bytes(HOLE_BYTES) in bytes(rest[:following])


class Walk:
    """Valid batches from a position on, read in chunks; a batch larger than a chunk is never held whole."""

    __slots__ = ("_chunk", "_chunk_at", "_end", "_file")

    def __init__(self, file: File, end: int | None = None) -> None:
        self._file = file
        self._end = file.size() if end is None else end
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

    def next_valid(self, position: int, least: int, *, is_dense: bool = False) -> int | None:
        """Where the next valid batch at or behind `position` begins, with offsets from `least` on. What
        follows it has to fit: a record may hold the bytes of a batch, and the checksum covers no offset.
        """
        while position + HEADER_BYTES <= self._end:
            chunk = self._file.read(position, _CHUNK_BYTES)
            found = chunk.find(MAGIC, MAGIC_AT)
            while 0 <= found <= len(chunk) - HEADER_BYTES + MAGIC_AT:
                header = read_header(chunk, found - MAGIC_AT)
                at = position + found - MAGIC_AT
                if (
                    least <= header.base_offset < least + _OFFSETS_MAX
                    and self.valid_at(at) is not None
                    and self._is_followed(at, header, is_dense=is_dense)
                ):
                    return at
                found = chunk.find(MAGIC, found + 1)
            if len(chunk) < _CHUNK_BYTES:
                break
            position += len(chunk) - HEADER_BYTES
        return None

    def _is_followed(self, position: int, header: BatchHeader, *, is_dense: bool) -> bool:
        """By a valid batch with the next offsets, or by nothing."""
        following = position + header.size
        if following == self._end:
            return True
        after = self.valid_at(following)
        if after is None:
            return False
        return after.base_offset == header.next_offset or (
            not is_dense and after.base_offset > header.last_offset
        )

    def behind(self, position: int, least: int, *, is_dense: bool = False) -> int | None:
        """Where the batch ends that is damaged at `position`, by its own length or by the next valid one;
        None when nothing tells. In a dense log no offset is missing between two batches.
        """
        if position + HEADER_BYTES <= self._end:
            damaged = read_header(self._file.read(position, HEADER_BYTES))
            following = position + damaged.size
            if position + HEADER_BYTES <= following <= self._end:
                header = self.valid_at(following)
                # the length alone may be damaged, and lead past others
                if header is not None and header.base_offset == least + damaged.last_offset_delta >= least:
                    return following
        return self.next_valid(position + 1, least, is_dense=is_dense)

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
