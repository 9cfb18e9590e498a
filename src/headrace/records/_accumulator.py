# cython: annotation_typing=False, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""All that a producer holds and has not delivered: a partition is chosen, and records become bytes at once.

Like _codec.py this is plain Python that Cython compiles with the C types of the .pxd beside it. Nothing here
waits: without room `BufferFull` is raised, without knowledge of a topic `UnknownTopic`; the shell waits and
asks again. One caller at a time.

`batch_bytes` is when a batch may leave before `linger_s` is over; while it cannot yet, because brokers or
this process are busy, and if it began soon after another one had left, it grows up to `batch_bytes_max`:
under load batches become large by themselves, and a few records are quick.
"""

from collections.abc import Callable, Sequence

from headrace.records._codec import Headers, encode_headers
from headrace.records._outgoing import Batch, Delivery, Lane, Waiter
from headrace.records._source_column import Column
from headrace.records.batch import HEADER_BYTES
from headrace.records.errors import (
    BadTimestamp,
    BufferFull,
    NotOpen,
    RecordTooLarge,
    UnknownPartition,
    UnknownTopic,
    Unwritable,
)
from headrace.records.strategy import Strategy

_BY_KEY = int(Strategy.BY_KEY)
_ROUND_ROBIN = int(Strategy.ROUND_ROBIN)
_CUSTOM = int(Strategy.CUSTOM)

_NO_HEADERS = b"\x00"  # as they are written
# Lengths, deltas and counts of one record are varints; together they never take more than this.
_OVERHEAD_BYTES = 36
_INT64_MAX = 0x7FFFFFFFFFFFFFFF
_SPARE_MAX = 8  # batches: some more than are under way at a time

Chooser = Callable[[str, bytes | None, bytes | None, int], int]  # topic, key, value, partitions → partition


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
        "batch_bytes_max",
        "buffer_bytes",
        "buffered_bytes",
        "busy",
        "choose_sticky",
        "chooser",
        "clock",
        "crossings",
        "has_news",
        "is_open",
        "linger_s",
        "request_bytes_max",
        "spare",
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
        batch_bytes_max: int = 0,
        linger_s: float = 0.0,
        buffer_bytes: int = 33_554_432,
        request_bytes_max: int = 1_048_576,
    ) -> None:
        self.waiter = waiter
        self.choose_sticky = choose_sticky  # asked once per turn
        self.strategy = strategy
        self.chooser = chooser
        self.batch_bytes = batch_bytes
        self.batch_bytes_max = max(batch_bytes, batch_bytes_max)
        self.linger_s = linger_s
        self.clock: Callable[[], float] | None = None  # for those who do not tell the time
        self.buffer_bytes = buffer_bytes
        self.request_bytes_max = request_bytes_max
        self.buffered_bytes = 0
        self.is_open = True  # else nothing is taken; whoever closed it knows why
        self.has_news = False  # a batch was begun or may leave: whoever sends should look; it resets this
        self.spare: list[bytearray] = []  # memory of full batches that were delivered
        self.crossings: dict[str, Crossing] = {}
        self.busy: dict[Lane, None] = {}  # those where something waits, in the order in which they got it

    def learn(self, topic: str, available: Sequence[bool]) -> int:
        """The topic has so many partitions, and which of them have leaders; gives how many it had before."""
        crossing = self.crossings.get(topic)
        if crossing is None:
            if not available:
                return 0  # nothing could be chosen from
            crossing = self.crossings[topic] = Crossing(topic)
        before = len(crossing.lanes)
        # A lane that metadata no longer names stays: what waits in it must be settled by somebody.
        for partition in range(before, len(available)):
            crossing.lanes.append(Lane(topic, partition, self.batch_bytes, self.waiter, self.batch_bytes_max))
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
        """Takes a record; a partition of −1 leaves the choice to us. Text goes as UTF-8.

        A `now` of −1 is read from the clock, if a batch begins: that is rarer than a record.
        """
        crossing = self._crossing(topic)
        key_length = -1
        value_length = -1
        held_key = b""
        held_value = b""
        if key is not None:
            held_key = key if type(key) is bytes else _as_bytes(key)
            key_length = len(held_key)
        if value is not None:
            held_value = value if type(value) is bytes else _as_bytes(value)
            value_length = len(held_value)
        tail = encode_headers(headers) if headers else _NO_HEADERS
        key_pointer = held_key
        value_pointer = held_value
        tail_pointer = tail
        size = _OVERHEAD_BYTES + key_length + value_length + len(tail)
        self._check(size, timestamp_ms)
        if partition < 0:
            lane = self._choose(crossing, key_pointer, 0, key_length, size, key, value)
        else:
            lane = self._lane(crossing, partition)
        batch = self._open(lane, now, size)
        self.buffered_bytes += batch.write(
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
        self._look_at(batch, size)
        delivery = Delivery.__new__(Delivery)  # spares packing and unpacking arguments
        delivery.batch = batch
        delivery.index = batch.count - 1
        delivery.timestamp_ms = timestamp_ms
        return delivery

    def append_columns(
        self,
        now: float,
        topic: str,
        first: int,
        row_count: int,
        keys: "Column | None",
        values: "Column | None",
        timestamps: "Sequence[int] | None",
        timestamp_ms: int,
        partition: int,
        tails: "Column | None" = None,
        partitions: "Sequence[int] | None" = None,
    ) -> "tuple[int, dict[Batch, int]]":
        """Takes the rows from `first` on while there is room: how many, and which batches hold them, each
        with the place of its first row.

        Raises only when the very first of them cannot be taken. Without a column all keys or values are null;
        without `timestamps` all have the same, and without `partitions` all the same wish. `tails` are
        encoded headers.
        """
        crossing = self._crossing(topic)
        for column in (keys, values, tails):
            if column is not None and column.row_count < row_count:
                raise ValueError(f"a column of {column.row_count} rows where {row_count} are needed")
        for numbers in (timestamps, partitions):
            if first < 0 or (numbers is not None and len(numbers) < row_count):
                raise ValueError(f"{row_count} numbers are needed, and a first row of at least 0")
        timestamp_column = timestamps
        partition_column = partitions
        tail_data = _NO_HEADERS if tails is None else tails.data
        tail_at = 0
        tail_length = 1
        tail_pointer = tail_data
        key_data = b"" if keys is None else keys.data
        value_data = b"" if values is None else values.data
        key_pointer = key_data
        value_pointer = value_data
        touched: dict[Batch, int] = {}
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
            if values is not None and values.is_valid(row):
                value_at = values.start(row)
                value_length = values.start(row + 1) - value_at
            if timestamp_column is not None:
                timestamp_ms = timestamp_column[row]
            if tails is not None:
                tail_at = tails.start(row)
                tail_length = tails.start(row + 1) - tail_at
            if partition_column is not None:
                partition = partition_column[row]
            size = _OVERHEAD_BYTES + key_length + value_length + tail_length
            if taken and not self._takes(size, timestamp_ms):
                break  # who asks for the rest is told why
            self._check(size, timestamp_ms)
            if partition >= 0:
                if taken and partition >= len(crossing.lanes):
                    break
                lane = self._lane(crossing, partition)
            elif self.strategy == _CUSTOM:
                key = None if key_length < 0 else key_data[key_at : key_at + key_length]
                value = None if value_length < 0 else value_data[value_at : value_at + value_length]
                lane = self._choose(crossing, key_pointer, key_at, key_length, size, key, value)
            else:
                lane = self._choose(crossing, key_pointer, key_at, key_length, size, None, None)
            batch = self._open(lane, now, size)
            if batch is not last:
                touched.setdefault(batch, batch.count)
                last = batch
            self.buffered_bytes += batch.write(
                timestamp_ms,
                key_pointer,
                key_at,
                key_length,
                value_pointer,
                value_at,
                value_length,
                tail_pointer,
                tail_at,
                tail_length,
            )
            self._look_at(batch, size)
            taken += 1
        return taken, touched

    def _crossing(self, topic: str) -> Crossing:
        if not self.is_open:
            raise NotOpen(topic)
        crossing = self.crossings.get(topic)
        if crossing is None:
            raise UnknownTopic(topic)
        return crossing

    def _lane(self, crossing: Crossing, partition: int) -> Lane:
        if partition < len(crossing.lanes):
            return crossing.lanes[partition]
        raise UnknownPartition(
            f"topic {crossing.topic!r} has partitions 0 to {len(crossing.lanes) - 1}, and no {partition}"
        )

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
            raise BadTimestamp(f"timestamp {timestamp_ms}")
        if size > self.request_bytes_max - HEADER_BYTES:
            raise RecordTooLarge(
                f"a record of {size} bytes, where max.request.size allows {self.request_bytes_max}"
            )
        if size > self.buffer_bytes:
            raise RecordTooLarge(f"a record of {size} bytes, where buffer.memory is {self.buffer_bytes}")
        raise BufferFull(f"{self.buffered_bytes} of {self.buffer_bytes} bytes wait to be delivered", size)

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
        if batch is None or batch.used + size > lane.batch_bytes_max:
            lane.close()
            if now < 0 and self.clock is not None:
                now = self.clock()
            batch = lane.open = Batch(lane, now)
            if now - lane.left_at < self.linger_s:
                # many records are coming: it can take its time, and will be about as large as the last one
                batch.ready_bytes = lane.batch_bytes_max
                self._furnish(batch)
            lane.waiting.append(batch)
            self.busy[lane] = None
            self.has_news = True
        batch.reserve(size)
        return batch

    def _furnish(self, batch: Batch) -> None:
        """Gives a new batch memory that was used before, if there is some: the system's is cleared first."""
        lane = batch.lane
        expected = min(2 * lane.last_bytes, lane.batch_bytes_max)
        if self.spare and expected > len(batch.buffer):
            batch.buffer = self.spare.pop()
        batch.reserve(max(0, expected - batch.used))

    def recycle(self, batch: Batch) -> None:
        """The batch was taken by a broker, and so nobody reads its bytes any more: they serve another one.

        One that was merely given up may still be on its way through a socket.
        """
        if len(self.spare) < _SPARE_MAX and len(batch.buffer) >= self.batch_bytes_max:
            self.spare.append(batch.buffer)

    def _look_at(self, batch: Batch, size: int) -> None:
        """After a record of at most `size` bytes was written: the batch may just have become ready."""
        if batch.used >= batch.ready_bytes and batch.used - size < batch.ready_bytes:
            self.has_news = True

    def take(self, lane: Lane) -> Batch:
        """The oldest batch of a lane where something waits; it takes no more records."""
        batch = lane.waiting.popleft()
        if batch is lane.open:
            lane.close()
        del self.busy[lane]
        if lane.waiting:
            self.busy[lane] = None  # behind all others: everybody has a turn
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

    def replace(self, batch: Batch, parts: list[Batch]) -> None:
        """The records of a batch that was taken go on in these."""
        batch.replace(parts)
        self.release(batch)
        for part in parts:
            self.buffered_bytes += part.record_bytes

    def put_back(self, batch: Batch, place: int) -> None:
        """A batch that was taken waits again, behind so many others."""
        assert batch.is_closed
        batch.lane.waiting.insert(place, batch)
        self.busy[batch.lane] = None


def _as_bytes(given: object) -> bytes:
    if isinstance(given, str):
        return given.encode()
    try:
        return bytes(memoryview(given))  # type: ignore[arg-type]  # bytes(5) would be five zeros
    except TypeError:
        raise Unwritable(f"{type(given).__name__} is neither bytes nor text") from None
