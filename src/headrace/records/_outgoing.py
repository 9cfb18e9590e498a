# cython: annotation_typing=False, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Records on their way out: deliveries, the batches that carry them, and the lane of each partition.

Like _codec.py this is plain Python that Cython compiles with the C types of the .pxd beside it. A record is
written straight into its batch's buffer; what remains of it is a `Delivery`, which knows its batch and its
place there. So a million records cost a million small objects and nothing else.

    open --full, lingered long enough or flushed--> closed --sealed--> on the wire --> settled, or split
"""

from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, Protocol

from headrace.records._codec import Headers, encode_headers
from headrace.records.batch import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER,
    HEADER_BYTES,
    LENGTH_OVERHEAD,
    MAGIC,
    NO_PRODUCER,
    NO_SEQUENCE,
    TRANSACTIONAL,
)
from headrace.records.checksum import crc32c
from headrace.records.compression import compress

COMPILED = not __file__.endswith(".py")

NO_HEADERS = b"\x00"  # as they are written

# Lengths, deltas and counts of one record are varints; together they never take more than this.
_OVERHEAD_BYTES = 36
_FIRST_BUFFER_BYTES = 2048  # doubled as a batch fills, so that a thousand idle partitions cost little


class RecordMetadata(NamedTuple):
    """Where a record came to lie. The offset is −1 if the broker was not asked for it (acks=0).

    >>> metadata = producer.send("orders", b"tea", timestamp_ms=1_700_000_000_000).get(timeout=30)
    >>> metadata.topic, metadata.partition, metadata.offset, metadata.timestamp_ms
    ('orders', 0, 0, 1700000000000)
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class Awaited(Protocol):
    """What can be waited for: the delivery of a record, or of many."""

    @property
    def is_done(self) -> bool: ...

    def when_done(self, then: Callable[[Any], object]) -> object: ...

    def result(self) -> Any: ...


class Waiter(Protocol):
    """How a shell waits for a delivery: with a thread's event, or on its loop."""

    def wait(self, delivery: Awaited, timeout_s: float | None) -> None:
        """Returns when the delivery is done; raises when the time is over."""
        ...

    def awaiting(self, delivery: Awaited) -> Generator[Any, None, Any]:
        """Gives the delivery's result when it is done."""
        ...


WhenDone = Callable[["Delivery"], object]


