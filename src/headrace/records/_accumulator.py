# cython: annotation_typing=False, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Records on their way out of a producer: a partition is chosen, and they become bytes at once.

Like _codec.py this is plain Python that Cython compiles with the C types of the .pxd beside it. A record is
written straight into the buffer of its partition's open batch; what remains of it is a `Delivery`, which
knows its batch and its place there. So a million records cost a million small objects and nothing else.

Nothing here waits: without room `BufferFull` is raised, without knowledge of a topic `UnknownTopic`; the
shell waits and asks again. One caller at a time.

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
from headrace.records.errors import BufferFull, RecordTooLarge, UnknownPartition, UnknownTopic
from headrace.records.strategy import Strategy

COMPILED = not __file__.endswith(".py")

_BY_KEY = int(Strategy.BY_KEY)
_ROUND_ROBIN = int(Strategy.ROUND_ROBIN)
_CUSTOM = int(Strategy.CUSTOM)

ANY_PARTITION = -1
NO_HEADERS = b"\x00"  # as they are written

# Lengths, deltas and counts of one record are varints; together they never take more than this.
RECORD_OVERHEAD_BYTES = 36
_FIRST_BUFFER_BYTES = 2048  # doubled as a batch fills, so that a thousand idle partitions cost little
_INT64_MAX = 0x7FFFFFFFFFFFFFFF


class RecordMetadata(NamedTuple):
    """Where a record came to lie. The offset is −1 if the broker was not asked for it (acks=0)."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class Waiter(Protocol):
    """How a shell waits for a delivery: with a thread's event, or on its loop."""

    def wait(self, delivery: "Delivery", timeout_s: float | None) -> None:
        """Returns when the delivery is done; raises when the time is over."""
        ...

    def awaiting(self, delivery: "Delivery") -> Generator[Any, None, RecordMetadata]: ...


Chooser = Callable[[str, bytes | None, bytes | None, int], int]  # topic, key, value, partitions → partition
WhenDone = Callable[["Delivery"], object]


