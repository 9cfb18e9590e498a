"""The system's clocks. The driver reads them once per call of the node, and passes the time in."""

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
