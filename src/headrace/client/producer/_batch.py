# cython: annotation_typing=False, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Batches of records, the queue of batches of each partition, and the `Delivery` of each record.

Plain Python that Cython compiles with the C types of the .pxd beside it. A record is written straight into
the buffer of its batch; what remains of it is a `Delivery`, which has the batch and the record's index there.
So a million records cost a million small objects and nothing else.

    open --full, taken by the sender, or flushed--> closed --sealed--> on the wire --> settled, or split
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

NO_HEADERS = b"\x00"  # encoded

# Lengths, deltas and counts of one record are varints; together they never take more than this.
_OVERHEAD_BYTES = 36
_FIRST_BUFFER_BYTES = 2048  # doubled as a batch fills, so that a thousand idle partitions cost little memory


class RecordMetadata(NamedTuple):
    """Where a record was written. The offset is −1 with acks=0, where the broker sends no response.

    >>> metadata = producer.send("orders", b"tea", timestamp_ms=1_700_000_000_000).get(timeout=30)
    >>> metadata.topic, metadata.partition, metadata.offset, metadata.timestamp_ms
    ('orders', 0, 0, 1700000000000)
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class Awaited(Protocol):
    """What an application can wait for: the delivery of a record, or of a table."""

    @property
    def is_done(self) -> bool: ...

    def when_done(self, then: Callable[[Any], object]) -> object: ...

    def result(self) -> Any: ...


class Waiter(Protocol):
    """How a producer waits for a delivery: a thread blocks, a task awaits."""

    def wait(self, delivery: Awaited, timeout_s: float | None) -> None:
        """Returns when the delivery is done; raises TimedOut when the time is over."""
        ...

    def awaiting(self, delivery: Awaited) -> Generator[Any, None, Any]:
        """For `await`: returns the delivery's result when it is done."""
        ...


WhenDone = Callable[["Delivery"], object]


