# cython: annotation_typing=False, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The record accumulator: it chooses a partition, and writes each record into a batch of that partition.

Plain Python that Cython compiles with the C types of the .pxd beside it. Nothing here waits: a record that
cannot be accepted now is rejected (`rejections.py`), and the caller waits and appends again. One caller at a
time; the caller holds the producer's lock.

A batch is closed, and the next one opened, when a record does not fit any more (`_open_batch`), when the
sender takes it (`take`) or when it is flushed (`PartitionQueue.close`). A batch of `batch_bytes` may leave
before `linger_s` is over. While it cannot leave, because brokers or this process are busy, it grows up to
`batch_bytes_max`, provided that it was opened soon after another one was sent: so batches are large under
load, and a few records are not delayed.
"""

from collections.abc import Callable, Sequence

from headrace.client.producer._batch import Batch, Delivery, PartitionQueue, Waiter
from headrace.client.producer._source_column import Column
from headrace.client.producer.partitioner import Strategy
from headrace.client.producer.rejections import (
    BadTimestamp,
    BufferFull,
    MetadataMissing,
    NotOpen,
    RecordTooLarge,
    UnknownPartition,
    Unwritable,
)
from headrace.records._codec import Headers, encode_headers
from headrace.records.batch import HEADER_BYTES

_BY_KEY = int(Strategy.BY_KEY)
_ROUND_ROBIN = int(Strategy.ROUND_ROBIN)
_CUSTOM = int(Strategy.CUSTOM)

_NO_HEADERS = b"\x00"  # as they are written
# Lengths, deltas and counts of one record are varints; together they never take more than this.
_OVERHEAD_BYTES = 36
_INT64_MAX = 0x7FFFFFFFFFFFFFFF
_SPARE_MAX = 8  # batches: some more than are under way at a time

# topic, key, value, partitions → partition
Partitioner = Callable[[str, bytes | None, bytes | None, int], int]


class TopicQueues:
    """The partition queues of one topic, and the state of the partitioner that chooses among them."""

    __slots__ = ("candidates", "partitions", "sticky", "sticky_bytes", "topic", "turn")

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.partitions: list[PartitionQueue] = []
        self.candidates: list[PartitionQueue] = []  # those that have a leader; all if none has
        self.sticky: PartitionQueue | None = None
        self.sticky_bytes = 0  # written to it since it became the sticky one
        self.turn = 0


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2, as an unsigned number."""
    return _murmur2(data, 0, len(data))


