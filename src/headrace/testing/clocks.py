"""The clocks of a broker under test: the real ones, shifted.

The node gets its time from `ShiftedClock`; `leaps` divides a long time into steps; a test uses `Clock`.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from headrace.base.time import Now
from headrace.server.clock import SystemClock

# A long time passes in so many leaps, all that is due being done after each: enough for work that takes
# several rounds (expired, compacted, removed), and few enough that a year takes milliseconds.
LEAPS = 64

# The last stretch passes from deadline to deadline, so that what follows one after the other is all done.
FINE_S = 1.0
STEP_S_MIN = 0.0001


class ShiftedClock:
    """The real clocks, each shifted by an amount that the test sets."""

    __slots__ = ("mono_shift_s", "wall_shift_ms")

    def __init__(self) -> None:
        self.mono_shift_s = 0.0
        self.wall_shift_ms = 0.0

    def now(self) -> Now:
        real = SystemClock.now()
        return Now(real.mono + self.mono_shift_s, real.wall_ms + round(self.wall_shift_ms))

    def shift(self, seconds: float) -> None:
        self.mono_shift_s += seconds
        self.shift_date(seconds)

    def shift_date(self, seconds: float) -> None:
        """Shifts only the wall clock; deadlines are not affected."""
        self.wall_shift_ms += seconds * 1000

    def put_right(self) -> None:
        self.mono_shift_s = self.wall_shift_ms = 0.0


def leaps(seconds: float) -> Iterator[float]:
    """The steps that a time passes in, up to its last stretch."""
    coarse = seconds - FINE_S
    if coarse > 0:
        for _ in range(LEAPS):
            yield coarse / LEAPS


class Clock:
    """The broker's clock, which a test can move."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def now(self) -> datetime:
        """The broker's date and time."""
        return datetime.fromtimestamp(self._call("wall_ms") / 1000, UTC)

    def advance(
        self,
        by: timedelta | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        keep_sessions: bool = False,
    ) -> None:
        """Moves the broker's clock forward; returns when the broker has done everything that became due.

        To the broker, its clients were silent for that time: shorter sessions expire, and open transactions
        time out. With `keep_sessions` only the date moves: retention and compaction use the new date;
        sessions, transactions and all other timeouts are not affected.
        """
        given = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        total_s = ((by or timedelta()) + given).total_seconds()
        if total_s <= 0:
            raise ValueError(f"advance() by {total_s:g} s: must be more than 0, such as advance(days=8)")
        self._call("advance", seconds=total_s, keep_sessions=keep_sessions)