class Delivery:
    """What becomes of one record that was sent.

    >>> delivery = producer.send("orders", b"tea")
    >>> delivery.get(timeout=30).offset
    0
    >>> delivery.is_done, delivery.error
    (True, None)
    """

    __slots__ = ("batch", "index", "timestamp_ms")

    def __init__(self, batch: "Batch", index: int, timestamp_ms: int) -> None:
        self.batch = batch
        self.index = index
        self.timestamp_ms = timestamp_ms

    @property
    def is_done(self) -> bool:
        return self._place()[0].is_settled

    @property
    def error(self) -> Exception | None:
        """Why it was not delivered; None if it was, or is still on its way."""
        return self._place()[0].error

    def result(self) -> RecordMetadata:
        """Where the record lies; raises why it does not. Only of one that is done."""
        batch, index = self._place()
        if not batch.is_settled:
            raise RuntimeError("the record is still on its way")
        if batch.error is not None:
            raise batch.error
        timestamp = self.timestamp_ms if batch.append_time_ms < 0 else batch.append_time_ms
        offset = -1 if batch.base_offset < 0 else batch.base_offset + index
        return RecordMetadata(batch.lane.topic, batch.lane.partition, offset, timestamp)

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Waits until the broker has answered: where the record lies, or the error is raised."""
        if not self.is_done:
            self.batch.lane.waiter.wait(self, timeout)
        return self.result()

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        return self.batch.lane.waiter.awaiting(self)

    def add_callback(self, callback: Callable[..., object], *args: Any, **kwargs: Any) -> "Delivery":
        """Calls `callback(*args, metadata, **kwargs)` once the record is delivered."""

        def delivered(done: Delivery) -> None:
            if done.error is None:
                callback(*args, done.result(), **kwargs)

        return self.when_done(delivered)

    def add_errback(self, errback: Callable[..., object], *args: Any, **kwargs: Any) -> "Delivery":
        """Calls `errback(*args, error, **kwargs)` once it is known that the record was not delivered."""

        def failed(done: Delivery) -> None:
            error = done.error
            if error is not None:
                errback(*args, error, **kwargs)

        return self.when_done(failed)

    def when_done(self, then: WhenDone) -> "Delivery":
        """Calls `then(self)` when all is known, at once if it is already."""
        batch, _ = self._place()
        batch.listeners.append((self, then))
        # Asked after it was added: whoever settles or splits at this moment takes it, or we do, never both.
        if batch.is_settled:
            for error in batch.announce():
                raise error
        elif batch.parts is not None:
            batch.hand_on()
        return self

    def _place(self) -> "tuple[Batch, int]":
        """The batch that carries the record now, and where: one that was too large went on in parts."""
        batch = self.batch
        index = self.index
        while batch.parts is not None:
            for part in batch.parts:
                if index < part.count:
                    batch = part
                    break
                index -= part.count
        return batch, index


class Batch:
    """Records of one partition that travel together.

    Invariant: buffer[HEADER_BYTES:used] are `count` encoded records until it is sealed with a codec, then
    what that codec made of them.
    """

    __slots__ = (
        "append_time_ms",
        "attempts",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "buffer",
        "codec",
        "count",
        "created_at",
        "error",
        "is_closed",
        "is_settled",
        "lane",
        "listeners",
        "max_timestamp",
        "parts",
        "producer_epoch",
        "producer_id",
        "ready_bytes",
        "record_bytes",
        "retry_at",
        "used",
    )

    def __init__(self, lane: "Lane", created_at: float) -> None:
        self.lane = lane
        self.created_at = created_at
        self.buffer = bytearray(_FIRST_BUFFER_BYTES)
        self.used = HEADER_BYTES
        self.ready_bytes = lane.batch_bytes  # from here on it may leave, however young it is
        self.count = 0
        self.record_bytes = 0  # what it holds of buffer.memory
        self.base_timestamp = -1
        self.max_timestamp = -1
        self.codec = 0  # of what is in the buffer
        self.is_closed = False  # takes no more records: their number may be known to a broker
        self.attempts = 0
        self.retry_at = 0.0
        self.producer_id = NO_PRODUCER
        self.producer_epoch = -1
        self.base_sequence = NO_SEQUENCE
        self.is_settled = False
        self.base_offset = -1
        self.append_time_ms = -1
        self.error: Exception | None = None
        self.parts: list[Batch] | None = None
        self.listeners: deque[tuple[Delivery, WhenDone]] = deque()

    def reserve(self, size: int) -> None:
        """Makes room for so many bytes more."""
        needed = self.used + size
        length = len(self.buffer)
        if needed > length:
            # doubled, but not beyond what a batch can become
            grown = max(needed, min(2 * length, self.lane.batch_bytes_max))
            if self.count == 0:
                self.buffer = bytearray(grown)
            else:
                self.buffer.extend(bytes(grown - length))

    def write(
        self,
        timestamp_ms: int,
        key: bytes,
        key_at: int,
        key_length: int,
        value: bytes,
        value_at: int,
        value_length: int,
        tail: bytes,
        tail_at: int,
        tail_length: int,
    ) -> int:
        """One record at the end, where `reserve` has made room for it; how many bytes it takes.

        `tail` are its headers, encoded.
        """
        if self.count == 0:
            self.base_timestamp = timestamp_ms
            self.max_timestamp = timestamp_ms
        elif timestamp_ms > self.max_timestamp:
            self.max_timestamp = timestamp_ms
        delta = timestamp_ms - self.base_timestamp
        size = 1 + _varint_bytes(delta) + _varint_bytes(self.count)
        size += _varint_bytes(key_length) + _varint_bytes(value_length) + tail_length
        if key_length > 0:
            size += key_length
        if value_length > 0:
            size += value_length
        target = self.buffer
        at = _put_varint(target, self.used, size)
        target[at] = 0  # the attributes, all unused
        at = _put_varint(target, at + 1, delta)
        at = _put_varint(target, at, self.count)
        at = _put_varint(target, at, key_length)
        if key_length > 0:
            _copy(target, at, key, key_at, key_length)
            at += key_length
        at = _put_varint(target, at, value_length)
        if value_length > 0:
            _copy(target, at, value, value_at, value_length)
            at += value_length
        _copy(target, at, tail, tail_at, tail_length)
        at += tail_length
        written = at - self.used
        self.used = at
        self.count += 1
        self.record_bytes += written
        return written

    def identify(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Gives the batch its place in a producer's order of one partition."""
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self.base_sequence = base_sequence

    def seal(
        self,
        codec: int,
        level: int | None,
        transactional: bool,
        identity: tuple[int, int, int] | None = None,
    ) -> memoryview:
        """The batch as it goes over the wire, with that identity, or the one that it has now.

        Takes long with a codec. A closed batch is touched by one thread only, so that no lock is needed.
        """
        self.is_closed = True
        if identity is None:
            identity = (self.producer_id, self.producer_epoch, self.base_sequence)
        if codec and not self.codec:
            records = compress(codec, memoryview(self.buffer)[HEADER_BYTES : self.used], level=level)
            self.buffer = bytearray(HEADER_BYTES) + records
            self.used = len(self.buffer)
            self.codec = codec
        buffer = self.buffer
        HEADER.pack_into(
            buffer,
            0,
            0,
            self.used - LENGTH_OVERHEAD,
            -1,
            MAGIC,
            0,
            self.codec | (TRANSACTIONAL if transactional else 0),
            self.count - 1,
            self.base_timestamp,
            self.max_timestamp,
            *identity,
            self.count,
        )
        view = memoryview(buffer)[: self.used]
        buffer[CRC_AT:ATTRIBUTES_AT] = crc32c(view[ATTRIBUTES_AT:]).to_bytes(4, "big")
        return view

    def settle(self, base_offset: int = -1, append_time_ms: int = -1, error: Exception | None = None) -> None:
        """What became of it; those who listen are told by `announce`."""
        assert not self.is_settled
        self.base_offset, self.append_time_ms, self.error = base_offset, append_time_ms, error
        self.is_settled = True
        self.buffer = bytearray()  # somebody may keep a delivery for long: it costs no records

    def announce(self) -> list[Exception]:
        """Tells everybody who listens; what their calls raised is returned: nobody else is to suffer."""
        raised: list[Exception] = []
        while self.listeners:
            try:
                delivery, then = self.listeners.popleft()
            except IndexError:  # somebody else took the last one
                break
            try:
                then(delivery)
            except Exception as error:
                raised.append(error)
        return raised

    def replace(self, parts: "list[Batch]") -> None:
        """The records go on in these batches, in this order; so does who listens."""
        assert sum([part.count for part in parts]) == self.count
        self.parts = parts
        self.buffer = bytearray()
        self.hand_on()

    def hand_on(self) -> None:
        """Who listens goes on listening to the parts."""
        while self.listeners:
            try:
                delivery, then = self.listeners.popleft()
            except IndexError:  # somebody else took the last one
                break
            delivery.when_done(then)


