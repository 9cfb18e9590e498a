"""One heap of timers, against the plain question which deadline is the earliest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.base.time import Instant
from headrace.machines.groups.groups import Timers

A, B = ("session", "g", "a"), ("session", "g", "b")
KEYS = st.sampled_from([("k", "g", name) for name in "abc"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, st.integers(0, 20)),
        st.tuples(st.just("cancel"), KEYS, st.just(0)),
        st.tuples(st.just("pop"), KEYS, st.integers(0, 20)),
    ),
    max_size=40,
)


def test_a_later_deadline_replaces_an_earlier_one() -> None:
    timers = Timers()
    timers.set(A, Instant(1.0))
    timers.set(B, Instant(2.0))
    timers.set(A, Instant(3.0))
    assert timers.next() == 2.0
    assert timers.pop_due(Instant(2.5)) == B
    assert timers.pop_due(Instant(2.5)) is None
    assert timers.next() == 3.0


def test_an_earlier_deadline_replaces_a_later_one() -> None:
    timers = Timers()
    timers.set(A, Instant(9.0))
    timers.set(A, Instant(1.0))
    assert timers.pop_due(Instant(1.0)) == A
    assert timers.next() is None
    assert timers.pop_due(Instant(9.0)) is None


def test_heartbeats_do_not_fill_the_heap() -> None:
    timers = Timers()
    for moment in range(1000):
        timers.set(A, Instant(moment + 10.0))
        timers.cancel(B)
        timers.set(B, Instant(moment + 5.0))
        timers.next()
    assert len(timers._heap) <= 4


@given(STEPS)
def test_like_a_plain_dict(steps: list[tuple[str, tuple[str, str, str], int]]) -> None:
    timers, plain = Timers(), dict[tuple[str, str, str], float]()
    for what, key, moment in steps:
        if what == "set":
            timers.set(key, Instant(moment))
            plain[key] = moment
        elif what == "cancel":
            timers.cancel(key)
            plain.pop(key, None)
        else:
            due = {(at, name) for name, at in plain.items() if at <= moment}
            expected = min(due)[1] if due else None
            assert timers.pop_due(Instant(moment)) == expected
            if expected is not None:
                del plain[expected]
        assert timers.next() == min(plain.values(), default=None)
        assert timers.get(key) == plain.get(key)
