# cython: annotation_typing=False, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Arrays of flat structs as columns: a list for each field, read and written in one pass.

A struct is flat if it has only integers and strings. A commit has a hundred of them, and as columns they cost
no object each. Like records/_codec.py this is plain Python that Cython compiles with the C types of the .pxd
beside it: every position is compared with the end before anything is read there.
"""

from collections.abc import Sequence
from struct import error as struct_error
from typing import Any

from headrace.protocol.errors import MalformedMessage
from headrace.protocol.varint import decode_long_varint, skip_tags

# The letters of a layout, a byte for each field.
_INT16 = ord("h")
_INT32 = ord("i")
_INT64 = ord("q")
_STRING = ord("s")
_NULLABLE_STRING = ord("S")

_INT32_MAX = 0x7FFFFFFF

_ENDS = "the message ends inside an array"


def read_columns(
    message: bytes, position: int, count: int, layout: bytes, is_flexible: bool
) -> tuple[list[list[Any]], int]:
    """A list for each field of `count` structs, and the position after them; MalformedMessage if they are not
    there.
    """
    buf = message
    codes = layout
    end = len(message)
    fields = len(layout)
    columns: list[list[Any]] = [[] for _ in range(fields)]
    for _ in range(count):
        for field in range(fields):
            code = codes[field]
            column = columns[field]
            if code == _INT32:
                if end - position < 4:
                    raise MalformedMessage(_ENDS)
                column.append(_int32(buf, position))
                position += 4
            elif code == _INT64:
                if end - position < 8:
                    raise MalformedMessage(_ENDS)
                column.append(_int64(buf, position))
                position += 8
            elif code == _INT16:
                if end - position < 2:
                    raise MalformedMessage(_ENDS)
                column.append(_int16(buf, position))
                position += 2
            else:
                if is_flexible:
                    if position >= end:
                        raise MalformedMessage(_ENDS)
                    length = buf[position]
                    position += 1
                    if length > 127:
                        length, position = decode_long_varint(message, position, length)
                    length -= 1
                else:
                    if end - position < 2:
                        raise MalformedMessage(_ENDS)
                    length = _int16(buf, position)
                    position += 2
                if length > 0:
                    if length > end - position:
                        raise MalformedMessage("a string is longer than the message")
                    try:
                        column.append(message[position : position + length].decode())
                    except UnicodeDecodeError as fault:
                        raise MalformedMessage(str(fault)) from fault
                    position += length
                elif length == 0:
                    column.append("")
                elif code == _NULLABLE_STRING:
                    column.append(None)
                else:
                    raise MalformedMessage("a string must not be null")
        if is_flexible:
            if position >= end:
                raise MalformedMessage(_ENDS)
            tags = buf[position]
            position += 1
            if tags:
                position = skip_tags(message, position, tags)
    return columns, position


def write_columns(columns: Sequence[list[int]], layout: bytes, is_flexible: bool) -> bytes:
    """The structs with these columns, of 16 or 32 bits each; struct.error if a value does not fit."""
    codes = layout
    fields = len(layout)
    count = len(columns[0])
    width = 1 if is_flexible else 0
    for field in range(fields):
        width += 2 if codes[field] == _INT16 else 4
        if len(columns[field]) != count:
            raise struct_error(f"columns of {count} and {len(columns[field])} values")
    made = bytearray(count * width)
    target = made
    position = 0
    for row in range(count):
        for field in range(fields):
            column = columns[field]
            try:
                value = column[row]
            except OverflowError as fault:
                raise struct_error(str(fault)) from fault
            if codes[field] == _INT16:
                if value < -0x8000 or value > 0x7FFF:
                    raise struct_error(f"{value} does not fit into 16 bits")
                target[position] = (value >> 8) & 0xFF
                target[position + 1] = value & 0xFF
                position += 2
            else:
                if value < -_INT32_MAX - 1 or value > _INT32_MAX:
                    raise struct_error(f"{value} does not fit into 32 bits")
                target[position] = (value >> 24) & 0xFF
                target[position + 1] = (value >> 16) & 0xFF
                target[position + 2] = (value >> 8) & 0xFF
                target[position + 3] = value & 0xFF
                position += 4
        if is_flexible:
            position += 1  # no tagged fields
    return bytes(made)


def _int16(buf: bytes, position: int) -> int:
    value = buf[position]
    if value >= 0x80:
        value -= 0x100
    return value * 0x100 + buf[position + 1]


def _int32(buf: bytes, position: int) -> int:
    return _int16(buf, position) * 0x10000 + (buf[position + 2] << 8) + buf[position + 3]


def _int64(buf: bytes, position: int) -> int:
    value = _int32(buf, position)
    for index in range(4, 8):
        value = value * 0x100 + buf[position + index]
    return value
