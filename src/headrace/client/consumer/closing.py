"""A consumer's end: what has to be over before it may go, and until when it waits for that."""

from headrace.base.time import NEVER, Instant
from headrace.client.errors import TimedOut
from headrace.client.pending import Pending


class Closing:
    """open --begin--> waiting --the last answer, or too late--> done"""

    def __init__(self) -> None:
        self.pending: Pending[None] | None = None
        self.answers = 0  # that are still waited for, besides the group's
        self._until = NEVER

    @property
    def has_begun(self) -> bool:
        return self.pending is not None

    def begin(self, now: Instant, timeout_s: float) -> Pending[None]:
        self.pending = Pending("closing the consumer")
        self._until = Instant(now + timeout_s)
        return self.pending

    def answered(self) -> None:
        self.answers -= 1

    def advance(self, now: Instant, *, has_left: bool) -> None:
        if self.pending is None or self.pending.is_done:
            return
        if has_left and not self.answers:
            self.pending.finish()
        elif now >= self._until:
            self.pending.finish(error=TimedOut("the consumer was not closed in time"))

    def deadline(self) -> Instant:
        return self._until if self.pending is not None and not self.pending.is_done else NEVER
