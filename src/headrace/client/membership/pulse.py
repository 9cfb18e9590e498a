"""The heartbeat's clock: when the next beat is due, and when the session must be given up for lost."""

from headrace.base.dice import Dice
from headrace.base.time import NEVER, Instant
from headrace.client.attempts import backoff


class Pulse:
    """One beat is under way at a time; an interval begins when one is sent, a session when one is heard."""

    def __init__(self, dice: Dice, *, interval_s: float, session_s: float) -> None:
        self.interval_s = interval_s
        self.session_s = session_s
        self.is_under_way = False
        self.session_until = NEVER
        self._beat_at = Instant(0.0)
        self._retry_at = Instant(0.0)  # not before, whatever the hurry: the last one failed
        self._failures = 0
        self._dice = dice

    def start(self, now: Instant) -> None:
        """The broker has just heard of us in another way."""
        self._beat_at = Instant(now + self.interval_s)
        self._settled(now)

    def beat_at(self) -> Instant:
        return NEVER if self.is_under_way else max(self._beat_at, self._retry_at)

    def sent(self, now: Instant) -> None:
        self.is_under_way = True
        self._beat_at = Instant(now + self.interval_s)

    def heard(self, now: Instant) -> None:
        self.is_under_way = False
        self._beat_at = min(
            self._beat_at, Instant(now + self.interval_s)
        )  # the answer may change the interval
        self._settled(now)

    def _settled(self, now: Instant) -> None:
        self.session_until = Instant(now + self.session_s)
        self._retry_at = Instant(0.0)
        self._failures = 0

    def missed(self, now: Instant) -> None:
        """No answer, or one that passes: the next beat comes sooner than the interval says."""
        self.is_under_way = False
        self._retry_at = Instant(now + min(self.interval_s, backoff(self._failures, self._dice)))
        self._beat_at = self._retry_at
        self._failures += 1

    def hurry(self) -> None:
        """Something has to be told: the next beat is due at once, or when the failed one is tried again."""
        self._beat_at = Instant(0.0)
