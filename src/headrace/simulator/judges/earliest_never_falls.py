"""The log start only rises, and only because of DeleteRecords or of retention on that topic.

After the loss of a host, records that retention deleted may come back. Records that were deleted on request
do not, with one exception: nothing of the partition had ever been flushed, so that it begins again.
"""

from headrace.simulator.history import (
    DeletionAsked,
    Event,
    Fetched,
    NodeStopped,
    OffsetTold,
    PartitionKey,
    RecordsDeleted,
    TopicCreated,
    Violation,
)


class EarliestNeverFalls:
    name = "earliest_never_falls"

    def __init__(self) -> None:
        self._shown: dict[PartitionKey, int] = {}
        self._asked: dict[PartitionKey, int] = {}
        self._deleted: dict[PartitionKey, int] = {}  # on request, and acknowledged
        self._retained: set[str] = set()  # topics that keep everything until told otherwise
        self._begun: set[PartitionKey] = set()  # were seen, and lost no first file that nobody had flushed

    def see(self, event: Event, /) -> None:
        match event:
            case TopicCreated(topic, _, _, configs):
                if configs.get("retention.ms") == "-1" and "retention.bytes" not in configs:
                    self._retained.add(topic)
            case DeletionAsked(partition, offset):
                self._asked[partition] = max(self._asked.get(partition, 0), offset)
            case RecordsDeleted(partition, low_watermark):
                self._show(partition, low_watermark)
                self._deleted[partition] = low_watermark
            case NodeStopped("lost", flushed):
                kept = {partition for partition, end in flushed.items() if end}
                self._begun &= kept
                self._deleted = {key: offset for key, offset in self._deleted.items() if key in kept}
                self._shown = dict(self._deleted)
            case OffsetTold(partition, "earliest", offset):
                self._show(partition, offset)
            case Fetched(partition=partition, log_start_offset=offset) if offset >= 0:
                self._show(partition, offset)
            case _:
                pass

    def _show(self, partition: PartitionKey, offset: int) -> None:
        if offset == 0:
            self._begun.add(partition)
        if (
            partition.topic in self._retained
            and partition in self._begun
            and offset > self._asked.get(partition, 0)
        ):
            raise Violation(f"{partition}: the log starts at {offset}, though nobody asked for a deletion")
        before = self._shown.get(partition, 0)
        if offset < before:
            raise Violation(f"{partition}: earliest {offset} after {before} was told")
        self._shown[partition] = offset
