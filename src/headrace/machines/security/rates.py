"""What a quota counts with: the rate over sampled windows, and the token bucket, both as in Kafka.

A rate is the sum of the last windows, divided by the time since the oldest began, and at least by all whole
windows: whoever was quiet may use at once what was saved up. Above its bound, the throttle time is what it
takes until the same sum makes the bound. Far from the bound, a record costs one addition and one comparison.

Kafka lets a fetch ask for all that the whole windows allow, and refuses an answer that does not fit. What is
left in the windows is lost then, up to the size of one answer in each turn of eleven windows: a consumer that
fetches a tenth of a turn at once gets 0.92 of its quota, and one that fetches all of it gets half. So a fetch
is given at most a `portion` here, which fits. For an answer of that size, whether it is refused and for how
long are as in Kafka.
"""

from typing import NamedTuple

from headrace.base.time import Instant

THROTTLE_MS_MAX = 2**31 - 1  # what the field of a message can hold

# Of a window: a smaller portion is not worth an answer. A client at its bound asks some four times in a
# window, and loses at most this part of a window in each turn.
PORTION_MIN = 0.25


class Windows(NamedTuple):
    """`quota.window.num` and `quota.window.size.seconds`: some whole windows and the current one."""

    samples: int = 11
    size_s: float = 1.0


DEFAULT_WINDOWS = Windows()


class Rate:
    """One client's rate, and the bound of its quota."""

    __slots__ = (
        "_older",
        "_portion_min",
        "_start",
        "_windows",
        "bound",
        "ends",
        "free",
        "last",
        "throttle_ms_max",
        "total",
    )

    def __init__(self, bound: float, windows: Windows, *, throttle_ms_max: int = THROTTLE_MS_MAX) -> None:
        self.throttle_ms_max = throttle_ms_max
        self._windows = windows
        self.total = 0.0  # of all windows
        self._older: list[tuple[float, float, float]] = []  # start, last event and sum of each window
        self._start = 0.0  # of the current window
        self.ends = float("-inf")
        self.last = float("-inf")  # the last event
        self.set_bound(bound)

    def set_bound(self, bound: float) -> None:
        """In units per second."""
        self.bound = bound
        # As much as this is within the bound whatever the time.
        self.free = bound * (self._windows.samples - 1) * self._windows.size_s
        self._portion_min = min(self.free, bound * self._windows.size_s * PORTION_MIN)

    def record(self, amount: float, now: Instant) -> int:
        """Counts, and returns for how many milliseconds the client is to be throttled: 0 within the bound."""
        if now < self.ends:
            self.total += amount
            self.last = now
            if self.total <= self.free:
                return 0
        else:
            self._begin_window(amount, now)
        return self._throttle_ms(now)

    def add(self, amount: float, now: Instant) -> None:
        """Counts only; the next one pays. A negative amount takes back what was recorded."""
        if now < self.ends:
            self.total += amount
            self.last = now
        else:
            self._begin_window(amount, now)

    def portion(self, now: Instant) -> float:
        """The most that one fetch may return: half of what is left, as an answer is larger than its records,
        or the smallest portion. If that does not fit, the throttle time is what it takes until it does.
        """
        left = self.free - self.total  # or more, if the oldest window began long ago
        if now >= self.ends or left < 2 * self._portion_min:
            left = min(self.free, self._left(now))
        return max(left / 2, self._portion_min)

    def is_idle(self, now: Instant) -> bool:
        """Whether it is as a new one would be."""
        return now - self.last >= self._windows.samples * self._windows.size_s

    def measure(self, now: Instant) -> float:
        """Units per second."""
        self._forget_old(now)
        elapsed = self._elapsed(now)
        return self.total / elapsed if elapsed > 0 else 0.0

    def _left(self, now: Instant) -> float:
        """What can be recorded without a throttle."""
        if self.is_idle(now):
            return self.free
        self._forget_old(now)
        return self.bound * self._elapsed(now) - self.total

    def _begin_window(self, amount: float, now: Instant) -> None:
        if self.last > float("-inf"):
            current = self.total - sum(part for _, _, part in self._older)
            self._older.append((self._start, self.last, current))
        self._forget_old(now)
        # summed again: a float that only ever adds and subtracts drifts
        self.total = sum(part for _, _, part in self._older) + amount
        self._start, self.last = now, now
        self.ends = now + self._windows.size_s

    def _forget_old(self, now: Instant) -> None:
        """A window counts while it had an event within the time of all windows."""
        oldest_event = now - self._windows.samples * self._windows.size_s
        older = self._older
        while older and older[0][1] <= oldest_event:
            self.total -= older.pop(0)[2]

    def _elapsed(self, now: Instant) -> float:
        """Seconds since the oldest window began; windows that are missing count as if they were there."""
        size = self._windows.size_s
        elapsed = now - (self._older[0][0] if self._older else self._start)
        missing = self._windows.samples - 1 - elapsed // size
        return elapsed + missing * size if missing > 0 else elapsed

    def _throttle_ms(self, now: Instant) -> int:
        self._forget_old(now)
        elapsed = self._elapsed(now)
        if elapsed <= 0 or self.total <= self.bound * elapsed:
            return 0
        if self.bound <= 0:
            return min(self.throttle_ms_max, round(self._windows.samples * self._windows.size_s * 1000))
        excess = self.total / elapsed - self.bound
        return int(min(self.throttle_ms_max, excess / self.bound * elapsed * 1000 + 0.5))


class TokenBucket:
    """Tokens that come back at the rate of the quota, as many at most as in all windows (KIP-599).

    A client may go below zero once: what it asks for together is not divided.
    """

    __slots__ = ("_tokens", "_updated", "_windows", "bound")

    def __init__(self, bound: float, windows: Windows) -> None:
        self._windows = windows
        self._tokens = float("inf")  # full, whatever the bound is
        self._updated = 0.0
        self.bound = bound

    def set_bound(self, bound: float) -> None:
        self.bound = bound

    def spend(self, amount: float, now: Instant, *, is_strict: bool) -> int:
        """0, or for how many milliseconds the client is to be throttled.

        Strict: below zero nothing is spent, and the request is refused (THROTTLING_QUOTA_EXCEEDED). Otherwise
        it is spent in any case, and the client is throttled from when the bucket is below zero.
        """
        self._refill(now)
        if not is_strict:
            self._tokens -= amount
        if self._tokens < 0:
            return self._throttle_ms()
        if is_strict:
            self._tokens -= amount
        return 0

    def is_idle(self, now: Instant) -> bool:
        """Whether it is as a new one would be."""
        self._refill(now)
        return self._tokens >= self._burst()

    def _refill(self, now: Instant) -> None:
        gained = self.bound * (now - self._updated)
        self._tokens = min(self._burst(), self._tokens + gained)
        self._updated = now

    def _burst(self) -> float:
        return self.bound * self._windows.samples * self._windows.size_s

    def _throttle_ms(self) -> int:
        if self.bound <= 0:
            return round(self._windows.samples * self._windows.size_s * 1000)
        return max(1, int(min(THROTTLE_MS_MAX, -self._tokens / self.bound * 1000 + 0.5)))
