"""The real clocks. Whoever acts for the node reads them once per turn and hands the reading in."""

from time import monotonic, time_ns
from typing import Protocol

from headrace.base.time import Now


class Clock(Protocol):
    def now(self) -> Now: ...


class SystemClock:
    __slots__ = ()

    @staticmethod
    def now() -> Now:
        return Now(monotonic(), time_ns() // 1_000_000)
