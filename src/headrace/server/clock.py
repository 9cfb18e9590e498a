"""The real clocks. Whoever acts for the node reads them once per turn and hands the reading in."""

import time
from typing import Protocol

from headrace.base.time import Now


class Clock(Protocol):
    def now(self) -> Now: ...


class SystemClock:
    __slots__ = ()

    def now(self) -> Now:
        return Now(time.monotonic(), time.time_ns() // 1_000_000)