class Lane:
    """One partition's records that have not been sent: closed batches and at most one open one, the last."""

    __slots__ = (
        "batch_bytes",
        "batch_bytes_max",
        "is_available",
        "last_bytes",
        "left_at",
        "open",
        "partition",
        "topic",
        "waiter",
        "waiting",
    )

    def __init__(
        self, topic: str, partition: int, batch_bytes: int, waiter: Waiter, batch_bytes_max: int = 0
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.batch_bytes = batch_bytes  # from here on a batch may leave, if none has just left
        self.batch_bytes_max = max(batch_bytes, batch_bytes_max)  # and here it is closed
        self.left_at = -float("inf")  # when the last one left
        self.last_bytes = 0  # how large the last one became that was closed
        self.waiter = waiter
        self.waiting: deque[Batch] = deque()
        self.open: Batch | None = None  # the last of those that wait, if it takes more
        self.is_available = True  # it has a leader, as far as is known

    def limit(self, bytes_max: int) -> None:
        """Batches shall not become larger than this: the topic does not take them."""
        self.batch_bytes_max = min(self.batch_bytes_max, bytes_max)
        self.batch_bytes = min(self.batch_bytes, bytes_max)

    def close(self) -> None:
        """What comes next begins a batch."""
        if self.open is not None:
            self.open.is_closed = True
            self.last_bytes = self.open.used
            self.open = None


def rebatch(
    lane: Lane, created_at: float, records: "Sequence[tuple[int, bytes | None, bytes | None, Headers]]"
) -> Batch:
    """A closed batch of records that were taken out of another one."""
    batch = Batch(lane, created_at)
    batch.is_closed = True
    for timestamp_ms, key, value, headers in records:
        held_key = b"" if key is None else key
        held_value = b"" if value is None else value
        tail = encode_headers(headers) if headers else NO_HEADERS
        key_length = -1 if key is None else len(held_key)
        value_length = -1 if value is None else len(held_value)
        size = _OVERHEAD_BYTES + key_length + value_length + len(tail)
        batch.reserve(size)
        key_pointer = held_key
        value_pointer = held_value
        tail_pointer = tail
        batch.write(
            timestamp_ms,
            key_pointer,
            0,
            key_length,
            value_pointer,
            0,
            value_length,
            tail_pointer,
            0,
            len(tail),
        )
    return batch


def _copy(target: bytearray, at: int, source: bytes, start: int, length: int) -> None:
    if COMPILED:
        for step in range(length):  # becomes a memcpy
            target[at + step] = source[start + step]
    else:
        target[at : at + length] = source[start : start + length]


def _varint_bytes(value: int) -> int:
    """How long `value` is as a zigzag varint."""
    rest = value  # unsigned from here on, where it is compiled
    rest = (rest << 1) ^ (value >> 63)
    length = 1
    while rest >= 0x80:
        rest >>= 7
        length += 1
    return length


def _put_varint(target: bytearray, position: int, value: int) -> int:
    """Writes a zigzag varint and gives the position after it."""
    rest = value
    rest = (rest << 1) ^ (value >> 63)
    while rest >= 0x80:
        target[position] = (rest & 0x7F) | 0x80
        rest >>= 7
        position += 1
    target[position] = rest
    return position + 1
