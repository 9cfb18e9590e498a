"""How much of the metadata all live brokers have applied, compared with plainly asking each of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.node.known_offset import KnownOffset

BROKERS = st.integers(1, 4)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("told"), BROKERS, st.none() | st.integers(0, 5)),
        st.tuples(st.just("joins"), BROKERS, st.none()),
        st.tuples(st.just("leaves"), BROKERS, st.none()),
        st.tuples(st.just("asked"), BROKERS, st.none()),
    ),
    max_size=40,
)


class Brokers:
    def __init__(self, *live: int) -> None:
        self.live = set(live)
        self.applied: dict[int, int | None] = {}
        self.asked = 0
        self.known = KnownOffset(lambda: sorted(self.live), self._applied_offset)

    def _applied_offset(self, broker: int) -> int | None:
        self.asked += 1
        return self.applied.get(broker)

    def tell(self, broker: int, offset: int | None) -> bool:
        self.applied[broker] = offset
        return self.known.broker_told(broker)

    def includes(self, offset: int) -> bool:
        """The plain question."""
        told = (self.applied.get(broker) for broker in self.live)
        return all(applied is None or applied >= offset for applied in told)


@given(STEPS)
def test_like_the_plain_question(steps: list[tuple[str, int, int | None]]) -> None:
    brokers = Brokers()
    for what, broker, offset in steps:
        before = [brokers.includes(one) for one in range(7)]
        if what == "told":
            is_more = brokers.tell(broker, offset)
            after = [brokers.includes(one) for one in range(7)]
            assert is_more or not any(new and not old for old, new in zip(before, after, strict=True))
        elif what == "joins":
            brokers.live.add(broker)
            brokers.known.forget()
        elif what == "leaves":
            brokers.live.discard(broker)
            brokers.known.forget()
        if what != "told":
            assert [brokers.known.includes(one) for one in range(7)] == [
                brokers.includes(one) for one in range(7)
            ]


def test_a_hundred_brokers_and_a_hundred_changes() -> None:
    """A fetch costs one question, and a change that all have applied one to each."""
    brokers = Brokers(*range(100))
    for broker in range(100):
        brokers.tell(broker, 0)
    assert not brokers.known.includes(1)
    brokers.asked = 0
    for offset in range(1, 101):
        told = [brokers.tell(broker, offset) for broker in range(100)]
        assert told == [False] * 99 + [True], "those who wait are woken when the slowest has told"
        assert [brokers.known.includes(one) for one in range(1, 101)] == [
            one <= offset for one in range(1, 101)
        ]
    assert brokers.asked == 100 * 100
