"""Two clocks, never mixed: deadlines live on the monotonic one, timestamps and retention on the wall.

Nobody below `server` asks what time it is: `Now` is handed in. Instants are seconds as a float, as the
event loop counts them; wall time is whole milliseconds, as Kafka stamps records.
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

    def after_ms(self, delay_ms: int) -> Instant:
        return Instant(self.mono + delay_ms / 1000)

    def __repr__(self) -> str:
        return f"Now(mono={self.mono:.6f}, wall_ms={self.wall_ms})"


class ManualClock:
    """A clock that moves only when told to: the simulator's and the tests'."""

    __slots__ = ("mono", "wall_ms")

    def __init__(self, mono: float = 0.0, wall_ms: int = 1_700_000_000_000) -> None:
        self.mono = mono
        self.wall_ms: float = wall_ms

    def now(self) -> Now:
        return Now(self.mono, int(self.wall_ms))

    def advance(self, seconds: float) -> Now:
        assert seconds >= 0, "time does not run backwards"
        self.mono += seconds
        self.wall_ms += seconds * 1000
        return self.now()
