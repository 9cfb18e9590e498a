"""The node's one heap of deadlines, so that the server needs one timer and no timer can leak.

An entry is anything with `expired(now)`. Cancelling is lazy: a done entry stays in the heap until its time
comes or until the dead outnumber the living, whichever is first.
"""

from heapq import heapify, heappop, heappush
from itertools import count
from typing import Protocol

from headrace.base.time import Instant, Now


class Due(Protocol):
    is_done: bool

    def expired(self, now: Now, /) -> None: ...


class Deadlines:
    __slots__ = ("_dead", "_heap", "_order")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Due]] = []
        self._order = count()  # equal instants fire in the order they were set
        self._dead = 0

    def add(self, at: Instant, entry: Due) -> None:
        heappush(self._heap, (at, next(self._order), entry))

    def cancelled(self) -> None:
        """An entry was marked done before its time."""
        self._dead += 1
        if self._dead > 64 and self._dead * 2 > len(self._heap):
            self._heap = [item for item in self._heap if not item[2].is_done]
            heapify(self._heap)
            self._dead = 0

    def clear(self) -> None:
        self._heap.clear()
        self._dead = 0

    def next(self) -> Instant | None:
        heap = self._heap
        while heap and heap[0][2].is_done:
            heappop(heap)
            self._dead = max(0, self._dead - 1)
        return Instant(heap[0][0]) if heap else None

    def fire(self, now: Now) -> None:
        while (at := self.next()) is not None and at <= now.mono:
            _, _, entry = heappop(self._heap)
            entry.expired(now)


class Once:
    """Something done one time, after a while."""

    __slots__ = ("_act", "is_done")

    def __init__(self, deadlines: Deadlines, at: Instant, act: "Act") -> None:
        self._act = act
        self.is_done = False
        deadlines.add(at, self)

    def expired(self, now: Now) -> None:
        self._act(now)


class Every:
    """Something done again and again, each time a while after it was last done."""

    __slots__ = ("_act", "_deadlines", "interval_ms", "is_done")

    def __init__(self, deadlines: Deadlines, interval_ms: int, act: "Act") -> None:
        self._deadlines = deadlines
        self._act = act
        self.interval_ms = interval_ms
        self.is_done = False

    def start(self, now: Now) -> None:
        self._deadlines.add(now.after_ms(self.interval_ms), self)

    def expired(self, now: Now) -> None:
        try:
            self._act(now)
        finally:  # what failed once is tried again
            self.start(now)


class Act(Protocol):
    def __call__(self, now: Now, /) -> None: ...
