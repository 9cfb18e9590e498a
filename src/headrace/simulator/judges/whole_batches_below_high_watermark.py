"""A fetch gives whole batches that follow each other, the first of which holds the offset asked for (or
begins at the log start behind it), and nothing at or beyond the high watermark it names.
"""

from headrace.simulator.history import Event, Fetched, Violation


class WholeBatchesBelowHighWatermark:
    name = "whole_batches_below_high_watermark"

    def see(self, event: Event, /) -> None:
        if not isinstance(event, Fetched):
            return
        where = f"fetch of {event.partition} at {event.offset}"
        if event.damage:
            raise Violation(f"{where}: {event.damage}")
        if event.leftover_bytes:
            raise Violation(f"{where}: {event.leftover_bytes} bytes after the last whole batch")
        if not event.batches:
            return
        first, last = event.batches[0]
        if not first <= event.offset <= last:
            raise Violation(f"{where}: the first batch holds {first} to {last}")
        expected = first
        for base, end in event.batches:
            if base != expected:
                raise Violation(f"{where}: a batch begins at {base} where {expected} was next")
            expected = end + 1
        if expected > event.high_watermark:
            raise Violation(
                f"{where}: records up to {expected - 1}, the high watermark is {event.high_watermark}"
            )
        offsets = [offset for offset, _ in event.records]
        if offsets != list(range(first, expected)):
            raise Violation(f"{where}: offsets inside of the batches are {offsets}")
