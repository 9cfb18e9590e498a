"""Times of two clocks, which are never mixed: monotonic time for deadlines, wall time for timestamps and
retention.

Packages below `server` read no clock: they get `Now` as an argument. Instants are seconds as a float, as in
the event loop; wall time is whole milliseconds, as in Kafka's timestamps.
"""

from typing import NewType

Instant = NewType("Instant", float)  # monotonic seconds
Duration = NewType("Duration", float)  # seconds

NEVER = Instant(float("inf"))


class Now:
    """One reading of both clocks."""

    __slots__ = ("mono", "wall_ms")

    def __init__(self, mono: float, wall_ms: int) -> None:
        self.mono: Instant = mono  # type: ignore[assignment]  # made for every read: Instant() is a slow call
        self.wall_ms = wall_ms

    def after_ms(self, delay_ms: float) -> Instant:
        return Instant(self.mono + delay_ms / 1000)

    def __repr__(self) -> str:
        return f"Now(mono={self.mono:.6f}, wall_ms={self.wall_ms})"


class ManualClock:
    """A clock that moves only when told to: the simulator's and the tests'.

    It does not begin at 0: code that confuses a moment with a duration must not pass by chance.
    """

    __slots__ = ("mono", "wall_ms")

    def __init__(self, mono: float = 5_000.0, wall_ms: int = 1_700_000_000_000) -> None:
        self.mono = mono
        self.wall_ms: float = wall_ms

    def now(self) -> Now:
        return Now(self.mono, int(self.wall_ms))

    def advance(self, seconds: float) -> Now:
        assert seconds >= 0, "time does not run backwards"
        self.mono += seconds
        self.wall_ms += seconds * 1000
        return self.now()

    def reach(self, mono: float) -> None:
        """Advance to that instant, if it is not past."""
        seconds = mono - self.mono
        if seconds > 0:
            self.mono += seconds
            self.wall_ms += seconds * 1000
