"""Index from a broker to the partitions that change when the broker comes or goes.

The controller reads it to fence a broker in time proportional to the partitions of that broker. Each kind is
an ordered dict, so that decisions have the same order in every run.
"""

from collections import Counter
from typing import Protocol

from headrace.base.ids import TopicId

PartitionKey = tuple[TopicId, int]
Keys = dict[PartitionKey, None]


class Replicated(Protocol):
    """The parts of a partition's state that are indexed."""

    @property
    def isr(self) -> tuple[int, ...]: ...
    @property
    def eligible_leader_replicas(self) -> tuple[int, ...]: ...
    @property
    def leader(self) -> int: ...


class ReplicaIndex:
    __slots__ = ("_eligible", "_in_sync", "_leaderless", "_led")

    def __init__(self) -> None:
        self._in_sync: dict[int, Keys] = {}  # broker → partitions with it in their ISR
        self._eligible: dict[int, Keys] = {}  # broker → partitions with it in their ELR
        self._leaderless: Keys = {}
        self._led: Counter[int] = Counter()  # broker → number of partitions that it leads

    def in_sync(self, broker: int) -> list[PartitionKey]:
        return list(self._in_sync.get(broker, ()))

    def eligible(self, broker: int) -> list[PartitionKey]:
        return list(self._eligible.get(broker, ()))

    def leaderless(self) -> list[PartitionKey]:
        return list(self._leaderless)

    def leads(self, broker: int) -> bool:
        return self._led[broker] > 0

    def change(self, key: PartitionKey, before: Replicated | None, after: Replicated | None) -> None:
        """A partition was created (`before` is None), changed, or removed (`after` is None)."""
        isr_before, isr_after = before.isr if before else (), after.isr if after else ()
        if isr_before != isr_after:
            move(self._in_sync, key, isr_before, isr_after)
        elr_before = before.eligible_leader_replicas if before else ()
        elr_after = after.eligible_leader_replicas if after else ()
        if elr_before != elr_after:
            move(self._eligible, key, elr_before, elr_after)
        led_before, led_after = before.leader if before else None, after.leader if after else None
        if led_before == led_after:
            return
        if led_before is not None:
            if led_before >= 0:
                self._led[led_before] -= 1
            else:
                del self._leaderless[key]
        if led_after is not None:
            if led_after >= 0:
                self._led[led_after] += 1
            else:
                self._leaderless[key] = None


def move(index: dict[int, Keys], key: PartitionKey, before: tuple[int, ...], after: tuple[int, ...]) -> None:
    for broker in before:
        if broker not in after:
            del index[broker][key]
    for broker in after:
        if broker not in before:
            index.setdefault(broker, {})[key] = None