class Delivery:
    """The result of sending one record: pending, delivered, or failed.

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
        return self._locate()[0].is_settled

    @property
    def error(self) -> Exception | None:
        """Why the record was not delivered; None if it was delivered, or is still pending."""
        batch, index = self._locate()
        return batch.error_of(index)

    def result(self) -> RecordMetadata:
        """Where the record was written; raises the error if it was not. Only once the delivery is done."""
        batch, index = self._locate()
        if not batch.is_settled:
            raise RuntimeError("the delivery is still pending; wait with get() or await")
        error = batch.error_of(index)
        if error is not None:
            raise error
        timestamp = self.timestamp_ms if batch.append_time_ms < 0 else batch.append_time_ms
        offset = -1 if batch.base_offset < 0 else batch.base_offset + index
        return RecordMetadata(batch.queue.topic, batch.queue.partition, offset, timestamp)

    def get(self, timeout: float | None = None) -> RecordMetadata:
        """Waits for the broker's response, for at most `timeout` seconds.

        Returns where the record was written, or raises why it was not; `TimedOut` when the time is over.
        """
        if not self.is_done:
            self.batch.queue.waiter.wait(self, timeout)
        return self.result()

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        return self.batch.queue.waiter.awaiting(self)

    def add_callback(self, callback: Callable[..., object], *args: Any, **kwargs: Any) -> "Delivery":
        """Calls `callback(*args, metadata, **kwargs)` once the record is delivered."""

        def delivered(done: Delivery) -> None:
            if done.error is None:
                callback(*args, done.result(), **kwargs)

        return self.when_done(delivered)

    def add_errback(self, errback: Callable[..., object], *args: Any, **kwargs: Any) -> "Delivery":
        """Calls `errback(*args, error, **kwargs)` if the record cannot be delivered."""

        def failed(done: Delivery) -> None:
            error = done.error
            if error is not None:
                errback(*args, error, **kwargs)

        return self.when_done(failed)

    def when_done(self, then: WhenDone) -> "Delivery":
        """Calls `then(self)` when the record is delivered or has failed, or at once if it is so already."""
        batch, _ = self._locate()
        batch.listeners.append((self, then))
        # Checked after the listener was added: another thread that settles or splits the batch at this moment
        # calls it, or we do, never both.
        if batch.is_settled:
            for error in batch.call_listeners():
                raise error
        elif batch.parts is not None:
            batch.move_listeners()
        return self

    def _locate(self) -> "tuple[Batch, int]":
        """The batch that has the record now, and the index there: a batch that was too large was split."""
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
    """Records of one partition that are sent together.

    Invariant: buffer[HEADER_BYTES:used] are `count` encoded records; once sealed with a codec, compressed.
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
        "listeners",
        "max_timestamp",
        "parts",
        "producer_epoch",
        "producer_id",
        "queue",
        "ready_bytes",
        "record_bytes",
        "record_errors",
        "retry_at",
        "used",
    )

    def __init__(self, queue: "PartitionQueue", created_at: float) -> None:
        self.queue = queue
        self.created_at = created_at
        self.buffer = bytearray(_FIRST_BUFFER_BYTES)
        self.used = HEADER_BYTES
        self.ready_bytes = queue.batch_bytes  # from this size on it may leave before linger.ms is over
        self.count = 0
        self.record_bytes = 0  # its share of buffer.memory
        self.base_timestamp = -1
        self.max_timestamp = -1
        self.codec = 0  # with which the buffer is compressed; 0: not
        self.is_closed = False  # takes no more records: a broker may know their number
        self.attempts = 0
        self.retry_at = 0.0
        self.producer_id = NO_PRODUCER
        self.producer_epoch = -1
        self.base_sequence = NO_SEQUENCE
        self.is_settled = False
        self.base_offset = -1
        self.append_time_ms = -1
        self.error: Exception | None = None
        self.record_errors: dict[int, Exception] | None = None  # by index; `error` is that of all others
        self.parts: list[Batch] | None = None
        self.listeners: deque[tuple[Delivery, WhenDone]] = deque()

    def reserve(self, size: int) -> None:
        """Grows the buffer, so that `size` more bytes fit."""
        needed = self.used + size
        length = len(self.buffer)
        if needed > length:
            # doubled, but not beyond what a batch can become
            grown = max(needed, min(2 * length, self.queue.batch_bytes_max))
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
        """Writes a record at the end, after `reserve`; returns how many bytes it takes.

        `tail` are its encoded headers.
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
        """Sets the producer id, the epoch and the sequence number of the first record."""
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self.base_sequence = base_sequence

    def seal(
        self,
        codec: int,
        level: int | None,
        transactional: bool,
        identity: tuple[int, int, int] | None = None,
    ) -> memoryview:
        """The batch as bytes for the wire, compressed and with its header; `identity` replaces its own
        producer id, epoch and sequence.

        Compression takes long. It needs no lock: only one thread uses a closed batch.
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
        """Sets the result: delivered at an offset, or failed. `call_listeners` calls the listeners."""
        assert not self.is_settled
        self.base_offset, self.append_time_ms, self.error = base_offset, append_time_ms, error
        self.is_settled = True
        self.buffer = (
            bytearray()
        )  # an application may keep a delivery for long: that must not keep the records

    def error_of(self, index: int) -> Exception | None:
        """Why the record at this index was not delivered, if so."""
        if self.record_errors is None:
            return self.error
        return self.record_errors.get(index, self.error)

    def call_listeners(self) -> list[Exception]:
        """Calls all listeners, and returns the errors that they raised: one must not keep others from being
        called.
        """
        raised: list[Exception] = []
        while self.listeners:
            try:
                delivery, then = self.listeners.popleft()
            except IndexError:  # another thread took the last one
                break
            try:
                then(delivery)
            except Exception as error:
                raised.append(error)
        return raised

    def replace(self, parts: "list[Batch]") -> None:
        """The records are in `parts` from now on, in this order; listeners move with them."""
        assert sum([part.count for part in parts]) == self.count
        self.parts = parts
        self.buffer = bytearray()
        self.move_listeners()

    def move_listeners(self) -> None:
        """Moves the listeners to the parts."""
        while self.listeners:
            try:
                delivery, then = self.listeners.popleft()
            except IndexError:  # another thread took the last one
                break
            delivery.when_done(then)


class PartitionQueue:
    """The batches of one partition that are not sent: closed ones, and at most one open one, the last."""

    __slots__ = (
        "batch_bytes",
        "batch_bytes_max",
        "is_available",
        "last_batch_bytes",
        "last_sent_at",
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
        self.batch_bytes = batch_bytes  # a batch of this size may leave, if none was sent just before
        self.batch_bytes_max = max(batch_bytes, batch_bytes_max)  # a batch of this size is closed
        self.last_sent_at = -float("inf")  # when the last batch was sent
        self.last_batch_bytes = 0  # size of the batch that was closed last
        self.waiter = waiter
        self.waiting: deque[Batch] = deque()
        self.open: Batch | None = None  # the last one of `waiting`, if it takes more records
        self.is_available = True  # it has a leader, as far as is known

    def limit(self, bytes_max: int) -> None:
        """Lowers the size of batches: the topic does not accept larger ones."""
        self.batch_bytes_max = min(self.batch_bytes_max, bytes_max)
        self.batch_bytes = min(self.batch_bytes, bytes_max)

    def close(self) -> None:
        """Closes the open batch: the next record opens another one."""
        if self.open is not None:
            self.open.is_closed = True
            self.last_batch_bytes = self.open.used
            self.open = None


def rebatch(
    queue: PartitionQueue,
    created_at: float,
    records: "Sequence[tuple[int, bytes | None, bytes | None, Headers]]",
) -> Batch:
    """A closed batch of records that come from another batch."""
    batch = Batch(queue, created_at)
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
    """Writes a zigzag varint; returns the position after it."""
    rest = value
    rest = (rest << 1) ^ (value >> 63)
    while rest >= 0x80:
        target[position] = (rest & 0x7F) | 0x80
        rest >>= 7
        position += 1
    target[position] = rest
    return position + 1
