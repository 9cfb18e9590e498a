"""Protobuf's wire format, as far as file descriptors need it: varints and length-delimited fields."""

from collections.abc import Iterator

from headrace.schema_formats.schema import InvalidSchema

Value = int | bytes


def number(tag: int, value: int) -> bytes:
    """A varint field; negative numbers as 64 bits."""
    return varint(tag << 3) + varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def sized(tag: int, content: bytes | str) -> bytes:
    data = content.encode() if isinstance(content, str) else content
    return varint(tag << 3 | 2) + varint(len(data)) + data


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """Tag and value of each field. InvalidSchema for bytes that are not a message."""
    position = 0
    while position < len(data):
        key, position = read_varint(data, position)
        tag, kind = key >> 3, key & 7
        if kind == 0:
            value, position = read_varint(data, position)
            yield tag, value
        elif kind == 2:
            size, position = read_varint(data, position)
            if position + size > len(data):
                raise InvalidSchema("a field is longer than its message")
            yield tag, data[position : position + size]
            position += size
        elif kind in (1, 5):  # fixed numbers: options of others, which are not kept
            position += 8 if kind == 1 else 4
            if position > len(data):
                raise InvalidSchema("a number is longer than its message")
        else:
            raise InvalidSchema(f"a descriptor cannot have wire type {kind}")


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise InvalidSchema("a varint has no end")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def signed(value: int) -> int:
    """An int32 or int64 as it was before it was encoded."""
    return value - (1 << 64) if value >= 1 << 63 else value


def text(value: Value) -> str:
    if not isinstance(value, bytes):
        raise InvalidSchema("a field has a number instead of text")
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InvalidSchema("a text is not UTF-8") from None


def whole(value: Value) -> int:
    if not isinstance(value, int):
        raise InvalidSchema("a field has bytes instead of a number")
    return value


def message(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise InvalidSchema("a field has a number instead of a message")
    return value
