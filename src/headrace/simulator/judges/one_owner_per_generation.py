"""In one generation of a group a partition belongs to one member."""

from headrace.simulator.history import Assigned, Event, PartitionKey, Violation


class OneOwnerPerGeneration:
    name = "one_owner_per_generation"

    def __init__(self) -> None:
        self._owners: dict[tuple[str, int, PartitionKey], str] = {}

    def see(self, event: Event, /) -> None:
        if not isinstance(event, Assigned):
            return
        for partition in event.partitions:
            owner = self._owners.setdefault((event.group, event.generation, partition), event.member)
            if owner != event.member:
                raise Violation(
                    f"{partition} belongs to {owner} and to {event.member} in generation {event.generation}"
                )
