"""What the members of a stormy group told, and the judges over it.

`group_owns_partition_once` has two halves. In one generation a partition is gained by one member only. And in
time: between gaining a partition and giving it up, nobody else gains it; a member that was killed has owned
it until it was dead. Members that say they *lost* their partitions were put out without being asked, and
nobody can say at which moment: for them only the first half holds.
"""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Tenure:
    """One member's time with one partition; `until` is None while it lasts."""

    member: str
    since: float
    until: float | None = None
    was_lost: bool = False


class Journal:
    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.processed: set[int] = set()
        self.repeated = 0
        self.lost = 0
        self.failures: list[str] = []  # of members and of their processes: none may happen
        self.notices: list[str] = []  # errors that a consumer hears of and goes on
        self.states: dict[str, dict[str, Any]] = {}  # what members said when they were asked
        self.closing: set[str] = set()  # members that began to leave, also those that have left
        self.moves = 0
        self.events = 0  # moves and departures: as long as it grows, the group is at work
        self.generations: set[int] = set()
        self._gained: dict[tuple[int, int], set[str]] = defaultdict(set)  # (generation, partition) → members
        self._tenures: dict[int, list[Tenure]] = defaultdict(list)
        self._current: dict[int, dict[str, Tenure]] = {place: {} for place in range(partitions)}
        self._lock = threading.Lock()

    def add(self, crew: str, event: dict[str, Any]) -> None:
        member = f"{crew}/{event['member']}"
        with self._lock:
            if "processed" in event:
                before = len(self.processed)
                self.processed.update(event["processed"])
                self.repeated += len(event["processed"]) - (len(self.processed) - before)
                return
            self.events += event["how"] not in ("state", "noticed")
            match event["how"]:
                case "gained":
                    self._gain(member, event)
                case "gave up" | "lost":
                    self._end(member, event["at"], event["places"], was_lost=event["how"] == "lost")
                case "closes":
                    self.closing.add(member)
                case "left":
                    self._end(member, event["at"], range(self.partitions), was_lost=False)
                case "failed":
                    self.failures.append(f"{member}: {event['error']}")
                case "noticed":
                    self.notices.append(f"{event['at']:.2f} {member}: {event['error']}")
                case "state":
                    self.states[member] = event["state"]

    def fail(self, crew: str, failure: str) -> None:
        """A crew as a whole did: its process, or the thread that listens to it."""
        with self._lock:
            self.failures.append(f"{crew}: {failure}")

    def died(self, crew: str, at: float) -> None:
        """The process is dead: its members own nothing any more."""
        with self._lock:
            for current in self._current.values():
                for member in [name for name in current if name.startswith(f"{crew}/")]:
                    current.pop(member).until = at

    def owners(self) -> dict[int, list[str]]:
        with self._lock:
            return {place: list(current) for place, current in self._current.items()}

    def is_settled(self, members: set[str]) -> bool:
        """Every partition has one owner, and every living member owns something."""
        owners = self.owners()
        if any(len(names) != 1 for names in owners.values()):
            return False
        return {names[0] for names in owners.values()} == members

    def owned_twice(self) -> list[str]:
        """Every violation of `group_owns_partition_once`, as a sentence."""
        faults = [
            f"partition {place} was gained in generation {generation} by {sorted(members)}"
            for (generation, place), members in self._gained.items()
            if len(members) > 1
        ]
        for place, tenures in self._tenures.items():
            tenures.sort(key=lambda tenure: tenure.since)
            for earlier, later in itertools.pairwise(tenures):
                still_owned = earlier.until is None or earlier.until > later.since
                if still_owned and not earlier.was_lost and earlier.member != later.member:
                    faults.append(f"partition {place} went to {later.member} while {earlier.member} had it")
        return faults

    def _gain(self, member: str, event: dict[str, Any]) -> None:
        self.moves += len(event["places"])
        self.generations.add(event["generation"])
        for place in event["places"]:
            self._gained[event["generation"], place].add(member)
            tenure = self._current[place][member] = Tenure(member, event["at"])
            self._tenures[place].append(tenure)

    def _end(self, member: str, at: float, places: Iterable[int], *, was_lost: bool) -> None:
        for place in places:
            tenure = self._current[place].pop(member, None)
            if tenure is not None:
                tenure.until, tenure.was_lost = at, was_lost
                self.lost += was_lost
