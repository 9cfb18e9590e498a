"""What an application can wait for besides one record's `Delivery`: the rows of a table, and a flush.

Both follow batches that may be split on their way, because they were too large for their topic.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from headrace.client.producer._batch import Batch, Delivery, Waiter


class PartitionRows(NamedTuple):
    """Rows of a table in one partition. Offsets are −1 with acks=0, where the broker sends no response.

    >>> import pyarrow
    >>> delivery = producer.send_arrow("orders", pyarrow.table({"value": ["tea", "salt"]}))
    >>> delivery.get(timeout=30).partitions[0]
    PartitionRows(records=2, first_offset=0, last_offset=1)
    """

    records: int
    first_offset: int
    last_offset: int


class TableMetadata(NamedTuple):
    """Where the rows of a table were written.

    >>> import pyarrow
    >>> delivery = producer.send_arrow("orders", pyarrow.table({"value": ["tea", "salt"]}))
    >>> metadata = delivery.get(timeout=30)
    >>> metadata.topic, metadata.records, list(metadata.partitions)
    ('orders', 2, [0])
    """

    topic: str
    records: int
    partitions: dict[int, PartitionRows]


class _Span(NamedTuple):
    """Consecutive rows in one batch."""

    batch: Batch
    first: int
    end: int

    def whereabouts(self) -> "Iterator[_Span]":
        """The batches that have the rows now: a batch that was too large was split."""
        if self.batch.parts is None:
            yield self
            return
        start = 0
        for part in self.batch.parts:
            first, end = max(self.first - start, 0), min(self.end - start, part.count)
            if first < end:
                yield from _Span(part, first, end).whereabouts()
            start += part.count


WhenDone = Callable[["TableDelivery"], object]


class TableDelivery:
    """The result of sending a table: done when every row is delivered or has failed.

    >>> import pyarrow
    >>> delivery = producer.send_arrow("orders", pyarrow.table({"value": ["tea", "salt"]}))
    >>> delivery.get(timeout=30).records
    2
    >>> delivery.is_done, delivery.error
    (True, None)
    """

    def __init__(self, topic: str, waiter: Waiter) -> None:
        self.topic = topic
        self.records = 0
        self._waiter = waiter
        self._spans: list[_Span] = []
        self._answered = 0  # so many spans from the first on are known to be

    def add(self, taken: int, touched: Mapping[Batch, int]) -> None:
        """Adds `taken` rows: `touched` has their batches, each with the index of its first row."""
        self.records += taken
        self._spans += [_Span(batch, first, batch.count) for batch, first in touched.items()]

    @property
    def is_done(self) -> bool:
        return self._open_batch() is None

    def _open_batch(self) -> Batch | None:
        """A batch that is not settled yet."""
        while self._answered < len(self._spans):
            for part in self._spans[self._answered].whereabouts():
                if not part.batch.is_settled:
                    return part.batch
            self._answered += 1
        return None

    @property
    def error(self) -> Exception | None:
        """Why a row was not delivered; None if all were delivered, or are still pending."""
        for span in self._spans:
            for part in span.whereabouts():
                if part.batch.error is not None:
                    own = [
                        index for index in part.batch.record_errors or () if part.first <= index < part.end
                    ]
                    error: Exception | None = part.batch.error_of(min(own, default=part.first))
                    return error
        return None

    def result(self) -> TableMetadata:
        """Where the rows were written; raises if one of them failed. Only once the delivery is done."""
        if not self.is_done:
            raise RuntimeError("the delivery is still pending; wait with get() or await")
        error = self.error
        if error is not None:
            raise error
        partitions: dict[int, PartitionRows] = {}
        for span in self._spans:
            for batch, first, end in span.whereabouts():
                base = batch.base_offset
                offsets = (base + first, base + end - 1) if base >= 0 else (-1, -1)
                known = partitions.get(batch.queue.partition)
                if known is None:
                    partitions[batch.queue.partition] = PartitionRows(end - first, *offsets)
                else:
                    partitions[batch.queue.partition] = PartitionRows(
                        known.records + end - first,
                        min(known.first_offset, offsets[0]),
                        max(known.last_offset, offsets[1]),
                    )
        return TableMetadata(self.topic, self.records, dict(sorted(partitions.items())))

    def get(self, timeout: float | None = None) -> TableMetadata:
        """Waits until all rows are delivered or have failed, for at most `timeout` seconds.

        Returns where they were written, or raises the first error; `TimedOut` when the time is over.
        """
        if not self.is_done:
            self._waiter.wait(self, timeout)
        return self.result()

    def __await__(self) -> Generator[Any, None, TableMetadata]:
        yield from self._waiter.awaiting(self)
        return self.result()

    def add_callback(self, callback: Callable[..., object], *args: Any, **kwargs: Any) -> "TableDelivery":
        """Calls `callback(*args, metadata, **kwargs)` once all rows are delivered."""

        def delivered(done: TableDelivery) -> None:
            if done.error is None:
                callback(*args, done.result(), **kwargs)

        return self.when_done(delivered)

    def add_errback(self, errback: Callable[..., object], *args: Any, **kwargs: Any) -> "TableDelivery":
        """Calls `errback(*args, error, **kwargs)` once the delivery is done, if a row failed."""

        def failed(done: TableDelivery) -> None:
            error = done.error
            if error is not None:
                errback(*args, error, **kwargs)

        return self.when_done(failed)

    def when_done(self, then: WhenDone) -> "TableDelivery":
        """Calls `then(self)` when the delivery is done, or at once if it is so already."""
        batch = self._open_batch()
        if batch is None:
            then(self)
        else:
            Delivery(batch, 0, 0).when_done(lambda _: self.when_done(then))
        return self


class Flush:
    def __init__(self, batches: Iterable[Batch]) -> None:
        self._left = list(batches)

    @property
    def is_done(self) -> bool:
        """Called often: batches that are settled are not checked again."""
        while self._left and is_answered(self._left[-1]):
            self._left.pop()
        return not self._left

    @property
    def records_left(self) -> int:
        return sum(batch.count for batch in self._left if not is_answered(batch))


def is_answered(batch: Batch) -> bool:
    """Whether all its records are delivered or have failed; a batch that was too large was split."""
    if batch.parts is None:
        return batch.is_settled
    return all(is_answered(part) for part in batch.parts)
