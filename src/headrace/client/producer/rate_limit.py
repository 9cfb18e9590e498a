"""A producer's own speed limit, for bulk loads that leave the brokers to others: so many records and bytes
per second, however fast they are sent.

Nothing waits here. Whoever wants to send is told for how long to wait first, and has its place in the line
from then on, so that several senders share the rate fairly.
"""

from headrace.base.time import Duration, Instant

# What was not used may be made up for, but only so much of it: a pause must not end in a flood.
BURST_S = 0.1
# Rows of a table that are taken in one go: a few milliseconds, in which nobody else gets a turn.
RECORDS_AT_ONCE_MAX = 16_384


class Rate:
    """One quantity at a fixed rate: each share has a moment from which on it may be used.

    Invariant: over any stretch of time no more begins than rate × (its length + BURST_S) and one share.
    """

    __slots__ = ("_next_at", "_per_s")

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._next_at = Instant(float("-inf"))

    @property
    def burst(self) -> float:
        """What may go at once."""
        return self._per_s * BURST_S

    def reserve(self, now: Instant, amount: int) -> Duration:
        """How long to wait before so much is used; it counts as used from now on."""
        begins_at = max(self._next_at, now - BURST_S)
        self._next_at = Instant(begins_at + amount / self._per_s)
        return Duration(max(0.0, begins_at - now))


class RateLimit:
    """Records and bytes per second; 0: as many as there are."""

    __slots__ = ("_bytes", "_records")

    def __init__(self, records_per_s: int, bytes_per_s: int) -> None:
        self._records = Rate(records_per_s) if records_per_s else None
        self._bytes = Rate(bytes_per_s) if bytes_per_s else None

    @property
    def is_limited(self) -> bool:
        return self._records is not None or self._bytes is not None

    def records_at_once(self, record_bytes: float) -> int:
        """How many records of that size may go together without making a flood of them: at least one."""
        shares = [float("inf")]
        if self._records is not None:
            shares.append(self._records.burst)
        if self._bytes is not None and record_bytes > 0:
            shares.append(self._bytes.burst / record_bytes)
        return max(1, int(min(RECORDS_AT_ONCE_MAX, *shares)))

    def reserve(self, now: Instant, records: int, size: int) -> Duration:
        """How long to wait before so many records of so many bytes are sent."""
        wait_s = Duration(0.0)
        if self._records is not None:
            wait_s = self._records.reserve(now, records)
        if self._bytes is not None:
            wait_s = max(wait_s, self._bytes.reserve(now, size))
        return wait_s
