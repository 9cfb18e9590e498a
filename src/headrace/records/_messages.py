# cython: annotation_typing=False, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Records as a consumer sees them: `Message`, and the messages of one batch, as many at a time as are wanted.

Like _codec.py this is plain Python that Cython compiles with the C types of the .pxd beside it. A message
costs its key, its value and one object: numbers stay C numbers and headers stay bytes until somebody asks.
"""

from enum import IntEnum
from typing import Any

from headrace.records._codec import Cursor, Headers, check_base_offset, decode_headers

COMPILED = not __file__.endswith(".py")

_NO_HEADERS: Headers = ()


class TimestampType(IntEnum):
    """Whose clock a timestamp was read from."""

    CREATE_TIME = 0  # the producer's
    LOG_APPEND_TIME = 1  # the broker's


_TYPES = tuple(TimestampType)


class Message:
    """One record and where it lies.

    `key` and `value` are bytes, None, or what a deserializer made of them. `timestamp_ms` and `leader_epoch`
    are −1 where the record carries none.
    """

    __slots__ = (
        "_header_count",
        "_header_source",
        "_headers",
        "_key",
        "_timestamp_type",
        "_value",
        "leader_epoch",
        "offset",
        "partition",
        "timestamp_ms",
        "topic",
    )

    __match_args__ = (
        "topic",
        "partition",
        "offset",
        "timestamp_ms",
        "timestamp_type",
        "key",
        "value",
        "headers",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp_ms: int = -1,
        timestamp_type: int = 0,
        key: Any = None,
        value: Any = None,
        headers: Headers = (),
        leader_epoch: int = -1,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self._timestamp_type = int(TimestampType(timestamp_type))
        self._key = key
        self._value = value
        self.leader_epoch = leader_epoch
        self._headers = tuple(headers)
        self._header_source = b""  # the headers as they were written, until they are asked for
        self._header_count = 0

    @property
    def key(self) -> Any:
        return self._key

    @key.setter
    def key(self, key: Any) -> None:
        self._key = key
        if COMPILED:
            self._track(key)

    @property
    def value(self) -> Any:
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        self._value = value
        if COMPILED:
            self._track(value)

    def _track(self, held: object) -> None:
        """Shows a message that `take` made to the garbage collector, if it may be in a cycle now."""
        if PyObject_IS_GC(held) and not PyObject_GC_IsTracked(self):  # type: ignore[name-defined]  # noqa: F821
            PyObject_GC_Track(self)  # type: ignore[name-defined]  # noqa: F821

    @property
    def timestamp_type(self) -> TimestampType:
        return _TYPES[self._timestamp_type]

    @property
    def headers(self) -> Headers:
        if self._header_count:
            self._headers = decode_headers(self._header_source, 0, self._header_count)
            self._header_source = b""
            self._header_count = 0
        return self._headers

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset))

    def __repr__(self) -> str:
        said = f"topic={self.topic!r}, partition={self.partition}, offset={self.offset}"
        said += f", timestamp_ms={self.timestamp_ms}, key={self.key!r}, value={self.value!r}"
        if self.headers:
            said += f", headers={self.headers!r}"
        return f"Message({said})"

    def __reduce__(self) -> tuple[object, ...]:
        return Message, self._fields()

    def _fields(self) -> tuple[object, ...]:
        return (
            self.topic,
            self.partition,
            self.offset,
            self.timestamp_ms,
            self._timestamp_type,
            self._key,
            self._value,
            self.headers,
            self.leader_epoch,
        )


class Unread:
    """The records of one opened batch that nobody has taken yet.

    Invariant: the cursor has walked over all but `left` records.
    """

    __slots__ = (
        "append_time",
        "base_offset",
        "cursor",
        "leader_epoch",
        "left",
        "partition",
        "records",
        "start_offset",
        "topic",
    )

    def __init__(
        self,
        records: bytes,
        count: int,
        base_offset: int,
        base_timestamp: int,
        append_time: int,
        topic: str,
        partition: int,
        leader_epoch: int,
        start_offset: int,
    ) -> None:
        check_base_offset(base_offset)
        self.cursor = Cursor(records, count, base_timestamp)
        self.records = records
        self.left = count
        self.base_offset = base_offset
        self.append_time = append_time  # ≥ 0: it goes for all of them
        self.topic = topic
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.start_offset = start_offset  # nobody asked for what lies before

    def take(self, messages: list[Message], count_max: int) -> None:
        """Appends up to `count_max` messages; those before a damaged record are there when it raises."""
        cursor = self.cursor
        buf = self.records
        topic = self.topic
        taken = 0
        while self.left > 0 and taken < count_max:
            cursor.advance()
            self.left -= 1
            offset = self.base_offset + cursor.offset_delta
            if offset < self.start_offset:
                continue
            message = Message.__new__(Message)  # spares packing and unpacking arguments
            message.topic = topic
            message.partition = self.partition
            message.offset = offset
            if self.append_time < 0:
                message.timestamp_ms = cursor.timestamp
                message._timestamp_type = 0
            else:
                message.timestamp_ms = self.append_time
                message._timestamp_type = 1
            at = cursor.key_at
            length = cursor.key_length
            message._key = buf[at : at + length] if length >= 0 else None
            at = cursor.value_at
            length = cursor.value_length
            message._value = buf[at : at + length] if length >= 0 else None
            message.leader_epoch = self.leader_epoch
            message._headers = _NO_HEADERS
            message._header_count = cursor.header_count
            if cursor.header_count:
                message._header_source = buf[cursor.headers_at : cursor.position]
            if COMPILED:
                # it holds bytes only, so it is in no cycle: the collector need not visit it again and again
                PyObject_GC_UnTrack(message)  # type: ignore[name-defined]  # noqa: F821
            messages.append(message)
            taken += 1
        if self.left == 0:
            cursor.finish()
