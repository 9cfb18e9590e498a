"""The latest offset that is told lies behind every record that was acknowledged with acks=all before.

The loss of a machine excuses what had not been flushed, except where each record was promised an fsync.
"""

from headrace.simulator.history import (
    BatchAcked,
    Event,
    NodeStopped,
    OffsetTold,
    PartitionKey,
    TopicCreated,
    Violation,
)

ALL = -1


class LatestNotBelowAcked:
    name = "latest_not_below_acked"

    def __init__(self) -> None:
        self._promised: set[str] = set()
        self._ends: dict[PartitionKey, int] = {}

    def see(self, event: Event, /) -> None:
        match event:
            case TopicCreated(topic, _, _, configs) if configs.get("flush.messages") == "1":
                self._promised.add(topic)
            case BatchAcked(partition=partition, values=values, base_offset=base, acks=acks) if acks == ALL:
                self._ends[partition] = max(self._ends.get(partition, 0), base + len(values))
            case OffsetTold(partition, "latest", offset):
                if offset < self._ends.get(partition, 0):
                    end = self._ends[partition]
                    raise Violation(
                        f"{partition}: acknowledged up to {end}, and {offset} is told as the latest"
                    )
            case NodeStopped("lost", flushed):
                for partition, end in self._ends.items():
                    if partition.topic not in self._promised:
                        self._ends[partition] = min(end, flushed.get(partition, 0))
            case _:
                pass
