"""The memory of all frames in arrival: first come first served, one may overdraw, nobody waits for ever."""

from __future__ import annotations

from headrace.server.request_memory import RequestMemory


class Holder:
    def __init__(self) -> None:
        self.calls = 0

    def memory_granted(self) -> None:
        self.calls += 1


def test_within_the_limit() -> None:
    memory = RequestMemory(100)
    a, b = Holder(), Holder()
    assert memory.take(a, 60)
    assert memory.take(b, 40)
    memory.give_back(a, 60)
    assert memory.bytes_used == 40
    assert not memory.is_short


def test_one_may_overdraw_the_next_waits_in_order() -> None:
    memory = RequestMemory(100)
    a, b, c, d = Holder(), Holder(), Holder(), Holder()
    assert memory.take(a, 90)
    assert memory.take(b, 50)  # overdrawn
    assert not memory.take(c, 20)
    assert not memory.take(d, 5)  # would fit later, but c came first
    assert memory.take(b, 10)  # its frame must be able to end
    assert memory.is_short
    memory.give_back(b, 60)
    assert (c.calls, d.calls) == (1, 0)
    assert memory.take(c, 20)  # the overdraft is free again
    assert d.calls == 1
    assert not memory.take(d, 5)
    memory.give_back(a, 90)
    assert memory.take(d, 5)
    assert not memory.is_short
    assert memory.bytes_used == 25


def test_halves_do_not_block_each_other() -> None:
    """Two that each hold half of what they need, and together all there is: one of them gets through."""
    memory = RequestMemory(100)
    a, b = Holder(), Holder()
    assert memory.take(a, 50)
    assert memory.take(b, 50)
    assert memory.take(a, 50)
    assert not memory.take(b, 50)
    memory.give_back(a, 100)
    assert b.calls == 1
    assert memory.take(b, 50)


def test_who_is_gone_waits_no_more() -> None:
    memory = RequestMemory(10)
    a, b, c, d = Holder(), Holder(), Holder(), Holder()
    assert memory.take(a, 10)
    assert memory.take(b, 10)
    assert not memory.take(c, 10)
    assert not memory.take(d, 10)
    memory.forget(c)
    assert d.calls == 1
    memory.forget(d)
    memory.forget(d)
    assert not memory.is_short
