"""In one generation of a group a partition belongs to one member.

Other judges check groups that may have changed their protocol: an empty group that does so counts its
generations from the beginning.
"""

from headrace.simulator.history import Assigned, Event, JoinAsked, PartitionKey, Violation


class OneOwnerPerGeneration:
    name = "one_owner_per_generation"

    def __init__(self) -> None:
        self._protocols: dict[str, bool] = {}  # by group: whether it began as a classic one
        self._changed: set[str] = set()  # groups
        self._owners: dict[tuple[str, int, PartitionKey], str] = {}

    def see(self, event: Event, /) -> None:
        if not isinstance(event, Assigned | JoinAsked):
            return
        if self._protocols.setdefault(event.group, event.is_classic) != event.is_classic:
            self._changed.add(event.group)
        if event.group in self._changed or isinstance(event, JoinAsked):
            return
        for partition in event.partitions:
            owner = self._owners.setdefault((event.group, event.generation, partition), event.member)
            if owner != event.member:
                raise Violation(
                    f"{partition} belongs to {owner} and to {event.member} in generation {event.generation}"
                )
