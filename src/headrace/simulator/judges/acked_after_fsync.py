"""With flush.messages=1 an answer leaves only when an fsync has made its records durable."""

from headrace.simulator.history import BatchAcked, Event, TopicCreated, TopicDeletionAsked, Violation


class AckedAfterFsync:
    name = "acked_after_fsync"

    def __init__(self) -> None:
        self._promised: set[str] = set()

    def see(self, event: Event, /) -> None:
        if isinstance(event, TopicCreated) and event.configs.get("flush.messages") == "1":
            self._promised.add(event.topic)
        elif isinstance(event, TopicDeletionAsked):
            self._promised.discard(event.topic)
        elif isinstance(event, BatchAcked) and event.partition.topic in self._promised:
            end = event.base_offset + len(event.values)
            if event.durable_end < end:
                raise Violation(
                    f"{event.partition} acknowledged up to {end}, the disk holds {event.durable_end} for sure"
                )
