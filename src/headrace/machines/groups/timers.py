"""The timers of one shard: a deadline per key, in one heap.

Setting a timer to a later moment, which every heartbeat does, only writes the new deadline down: the heap
learns of it when the old one comes up. So a key has one place in the heap that counts, however often it is
set, and the heap holds at most one entry per key that is not yet due to be dropped.
"""

from __future__ import annotations

from heapq import heappop, heappush

from headrace.base.time import Instant

# What the timer is for, the group, the member; what does not apply is empty.
Key = tuple[str, str, str]


class Timers:
    __slots__ = ("_deadlines", "_heap", "_queued")

    def __init__(self) -> None:
        self._deadlines: dict[Key, Instant] = {}
        self._queued: dict[Key, Instant] = {}  # the heap's entry that counts; never later than the deadline
        self._heap: list[tuple[Instant, Key]] = []

    def set(self, key: Key, at: Instant) -> None:
        """Replaces the deadline that the key had."""
        self._deadlines[key] = at
        queued = self._queued.get(key)
        if queued is None or at < queued:
            self._queued[key] = at
            heappush(self._heap, (at, key))

    def cancel(self, key: Key) -> None:
        self._deadlines.pop(key, None)

    def get(self, key: Key) -> Instant | None:
        return self._deadlines.get(key)

    def next(self) -> Instant | None:
        """The earliest deadline."""
        heap = self._heap
        while heap:
            at, key = heap[0]
            if self._deadlines.get(key) == at:
                return at
            self._drop_stale()
        return None

    def pop_due(self, mono: Instant) -> Key | None:
        """Takes the earliest timer that is due, if there is one."""
        at = self.next()
        if at is None or at > mono:
            return None
        _, key = heappop(self._heap)
        del self._deadlines[key]
        if self._queued.get(key) == at:
            del self._queued[key]
        return key

    def _drop_stale(self) -> None:
        """Moves the heap's first entry to the deadline its key has by now, or away."""
        at, key = heappop(self._heap)
        if self._queued.get(key) != at:
            return  # an earlier deadline was queued meanwhile
        deadline = self._deadlines.get(key)
        if deadline is None:
            del self._queued[key]
        else:
            self._queued[key] = deadline
            heappush(self._heap, (deadline, key))
