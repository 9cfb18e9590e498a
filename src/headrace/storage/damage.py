"""Damaged batches told apart from torn ones, and the next intact batch behind them.

A killed process leaves at most one batch that is cut short at the end of the last segment. A machine that
lost power may also leave sectors of zeros, but only above what was flushed. Everything else that does not
read as a batch is damage: it is reported, and what lies behind it is kept.
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

_CRC = Struct(">I")
_LENGTH = Struct(">i")

# A sector that a device did not write reads as zeros. A batch has runs of zeros of its own (small numbers in
# wide fields), but not of this length unless its records are zeros.
HOLE_BYTES = 256

Data = bytes | memoryview


class Damage(NamedTuple):
    """Something on disk that is not what it should be, for a report."""

    path: str
    what: str


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
