"""The rate limit of a producer (headrace.rate.records, headrace.rate.bytes), for bulk loads that must not use
all of the brokers' capacity.

Nothing waits here. `reserve` returns how long the caller has to wait before it sends, and reserves its share,
so that several senders share the rate fairly.
"""

from headrace.base.time import Duration, Instant

# Unused capacity may be used later, but at most this much of it: a pause must not end in a burst.
BURST_S = 0.1
# Rows of a table that are appended at once: that takes a few milliseconds, in which no other call runs.
RECORDS_AT_ONCE_MAX = 16_384


class Rate:
    """A fixed rate of one quantity.

    Invariant: over any time span at most rate × (its length + BURST_S) and one share may start.
    """

    __slots__ = ("_next_at", "_per_s")

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._next_at = Instant(float("-inf"))

    @property
    def burst(self) -> float:
        """How much may be sent at once."""
        return self._per_s * BURST_S

    def reserve(self, now: Instant, amount: int) -> Duration:
        """How long to wait before `amount` may be sent; it counts as sent from now on."""
        begins_at = max(self._next_at, now - BURST_S)
        self._next_at = Instant(begins_at + amount / self._per_s)
        return Duration(max(0.0, begins_at - now))


class RateLimit:
    """Records and bytes per second; 0 means no limit."""

    __slots__ = ("_bytes", "_records")

    def __init__(self, records_per_s: int, bytes_per_s: int) -> None:
        self._records = Rate(records_per_s) if records_per_s else None
        self._bytes = Rate(bytes_per_s) if bytes_per_s else None

    @property
    def is_limited(self) -> bool:
        return self._records is not None or self._bytes is not None

    def records_at_once(self, record_bytes: float) -> int:
        """How many records of this size may be sent at once within the rate; at least one."""
        shares = [float("inf")]
        if self._records is not None:
            shares.append(self._records.burst)
        if self._bytes is not None and record_bytes > 0:
            shares.append(self._bytes.burst / record_bytes)
        return max(1, int(min(RECORDS_AT_ONCE_MAX, *shares)))

    def reserve(self, now: Instant, records: int, size: int) -> Duration:
        """How long to wait before these records may be sent."""
        wait_s = Duration(0.0)
        if self._records is not None:
            wait_s = self._records.reserve(now, records)
        if self._bytes is not None:
            wait_s = max(wait_s, self._bytes.reserve(now, size))
        return wait_s