class Delivery:
    """What becomes of one record that was sent."""

    __slots__ = ("batch", "index", "timestamp_ms")

    def __init__(self, batch: "Batch", index: int, timestamp_ms: int) -> None:
        self.batch = batch
        self.index = index
        self.timestamp_ms = timestamp_ms

    @property
    def is_done(self) -> bool:
        return self._followed().is_settled

    @property
    def error(self) -> Exception | None:
        """Why it was not delivered; None if it was, or is still on its way."""
        return self._followed().error

    def result(self) -> RecordMetadata:
        """Where the record lies; raises why it does not. Only of one that is done."""
        batch = self._followed()
        if not batch.is_settled:
            raise RuntimeError("the record is still on its way")
        if batch.error is not None:
            raise batch.error
        timestamp = self.timestamp_ms if batch.append_time_ms < 0 else batch.append_time_ms
        offset = -1 if batch.base_offset < 0 else batch.base_offset + self.index
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
        batch = self._followed()
        batch.listeners.append((self, then))
        # Asked after it was added: whoever settles at this moment takes it, or we do, never both.
        if batch.is_settled:
            for error in batch.announce():
                raise error
        return self

    def _followed(self) -> "Batch":
        """The batch that carries the record now: a batch that was too large went on in parts."""
        batch = self.batch
        while batch.parts is not None:
            for part in batch.parts:
                if self.index < part.count:
                    batch = part
                    break
                self.index -= part.count
            self.batch = batch
        return batch


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
        "record_bytes",
        "retry_at",
        "sequence_was_reset",
        "used",
    )

    def __init__(self, lane: "Lane", created_at: float) -> None:
        self.lane = lane
        self.created_at = created_at
        self.buffer = bytearray(_FIRST_BUFFER_BYTES)
        self.used = HEADER_BYTES
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
        self.sequence_was_reset = False
        self.is_settled = False
        self.base_offset = -1
        self.append_time_ms = -1
        self.error: Exception | None = None
        self.parts: list[Batch] | None = None
        self.listeners: deque[tuple[Delivery, WhenDone]] = deque()

    def identify(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Gives the batch its place in a producer's order of one partition."""
        self.sequence_was_reset = self.base_sequence != NO_SEQUENCE
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self.base_sequence = base_sequence

    def seal(self, codec: int, level: int | None, transactional: bool) -> memoryview:
        """The batch as it goes over the wire, with the identity that it has now."""
        self.is_closed = True
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
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
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
        while self.listeners:
            delivery, then = self.listeners.popleft()
            delivery.when_done(then)


class Lane:
    """One partition's records that have not been sent: closed batches and at most one open one, the last."""

    __slots__ = ("batch_bytes", "is_available", "open", "partition", "topic", "waiter", "waiting")

    def __init__(self, topic: str, partition: int, batch_bytes: int, waiter: Waiter) -> None:
        self.topic = topic
        self.partition = partition
        self.batch_bytes = batch_bytes
        self.waiter = waiter
        self.waiting: deque[Batch] = deque()
        self.open: Batch | None = None  # the last of those that wait, if it takes more
        self.is_available = True  # it has a leader, as far as is known

    def close(self) -> None:
        """What comes next begins a batch."""
        if self.open is not None:
            self.open.is_closed = True
            self.open = None


class Crossing:
    """A topic's lanes, and whose turn it is among them."""

    __slots__ = ("candidates", "lanes", "sticky", "sticky_bytes", "topic", "turn")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.lanes: list[Lane] = []
        self.candidates: list[Lane] = []  # of those that have a leader; all if none has
        self.sticky: Lane | None = None
        self.sticky_bytes = 0  # given to it in this turn
        self.turn = 0


class Column:
    """Byte strings in Arrow's layout: row i lies from offsets[i] to offsets[i + 1]; null where its bit is 0.

    The data may be a part of a larger buffer, from `base` on, and the first bit may be one within a byte.
    Invariant: the offsets never fall, and the last one lies within the data.
    """

    __slots__ = ("base", "data", "first_bit", "offsets", "row_count", "validity")

    def __init__(
        self,
        row_count: int,
        offsets: "Sequence[int]",
        data: bytes,
        base: int = 0,
        validity: bytes | None = None,
        first_bit: int = 0,
    ) -> None:
        if row_count < 0 or len(offsets) <= row_count:
            raise ValueError(f"{len(offsets)} offsets for {row_count} rows")
        if validity is not None and (first_bit < 0 or len(validity) * 8 < first_bit + row_count):
            raise ValueError(f"{len(validity) * 8} bits for {row_count} rows")
        self.row_count = row_count
        self.offsets = offsets
        self.data = data
        self.base = base
        self.validity = validity
        self.first_bit = first_bit
        self.check()

    def check(self) -> None:
        bound = self.base
        for row in range(self.row_count + 1):
            place = self.offsets[row]
            if place < bound:
                raise ValueError("the offsets fall")
            bound = place
        if bound - self.base > len(self.data):
            raise ValueError(f"the offsets reach to {bound - self.base} of {len(self.data)} bytes")

    def start(self, row: int) -> int:
        return self.offsets[row] - self.base

    def is_valid(self, row: int) -> bool:
        if self.validity is None:
            return True
        bit = self.first_bit + row
        return self.validity[bit >> 3] >> (bit & 7) & 1 != 0


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2, as an unsigned number."""
    return _murmur2(data, 0, len(data))


def _murmur2(source: bytes, start: int, length: int) -> int:
    mask = 0xFFFFFFFF
    multiplier = 0x5BD1E995
    h = (0x9747B28C ^ length) & mask
    end = start + length
    at = start
    while end - at >= 4:
        k = source[at] | source[at + 1] << 8 | source[at + 2] << 16 | source[at + 3] << 24
        k = k * multiplier & mask
        k = (k ^ k >> 24) * multiplier & mask
        h = (h * multiplier & mask) ^ k
        at += 4
    if at < end:
        k = source[at]
        if end - at > 1:
            k |= source[at + 1] << 8
        if end - at > 2:
            k |= source[at + 2] << 16
        h = (h ^ k) * multiplier & mask
    h = (h ^ h >> 13) * multiplier & mask
    return h ^ h >> 15


class Accumulator:
    """All that a producer holds and has not delivered.

    Invariant: buffered_bytes is the sum of record_bytes over all batches that are neither settled nor split.
    """

    __slots__ = (
        "batch_bytes",
        "buffer_bytes",
        "buffered_bytes",
        "busy",
        "choose_sticky",
        "chooser",
        "crossings",
        "request_bytes_max",
        "strategy",
        "waiter",
    )

    def __init__(
        self,
        waiter: Waiter,
        choose_sticky: Callable[[Crossing], Lane],
        *,
        strategy: int = Strategy.BY_KEY,
        chooser: Chooser | None = None,
        batch_bytes: int = 16_384,
        buffer_bytes: int = 33_554_432,
        request_bytes_max: int = 1_048_576,
    ) -> None:
        self.waiter = waiter
        self.choose_sticky = choose_sticky  # asked once per turn
        self.strategy = strategy
        self.chooser = chooser
        self.batch_bytes = batch_bytes
        self.buffer_bytes = buffer_bytes
        self.request_bytes_max = request_bytes_max
        self.buffered_bytes = 0
        self.crossings: dict[str, Crossing] = {}
        self.busy: dict[Lane, None] = {}  # those where something waits, in the order in which they got it

    def learn(self, topic: str, available: Sequence[bool]) -> int:
        """The topic has so many partitions, and which of them have leaders; gives how many it had before."""
        crossing = self.crossings.get(topic)
        if crossing is None:
            crossing = self.crossings[topic] = Crossing(topic)
        before = len(crossing.lanes)
        # A lane that metadata no longer names stays: what waits in it must be settled by somebody.
        for partition in range(before, len(available)):
            crossing.lanes.append(Lane(topic, partition, self.batch_bytes, self.waiter))
        candidates = []
        for lane in crossing.lanes:
            lane.is_available = lane.partition < len(available) and available[lane.partition]
            if lane.is_available:
                candidates.append(lane)
        crossing.candidates = candidates or list(crossing.lanes)
        if crossing.sticky is not None and crossing.sticky not in crossing.candidates:
            crossing.sticky = None
        return before

    def forget(self, topic: str) -> None:
        """Nothing is taken for the topic until it is learned again."""
        self.crossings.pop(topic, None)

    def append(
        self,
        now: float,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        partition: int,
        timestamp_ms: int,
    ) -> Delivery:
        """Takes a record; a partition of −1 leaves the choice to us."""
        crossing = self.crossings.get(topic)
        if crossing is None:
            raise UnknownTopic(topic)
        key_length = -1
        value_length = -1
        held_key = b""
        held_value = b""
        if key is not None:
            held_key = key if type(key) is bytes else bytes(key)
            key_length = len(held_key)
        if value is not None:
            held_value = value if type(value) is bytes else bytes(value)
            value_length = len(held_value)
        tail = encode_headers(headers) if headers else NO_HEADERS
        key_pointer = held_key
        value_pointer = held_value
        tail_pointer = tail
        size = RECORD_OVERHEAD_BYTES + key_length + value_length + len(tail)
        self._check(size, timestamp_ms)
        if partition < 0:
            lane = self._choose(crossing, key_pointer, 0, key_length, size, key, value)
        elif partition < len(crossing.lanes):
            lane = crossing.lanes[partition]
        else:
            raise UnknownPartition(
                f"topic {topic!r} has {len(crossing.lanes)} partitions, and no {partition}"
            )
        batch = self._open(lane, now, size)
        _write(
            batch,
            timestamp_ms,
            key_pointer,
            0,
            key_length,
            value_pointer,
            0,
            value_length,
            tail_pointer,
            len(tail),
        )
        batch.record_bytes += size
        self.buffered_bytes += size
        return Delivery(batch, batch.count - 1, timestamp_ms)

    def append_columns(
        self,
        now: float,
        topic: str,
        first: int,
        row_count: int,
        keys: "Column | None",
        values: "Column",
        timestamps: "Sequence[int] | None",
        timestamp_ms: int,
        partition: int,
    ) -> "tuple[int, list[Batch]]":
        """Takes the rows from `first` on while there is room; how many, and the batches that hold them.

        Raises only when the very first of them cannot be taken. Without `timestamps` all have the same.
        """
        crossing = self.crossings.get(topic)
        if crossing is None:
            raise UnknownTopic(topic)
        if partition >= len(crossing.lanes):
            raise UnknownPartition(
                f"topic {topic!r} has {len(crossing.lanes)} partitions, and no {partition}"
            )
        for column in (keys, values):
            if column is not None and column.row_count < row_count:
                raise ValueError(f"a column of {column.row_count} rows where {row_count} are needed")
        if first < 0 or (timestamps is not None and len(timestamps) < row_count):
            raise ValueError(f"timestamps for {row_count} rows from {first} on are needed")
        timestamp_column = timestamps
        tail = NO_HEADERS
        tail_pointer = tail
        key_data = b"" if keys is None else keys.data
        value_data = values.data
        key_pointer = key_data
        value_pointer = value_data
        touched: dict[Batch, None] = {}
        last: Batch | None = None
        taken = 0
        for row in range(first, row_count):
            key_at = 0
            key_length = -1
            if keys is not None and keys.is_valid(row):
                key_at = keys.start(row)
                key_length = keys.start(row + 1) - key_at
            value_at = 0
            value_length = -1
            if values.is_valid(row):
                value_at = values.start(row)
                value_length = values.start(row + 1) - value_at
            if timestamp_column is not None:
                timestamp_ms = timestamp_column[row]
            size = RECORD_OVERHEAD_BYTES + key_length + value_length + 1
            if taken and not self._takes(size, timestamp_ms):
                break  # who asks for the rest is told why
            self._check(size, timestamp_ms)
            if partition >= 0:
                lane = crossing.lanes[partition]
            elif self.strategy == _CUSTOM:
                key = None if key_length < 0 else key_data[key_at : key_at + key_length]
                value = None if value_length < 0 else value_data[value_at : value_at + value_length]
                lane = self._choose(crossing, key_pointer, key_at, key_length, size, key, value)
            else:
                lane = self._choose(crossing, key_pointer, key_at, key_length, size, None, None)
            batch = self._open(lane, now, size)
            _write(
                batch,
                timestamp_ms,
                key_pointer,
                key_at,
                key_length,
                value_pointer,
                value_at,
                value_length,
                tail_pointer,
                1,
            )
            batch.record_bytes += size
            self.buffered_bytes += size
            if batch is not last:
                touched[batch] = None
                last = batch
            taken += 1
        return taken, list(touched)

    def _takes(self, size: int, timestamp_ms: int) -> bool:
        """Whether there is no reason to refuse such a record now."""
        if size > self.request_bytes_max - HEADER_BYTES or timestamp_ms < 0 or timestamp_ms == _INT64_MAX:
            return False
        return self.buffered_bytes + size <= self.buffer_bytes

    def _check(self, size: int, timestamp_ms: int) -> None:
        """Raises what is wrong with a record that is not taken."""
        if self._takes(size, timestamp_ms):
            return
        if timestamp_ms < 0 or timestamp_ms == _INT64_MAX:
            raise ValueError(f"timestamp {timestamp_ms}")
        if size > self.request_bytes_max - HEADER_BYTES:
            raise RecordTooLarge(
                f"a record of {size} bytes, where max.request.size allows {self.request_bytes_max}"
            )
        if size > self.buffer_bytes:
            raise RecordTooLarge(f"a record of {size} bytes, where buffer.memory is {self.buffer_bytes}")
        raise BufferFull(f"{self.buffered_bytes} of {self.buffer_bytes} bytes wait to be delivered")

    def _choose(
        self,
        crossing: Crossing,
        key: bytes,
        key_at: int,
        key_length: int,
        size: int,
        key_object: bytes | None,
        value_object: bytes | None,
    ) -> Lane:
        partitions = len(crossing.lanes)
        if self.strategy == _BY_KEY and key_length >= 0:
            return crossing.lanes[(_murmur2(key, key_at, key_length) & 0x7FFFFFFF) % partitions]
        if self.strategy == _CUSTOM:
            assert self.chooser is not None
            chosen = self.chooser(crossing.topic, key_object, value_object, partitions)
            if not 0 <= chosen < partitions:
                raise UnknownPartition(
                    f"the partitioner chose {chosen} of {partitions} partitions of topic {crossing.topic!r}"
                )
            return crossing.lanes[chosen]
        if self.strategy == _ROUND_ROBIN:
            lane = crossing.candidates[crossing.turn % len(crossing.candidates)]
            crossing.turn += 1
            return lane
        sticky = crossing.sticky
        if sticky is None or self._turn_is_over(crossing, sticky, size):
            sticky = crossing.sticky = self.choose_sticky(crossing)
            crossing.sticky_bytes = 0
        crossing.sticky_bytes += size
        return sticky

    def _turn_is_over(self, crossing: Crossing, lane: Lane, size: int) -> bool:
        """Once batch.size went to a lane another has its turn; no batch is left half full (KIP-794)."""
        if crossing.sticky_bytes < lane.batch_bytes:
            return False
        batch = lane.open
        if batch is None or crossing.sticky_bytes >= 2 * lane.batch_bytes:
            return True
        return batch.used + size > lane.batch_bytes

    def _open(self, lane: Lane, now: float, size: int) -> Batch:
        """The lane's batch with room for so many bytes; a record larger than a batch gets one alone."""
        batch = lane.open
        if batch is None or batch.used + size > lane.batch_bytes:
            lane.close()
            batch = lane.open = Batch(lane, now)
            lane.waiting.append(batch)
            self.busy[lane] = None
        if batch.used + size > len(batch.buffer):
            _grow(batch, size)
        return batch

    def take(self, lane: Lane) -> Batch:
        """The oldest batch of a lane where something waits; it takes no more records."""
        batch = lane.waiting.popleft()
        if batch is lane.open:
            lane.close()
        if not lane.waiting:
            del self.busy[lane]
        return batch

    def release(self, batch: Batch) -> None:
        """The batch is settled: its bytes are free again."""
        self.buffered_bytes -= batch.record_bytes
        batch.record_bytes = 0

    def take_last(self, lane: Lane) -> Batch:
        """The newest batch of a lane where something waits."""
        lane.close()
        batch = lane.waiting.pop()
        if not lane.waiting:
            del self.busy[lane]
        return batch

    def put_back(self, batch: Batch, place: int) -> None:
        """A batch that was taken waits again, behind so many others."""
        assert batch.is_closed
        batch.lane.waiting.insert(place, batch)
        self.busy[batch.lane] = None


def _grow(batch: Batch, size: int) -> None:
    buffer = batch.buffer
    length = max(2 * len(buffer), batch.used + size)
    buffer.extend(bytes(length - len(buffer)))


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
        size = RECORD_OVERHEAD_BYTES + key_length + value_length + len(tail)
        if batch.used + size > len(batch.buffer):
            _grow(batch, size)
        key_pointer = held_key
        value_pointer = held_value
        tail_pointer = tail
        _write(
            batch,
            timestamp_ms,
            key_pointer,
            0,
            key_length,
            value_pointer,
            0,
            value_length,
            tail_pointer,
            len(tail),
        )
        batch.record_bytes += size
    return batch


def _write(
    batch: Batch,
    timestamp_ms: int,
    key: bytes,
    key_at: int,
    key_length: int,
    value: bytes,
    value_at: int,
    value_length: int,
    tail: bytes,
    tail_length: int,
) -> None:
    """One record at the end of the batch, whose buffer has room for it; `tail` are its headers, encoded."""
    if batch.count == 0:
        batch.base_timestamp = timestamp_ms
        batch.max_timestamp = timestamp_ms
    elif timestamp_ms > batch.max_timestamp:
        batch.max_timestamp = timestamp_ms
    delta = timestamp_ms - batch.base_timestamp
    size = 1 + _varint_bytes(delta) + _varint_bytes(batch.count)
    size += _varint_bytes(key_length) + _varint_bytes(value_length) + tail_length
    if key_length > 0:
        size += key_length
    if value_length > 0:
        size += value_length
    target = batch.buffer
    at = _put_varint(target, batch.used, size)
    target[at] = 0  # the attributes, all unused
    at = _put_varint(target, at + 1, delta)
    at = _put_varint(target, at, batch.count)
    at = _put_varint(target, at, key_length)
    if key_length > 0:
        _copy(target, at, key, key_at, key_length)
        at += key_length
    at = _put_varint(target, at, value_length)
    if value_length > 0:
        _copy(target, at, value, value_at, value_length)
        at += value_length
    _copy(target, at, tail, 0, tail_length)
    batch.used = at + tail_length
    batch.count += 1


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
