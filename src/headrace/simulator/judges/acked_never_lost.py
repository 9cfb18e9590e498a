"""An acknowledged record is there at the end, at its offset, unless a client asked for its deletion.

Records that were not flushed may be lost with their host, unless each record was promised an fsync.
"""

from headrace.simulator.history import (
    BatchAcked,
    Event,
    Fetched,
    Finished,
    NodeStopped,
    PartitionKey,
    Violation,
)
from headrace.simulator.judges.fsync_promises import FsyncPromises


class AckedNeverLost:
    name = "acked_never_lost"

    def __init__(self) -> None:
        self._promises = FsyncPromises()
        self._flushed: set[tuple[PartitionKey, int]] = set()  # offsets whose answers promised an fsync
        self._acked: dict[PartitionKey, dict[int, bytes]] = {}

    def see(self, event: Event, /) -> None:
        self._promises.see(event)
        match event:
            case BatchAcked(partition=partition, values=values, base_offset=base):
                self._acked.setdefault(partition, {}).update(enumerate(values, base))
                if self._promises.covers(event):
                    self._flushed.update((partition, base + n) for n in range(len(values)))
            case Fetched():
                self._check_fetched(event)
            case NodeStopped("lost", flushed):
                for partition, acked in self._acked.items():
                    end = flushed.get(partition, 0)
                    self._acked[partition] = {
                        o: value for o, value in acked.items() if o < end or (partition, o) in self._flushed
                    }
            case Finished():
                self._check_all(event)
            case _:
                pass

    def _check_fetched(self, event: Fetched) -> None:
        acked = self._acked.get(event.partition, {})
        for offset, value in event.records:
            expected = acked.get(offset)
            if expected is not None and expected != value:
                raise Violation(
                    f"{event.partition}: at {offset} {expected[:20]!r} was acknowledged, not {value[:20]!r}"
                )

    def _check_all(self, event: Finished) -> None:
        for partition, records in event.contents.items():
            found = dict(records)
            for offset, value in self._acked.get(partition, {}).items():
                if offset >= event.starts[partition] and found.get(offset) != value:
                    raise Violation(
                        f"{partition}: {value[:20]!r} was acknowledged at {offset}, where there is "
                        f"{found.get(offset, b'nothing')[:20]!r}; the log ends at {event.ends[partition]}"
                    )
