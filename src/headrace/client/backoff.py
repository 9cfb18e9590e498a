"""Backoff: how long to wait before a retry.

Waits double from `RETRY_FIRST_S` to `RETRY_LAST_S` and are spread by a fifth either way, so that many
clients that lost the same broker do not reconnect at the same time.
"""

from headrace.base.randomness import Randomness
from headrace.base.time import Duration

RETRY_FIRST_S = 0.05  # Kafka waits 100 ms; a local broker restarts faster than that
RETRY_LAST_S = 1.0  # Kafka's retry.backoff.max.ms
SPREAD_STEPS = 1000


def backoff(
    attempt: int, rng: Randomness, *, first_s: float = RETRY_FIRST_S, last_s: float = RETRY_LAST_S
) -> Duration:
    """How long to wait after failure number `attempt` (from 0)."""
    doubled: float = min(last_s, first_s * 2 ** min(attempt, 30))
    spread = 0.8 + 0.4 * rng.randrange(SPREAD_STEPS) / SPREAD_STEPS
    return Duration(doubled * spread)
