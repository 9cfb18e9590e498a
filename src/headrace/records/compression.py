"""Compression codecs of record batches, as Java and librdkafka write them, with a limit on opened bytes.

Compressing gives what the Java client gives: xerial frames for snappy (librdkafka reads both framings),
independent blocks for lz4 (Kafka refuses linked ones). Decompressing takes what any client writes, and
stops at the limit: it never uses more memory than the limit allows.
"""

from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import Final

import cramjam

from headrace.base.limits import COMPRESSION_RATIO_MAX, UNCOMPRESSED_BATCH_BYTES_MAX
from headrace.records.errors import BadCompression, DecompressionBomb, UnsupportedCodec

Bytes = bytes | bytearray | memoryview


class Codec(IntEnum):
    """Bits 0–2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODEC_NAMES: Final = {codec.name.lower(): codec for codec in Codec}

# The ratio is not asked about results below this size: a full producer batch of equal records shrinks by
# more than any sane ratio, and 16 MiB harm nobody.
RATIO_FREE_BYTES: Final = 16 * 1024 * 1024

# A first guess for the room an unknown result needs, as a multiple of the compressed size, and its least.
_GUESS_RATIO: Final = 5
_GUESS_BYTES_MIN: Final = 32 * 1024

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"  # version 1, readable since 1
_XERIAL_BLOCK_BYTES: Final = 32 * 1024  # what snappy-java cuts its input into
_BLOCK_LENGTH: Final = Struct(">i")

_NO_ROOM: Final = "failed to write whole buffer"  # how cramjam says that the output is longer than its target


def codec_of(number: int) -> Codec:
    """The codec of that number, else UnsupportedCodec."""
    try:
        return Codec(number)
    except ValueError:
        raise UnsupportedCodec(f"compression codec {number} does not exist") from None


def uncompressed_bytes_limit(compressed_bytes: int, *, bytes_max: int, ratio_max: int) -> int:
    """The most that so many compressed bytes may become."""
    return min(bytes_max, max(RATIO_FREE_BYTES, compressed_bytes * ratio_max))


def compress(codec: int, data: Bytes, *, level: int | None = None) -> bytes:
    """`data` as the Java client would compress it; `level` None takes Kafka's default of the codec."""
    match codec_of(codec):
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data, level=6 if level is None else level))
        case Codec.SNAPPY:
            return _compress_snappy(data)
        case Codec.LZ4:
            frame = cramjam.lz4.Compressor(
                level=1 if level is None else level, content_checksum=False, block_linked=False
            )
            frame.compress(bytes(data))
            return bytes(frame.finish())
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=3 if level is None else level))


def decompress(
    codec: int,
    data: Bytes,
    *,
    bytes_max: int = UNCOMPRESSED_BATCH_BYTES_MAX,
    ratio_max: int = COMPRESSION_RATIO_MAX,
) -> bytes:
    """The bytes behind `data`; BadCompression for garbage, DecompressionBomb beyond the bounds."""
    limit = uncompressed_bytes_limit(len(data), bytes_max=bytes_max, ratio_max=ratio_max)
    match codec_of(codec):
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return _decompress(cramjam.gzip.decompress_into, data, limit)
        case Codec.SNAPPY:
            return _decompress_snappy(data, limit)
        case Codec.LZ4:
            return _decompress(cramjam.lz4.decompress_into, data, limit)
        case Codec.ZSTD:
            return _decompress(cramjam.zstd.decompress_into, data, limit)


def _decompress(into: Callable[[Bytes, bytearray], int], data: Bytes, limit: int) -> bytes:
    """Decompresses into a room that grows up to the limit.

    Frames often carry no content size, and one that they carry may lie. The room grows fourfold, so that all
    failed tries together cost a third of the last one.
    """
    room_bytes = min(limit, max(_GUESS_BYTES_MIN, len(data) * _GUESS_RATIO))
    while True:
        room = bytearray(room_bytes)
        try:
            size = into(data, room)
        except cramjam.DecompressionError as error:
            if _NO_ROOM not in str(error):
                raise BadCompression(str(error)) from error
            if room_bytes >= limit:
                raise DecompressionBomb(f"{len(data)} compressed bytes become more than {limit}") from error
            room = bytearray()  # given back before the larger one is asked for
            room_bytes = min(limit, room_bytes * 4)
        else:
            return bytes(memoryview(room)[:size])


def _compress_snappy(data: Bytes) -> bytes:
    parts = [_XERIAL_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(_BLOCK_LENGTH.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: Bytes, limit: int) -> bytes:
    """Raw snappy or xerial frames of it. Each block names its size, which is checked before it is opened."""
    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, limit)
    if len(view) < len(_XERIAL_HEADER):
        raise BadCompression("snappy: truncated frame header")
    parts: list[bytes] = []
    position = len(_XERIAL_HEADER)
    while position < len(view):
        if len(view) - position < 4:
            raise BadCompression("snappy: truncated block length")
        (length,) = _BLOCK_LENGTH.unpack_from(view, position)
        position += 4
        if not 0 < length <= len(view) - position:
            raise BadCompression(f"snappy: block of {length} bytes where {len(view) - position} are left")
        part = _decompress_snappy_block(view[position : position + length], limit)
        limit -= len(part)
        parts.append(part)
        position += length
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, limit: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > limit:
            raise DecompressionBomb(f"snappy: a block of {size} bytes where {limit} are allowed")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise BadCompression(str(error)) from error
