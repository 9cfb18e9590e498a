"""No client sees a high watermark below one that a client saw before.

Only the loss of a host may lower it, to what was flushed, and not if each record was promised an fsync.
"""

from headrace.simulator.history import Event, Fetched, NodeStopped, OffsetTold, PartitionKey, Violation


class HighWatermarkMonotonic:
    name = "high_watermark_monotonic"

    def __init__(self) -> None:
        self._shown: dict[PartitionKey, int] = {}

    def see(self, event: Event, /) -> None:
        match event:
            case Fetched(partition=partition, high_watermark=offset):
                self._show(partition, offset)
            case OffsetTold(partition, "latest", offset):
                self._show(partition, offset)
            case NodeStopped("lost", flushed):
                for partition, shown in self._shown.items():
                    self._shown[partition] = min(shown, flushed.get(partition, 0))
            case _:
                pass

    def _show(self, partition: PartitionKey, offset: int) -> None:
        before = self._shown.get(partition, 0)
        if offset < before:
            raise Violation(f"{partition}: high watermark {offset} after {before} was shown")
        self._shown[partition] = offset
