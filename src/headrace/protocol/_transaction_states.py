# cython: annotation_typing=False, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Records of `__transaction_state`, many at a time: read into what a coordinator keeps.

Like records/_codec.py this is plain Python that Cython compiles with the C types of the .pxd beside it. It
knows the usual batches and records only; whatever else a log has is left to the general decoder. Most batches
of this log have one record, so it takes the batches apart, too.

    key    int16 0, the transactional id; a name is an int16 and so many bytes
    value  int16 version, int64 producer id, int16 epoch, int32 timeout, int8 state, topics, int64 time of the
           last change, int64 start; a topic is its name and an array of int32; from version 1 lengths are
           varints, topics end with a 0, and tags follow: 0 previous producer id, 1 next producer id,
           2 version of the client, 3 next epoch
"""

from typing import Any

import headrace.protocol.untracked as untracked
from headrace.records._codec import Cursor
from headrace.records.checksum import crc32c
from headrace.records.errors import CorruptRecords

# Of the batch's header: see records/batch.py.
_HEADER_BYTES = 61
_LENGTH_OVERHEAD = 12
_UNUSUAL = 0x37  # compressed, transactional or control

_BASE_OFFSET_MAX = 0x7FFFFFFFFFFFFFFF - 0x7FFFFFFF
_VALUE_BYTES_MIN = 35  # of version 1: without topics and tags
_STATES = 8

_NO_PARTITIONS: frozenset[tuple[str, int]] = frozenset()
_new = tuple.__new__


class StateReader:
    """Reads the batches of a chunk of the log from `position` on, and of their records those that have at
    least the offset `from_offset`.

    `kind` is the named tuple of a state: id, producer id, epoch, timeout, state, time of the last change,
    partitions, start, previous and next producer id, version of the client. `states` are the values for the
    numbers of states.
    """

    __slots__ = (
        "_batch_end",
        "_buf",
        "_chunk",
        "_cursor",
        "_is_damaged",
        "_is_flexible",
        "_kind",
        "_last_offset",
        "_last_partitions",
        "_left",
        "_offset",
        "_partitions",
        "_size",
        "_states",
        "_topic",
        "_topic_at",
        "_topic_length",
        "_topics_at",
        "_topics_length",
        "_view",
        "items",
        "next_offset",
        "position",
    )

    def __init__(
        self, chunk: bytes, position: int, from_offset: int, kind: type[Any], states: tuple[Any, ...]
    ) -> None:
        if position < 0 or position > len(chunk):
            raise ValueError(f"position {position} of {len(chunk)} bytes")
        if len(states) != _STATES:
            raise ValueError(f"{len(states)} states")
        self._chunk = chunk
        self._buf = chunk
        self._view = memoryview(chunk)
        self._size = len(chunk)
        self._kind = kind
        self._states = states
        self._cursor = Cursor(chunk, 0, 0)
        self.position = position  # where the batch begins that was not read to its end
        self.next_offset = from_offset  # after the batches that were
        self.items = 0  # records and their partitions, of the last call
        self._left = 0  # records of the batch that were not read
        self._offset = 0  # of the batch's first record
        self._last_offset = 0
        self._batch_end = 0
        self._is_damaged = False
        self._partitions = _NO_PARTITIONS
        # the last that were read: a transaction has the same partitions when it ends, others the same topic
        self._last_partitions = _NO_PARTITIONS
        self._is_flexible = False
        self._topics_at = 0
        self._topics_length = 0
        self._topic = ""
        self._topic_at = 0
        self._topic_length = 0

    def read(self, items_max: int) -> list[Any] | None:
        """The next records, in their order, until there are so many records and partitions. None: at
        `position` the chunk ends, or a batch begins that is for the general decoder.

        States that follow each other are one entry, a dict by transactional id. So are tombstones, a list of
        ids. Any other record is an entry of its own, a tuple: offset, key, value.
        """
        cursor = self._cursor
        buf = self._buf
        entries: list[Any] = []
        states: dict[str, Any] | None = None
        gone: list[str] | None = None
        items = 0
        try:
            while items < items_max:
                if self._left <= 0 and not self._open_batch():
                    break
                cursor.advance()
                items += 1
                self._left -= 1
                if self._left == 0:
                    cursor.finish()
                    self.position = self._batch_end
                offset = self._offset + cursor.offset_delta
                if offset >= self.next_offset:
                    name = self._name()
                    if name is not None:
                        if cursor.value_length < 0:
                            if gone is None:
                                gone = []
                                states = None
                                entries.append(gone)
                            gone.append(name)
                        else:
                            state = self._state(name)
                            if state is None:
                                name = None
                            else:
                                if states is None:
                                    states = {}
                                    gone = None
                                    entries.append(states)
                                states[name] = state
                                items += len(self._partitions)
                    if name is None:
                        states = None
                        gone = None
                        at = cursor.key_at
                        length = cursor.key_length
                        key = buf[at : at + length] if length >= 0 else None
                        at = cursor.value_at
                        length = cursor.value_length
                        value = buf[at : at + length] if length >= 0 else None
                        entries.append((offset, key, value))
                if self._left == 0:
                    self.next_offset = self._last_offset + 1
        except CorruptRecords:
            self._is_damaged = True  # the general decoder meets the same, and says so
            self._left = 0
        self.items = items
        return entries if items else None

    def _open_batch(self) -> bool:
        """Whether at `position` there is a batch of the usual kind. Its records are read next."""
        buf = self._buf
        while True:
            at = self.position
            if self._is_damaged or self._size - at < _HEADER_BYTES:
                return False
            size = _int32(buf, at + 8) + _LENGTH_OVERHEAD
            if size < _HEADER_BYTES or size > self._size - at or buf[at + 16] != 2:
                return False
            end = at + size
            crc = _int32(buf, at + 17) & 0xFFFFFFFF
            if crc != crc32c(self._view[at + 21 : end]):
                return False
            offset = _int64(buf, at)
            if offset < 0 or offset > _BASE_OFFSET_MAX:
                return False
            self._offset = offset
            self._last_offset = offset + _int32(buf, at + 23)
            if self._last_offset < self.next_offset:
                self.position = end
                continue
            count = _int32(buf, at + 57)
            if buf[at + 22] & _UNUSUAL or count < 1 or count > (size - _HEADER_BYTES) // 7:
                return False
            self._cursor.begin(at + _HEADER_BYTES, end, _int64(buf, at + 27))
            self._left = count
            self._batch_end = end
            return True

    def _name(self) -> Any:
        """The transactional id of the record where the cursor is; None: the key is not of the usual kind."""
        cursor = self._cursor
        buf = self._buf
        at = cursor.key_at
        length = cursor.key_length
        if length < 4 or buf[at] != 0 or buf[at + 1] != 0 or _int16(buf, at + 2) != length - 4:
            return None
        try:
            return self._chunk[at + 4 : at + length].decode()
        except UnicodeDecodeError:
            return None

    def _state(self, name: Any) -> Any:
        """What the record where the cursor is says about the id; None: it is not of the usual kind."""
        cursor = self._cursor
        buf = self._buf
        at = cursor.value_at
        end = at + cursor.value_length
        if cursor.value_length < _VALUE_BYTES_MIN or buf[at] != 0 or buf[at + 1] > 1:
            return None
        is_flexible = buf[at + 1] == 1
        producer_id = _int64(buf, at + 2)
        epoch = _int16(buf, at + 10)
        timeout_ms = _int32(buf, at + 12)
        number = buf[at + 16]
        if number >= _STATES:
            return None
        at = self._read_topics(at + 17, end, is_flexible)
        if at < 0 or end - at < 16:
            return None
        last_update_ms = _int64(buf, at)
        start_ms = _int64(buf, at + 8)
        at += 16
        previous_id = -1
        next_id = -1
        client_version = 0
        if is_flexible:
            if end - at < 1:
                return None
            tags = buf[at]
            at += 1
            last_tag = -1
            while tags > 0:
                tags -= 1
                if end - at < 4:
                    return None
                tag = buf[at]
                size = buf[at + 1]
                at += 2
                if tag <= last_tag or size > end - at or size != (8 if tag < 2 else 2):
                    return None
                if tag == 0:
                    previous_id = _int64(buf, at)
                elif tag == 1:
                    next_id = _int64(buf, at)
                elif tag == 2:
                    client_version = _int16(buf, at)
                elif tag != 3:  # the next epoch, which nobody asks for
                    return None
                last_tag = tag
                at += size
        if at != end:
            return None
        state: tuple[Any, ...] = _new(
            self._kind,
            (
                name,
                producer_id,
                epoch,
                timeout_ms,
                self._states[number],
                last_update_ms,
                self._partitions,
                start_ms,
                previous_id,
                next_id,
                client_version,
            ),
        )
        untracked.untrack(state)
        return state

    def _read_topics(self, at: int, end: int, is_flexible: bool) -> int:
        """Reads the partitions into `_partitions` and gives the position after them; negative: they are not
        of the usual kind.
        """
        buf = self._buf
        length = self._topics_length
        is_comparable = length > 0 and is_flexible == self._is_flexible and length <= end - at
        if is_comparable and _are_equal(buf, at, self._topics_at, length):
            self._partitions = self._last_partitions
            return at + length
        begin = at
        self._partitions = _NO_PARTITIONS
        count, at = _read_count(buf, at, end, is_flexible)
        if at < 0 or count < -1:
            return -1
        if count <= 0:
            return at
        partitions: list[tuple[str, int]] = []
        while count > 0:
            count -= 1
            if is_flexible:
                length, at = _read_count(buf, at, end, True)
                if at < 0:
                    return -1
            else:
                if end - at < 2:
                    return -1
                length = _int16(buf, at)
                at += 2
            if length < 0 or length > end - at:
                return -1
            if not self._read_topic(at, length):
                return -1
            topic = self._topic
            at += length
            indexes, at = _read_count(buf, at, end, is_flexible)
            if at < 0 or indexes < 0 or indexes > (end - at) // 4:
                return -1
            while indexes > 0:
                indexes -= 1
                place = (topic, _int32(buf, at))
                untracked.untrack(place)
                partitions.append(place)
                at += 4
            if is_flexible:
                if end - at < 1 or buf[at] != 0:
                    return -1
                at += 1
        self._partitions = self._last_partitions = frozenset(partitions)
        self._is_flexible = is_flexible
        self._topics_at = begin
        self._topics_length = at - begin
        return at

    def _read_topic(self, at: int, length: int) -> bool:
        """Reads the name of a topic into `_topic`; False: it is not UTF-8."""
        if length == self._topic_length and _are_equal(self._buf, at, self._topic_at, length):
            return True
        try:
            self._topic = self._chunk[at : at + length].decode()
        except UnicodeDecodeError:
            return False
        self._topic_at = at
        self._topic_length = length
        return True


def _read_count(buf: bytes, at: int, end: int, is_flexible: bool) -> tuple[int, int]:
    """A length, -1 if there is null, and the position after it, which is negative if there is none or the
    varint is unusually long.
    """
    if is_flexible:
        if end - at < 1:
            return 0, -1
        value = buf[at]
        if value < 0x80:
            return value - 1, at + 1
        if end - at < 2 or buf[at + 1] >= 0x80:
            return 0, -1
        return (value & 0x7F) + (buf[at + 1] << 7) - 1, at + 2
    if end - at < 4:
        return 0, -1
    return _int32(buf, at), at + 4


def _are_equal(buf: bytes, first_at: int, second_at: int, length: int) -> bool:
    for index in range(length):  # noqa: SIM110  (a loop in C)
        if buf[first_at + index] != buf[second_at + index]:
            return False
    return True


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
