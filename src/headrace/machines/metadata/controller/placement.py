"""Where the replicas of new partitions go: which brokers, and which of their directories.

Brokers are taken in turn from a place the caller chose by dice, so that first replicas (the preferred
leaders) spread evenly; a replica goes to its broker's directory that holds the fewest.
"""

from collections.abc import Mapping, Sequence

from headrace.base.ids import DirectoryId
from headrace.machines.metadata.controller.decision import Refusal
from headrace.machines.metadata.image import BrokerState, ClusterImage
from headrace.protocol.errors import ErrorCode

UNASSIGNED_DIRECTORY = DirectoryId(bytes(16))


class Placement:
    """Places the partitions of one request; remembers what it placed, so that the next goes elsewhere."""

    def __init__(self, image: ClusterImage, first: int) -> None:
        self._brokers: Mapping[int, BrokerState] = image.brokers
        self._usable = [broker.id for broker in image.live_brokers() if not broker.in_controlled_shutdown]
        self._held: dict[bytes, int] = dict(image.partitions_by_directory)
        self._next = first

    def replicas(self, count: int) -> list[int]:
        """The brokers for one partition's replicas, its preferred leader first."""
        usable = self._usable
        if count > len(usable):
            raise Refusal(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Unable to replicate the partition {count} time(s): The target replication factor of "
                f"{count} cannot be reached because only {len(usable)} broker(s) are registered.",
            )
        start = self._next
        self._next += 1
        return [usable[(start + step) % len(usable)] for step in range(count)]

    def check_assignment(self, replicas: Sequence[int]) -> None:
        if not replicas:
            raise refused_assignment("The manual partition assignment includes an empty replica list.")
        seen: set[int] = set()
        for broker in replicas:
            if broker not in self._brokers:
                raise refused_assignment(
                    f"The manual partition assignment includes broker {broker}, "
                    "but no such broker is registered."
                )
            if broker in seen:
                raise refused_assignment(
                    f"The manual partition assignment includes the broker {broker} more than once."
                )
            seen.add(broker)

    def live(self, replicas: Sequence[int]) -> list[int]:
        """Those that can be in sync from the beginning."""
        return [broker for broker in replicas if not self._brokers[broker].is_fenced]

    def directories(self, replicas: Sequence[int]) -> list[bytes]:
        return [self._directory(broker) for broker in replicas]

    def _directory(self, broker: int) -> bytes:
        directories = self._brokers[broker].directories
        if not directories:
            return UNASSIGNED_DIRECTORY
        held = self._held
        chosen = min(directories, key=lambda directory: held.get(directory, 0))
        held[chosen] = held.get(chosen, 0) + 1
        return chosen


def refused_assignment(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
