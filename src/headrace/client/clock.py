"""The clocks of the shells; what is pure is told the time."""

import time

from headrace.base.time import Instant


def clock() -> Instant:
    return Instant(time.monotonic())


def wall_ms() -> int:
    """As records are stamped."""
    return time.time_ns() // 1_000_000
