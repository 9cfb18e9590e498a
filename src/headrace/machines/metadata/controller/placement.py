"""Placement of the replicas of new partitions: brokers, and their log directories.

Brokers are taken in turn, racks alternating, from a random start that the caller chooses, so that first
replicas (the preferred leaders) spread evenly. The replicas of a partition are on as many racks as possible,
and each round of partitions combines its brokers in another way, so that the load of a lost broker spreads.
Fenced brokers get replicas only when there are too few others, and never the first. A replica goes to the
broker's directory with the fewest replicas.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest

from headrace.base.ids import DirectoryId
from headrace.machines.metadata.controller.decision import Refusal
from headrace.machines.metadata.image import BrokerState, ClusterImage
from headrace.protocol.errors import ErrorCode

UNASSIGNED_DIRECTORY = DirectoryId(bytes(16))


class Placement:
    """Places the partitions of one request; remembers what it placed, so that the next goes elsewhere."""

    def __init__(self, image: ClusterImage, first: int) -> None:
        self._brokers: Mapping[int, BrokerState] = image.brokers
        usable = [image.brokers[id] for id in sorted(image.brokers)]
        usable = [broker for broker in usable if not broker.in_controlled_shutdown]
        self._live = alternating([broker for broker in usable if not broker.is_fenced])
        self._fenced = alternating([broker for broker in usable if broker.is_fenced])
        self._held: dict[bytes, int] = dict(image.partitions_by_directory)
        self._next = first

    def replicas(self, count: int) -> list[int]:
        """The brokers for one partition's replicas, its preferred leader first."""
        live = self._live
        usable = len(live) + len(self._fenced)
        if count > usable or not live:
            reason = f"only {usable} broker(s) are registered" if live else "all brokers are fenced"
            raise Refusal(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Unable to replicate the partition {count} time(s): The target replication factor of "
                f"{count} cannot be reached because {reason}.",
            )
        rounds, place = divmod(self._next, len(live))
        self._next += 1
        if count == 1:
            return [live[place].id]
        others = live[place + 1 :] + live[:place]
        shift = rounds % len(others) if others else 0
        return spread(live[place], [*others[shift:], *others[:shift]], self._fenced, count)

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
        return [broker for broker in replicas if self._brokers[broker].is_active]

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


def alternating(brokers: Sequence[BrokerState]) -> list[BrokerState]:
    """One of each rack, then the next of each rack, and so on."""
    racks: dict[str | None, list[BrokerState]] = {}
    for broker in brokers:
        racks.setdefault(broker.rack, []).append(broker)
    rows = zip_longest(*(racks[rack] for rack in sorted(racks, key=lambda rack: (rack is None, rack or ""))))
    return [broker for row in rows for broker in row if broker is not None]


def spread(
    first: BrokerState, live: Sequence[BrokerState], fenced: Sequence[BrokerState], count: int
) -> list[int]:
    """As many brokers, live ones before fenced ones, each from the rack that has the fewest of them yet."""
    chosen: list[int] = [first.id]
    held = Counter([first.rack])
    for group in (live, fenced):
        left = list(group)
        while left and len(chosen) < count:
            broker = min(left, key=lambda broker: held[broker.rack])
            left.remove(broker)
            chosen.append(broker.id)
            held[broker.rack] += 1
    return chosen


def refused_assignment(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
