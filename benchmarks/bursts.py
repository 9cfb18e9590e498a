"""The rate of a client that gets its bytes in bursts: the mean over many spans, so that it does not depend on
how many bursts one span happens to hold.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

STEP_S = 0.1


def mean_rate(counted: list[tuple[float, int]], start: float, span_s: float, turn_s: float) -> float:
    """Bytes per second over the spans that begin within a turn, the time from burst to burst. `counted` are
    times and bytes.
    """
    times = [at for at, _ in counted]
    sums = [0, *accumulate(size for _, size in counted)]

    def until(at: float) -> int:
        return sums[bisect_left(times, at)]

    begins = [start + step * STEP_S for step in range(round(turn_s / STEP_S))]
    return sum(until(begin + span_s) - until(begin) for begin in begins) / len(begins) / span_s
