"""The known offset: the end of the metadata that all live brokers have applied, as their fetches say.

Answers wait for it, and each fetch of a broker may raise it. So it is not computed again each time: a fetch
compares only the broker that sent it. All brokers are compared when the last of the slowest brokers has moved
on, or when the set of live brokers may have changed.
"""

from collections.abc import Callable, Iterable
from math import inf


class KnownOffset:
    """Invariant: until `forget`, the offset is the lowest of `_applied`, and `_at_offset` brokers have it."""

    __slots__ = ("_applied", "_applied_offset", "_at_offset", "_live", "_offset")

    def __init__(
        self, live: Callable[[], Iterable[int]], applied_offset: Callable[[int], int | None]
    ) -> None:
        self._live = live  # ids of the brokers that count
        self._applied_offset = applied_offset  # None: that broker has told nothing, and is not awaited
        self._applied: dict[int, int | None] | None = None  # by live broker; None: to be asked for again
        self._offset: float = inf  # without a broker that has told anything, everything counts as known
        self._at_offset = 0

    def forget(self) -> None:
        """Brokers may have come or gone, or have told another controller."""
        self._applied = None

    def includes(self, offset: int) -> bool:
        """Whether all live brokers have applied everything before this offset."""
        if self._applied is None:
            self._ask_all()
        return self._offset >= offset

    def broker_told(self, broker_id: int) -> bool:
        """A broker has fetched; True if more is known now than before, or if that cannot be said."""
        applied = self._applied
        if applied is None:
            return True
        if broker_id not in applied:
            return False
        before, now = applied[broker_id], self._applied_offset(broker_id)
        if before == now:
            return False
        applied[broker_id] = now
        offset = self._offset
        if before == offset:
            self._at_offset -= 1
        if now is not None and now < offset:
            self._offset, self._at_offset = now, 1
        elif now == offset:
            self._at_offset += 1
        elif not self._at_offset:
            self._find_slowest(applied)
        return self._offset > offset

    def _ask_all(self) -> None:
        self._applied = {broker: self._applied_offset(broker) for broker in self._live()}
        self._find_slowest(self._applied)

    def _find_slowest(self, applied: dict[int, int | None]) -> None:
        offsets: list[float] = [offset for offset in applied.values() if offset is not None]
        self._offset = min(offsets, default=inf)
        self._at_offset = offsets.count(self._offset)
