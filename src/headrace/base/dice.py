"""Randomness as an argument: the server hands in the system's, the simulator a seeded one."""

from typing import Protocol


class Dice(Protocol):
    def randbytes(self, n: int, /) -> bytes: ...

    def randrange(self, stop: int, /) -> int:
        """A whole number in [0, stop)."""
        ...
