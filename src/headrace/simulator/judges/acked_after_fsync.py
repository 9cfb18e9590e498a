"""With flush.messages=1 an answer leaves only when an fsync has made its records durable."""

from headrace.simulator.history import BatchAcked, Event, Violation
from headrace.simulator.judges.fsync_promises import FsyncPromises


class AckedAfterFsync:
    name = "acked_after_fsync"

    def __init__(self) -> None:
        self._promises = FsyncPromises()

    def see(self, event: Event, /) -> None:
        self._promises.see(event)
        if isinstance(event, BatchAcked) and self._promises.covers(event):
            end = event.base_offset + len(event.values)
            if event.durable_end < end:
                raise Violation(
                    f"{event.partition} acknowledged up to {end}, the disk holds {event.durable_end} for sure"
                )
