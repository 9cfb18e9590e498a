"""Clocks of the shells; the core gets the time as an argument."""

import time

from headrace.base.time import Instant


def clock() -> Instant:
    return Instant(time.monotonic())


def wall_ms() -> int:
    """As records are stamped."""
    return time.time_ns() // 1_000_000
