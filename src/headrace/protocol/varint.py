"""Unsigned varints and tag buffers, which Python's `struct` cannot encode.

Generated codecs call these functions only in rare cases: they handle a length below 128 and an empty tag
buffer themselves. Every number from the wire is compared with the number of bytes that are left.
"""

from __future__ import annotations

from headrace.protocol.errors import MalformedMessage, UnencodableMessage

ONE_BYTE = tuple(bytes((value,)) for value in range(128))


def encode_varint(value: int) -> bytes:
    """The unsigned varint of a value below 2**32."""
    if value < 128:
        return ONE_BYTE[value]
    if value >> 32:
        raise UnencodableMessage(f"{value} does not fit into an unsigned varint")
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_varint(buffer: bytes | memoryview, position: int) -> tuple[int, int]:
    """Reads an unsigned varint of at most five bytes; gives the value and the position after it."""
    try:
        first = buffer[position]
    except IndexError:
        raise MalformedMessage("the message ends inside a varint") from None
    if first < 128:
        return first, position + 1
    return decode_long_varint(buffer, position + 1, first)


def decode_long_varint(buffer: bytes | memoryview, position: int, first: int) -> tuple[int, int]:
    """Goes on behind a first byte that says there are more."""
    try:
        second = buffer[position]
        if second < 128:  # the usual case: below 16 KiB
            return first & 127 | second << 7, position + 1
        value = first & 127 | (second & 127) << 7
        for shift in (14, 21, 28):
            position += 1
            byte = buffer[position]
            value |= (byte & 127) << shift
            if byte < 128:
                break
        else:
            raise MalformedMessage("a varint is longer than five bytes")
    except IndexError:
        raise MalformedMessage("the message ends inside a varint") from None
    if value >> 32:
        raise MalformedMessage("a varint is larger than 32 bits")
    return value, position + 1


def skip_tags(buffer: bytes | memoryview, position: int, count: int) -> int:
    """Steps over `count` tagged fields that this version does not know; gives the position after them.

    `count` is the first byte of the count, which the caller has read.
    """
    if count > 127:
        count, position = decode_long_varint(buffer, position, count)
    end = len(buffer)
    if count * 2 > end - position:
        raise MalformedMessage("more tagged fields announced than bytes are left")
    last = -1
    for _ in range(count):
        tag, position = decode_varint(buffer, position)
        size, position = decode_varint(buffer, position)
        if tag <= last:
            raise MalformedMessage(f"tag {tag} follows tag {last}")
        last = tag
        position += size
        if position > end:
            raise MalformedMessage(f"tag {tag} is longer than the message")
    return position
