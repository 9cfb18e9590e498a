"""Timeouts of open transactions: one deadline per transactional id, in one heap."""

from heapq import heapify, heappop, heappush

from headrace.base.time import Instant

SLACK = 1000  # so many deadlines without a meaning are cheaper kept than swept


class Timeouts:
    __slots__ = ("_due", "_heap")

    def __init__(self) -> None:
        self._due: dict[str, Instant] = {}
        self._heap: list[tuple[Instant, str]] = []  # what `_due` no longer says is skipped

    def __len__(self) -> int:
        """How many deadlines are kept, with those that mean nothing any more."""
        return len(self._heap)

    def __contains__(self, transactional_id: str) -> bool:
        return transactional_id in self._due

    def set(self, transactional_id: str, at: Instant) -> None:
        self._due[transactional_id] = at
        heappush(self._heap, (at, transactional_id))
        if len(self._heap) > SLACK + 2 * len(self._due):
            # transactions end long before their time: without this their deadlines would pile up until then
            self._heap = [(due, each) for each, due in self._due.items()]
            heapify(self._heap)

    def cancel(self, transactional_id: str) -> None:
        self._due.pop(transactional_id, None)

    def get(self, transactional_id: str) -> Instant | None:
        return self._due.get(transactional_id)

    def restore(self, transactional_id: str, at: Instant | None) -> None:
        """As it was when `get` returned this."""
        if at is None:
            self.cancel(transactional_id)
        elif self._due.get(transactional_id) != at:
            self.set(transactional_id, at)

    def next(self) -> Instant | None:
        heap = self._heap
        while heap and self._due.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def pop(self, now: Instant) -> list[str]:
        """Whose time is over; they are forgotten."""
        over: list[str] = []
        while (at := self.next()) is not None and at <= now:
            _, transactional_id = heappop(self._heap)
            del self._due[transactional_id]
            over.append(transactional_id)
        return over
