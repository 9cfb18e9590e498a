"""With idempotence, a value has one offset in its partition."""

from headrace.simulator.history import (
    BatchAcked,
    BatchSent,
    Event,
    Fetched,
    NodeStopped,
    PartitionKey,
    Violation,
)


class NoDuplicates:
    name = "no_duplicates"

    def __init__(self) -> None:
        self._idempotent: set[bytes] = set()  # values
        self._offsets: dict[PartitionKey, dict[bytes, int]] = {}

    def see(self, event: Event, /) -> None:
        match event:
            case BatchSent(values=values, is_idempotent=True):
                self._idempotent.update(values)
            case BatchAcked(partition=partition, values=values, base_offset=base):
                for offset, value in enumerate(values, base):
                    self._check(partition, offset, value)
            case Fetched(partition=partition, records=records):
                for offset, value in records:
                    self._check(partition, offset, value)
            case NodeStopped("lost", flushed):
                for partition, known in self._offsets.items():
                    end = flushed.get(partition, 0)
                    self._offsets[partition] = {value: o for value, o in known.items() if o < end}
            case _:
                pass

    def _check(self, partition: PartitionKey, offset: int, value: bytes) -> None:
        if value not in self._idempotent:
            return
        before = self._offsets.setdefault(partition, {}).setdefault(value, offset)
        if before != offset:
            raise Violation(f"{partition}: {value[:20]!r} is at offset {before} and at {offset}")
