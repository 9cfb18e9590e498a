"""Damaged and torn batches: which of the two it is, and where the next intact batch begins.

A killed process leaves at most one incomplete batch at the end of the last segment. A power failure may also
leave sectors of zeros, but only after the flushed part. All other bytes that are not a valid batch are
damage: it is reported, and the batches after it are kept.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from headrace.records.batch import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER_BYTES,
    LENGTH_AT,
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
    """Whether the last bytes of a file are the beginning of a batch for `offset`, whose write a kill
    interrupted. No record in the file holds batches; else see `Walk.is_cut_short`.
    """
    if not _begins(rest, offset, len(rest)):
        return False
    if len(rest) < HEADER_BYTES:
        return True
    # a whole batch whose length alone was damaged keeps its checksum
    if crc32c(rest[ATTRIBUTES_AT:]) == _CRC.unpack_from(rest, CRC_AT)[0]:
        return False
    return next_intact(rest, 1, offset) is None


def _begins(start: Data, offset: int, left: int, *, is_dense: bool = True) -> bool:
    """Whether a batch for `offset` begins with these bytes that is longer than the bytes that are left; where
    records are missing, one for a later offset.
    """
    unread_bits = 8 * max(8 - left, 0)
    highest = offset if is_dense else offset + _OFFSETS_MAX
    if not offset >> unread_bits <= int.from_bytes(start[:8]) <= highest >> unread_bits:
        return False
    if left > MAGIC_AT and start[MAGIC_AT] != MAGIC:
        return False
    if left < LENGTH_OVERHEAD:
        return True
    size: int = _LENGTH.unpack_from(start, LENGTH_AT)[0] + LENGTH_OVERHEAD
    return size > max(left, HEADER_BYTES - 1)


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
            crc = self._crc(position + ATTRIBUTES_AT, position + size)
        return header if crc == header.crc else None

    def next_valid(self, position: int, least: int, *, is_dense: bool = False) -> int | None:
        """Where the next valid batch at or behind `position` begins, with offsets from `least` on. What
        follows it has to fit: a record may hold the bytes of a batch, and the checksum covers no offset.
        """
        for at, header in self._possible(position, least):
            if self.valid_at(at) is not None and self._is_followed(at, header, is_dense=is_dense):
                return at
        return None

    def _possible(self, position: int, least: int) -> Iterator[tuple[int, BatchHeader]]:
        """Where a batch may begin at or behind `position`, with offsets from `least` on."""
        while position + HEADER_BYTES <= self._end:
            chunk = self._file.read(position, min(_CHUNK_BYTES, self._end - position))
            found = chunk.find(MAGIC, MAGIC_AT)
            while 0 <= found <= len(chunk) - HEADER_BYTES + MAGIC_AT:
                header = read_header(chunk, found - MAGIC_AT)
                if header.size >= HEADER_BYTES and least <= header.base_offset < least + _OFFSETS_MAX:
                    yield position + found - MAGIC_AT, header
                found = chunk.find(MAGIC, found + 1)
            if len(chunk) < _CHUNK_BYTES:
                break
            position += len(chunk) - HEADER_BYTES

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
        """Where the batch ends that is damaged at `position`, by its own length, by its checksum or by the
        next valid one; None when nothing tells, or when it is the last one. In a dense log no offset is
        missing between two batches.
        """
        if position + HEADER_BYTES <= self._end:
            damaged = read_header(self._file.read(position, HEADER_BYTES))
            following = position + damaged.size
            if position + HEADER_BYTES <= following <= self._end:
                header = self.valid_at(following)
                # the length alone may be damaged, and lead past others
                if header is not None and header.base_offset == least + damaged.last_offset_delta >= least:
                    return following
            if following == self._end:
                return None
            end = self._summed_end(position, damaged, least)
            if end is not None:
                return end if end < self._end else None
        return self.next_valid(position + 1, least, is_dense=is_dense)

    def is_cut_short(self, position: int, offset: int, *, is_dense: bool) -> bool:
        """Whether the file ends with the beginning of a batch for `offset`, whose write was interrupted.
        That an intact batch follows does not speak against it: a record may hold the bytes of one.
        """
        start = self._file.read(position, HEADER_BYTES)
        if not _begins(start, offset, self._end - position, is_dense=is_dense):
            return False
        return len(start) < HEADER_BYTES or self._summed_end(position, read_header(start), offset + 1) is None

    def _summed_end(self, position: int, header: BatchHeader, least: int) -> int | None:
        """Where the batch ends by its checksum, if its length alone is damaged: where another one may begin,
        or at the end.
        """
        if header.magic != MAGIC:
            return None
        crc, summed = 0, position + ATTRIBUTES_AT
        for at, _ in self._possible(position + HEADER_BYTES, least):
            crc, summed = self._crc(summed, at, crc), at
            if crc == header.crc:
                return at
        return self._end if self._crc(summed, self._end, crc) == header.crc else None

    def _read(self, position: int) -> None:
        self._chunk = memoryview(self._file.read(position, _CHUNK_BYTES))
        self._chunk_at = position

    def _crc(self, at: int, end: int, crc: int = 0) -> int:
        while at < end:
            piece = self._file.read(at, min(_CHUNK_BYTES, end - at))
            if not piece:
                return -1
            crc = crc32c(piece, crc)
            at += len(piece)
        return crc
