"""The latest offset that a client gets is past every record that was acknowledged with acks=all before.

Records that were not flushed may be lost with their host, unless each record was promised an fsync.
"""

from headrace.simulator.history import (
    BatchAcked,
    Event,
    NodeStopped,
    OffsetTold,
    PartitionKey,
    Violation,
)
from headrace.simulator.judges.fsync_promises import FsyncPromises

ALL = -1


class LatestNotBelowAcked:
    name = "latest_not_below_acked"

    def __init__(self) -> None:
        self._promises = FsyncPromises()
        self._ends: dict[PartitionKey, int] = {}
        self._flushed_ends: dict[PartitionKey, int] = {}  # of answers that promised an fsync

    def see(self, event: Event, /) -> None:
        self._promises.see(event)
        match event:
            case BatchAcked(partition=partition, values=values, base_offset=base, acks=acks) if acks == ALL:
                end = base + len(values)
                self._ends[partition] = max(self._ends.get(partition, 0), end)
                if self._promises.covers(event):
                    self._flushed_ends[partition] = max(self._flushed_ends.get(partition, 0), end)
            case OffsetTold(partition, "latest", offset):
                if offset < self._ends.get(partition, 0):
                    end = self._ends[partition]
                    raise Violation(
                        f"{partition}: acknowledged up to {end}, and {offset} is told as the latest"
                    )
            case NodeStopped("lost", flushed):
                for partition, end in self._ends.items():
                    kept = max(flushed.get(partition, 0), self._flushed_ends.get(partition, 0))
                    self._ends[partition] = min(end, kept)
            case _:
                pass
