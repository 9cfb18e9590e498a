# cython: annotation_typing=False, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Records of committed offsets, many at a time: written from columns, and read into what a coordinator keeps.

Like records/_codec.py this is plain Python that Cython compiles with the C types of the .pxd beside it. It
knows the usual records only; whatever else a log has is handed on as it is, for the general decoder.

    key    int16 1, group, topic, int32 partition; a name is an int16 and so many bytes
    value  int16 version, int64 offset, from version 3 int32 leader epoch, metadata, int64 time of the commit,
           in version 1 int64 time of expiry; from version 4 lengths are varints, and tag 0 is the topic's id
"""

from typing import Any

import headrace.protocol.untracked as untracked
from headrace.protocol.errors import UnencodableMessage
from headrace.records._codec import Cursor, check_base_offset

# Offset, leader epoch, metadata, time of the commit, time of its expiry (-1: by retention), topic id.
Committed = tuple[int, int, str, int, int, bytes]

NO_EXPIRY = -1
_NO_TOPIC_ID = bytes(16)
_NAME_BYTES_MAX = 0x7FFF

# Varints of a record, of five bytes at most each (length, offset delta, lengths of key, value and metadata),
# and its attributes, timestamp delta and header count, of one byte each.
_VARINTS_BYTES = 28


def encode_commits(
    group: bytes,
    topic: bytes,
    topic_id: bytes,
    partitions: list[int],
    offsets: list[int],
    leader_epochs: list[int],
    metadata: list[str | None],
    commit_ms: int,
    expires_ms: int,
    first_delta: int,
) -> bytes:
    """The records of a group's offsets in one topic, as they stand in a batch whose timestamp is the time of
    the commit; the first has this offset delta.
    """
    count = len(partitions)
    if len(offsets) != count or len(leader_epochs) != count or len(metadata) != count:
        raise UnencodableMessage(f"{topic!r}: columns of different lengths")
    if len(group) > _NAME_BYTES_MAX or len(topic) > _NAME_BYTES_MAX:
        raise UnencodableMessage(f"names of {len(group)} and {len(topic)} bytes")
    has_expiry = expires_ms != NO_EXPIRY
    key = b"\0\1%b%b%b%b" % (len(group).to_bytes(2, "big"), group, len(topic).to_bytes(2, "big"), topic)
    tail = commit_ms.to_bytes(8, "big", signed=True)
    if has_expiry:
        tail += expires_ms.to_bytes(8, "big", signed=True)
    elif topic_id == _NO_TOPIC_ID:
        tail += b"\0"
    else:
        tail += b"\1\0\x10" + topic_id
    texts: list[bytes] = []
    text_bytes = 0
    for text in metadata:
        encoded = text.encode() if text else b""
        if has_expiry and len(encoded) > _NAME_BYTES_MAX:
            raise UnencodableMessage(f"metadata of {len(encoded)} bytes")
        text_bytes += len(encoded)
        texts.append(encoded)
    key_length = len(key)
    tail_length = len(tail)
    made = bytearray(count * (_VARINTS_BYTES + key_length + 18 + tail_length) + text_bytes)
    target = made
    position = 0
    for row in range(count):
        encoded = texts[row]
        length = len(encoded)
        offset_delta = first_delta + row
        if has_expiry:
            value_length = 12 + length + tail_length
        else:
            value_length = 14 + _varint_size(length + 1) + length + tail_length
        position = _write_varint(
            target,
            position,
            2
            * (
                7
                + _varint_size(2 * offset_delta)
                + _varint_size(2 * (key_length + 4))
                + key_length
                + _varint_size(2 * value_length)
                + value_length
            ),
        )
        target[position] = 0  # attributes
        target[position + 1] = 0  # timestamp delta
        position = _write_varint(target, position + 2, 2 * offset_delta)
        position = _write_varint(target, position, 2 * (key_length + 4))
        position = _copy(target, position, key, key_length)
        position = _write_int32(target, position, partitions[row])
        position = _write_varint(target, position, 2 * value_length)
        target[position] = 0
        target[position + 1] = 1 if has_expiry else 4
        offset = offsets[row]
        position = _write_int32(target, position + 2, offset >> 32)
        position = _write_int32(target, position, offset)
        if has_expiry:
            target[position] = length >> 8
            target[position + 1] = length & 0xFF
            position += 2
        else:
            position = _write_int32(target, position, leader_epochs[row])
            position = _write_varint(target, position, length + 1)
        position = _copy(target, position, encoded, length)
        position = _copy(target, position, tail, tail_length)
        target[position] = 0  # headers
        position += 1
    return bytes(made[:position])


def committed_by_partition(
    topic_id: bytes,
    partitions: list[int],
    offsets: list[int],
    leader_epochs: list[int],
    metadata: list[str | None],
    commit_ms: int,
    expires_ms: int,
) -> dict[int, Committed]:
    """What a coordinator keeps of the same columns; of several offsets for a partition, the last."""
    kept: dict[int, Committed] = {}
    for row, partition in enumerate(partitions):
        text = metadata[row]
        if text is None:
            text = ""
        committed = (offsets[row], leader_epochs[row], text, commit_ms, expires_ms, topic_id)
        untracked.untrack(committed)
        kept[partition] = committed
    return kept


class CommitReader:
    """Reads the records of one batch that have at least the offset `from_offset`."""

    __slots__ = (
        "_base_offset",
        "_buf",
        "_commit_ms",
        "_commit_ms_read",
        "_cursor",
        "_from_offset",
        "_left",
        "_partition",
        "_records",
        "_topic_id",
    )

    def __init__(
        self, records: bytes, count: int, base_offset: int, base_timestamp: int, from_offset: int
    ) -> None:
        check_base_offset(base_offset)
        self._records = records
        self._buf = records
        self._base_offset = base_offset
        self._from_offset = from_offset
        self._left = count
        self._cursor = Cursor(records, count, base_timestamp)
        # the last that were read: records that were written together share them
        self._topic_id = _NO_TOPIC_ID
        self._commit_ms: Any = 0
        self._commit_ms_read = 0
        self._partition = 0

    def read(self, records_max: int) -> list[tuple[Any, Any, Any]] | None:
        """The next records, in their order; None at the end. Neighbours with offsets of one group in one
        topic are one entry: group, topic, and what is committed by partition. Any other record is an entry of
        its own: offset, key, value. CorruptRecords where a record is malformed.
        """
        cursor = self._cursor
        buf = self._buf
        if self._left <= 0:
            return None
        entries: list[tuple[Any, Any, Any]] = []
        kept: dict[int, Committed] | None = None
        names_at = 0
        names_length = 0
        while self._left > 0 and records_max > 0:
            cursor.advance()
            self._left -= 1
            records_max -= 1
            if self._left == 0:
                cursor.finish()
            offset = self._base_offset + cursor.offset_delta
            if offset < self._from_offset:
                continue
            committed = self._committed()
            if committed is not None:
                length = cursor.key_length - 6
                at = cursor.key_at + 2
                if kept is None or length != names_length or not _are_equal(buf, at, buf, names_at, length):
                    names = self._names()
                    if names is not None:
                        kept = {}
                        names_at = at
                        names_length = length
                        entries.append((names[0], names[1], kept))
                    else:
                        kept = None
                if kept is not None:
                    kept[self._partition] = committed
                    continue
            kept = None
            at = cursor.key_at
            length = cursor.key_length
            key = buf[at : at + length] if length >= 0 else None
            at = cursor.value_at
            length = cursor.value_length
            value = buf[at : at + length] if length >= 0 else None
            entries.append((offset, key, value))
        return entries

    def _names(self) -> tuple[str, str] | None:
        """The group and the topic in a key whose lengths were checked; None: they are not UTF-8."""
        at = self._cursor.key_at + 4
        length = _int16(self._buf, at - 2)
        topic_at = at + length + 2
        topic_length = _int16(self._buf, topic_at - 2)
        try:
            group = self._records[at : at + length].decode()
            return group, self._records[topic_at : topic_at + topic_length].decode()
        except UnicodeDecodeError:
            return None

    def _committed(self) -> Committed | None:
        """What the record where the cursor is commits, with the partition in `_partition`; None: it is not of
        the usual kind.
        """
        cursor = self._cursor
        buf = self._buf
        at = cursor.key_at
        end = at + cursor.key_length
        if cursor.key_length < 10 or buf[at] != 0 or buf[at + 1] != 1:
            return None
        length = _int16(buf, at + 2)
        if length < 0 or length > end - at - 10:
            return None
        at += 4 + length
        length = _int16(buf, at)
        if length < 0 or length != end - at - 6:
            return None
        self._partition = _int32(buf, end - 4)

        at = cursor.value_at
        end = at + cursor.value_length
        if cursor.value_length < 20 or buf[at] != 0:
            return None
        version = buf[at + 1]
        if version > 4:
            return None
        offset = _int64(buf, at + 2)
        at += 10
        leader_epoch = -1
        if version >= 3:
            leader_epoch = _int32(buf, at)
            at += 4
        if version == 4:
            length = buf[at] - 1
            at += 1
            if length > 126:  # the second byte of the varint; longer ones are rare
                if end - at < 1 or buf[at] > 127:
                    return None
                length = (length + 1) - 128 + (buf[at] << 7) - 1
                at += 1
        else:
            length = _int16(buf, at)
            at += 2
        if length < 0 or length > end - at - 8:
            return None
        metadata = ""
        if length > 0:
            try:
                metadata = self._records[at : at + length].decode()
            except UnicodeDecodeError:
                return None
            at += length
        commit_ms = _int64(buf, at)
        at += 8
        expires_ms = -1
        topic_id = _NO_TOPIC_ID
        if version == 1:
            if end - at != 8:
                return None
            expires_ms = _int64(buf, at)
            at += 8
        elif version == 4:
            if end - at == 19 and buf[at] == 1 and buf[at + 1] == 0 and buf[at + 2] == 16:
                topic_id = self._topic_id
                if not _are_equal(buf, at + 3, topic_id, 0, 16):
                    topic_id = self._topic_id = self._records[at + 3 : at + 19]
                at += 19
            elif end - at == 1 and buf[at] == 0:
                at += 1
            else:
                return None
        if at != end:
            return None
        if commit_ms != self._commit_ms_read or not self._commit_ms:
            self._commit_ms = commit_ms
            self._commit_ms_read = commit_ms
        committed = (offset, leader_epoch, metadata, self._commit_ms, expires_ms, topic_id)
        untracked.untrack(committed)
        return committed


def gone_partitions(kept: dict[int, Committed], topic_id: bytes | None) -> list[int]:
    """Where the offset is of a topic that is gone."""
    gone: list[int] = []
    for partition, committed in kept.items():
        known = committed[5]
        if topic_id is None or (known is not topic_id and known != topic_id and known != _NO_TOPIC_ID):
            gone.append(partition)
    return gone


def _are_equal(first: bytes, first_at: int, second: bytes, second_at: int, length: int) -> bool:
    for index in range(length):  # noqa: SIM110  (a loop in C)
        if first[first_at + index] != second[second_at + index]:
            return False
    return True


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


def _write_int32(target: bytearray, position: int, value: int) -> int:
    target[position] = (value >> 24) & 0xFF
    target[position + 1] = (value >> 16) & 0xFF
    target[position + 2] = (value >> 8) & 0xFF
    target[position + 3] = value & 0xFF
    return position + 4


def _copy(target: bytearray, position: int, source: bytes, length: int) -> int:
    for index in range(length):
        target[position + index] = source[index]
    return position + length


# The same as in `_flat_structs`: from one compiled module to another, each would be a Python call.
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
