"""A fetch returns whole batches in order, the first of which contains the requested offset, and none at or
beyond the high watermark of the answer. If the log starts after the offset, the first batch is the first of
the log.

In a compacted topic, records may be missing that a producer without idempotence sent again later.
"""

from headrace.simulator.history import ConfigAsked, Event, Fetched, TopicCreated, Violation


class WholeBatchesBelowHighWatermark:
    name = "whole_batches_below_high_watermark"

    def __init__(self) -> None:
        self._compacted: set[str] = set()  # topics that were, at some time

    def see(self, event: Event, /) -> None:
        match event:
            case TopicCreated(topic, configs=configs) if "compact" in configs.get("cleanup.policy", ""):
                self._compacted.add(topic)
            case ConfigAsked(topic, "cleanup.policy", value) if "compact" in value:
                self._compacted.add(topic)
            case Fetched():
                self._check(event, has_gaps=event.partition.topic in self._compacted)
            case _:
                pass

    def _check(self, event: Fetched, *, has_gaps: bool) -> None:
        where = f"fetch of {event.partition} at {event.offset}"
        if event.damage:
            raise Violation(f"{where}: {event.damage}")
        if event.leftover_bytes:
            raise Violation(f"{where}: {event.leftover_bytes} bytes after the last whole batch")
        if not event.batches:
            return
        first, last = event.batches[0]
        if not first <= event.offset <= last and not (has_gaps and event.offset < first):
            raise Violation(f"{where}: the first batch holds {first} to {last}")
        expected = first
        for base, end in event.batches:
            if base < expected or (base > expected and not has_gaps):
                raise Violation(f"{where}: a batch begins at {base} where {expected} was next")
            expected = end + 1
        if expected > event.high_watermark:
            raise Violation(
                f"{where}: records up to {expected - 1}, the high watermark is {event.high_watermark}"
            )
        offsets = [offset for offset, _ in event.records]
        if offsets != list(range(first, expected)) and not (
            has_gaps and offsets == sorted({*offsets}) and {*offsets} <= {*range(first, expected)}
        ):
            raise Violation(f"{where}: offsets inside the batches are {offsets}")
