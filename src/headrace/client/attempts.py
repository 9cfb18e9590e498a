"""When to try again, and when to stop: the retry rule of every call, with time as an argument.

    trying --failed, worth another try--> waiting (until `wake_at`) --> trying …
    trying --failed, hopeless or out of time--> the error is raised to the caller

Waits double from `RETRY_FIRST_S` to `RETRY_LAST_S` and are spread by a fifth either way, so that many
clients that lost the same broker do not come back in step.
"""

from headrace.base.dice import Dice
from headrace.base.time import Duration, Instant
from headrace.client.errors import ClientError, TimedOut

RETRY_FIRST_S = 0.05  # Kafka waits 100 ms; a local broker restarts faster than that
RETRY_LAST_S = 1.0  # Kafka's retry.backoff.max.ms
SPREAD_STEPS = 1000


def backoff(
    attempt: int, dice: Dice, *, first_s: float = RETRY_FIRST_S, last_s: float = RETRY_LAST_S
) -> Duration:
    """How long to wait after failure number `attempt` (from 0)."""
    doubled: float = min(last_s, first_s * 2 ** min(attempt, 30))
    spread = 0.8 + 0.4 * dice.randrange(SPREAD_STEPS) / SPREAD_STEPS
    return Duration(doubled * spread)


class Attempts:
    """The tries of one call that must end by `deadline`."""

    __slots__ = ("_dice", "deadline", "failures", "last_error", "what")

    def __init__(self, what: str, deadline: Instant, dice: Dice) -> None:
        self.what = what  # completes "timed out while …"
        self.deadline = deadline
        self.failures = 0
        self.last_error: ClientError | None = None
        self._dice = dice

    def failed(self, now: Instant, error: ClientError) -> Instant:
        """The moment of the next try; raises when there is none."""
        self.last_error = error
        if not error.is_retriable:
            raise error
        wake_at = Instant(now + backoff(self.failures, self._dice))
        self.failures += 1
        if wake_at >= self.deadline:
            raise self.timed_out()
        return wake_at

    def timed_out(self) -> ClientError:
        """What to tell the caller: the last thing that went wrong says more than the clock."""
        if self.last_error is not None:
            return self.last_error
        return TimedOut(f"timed out while {self.what}")
