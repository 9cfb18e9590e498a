"""An offset of a partition has the same value for every reader at all times.

After the loss of a host, offsets that were not flushed may get other values, unless an fsync was promised.
"""

from headrace.simulator.history import BatchAcked, Event, Fetched, NodeStopped, PartitionKey, Violation


class OffsetsKeepTheirValue:
    name = "offsets_keep_their_value"

    def __init__(self) -> None:
        self._values: dict[PartitionKey, dict[int, bytes]] = {}

    def see(self, event: Event, /) -> None:
        match event:
            case BatchAcked(partition=partition, values=values, base_offset=base):
                for offset, value in enumerate(values, base):
                    self._check(partition, offset, value)
            case Fetched(partition=partition, records=records):
                for offset, value in records:
                    self._check(partition, offset, value)
            case NodeStopped("lost", flushed):
                for partition, known in self._values.items():
                    end = flushed.get(partition, 0)
                    self._values[partition] = {o: value for o, value in known.items() if o < end}
            case _:
                pass

    def _check(self, partition: PartitionKey, offset: int, value: bytes) -> None:
        known = self._values.setdefault(partition, {})
        before = known.setdefault(offset, value)
        if before != value:
            raise Violation(f"{partition}: offset {offset} is {value[:20]!r}, it was {before[:20]!r}")
