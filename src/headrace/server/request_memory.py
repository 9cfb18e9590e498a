"""Memory limit for the requests of all connections together, so that many large frames cannot use all memory.

It counts only buffers of frames that arrive in pieces; small ones are not counted, so that heartbeats are
never delayed. A buffer that would grow beyond the limit waits, in the order of the requests, with one
exception: while no buffer is above the limit, the first in the queue may exceed it. Otherwise connections
that each have half a frame would wait for each other for ever.
"""

from collections import deque
from typing import Protocol


class Holder(Protocol):
    def memory_granted(self) -> None:
        """What was asked for may now be taken: ask again."""
        ...


class RequestMemory:
    __slots__ = ("_overdrawn", "_waiting", "bytes_max", "bytes_used")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0
        self._overdrawn: Holder | None = None
        self._waiting: deque[Holder] = deque()

    @property
    def is_short(self) -> bool:
        """Whether a connection waits for memory."""
        return bool(self._waiting)

    def take(self, holder: Holder, size: int) -> bool:
        """Whether holder may have size bytes more. If not, it is called when it may ask again."""
        waiting = self._waiting
        if self._overdrawn is not holder:
            if waiting and waiting[0] is not holder:
                return self._wait(holder)
            if self.bytes_used + size > self.bytes_max:
                if self._overdrawn is not None:
                    return self._wait(holder)
                self._overdrawn = holder
        self.bytes_used += size
        if waiting and waiting[0] is holder:
            waiting.popleft()
            if waiting:
                waiting[0].memory_granted()  # perhaps there is enough for the next one too
        return True

    def _wait(self, holder: Holder) -> bool:
        if holder not in self._waiting:
            self._waiting.append(holder)
        return False

    def give_back(self, holder: Holder, size: int) -> None:
        self.bytes_used -= size
        if self._overdrawn is holder:
            self._overdrawn = None
        if self._waiting:
            self._waiting[0].memory_granted()

    def forget(self, holder: Holder) -> None:
        """It is gone and waits for nothing any more."""
        if holder in self._waiting:
            was_first = self._waiting[0] is holder
            self._waiting.remove(holder)
            if was_first and self._waiting:
                self._waiting[0].memory_granted()
