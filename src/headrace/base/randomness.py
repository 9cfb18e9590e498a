"""Source of random numbers, as an argument: the server passes the system's, the simulator a seeded one."""

from typing import Protocol


class Randomness(Protocol):
    def randbytes(self, n: int, /) -> bytes: ...

    def randrange(self, stop: int, /) -> int:
        """A whole number in [0, stop)."""
        ...
