"""Changes of a coordinator that no client waits for, and that could not be written: they are repeated.

They could not be written because too few replicas were in sync. No event says when there are enough again, so
one timer repeats all of them.
"""

from collections.abc import Callable, Hashable
from typing import Protocol

from headrace.base.time import Now
from headrace.machines.coordination import WRITE_AGAIN_MS
from headrace.node.ports import Alarm, Deadlines


class Writable(Protocol):
    @property
    def can_write(self) -> bool: ...


class Postponed:
    __slots__ = ("_acts", "_alarm", "_deadlines", "_shard")

    def __init__(self, deadlines: Deadlines, shard: Writable) -> None:
        self._deadlines = deadlines
        self._shard = shard
        self._acts: dict[Hashable, Callable[[Now], None]] = {}
        self._alarm: Alarm | None = None

    def __len__(self) -> int:
        return len(self._acts)

    def add(self, now: Now, key: Hashable, act: Callable[[Now], None]) -> None:
        """Calls the function once records can be written. Of two with the same key, the later one counts."""
        self._acts[key] = act
        self._arm(now)

    def clear(self) -> None:
        self._acts.clear()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _arm(self, now: Now) -> None:
        if self._alarm is None:
            self._alarm = Alarm(self._deadlines, now.after_ms(WRITE_AGAIN_MS), self._ring)

    def _ring(self, now: Now) -> None:
        self._alarm = None
        waiting = list(self._acts) if self._shard.can_write else []
        try:
            for key in waiting:
                act = self._acts.pop(key, None)
                if act is not None:  # else they were cleared: one of those before has cost the machine
                    act(now)
        finally:  # a mistake of ours costs this one alone
            if self._acts:
                self._arm(now)
