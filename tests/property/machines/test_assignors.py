"""Whatever members subscribe to and have: everything is given once, fairly, and little moves."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.machines.groups.assignors import ASSIGNORS, Subscriber, Target

TOPICS = [bytes([number]) * 16 for number in range(5)]
SIZES = st.fixed_dictionaries({topic: st.integers(1, 9) for topic in TOPICS})

Subscribers = dict[str, Subscriber]
Sizes = Mapping[bytes, int]


@st.composite
def groups(draw: st.DrawFn, *, is_homogeneous: bool = False) -> tuple[Subscribers, Sizes]:
    """Members in some state of an earlier life: they hold, each alone, partitions that may not exist any
    more.
    """
    sizes = draw(SIZES)
    wishes = st.frozensets(st.sampled_from(TOPICS))
    shared = draw(wishes)
    names = [f"m{number}" for number in range(draw(st.integers(1, 8)))]
    owners = st.sampled_from([*names, None])
    held: dict[str, dict[bytes, list[int]]] = {name: {} for name in names}
    for topic in TOPICS:
        for number in range(sizes[topic] + draw(st.integers(0, 2))):
            owner = draw(owners)
            if owner is not None:
                held[owner].setdefault(topic, []).append(number)
    subscribers = {
        name: Subscriber(
            shared if is_homogeneous else draw(wishes),
            {topic: tuple(numbers) for topic, numbers in held[name].items()},
            draw(st.sampled_from([None, f"instance-{name}"])),
        )
        for name in names
    }
    return subscribers, sizes


def places(target: Target) -> set[tuple[bytes, int]]:
    return {(topic, number) for topic, numbers in target.items() for number in numbers}


def everything_is_given_once_to_a_subscriber(
    subscribers: Subscribers, sizes: Sizes, targets: Mapping[str, Target]
) -> None:
    assert list(targets) == list(subscribers)
    given_to: dict[tuple[bytes, int], str] = {}
    for name, target in targets.items():
        for topic, numbers in target.items():
            assert topic in subscribers[name].topics
            assert list(numbers) == sorted(set(numbers))
            assert numbers, "a topic without partitions is not listed"
        for place in places(target):
            assert given_to.setdefault(place, name) == name
    wanted = frozenset().union(*(subscriber.topics for subscriber in subscribers.values()))
    assert set(given_to) == {(topic, number) for topic in wanted for number in range(sizes[topic])}


@pytest.mark.parametrize("assignor", sorted(ASSIGNORS))
@settings(max_examples=60, deadline=None)
@given(group=groups())
def test_everything_is_given_once(assignor: str, group: tuple[Subscribers, Sizes]) -> None:
    subscribers, sizes = group
    targets = ASSIGNORS[assignor](subscribers, sizes)
    everything_is_given_once_to_a_subscriber(subscribers, sizes, targets)
    again = {name: subscriber._replace(current=targets[name]) for name, subscriber in subscribers.items()}
    assert ASSIGNORS[assignor](again, sizes) == targets, "nothing moves without a reason"


@settings(max_examples=80, deadline=None)
@given(group=groups(is_homogeneous=True))
def test_uniform_shares_equally_and_moves_as_little_as_it_can(group: tuple[Subscribers, Sizes]) -> None:
    subscribers, sizes = group
    targets = ASSIGNORS["uniform"](subscribers, sizes)
    counts = sorted((len(places(target)) for target in targets.values()), reverse=True)
    assert counts[0] - counts[-1] <= 1

    # The most that can stay: everybody keeps up to its quota, and as many as there are larger quotas keep one
    # more.
    wanted = next(iter(subscribers.values())).topics
    valid = sorted(
        sum(1 for topic, number in places(subscriber.current) if topic in wanted and number < sizes[topic])
        for subscriber in subscribers.values()
    )
    quota, larger = divmod(sum(sizes[topic] for topic in wanted), len(subscribers))
    could_stay = sum(min(count, quota) for count in valid)
    could_stay += min(larger, sum(count > quota for count in valid))
    stayed = sum(len(places(targets[name]) & places(subscribers[name].current)) for name in subscribers)
    assert stayed == could_stay


@settings(max_examples=80, deadline=None)
@given(group=groups())
def test_uniform_leaves_no_move_that_would_help(group: tuple[Subscribers, Sizes]) -> None:
    subscribers, sizes = group
    targets = ASSIGNORS["uniform"](subscribers, sizes)
    load = {name: len(places(target)) for name, target in targets.items()}
    for name, target in targets.items():
        for topic in target:
            others = [load[other] for other in subscribers if topic in subscribers[other].topics]
            assert load[name] - min(others) <= 1


@settings(max_examples=40, deadline=None)
@given(group=groups(is_homogeneous=True))
def test_range_cuts_topics_of_one_size_alike(group: tuple[Subscribers, Sizes]) -> None:
    subscribers, sizes = group
    targets = ASSIGNORS["range"](subscribers, sizes)
    for target in targets.values():
        for topic, numbers in target.items():
            assert list(numbers) == list(range(numbers[0], numbers[-1] + 1))
            for other in subscribers[next(iter(subscribers))].topics:
                if sizes[other] == sizes[topic]:
                    assert target[other] == numbers


def test_range_puts_static_members_first() -> None:
    topic = TOPICS[0]
    subscribers = {
        "a": Subscriber(frozenset({topic}), {}),
        "b": Subscriber(frozenset({topic}), {}, "z"),
        "c": Subscriber(frozenset({topic}), {}, "y"),
    }
    assert ASSIGNORS["range"](subscribers, {topic: 4}) == {
        "a": {topic: (3,)},
        "b": {topic: (2,)},
        "c": {topic: (0, 1)},
    }
