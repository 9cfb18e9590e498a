"""Simulated time, which jumps to the next event, and the one source of randomness of a run."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf
from random import Random

from headrace.base.time import ManualClock, Now


class World:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.clock = ManualClock()
        self._began_at = self.clock.mono
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()  # of two things due at one instant the one planned first comes first

    def now(self) -> Now:
        return self.clock.now()

    @property
    def mono(self) -> float:
        return self.clock.mono

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        mono = self.clock.mono
        heappush(self._agenda, (mono + seconds if seconds > 0 else mono, next(self._order), act))

    @property
    def lived_s(self) -> float:
        """Since the run began."""
        return self.clock.mono - self._began_at

    @property
    def next_at(self) -> float:
        """When the next event is due; infinity if nothing is planned."""
        return self._agenda[0][0] if self._agenda else inf

    def run(self, until: float, *, is_done: Callable[[], bool] | None = None) -> bool:
        """Live until that instant, or until it is done; False when it never was."""
        agenda, clock = self._agenda, self.clock
        while agenda and agenda[0][0] <= until:
            at, _, act = heappop(agenda)
            clock.reach(at)
            act()
            if is_done is not None and is_done():
                return True
        clock.reach(until)
        return is_done is None

    # --- random choices --------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.rng.random()

    def short_delay(self) -> float:
        """Of a message or a disk: mostly a millisecond, now and then a hundred."""
        return self.between(0.02, 0.2) if self.chance(0.03) else self.between(0.0001, 0.002)
