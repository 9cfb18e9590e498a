"""A consumer neither skips records nor goes back within an assignment, nor does its group between two.

An assignment begins at the committed offset, which is never beyond what a member of the group has polled.
"""

from headrace.simulator.history import Event, PartitionKey, Polled, Violation


class PollsFollowEachOther:
    name = "polls_follow_each_other"

    def __init__(self) -> None:
        self._next: dict[tuple[str, int, PartitionKey], int] = {}  # by consumer and assignment
        self._furthest: dict[PartitionKey, int] = {}  # polled by any member

    def see(self, event: Event, /) -> None:
        if not isinstance(event, Polled):
            return
        within = (event.consumer, event.assignment, event.partition)
        furthest = self._furthest.get(event.partition, 0)
        expected = self._next.get(within)
        if expected is None and event.position > furthest:
            raise Violation(f"{event.partition}: {furthest} to {event.position} was polled by nobody")
        if expected is not None and event.position != expected:
            raise Violation(
                f"{event.consumer} polls {event.partition} at {event.position}, not at {expected}"
            )
        end = event.position + len(event.offsets)
        if event.offsets != list(range(event.position, end)):
            raise Violation(
                f"{event.consumer} polls {event.partition} at {event.position} and gets {event.offsets}"
            )
        self._next[within] = end
        self._furthest[event.partition] = max(furthest, end)
