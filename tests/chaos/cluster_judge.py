"""What clients of a cluster saw, and what of it must not be: lost, doubled, disordered or changed records,
readers that skip, and offsets of groups that go back.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable

Place = tuple[int, int]  # partition and offset
Log = dict[int, list[tuple[int, bytes]]]  # by partition: offset and value, as a reader of all of it got them


class Written:
    """Records that producers sent, each with a value of its own, `name-number`, in the order of numbers."""

    def __init__(self) -> None:
        self.sent: dict[str, int] = defaultdict(int)  # how many, by producer
        self.acknowledged: dict[bytes, Place] = {}
        self.refused: list[str] = []

    def violations(self, log: Log) -> Iterable[str]:
        places: dict[bytes, list[Place]] = defaultdict(list)
        for partition, records in log.items():
            newest: dict[str, int] = defaultdict(lambda: -1)
            for expected, (offset, _) in enumerate(records):
                if offset != expected:
                    yield f"partition {partition} has offset {offset} where {expected} belongs"
                    break
            for offset, value in records:
                places[value].append((partition, offset))
                name, _, number = value.decode().partition("-")
                if int(number) >= self.sent[name]:
                    yield f"nobody sent {value!r}"
                if int(number) <= newest[name]:
                    yield f"{value!r} at {partition}:{offset} is behind {name}-{newest[name]}"
                newest[name] = int(number)
        for value, found in places.items():
            if len(found) > 1:
                yield f"{value!r} is at {found}"
        for value, place in self.acknowledged.items():
            if value not in places:
                yield f"{value!r}, acknowledged at {place}, is lost"
            elif place not in places[value]:
                yield f"{value!r}, acknowledged at {place}, is at {places[value]}"


class Handled:
    """What the members of one group handled of a topic, before they committed it."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.count = 0
        self.errors: dict[str, int] = defaultdict(int)
        self.seen: dict[Place, bytes] = {}
        self.found: list[str] = []
        self._next: dict[int, int] = defaultdict(int)
        self._lock = threading.Lock()

    def handle(self, partition: int, offset: int, value: bytes) -> None:
        with self._lock:
            self.count += 1
            if offset > self._next[partition]:
                self.found.append(
                    f"{self.group} skips from {partition}:{self._next[partition]} to {partition}:{offset}"
                )
            self._next[partition] = max(self._next[partition], offset + 1)
            before = self.seen.setdefault((partition, offset), value)
            if before != value:
                self.found.append(f"{self.group} saw {before!r} and {value!r} at {partition}:{offset}")

    def has_all(self, ends: dict[int, int]) -> bool:
        with self._lock:
            return all(self._next[partition] >= end for partition, end in ends.items())

    def violations(self, log: Log) -> Iterable[str]:
        yield from self.found
        final = {(p, offset): value for p, records in log.items() for offset, value in records}
        for place, value in self.seen.items():
            if final.get(place) != value:
                yield f"{self.group} saw {value!r} at {place}, which is {final.get(place)!r} now"
        for place in final.keys() - self.seen.keys():
            yield f"{self.group} never saw {final[place]!r} at {place}"


class Progress:
    """Committed offsets of one group, as its members were told and as others asked for them."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.commits = 0
        self.questions = 0
        self.found: list[str] = []
        self._lowest: dict[int, int] = {}  # that an answer may tell from now on
        self._lock = threading.Lock()

    def committed(self, partition: int, offset: int) -> None:
        """The commit was acknowledged."""
        with self._lock:
            self.commits += 1
            self._lowest[partition] = max(offset, self._lowest.get(partition, 0))

    def lowest(self) -> dict[int, int]:
        """To be remembered before a question is asked."""
        with self._lock:
            return dict(self._lowest)

    def told(self, lowest: dict[int, int], answer: dict[int, int]) -> None:
        with self._lock:
            self.questions += 1
            for partition, offset in answer.items():
                if offset < lowest.get(partition, 0):
                    self.found.append(
                        f"{self.group}: offset {offset} of partition {partition} was told, "
                        f"{lowest[partition]} had been"
                    )
                self._lowest[partition] = max(offset, self._lowest.get(partition, 0))


def copy_violations(name: str, original: Log, copy: Log) -> Iterable[str]:
    """The copy has each record once and in order; its offsets have gaps where transactions ended."""
    for partition, records in original.items():
        wanted = [value.removesuffix(b" copied") for _, value in records]
        got = [value.removesuffix(b" copied") for _, value in copy.get(partition, [])]
        if wanted != got:
            same = next((n for n, (a, b) in enumerate(zip(wanted, got, strict=False)) if a != b), None)
            place = min(len(wanted), len(got)) if same is None else same
            yield (
                f"{name}, partition {partition}: {len(got)} of {len(wanted)} records; after {place} come "
                f"{got[place : place + 3]} instead of {wanted[place : place + 3]}"
            )
