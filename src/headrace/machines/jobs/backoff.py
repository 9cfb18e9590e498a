"""How long a job waits after a failure: a second at first, doubled each time up to five minutes, with jitter.

The jitter keeps jobs that failed together, as when a broker was away, from starting together again.
"""

from typing import Final

from headrace.base.randomness import Randomness

FIRST_MS: Final = 1_000
LAST_MS: Final = 300_000
DOUBLINGS_MAX: Final = 9  # 512 s are more than LAST_MS


def backoff_ms(failures: int, rng: Randomness) -> int:
    """After so many failures in a row, from 1 on: between half of the full wait and all of it, and at least
    FIRST_MS.
    """
    assert failures >= 1, "nothing has failed"
    full = min(LAST_MS, FIRST_MS << min(failures - 1, DOUBLINGS_MAX))
    return max(FIRST_MS, full // 2 + rng.randrange(full // 2 + 1))
