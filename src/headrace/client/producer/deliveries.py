"""What an application can wait for besides one record's `Delivery`: the rows of a table, and a flush.

Both follow batches that may be split on their way, because they were too large for their topic.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from headrace.client.producer._batch import Batch, Delivery, Waiter


class PartitionRows(NamedTuple):
    """Rows of a table in one partition. Offsets are −1 if the broker was not asked for them (acks=0).

    >>> import pyarrow
    >>> delivery = producer.send_arrow("orders", pyarrow.table({"value": ["tea", "salt"]}))
    >>> delivery.get(timeout=30).partitions[0]
    PartitionRows(records=2, first_offset=0, last_offset=1)
    """

    records: int
    first_offset: int
    last_offset: int


class TableMetadata(NamedTuple):
    """Where the rows of a table came to lie.

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
    """Some rows, one behind the other in a batch."""

    batch: Batch
    first: int
    end: int

    def whereabouts(self) -> "Iterator[_Span]":
        """The batches that carry the rows now: one that was too large went on in parts."""
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
    """Done when the fate of every row is known; failed if one of them was not delivered.

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
        """So many more rows were taken, into these batches, each from that place to its end."""
        self.records += taken
        self._spans += [_Span(batch, first, batch.count) for batch, first in touched.items()]

    @property
    def is_done(self) -> bool:
        return self._open_batch() is None

    def _open_batch(self) -> Batch | None:
        """One whose fate is not known."""
        while self._answered < len(self._spans):
            for part in self._spans[self._answered].whereabouts():
                if not part.batch.is_settled:
                    return part.batch
            self._answered += 1
        return None

    @property
    def error(self) -> Exception | None:
        """Why some row was not delivered; None if all were, or are still on their way."""
        for span in self._spans:
            for part in span.whereabouts():
                if part.batch.error is not None:
                    error: Exception = part.batch.error
                    return error
        return None

    def result(self) -> TableMetadata:
        """Where the rows lie; raises why one of them does not. Only of one that is done."""
        if not self.is_done:
            raise RuntimeError("rows are still on their way")
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
        """Waits until all rows are answered for: where they lie, or the error is raised."""
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
        """Calls `errback(*args, error, **kwargs)` once all is known and a row was not delivered."""

        def failed(done: TableDelivery) -> None:
            error = done.error
            if error is not None:
                errback(*args, error, **kwargs)

        return self.when_done(failed)

    def when_done(self, then: WhenDone) -> "TableDelivery":
        """Calls `then(self)` when all is known, at once if it is already."""
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
        """Asked often, so that what is known to be answered is not looked at again."""
        while self._left and is_answered(self._left[-1]):
            self._left.pop()
        return not self._left

    @property
    def records_left(self) -> int:
        return sum(batch.count for batch in self._left if not is_answered(batch))


def is_answered(batch: Batch) -> bool:
    """Whether the fate of all its records is known; those of one that was too large went on in parts."""
    if batch.parts is None:
        return batch.is_settled
    return all(is_answered(part) for part in batch.parts)
