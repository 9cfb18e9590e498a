"""Records waiting to be sent, gathered into batches per partition.

A batch is closed when the next record would make it larger than `batch_bytes`, or when its first record has
waited for `linger_s`; a record that is larger than a batch travels alone. Sizes are counted before
compression, generously, so that a batch never exceeds what the broker allows because of its headers.
"""

from collections import deque

from headrace.base.time import NEVER, Duration, Instant
from headrace.client.record import Header
from headrace.records.batch import HEADER_BYTES
from headrace.records.builder import Record as NewRow
from headrace.records.builder import build_batch

# Lengths, deltas and counts of one record are varints; together they never take more than this.
RECORD_OVERHEAD_BYTES = 21

SEQUENCES = 1 << 31  # they wrap from the largest int32 to 0


class Batch:
    """Records of one partition that travel together; immutable once closed, except for its tries."""

    __slots__ = (
        "base_sequence",
        "bytes",
        "deadline",
        "encoded",
        "failures",
        "is_closed",
        "opened_at",
        "rows",
    )

    def __init__(self, opened_at: Instant, deadline: Instant) -> None:
        self.rows: list[NewRow] = []
        self.bytes = HEADER_BYTES
        self.opened_at = opened_at
        self.deadline = deadline  # by when it must be delivered
        self.base_sequence = -1  # set when it is sent for the first time and kept for every retry
        self.encoded: bytes | None = None
        self.failures = 0
        self.is_closed = False  # it was sent: its rows and sequences are the broker's already

    @property
    def record_bytes(self) -> int:
        return self.bytes - HEADER_BYTES

    def halves(self) -> tuple["Batch", "Batch"]:
        """Two batches with these rows and sequences, for a broker that finds this one too large."""
        middle = len(self.rows) // 2
        made = Batch(self.opened_at, self.deadline), Batch(self.opened_at, self.deadline)
        for half, rows in zip(made, (self.rows[:middle], self.rows[middle:]), strict=True):
            half.rows = rows
            half.bytes += sum(record_bytes(key, value, headers) for _, key, value, headers in rows)
            half.is_closed = True
            half.base_sequence = self.base_sequence
        if self.base_sequence >= 0:
            made[1].base_sequence = (self.base_sequence + middle) % SEQUENCES
        return made

    def encode(self, *, codec: int, producer_id: int, producer_epoch: int) -> bytes:
        """The bytes on the wire; the same at every retry, so that the broker recognises a repeat."""
        if self.encoded is None:
            self.encoded = build_batch(
                self.rows,
                codec=codec,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                base_sequence=self.base_sequence,
            )
        return self.encoded


def record_bytes(key: bytes | None, value: bytes | None, headers: tuple[Header, ...]) -> int:
    """An upper bound of what the record adds to a batch."""
    size = RECORD_OVERHEAD_BYTES
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, header in headers:
        size += 10 + 4 * len(name) + (0 if header is None else len(header))
    return size


class Waiting:
    """The batches of one partition that have not been sent, oldest first; only the last one may be open."""

    __slots__ = ("_delivery_s", "_linger_s", "batch_bytes", "batches")

    def __init__(self, *, batch_bytes: int, linger_s: Duration, delivery_s: Duration) -> None:
        self.batch_bytes = batch_bytes
        self._linger_s = linger_s
        self._delivery_s = delivery_s
        self.batches: deque[Batch] = deque()

    def add(self, now: Instant, row: NewRow, size: int) -> bool:
        """Takes a record; whether a batch was opened for it."""
        batches = self.batches
        last = batches[-1] if batches else None
        if last is not None and not last.is_closed and last.bytes + size <= self.batch_bytes:
            last.rows.append(row)
            last.bytes += size
            return False
        fresh = Batch(now, Instant(now + self._delivery_s))
        fresh.rows.append(row)
        fresh.bytes += size
        batches.append(fresh)
        return True

    def ready_at(self) -> Instant:
        """When the oldest batch should leave: at once if it is full, else when it has lingered enough."""
        if not self.batches:
            return NEVER
        if len(self.batches) > 1:
            return Instant(0.0)
        return Instant(self.batches[0].opened_at + self._linger_s)
