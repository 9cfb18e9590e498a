"""Changes of a coordinator that wait until records can be written."""

from __future__ import annotations

import pytest

from headrace.base.time import ManualClock, Now
from headrace.machines.coordination import WRITE_AGAIN_MS
from headrace.node.coordinators.postponed import Postponed
from headrace.node.ports import Deadlines


class Writable:
    can_write = True


def test_a_mistake_with_one_leaves_the_others_to_the_next_time() -> None:
    clock, deadlines, done = ManualClock(), Deadlines(), []
    postponed = Postponed(deadlines, Writable())

    def fails(now: Now) -> None:
        raise AssertionError("a mistake")

    postponed.add(clock.now(), "one", fails)
    postponed.add(clock.now(), "two", lambda now: done.append("two"))
    clock.advance(WRITE_AGAIN_MS / 1000)
    with pytest.raises(AssertionError, match="a mistake"):
        deadlines.fire(clock.now())
    clock.advance(WRITE_AGAIN_MS / 1000)
    deadlines.fire(clock.now())
    assert (done, len(postponed)) == (["two"], 0)
