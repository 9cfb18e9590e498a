"""Bit flips in a log: the positions at which a checksum notices one. No checksum covers a
batch's offset, length and leader epoch.
"""

from headrace.base.randomness import Randomness
from headrace.records.batch import HEADER_BYTES, LENGTH_OVERHEAD

CRC_POSITION = 17  # in a batch; all that follows is covered by it


def batch_positions(data: bytes | bytearray) -> list[int]:
    """Where the whole batches of a log begin."""
    positions, position = [], 0
    while position + HEADER_BYTES <= len(data):
        size = _size_at(data, position)
        if size < HEADER_BYTES or position + size > len(data):
            break
        positions.append(position)
        position += size
    return positions


def damaged_position(data: bytes | bytearray, batch: int, rng: Randomness) -> int:
    """Some byte of the batch."""
    return batch + CRC_POSITION + rng.randrange(_size_at(data, batch) - CRC_POSITION)


def _size_at(data: bytes | bytearray, position: int) -> int:
    return int.from_bytes(data[position + 8 : position + 12]) + LENGTH_OVERHEAD
