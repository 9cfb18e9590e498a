"""The clock of the shells; what is pure is told the time."""

import time

from headrace.base.time import Instant


def clock() -> Instant:
    return Instant(time.monotonic())
