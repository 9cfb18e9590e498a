# cython: annotation_typing=False, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Records of a sink's attempts, many at a time: a commit has one for each task.

Like records/_codec.py this is plain Python that Cython compiles with the C types of the .pxd beside it.

    key    int16 1, the sink (an int16 and so many bytes), int64 producer id
    value  int16 version 0, int16 epoch, int8 status, int32 task, int64 number, topics, int64 time, no tags
"""

from typing import Any

from headrace.protocol.errors import UnencodableMessage

# Varints of a record, of five bytes at most each (length, offset delta, lengths of key and value), and its
# attributes, timestamp delta and header count, of one byte each.
_VARINTS_BYTES = 23
_HEAD_BYTES = 17


def encode_attempts(
    key: bytes, attempts: list[Any], topics: list[bytes], tail: bytes, first_delta: int
) -> bytes:
    """The records as they stand in a batch that has their time as its timestamp; the first has this offset
    delta. `key` is what all keys begin with, `tail` what all values end with. An attempt is a tuple: producer
    id, epoch, task, number, status, and more; `topics` has the encoded partitions of each.
    """
    count = len(attempts)
    if first_delta < 0 or len(topics) != count:
        raise UnencodableMessage(f"{count} attempts from {first_delta} on with {len(topics)} topics")
    key_length = len(key)
    tail_length = len(tail)
    size = 0
    for places in topics:
        size += len(places)
    made = bytearray(count * (_VARINTS_BYTES + key_length + 8 + _HEAD_BYTES + tail_length) + size)
    target = made
    position = 0
    for row in range(count):
        attempt = attempts[row]
        places = topics[row]
        length = len(places)
        value_length = _HEAD_BYTES + length + tail_length
        offset_delta = first_delta + row
        position = _write_varint(
            target,
            position,
            2
            * (
                3
                + _varint_size(2 * offset_delta)
                + _varint_size(2 * (key_length + 8))
                + key_length
                + 8
                + _varint_size(2 * value_length)
                + value_length
            ),
        )
        target[position] = 0  # attributes
        target[position + 1] = 0  # timestamp delta
        position = _write_varint(target, position + 2, 2 * offset_delta)
        position = _write_varint(target, position, 2 * (key_length + 8))
        position = _copy(target, position, key, key_length)
        number = attempt[0]
        position = _write_int(target, position, number, 8)
        position = _write_varint(target, position, 2 * value_length)
        position = _write_int(target, position, 0, 2)
        number = attempt[1]
        position = _write_int(target, position, number, 2)
        number = attempt[4]
        position = _write_int(target, position, number, 1)
        number = attempt[2]
        position = _write_int(target, position, number, 4)
        number = attempt[3]
        position = _write_int(target, position, number, 8)
        position = _copy(target, position, places, length)
        position = _copy(target, position, tail, tail_length)
        target[position] = 0  # headers
        position += 1
    return bytes(made[:position])


def _varint_size(value: int) -> int:
    size = 1
    while value >= 0x80:
        value >>= 7
        size += 1
    return size


def _write_varint(target: bytearray, position: int, value: int) -> int:
    """Writes an unsigned varint and gives the position after it."""
    while value >= 0x80:
        target[position] = (value & 0x7F) | 0x80
        value >>= 7
        position += 1
    target[position] = value
    return position + 1


def _write_int(target: bytearray, position: int, value: int, size: int) -> int:
    for index in range(size):
        target[position + index] = (value >> (8 * (size - 1 - index))) & 0xFF
    return position + size


def _copy(target: bytearray, position: int, source: bytes, length: int) -> int:
    for index in range(length):
        target[position + index] = source[index]
    return position + length