def partition_for_key(key: bytes, partitions: int) -> int:
    """As Java's producer chooses it, and `Accumulator` does."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


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
    """All records that a producer has accepted and that are not sent yet.

    Invariant: buffered_bytes is the sum of record_bytes over all batches that are neither settled nor split.
    """

    __slots__ = (
        "batch_bytes",
        "batch_bytes_max",
        "buffer_bytes",
        "buffered_bytes",
        "busy",
        "choose_sticky",
        "clock",
        "is_open",
        "linger_s",
        "partitioner",
        "request_bytes_max",
        "should_wake",
        "spare",
        "strategy",
        "topics",
        "waiter",
    )

    def __init__(
        self,
        waiter: Waiter,
        choose_sticky: Callable[[TopicQueues], PartitionQueue],
        *,
        strategy: int = Strategy.BY_KEY,
        partitioner: Partitioner | None = None,
        batch_bytes: int = 16_384,
        batch_bytes_max: int = 0,
        linger_s: float = 0.0,
        buffer_bytes: int = 33_554_432,
        request_bytes_max: int = 1_048_576,
    ) -> None:
        self.waiter = waiter
        self.choose_sticky = choose_sticky  # called when the sticky partition changes
        self.strategy = strategy
        self.partitioner = partitioner
        self.batch_bytes = batch_bytes
        self.batch_bytes_max = max(batch_bytes, batch_bytes_max)
        self.linger_s = linger_s
        self.clock: Callable[[], float] | None = None  # for `append` with a `now` of -1
        self.buffer_bytes = buffer_bytes
        self.request_bytes_max = request_bytes_max
        self.buffered_bytes = 0
        self.is_open = True  # else every record is rejected
        # A batch was opened or may leave: the caller wakes the sender, and resets this.
        self.should_wake = False
        self.spare: list[bytearray] = []  # buffers of full batches that were delivered, for reuse
        self.topics: dict[str, TopicQueues] = {}
        self.busy: dict[PartitionQueue, None] = {}  # queues that are not empty, the longest unserved first

    def learn(self, topic: str, available: Sequence[bool], is_recreated: bool = False) -> int:
        """Sets which partitions of the topic have leaders; returns how many partitions it had before.

        Fewer than before count only if it was created again: else the broker does not know the newest yet.
        """
        topic_queues = self.topics.get(topic)
        if topic_queues is None:
            if not available:
                return 0  # without partitions there is nothing to choose
            topic_queues = self.topics[topic] = TopicQueues(topic)
        before = len(topic_queues.partitions)
        if is_recreated and available:
            del topic_queues.partitions[len(available) :]  # their batches wait in `busy`, and expire
        for partition in range(len(topic_queues.partitions), len(available)):
            topic_queues.partitions.append(
                PartitionQueue(topic, partition, self.batch_bytes, self.waiter, self.batch_bytes_max)
            )
        candidates = []
        for queue in topic_queues.partitions:
            queue.is_available = queue.partition < len(available) and available[queue.partition]
            if queue.is_available:
                candidates.append(queue)
        topic_queues.candidates = candidates or list(topic_queues.partitions)
        if topic_queues.sticky is not None and topic_queues.sticky not in topic_queues.candidates:
            topic_queues.sticky = None
        return before

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
        """Adds a record; with a partition of −1 the partitioner chooses. Text is encoded as UTF-8.

        A `now` of −1 is read from the clock when a batch is opened, which is rarer than a record.
        """
        topic_queues = self._queues_of(topic)
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
            queue = self._choose(topic_queues, key_pointer, 0, key_length, size, key, value)
        else:
            queue = self._queue_of(topic_queues, partition)
        batch = self._open_batch(queue, now, size)
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
        self._note_if_ready(batch, size)
        delivery = Delivery.__new__(Delivery)  # faster than a call with arguments
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
        """Adds the rows from `first` on while there is buffer memory. Returns how many, and the batches that
        hold them, each with the index of its first row.

        Raises only when the very first of them is rejected. Without a column all keys or values are null;
        `timestamp_ms` and `partition` are for all rows that have no column of their own. `tails` are encoded
        headers.
        """
        topic_queues = self._queues_of(topic)
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
            if taken and not self._accepts(size, timestamp_ms):
                break  # the next call, for the rest, raises why
            self._check(size, timestamp_ms)
            if partition >= 0:
                if taken and partition >= len(topic_queues.partitions):
                    break
                queue = self._queue_of(topic_queues, partition)
            elif self.strategy == _CUSTOM:
                key = None if key_length < 0 else key_data[key_at : key_at + key_length]
                value = None if value_length < 0 else value_data[value_at : value_at + value_length]
                try:
                    queue = self._choose(topic_queues, key_pointer, key_at, key_length, size, key, value)
                except Exception:
                    if taken:
                        break
                    raise
            else:
                queue = self._choose(topic_queues, key_pointer, key_at, key_length, size, None, None)
            batch = self._open_batch(queue, now, size)
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
            self._note_if_ready(batch, size)
            taken += 1
        return taken, touched

    def _queues_of(self, topic: str) -> TopicQueues:
        if not self.is_open:
            raise NotOpen(topic)
        topic_queues = self.topics.get(topic)
        if topic_queues is None:
            raise MetadataMissing(topic)
        return topic_queues

    def _queue_of(self, topic_queues: TopicQueues, partition: int) -> PartitionQueue:
        if partition < len(topic_queues.partitions):
            return topic_queues.partitions[partition]
        raise UnknownPartition(
            f"partition {partition}: topic {topic_queues.topic!r} has partitions 0 to"
            f" {len(topic_queues.partitions) - 1}"
        )

    def _accepts(self, size: int, timestamp_ms: int) -> bool:
        """Whether a record of this size and timestamp can be added now."""
        if size > self.request_bytes_max - HEADER_BYTES or timestamp_ms < 0 or timestamp_ms == _INT64_MAX:
            return False
        return self.buffered_bytes + size <= self.buffer_bytes

    def _check(self, size: int, timestamp_ms: int) -> None:
        """Raises why a record cannot be added, if so."""
        if self._accepts(size, timestamp_ms):
            return
        if timestamp_ms < 0 or timestamp_ms == _INT64_MAX:
            raise BadTimestamp(f"timestamp_ms={timestamp_ms}: must be at least 0 and below 2**63 - 1")
        if size > self.request_bytes_max - HEADER_BYTES:
            raise RecordTooLarge(
                f"the record has {size} bytes; max.request.size is {self.request_bytes_max} bytes"
            )
        if size > self.buffer_bytes:
            raise RecordTooLarge(f"the record has {size} bytes; buffer.memory is {self.buffer_bytes} bytes")
        raise BufferFull(
            f"{self.buffered_bytes} of {self.buffer_bytes} bytes hold records that are not delivered yet",
            size,
        )

    def _choose(
        self,
        topic_queues: TopicQueues,
        key: bytes,
        key_at: int,
        key_length: int,
        size: int,
        key_object: bytes | None,
        value_object: bytes | None,
    ) -> PartitionQueue:
        partitions = len(topic_queues.partitions)
        if self.strategy == _BY_KEY and key_length >= 0:
            return topic_queues.partitions[(_murmur2(key, key_at, key_length) & 0x7FFFFFFF) % partitions]
        if self.strategy == _CUSTOM:
            assert self.partitioner is not None
            chosen = self.partitioner(topic_queues.topic, key_object, value_object, partitions)
            if not 0 <= chosen < partitions:
                raise UnknownPartition(
                    f"the partitioner returned {chosen}: topic {topic_queues.topic!r} has partitions 0 to"
                    f" {partitions - 1}"
                )
            return topic_queues.partitions[chosen]
        if self.strategy == _ROUND_ROBIN:
            queue = topic_queues.candidates[topic_queues.turn % len(topic_queues.candidates)]
            topic_queues.turn += 1
            return queue
        sticky = topic_queues.sticky
        if sticky is None or self._turn_is_over(topic_queues, sticky, size):
            sticky = topic_queues.sticky = self.choose_sticky(topic_queues)
            topic_queues.sticky_bytes = 0
        topic_queues.sticky_bytes += size
        return sticky

    def _turn_is_over(self, topic_queues: TopicQueues, queue: PartitionQueue, size: int) -> bool:
        """Whether another partition becomes the sticky one: after batch.size bytes, but not while the open
        batch is half full (KIP-794).
        """
        if topic_queues.sticky_bytes < queue.batch_bytes:
            return False
        batch = queue.open
        if batch is None or topic_queues.sticky_bytes >= 2 * queue.batch_bytes:
            return True
        return batch.used + size > queue.batch_bytes

    def _open_batch(self, queue: PartitionQueue, now: float, size: int) -> Batch:
        """The queue's batch with room for `size` bytes: the open one, or else it is closed and a new one
        opened.

        A record larger than a batch gets a batch of its own.
        """
        batch = queue.open
        if batch is None or batch.used + size > queue.batch_bytes_max:
            queue.close()
            if now < 0 and self.clock is not None:
                now = self.clock()
            batch = queue.open = Batch(queue, now)
            if now - queue.last_sent_at < self.linger_s:
                # under load: it may grow, and will be about as large as the last one
                batch.ready_bytes = queue.batch_bytes_max
                self._reuse_buffer(batch)
            queue.waiting.append(batch)
            self.busy[queue] = None
            self.should_wake = True
        batch.reserve(size)
        return batch

    def _reuse_buffer(self, batch: Batch) -> None:
        """Gives a new batch the buffer of a delivered one, if there is one: the system clears new memory
        first.
        """
        queue = batch.queue
        expected = min(2 * queue.last_batch_bytes, queue.batch_bytes_max)
        if self.spare and expected > len(batch.buffer):
            batch.buffer = self.spare.pop()
        batch.reserve(max(0, expected - batch.used))

    def recycle(self, batch: Batch) -> None:
        """Keeps the buffer of a batch that a broker has acknowledged, for another batch.

        The buffer of a batch that merely timed out may still be on its way through a socket.
        """
        if len(self.spare) < _SPARE_MAX and len(batch.buffer) >= self.batch_bytes_max:
            self.spare.append(batch.buffer)

    def _note_if_ready(self, batch: Batch, size: int) -> None:
        """After a record of at most `size` bytes was written: wakes the sender if the batch became ready."""
        if batch.used >= batch.ready_bytes and batch.used - size < batch.ready_bytes:
            self.should_wake = True

    def take(self, queue: PartitionQueue) -> Batch:
        """Removes and closes the oldest batch of a queue that is not empty."""
        batch = queue.waiting.popleft()
        if batch is queue.open:
            queue.close()
        del self.busy[queue]
        if queue.waiting:
            self.busy[queue] = None  # behind all others, so that every partition is served
        return batch

    def release(self, batch: Batch) -> None:
        """Frees the buffer memory of a batch that is settled."""
        self.buffered_bytes -= batch.record_bytes
        batch.record_bytes = 0

    def take_last(self, queue: PartitionQueue) -> Batch:
        """Removes the newest batch of a queue that is not empty."""
        queue.close()
        batch = queue.waiting.pop()
        if not queue.waiting:
            del self.busy[queue]
        return batch

    def replace(self, batch: Batch, parts: list[Batch]) -> None:
        """Splits a batch that was taken: its records are in `parts` from now on."""
        batch.replace(parts)
        self.release(batch)
        for part in parts:
            self.buffered_bytes += part.record_bytes

    def put_back(self, batch: Batch, place: int) -> None:
        """Puts a batch that was taken back into its queue, behind `place` others."""
        assert batch.is_closed
        batch.queue.waiting.insert(place, batch)
        self.busy[batch.queue] = None


def _as_bytes(given: object) -> bytes:
    if isinstance(given, str):
        return given.encode()
    try:
        return bytes(memoryview(given))  # type: ignore[arg-type]  # bytes(5) would be five zeros
    except TypeError:
        raise Unwritable(f"a key or value of type {type(given).__name__}: must be bytes or text") from None
