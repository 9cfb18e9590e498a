"""One heap, one timer: entries fire once, in order, and cancelled ones never."""

from headrace.base.time import Instant, Now
from headrace.node.ports import Deadlines, Every


class Entry:
    def __init__(self, name: str, fired: list[str]) -> None:
        self.name = name
        self.is_done = False
        self._fired = fired

    def expired(self, now: Now) -> None:
        self._fired.append(self.name)


def test_fires_what_is_due_in_order_and_keeps_the_rest() -> None:
    deadlines, fired = Deadlines(), list[str]()
    deadlines.add(Instant(2.0), Entry("b", fired))
    deadlines.add(Instant(1.0), Entry("a", fired))
    deadlines.add(Instant(2.0), Entry("c", fired))
    deadlines.add(Instant(3.0), Entry("later", fired))
    assert deadlines.next() == 1.0
    deadlines.fire(Now(2.0, 0))
    assert fired == ["a", "b", "c"]
    assert deadlines.next() == 3.0


def test_a_cancelled_entry_neither_fires_nor_sets_the_timer() -> None:
    deadlines, fired = Deadlines(), list[str]()
    entry = Entry("gone", fired)
    deadlines.add(Instant(1.0), entry)
    entry.is_done = True
    deadlines.cancelled()
    assert deadlines.next() is None
    deadlines.fire(Now(9.0, 0))
    assert fired == []


def test_cancelled_entries_do_not_pile_up() -> None:
    deadlines, fired = Deadlines(), list[str]()
    for i in range(10_000):
        entry = Entry(str(i), fired)
        deadlines.add(Instant(1e9), entry)
        entry.is_done = True
        deadlines.cancelled()
    assert len(deadlines._heap) < 200


def test_every_comes_back_after_its_interval() -> None:
    deadlines, seen = Deadlines(), list[float]()
    Every(deadlines, 500, lambda now: seen.append(now.mono)).start(Now(0.0, 0))
    deadlines.fire(Now(0.5, 0))
    deadlines.fire(Now(0.9, 0))
    deadlines.fire(Now(1.25, 0))
    assert seen == [0.5, 1.25]
    assert deadlines.next() == 1.75
