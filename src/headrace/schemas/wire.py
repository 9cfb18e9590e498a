"""Confluent's wire format: the schema id in front of a value or in a header.

    0 │ id, 4 bytes │ message indexes (Protobuf only) │ data        in front of the data
    1 │ guid, 16 bytes │ message indexes (Protobuf only)             in a header, the data as it is

Message indexes are the path from the file to the message, as zigzag varints after their count; a single 0
means the first message, the most frequent case.
"""

from typing import NamedTuple

from headrace.schemas.errors import NotFramed

KEY_HEADER = "__key_schema_id"
VALUE_HEADER = "__value_schema_id"

ID_MAGIC, GUID_MAGIC = 0, 1
PREFIX_BYTES, GUID_PREFIX_BYTES = 5, 17  # of an id or a guid, with what tells that it is one
FIRST: tuple[int, ...] = (0,)
# A message is nested no deeper; more indexes are garbage that looks like a frame.
INDEXES_MAX = 64


class Frame(NamedTuple):
    """A schema, by its id in one registry, or by its guid in any."""

    id: int | None
    guid: str | None
    indexes: tuple[int, ...]
    payload_at: int


def framed(id: int, payload: bytes, indexes: tuple[int, ...] | None = None) -> bytes:
    return prefix(id, indexes) + payload


def prefix(id: int, indexes: tuple[int, ...] | None = None) -> bytes:
    """The bytes in front of the data; `indexes` for Protobuf only."""
    return b"\0" + id.to_bytes(4, "big") + (b"" if indexes is None else encoded_indexes(indexes))


def header_value(guid: str, indexes: tuple[int, ...] | None = None) -> bytes:
    """The value of the header for data without a schema id in front."""
    return (
        b"\1" + bytes.fromhex(guid.replace("-", "")) + (b"" if indexes is None else encoded_indexes(indexes))
    )


def encoded_indexes(indexes: tuple[int, ...]) -> bytes:
    if indexes == FIRST:
        return b"\0"
    return b"".join(_zigzag(number) for number in (len(indexes), *indexes))


def read_frame(data: bytes, *, with_indexes: bool) -> Frame:
    """Reads the frame; raises NotFramed for bytes that do not begin with one."""
    if not data:
        raise NotFramed("the value is empty: it has no schema id")
    if data[0] == ID_MAGIC and len(data) >= 5:
        id, guid, position = int.from_bytes(data[1:5], "big"), None, 5
    elif data[0] == GUID_MAGIC and len(data) >= 17:
        text = data[1:17].hex()
        guid = f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
        id, position = None, 17
    else:
        raise NotFramed(f"{data[:5].hex(' ')} does not begin with a schema's id")
    indexes = FIRST
    if with_indexes:
        indexes, position = read_indexes(data, position)
    return Frame(id, guid, indexes, position)


def read_indexes(data: bytes, position: int) -> tuple[tuple[int, ...], int]:
    count, position = _read_zigzag(data, position)
    if count == 0:
        return FIRST, position
    if not 0 < count <= INDEXES_MAX:
        raise NotFramed(f"the number of message indexes is {count}: must be 0 to {INDEXES_MAX}")
    indexes = []
    for _ in range(count):
        number, position = _read_zigzag(data, position)
        indexes.append(number)
    return tuple(indexes), position


def _zigzag(number: int) -> bytes:
    value = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_zigzag(data: bytes, position: int) -> tuple[int, int]:
    # not the varint of a descriptor (schema_formats/protobuf/wire.py): signed, shorter, and another error
    value = shift = 0
    while True:
        if position >= len(data) or shift > 35:
            raise NotFramed("the message indexes are cut off")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
