"""What every client-side assignor promises, whoever wants what and whoever has what."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.client.assignors import ASSIGNORS, Assignment, Assignor, GroupMember, StickyAssignor
from headrace.client.cluster import TopicPartition
from headrace.client.membership.classic_protocol import (
    LastAssignment,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)

TOPICS = ["a", "b", "c", "d"]
IDS = [f"m{number}" for number in range(6)]
STICKY, COOPERATIVE = ASSIGNORS["sticky"], ASSIGNORS["cooperative-sticky"]
each = pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=ASSIGNORS.keys())

sizes_of_topics = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 7), max_size=4)
generations = st.integers(-1, 3)
places = st.builds(TopicPartition, st.sampled_from(TOPICS), st.integers(0, 8))


@st.composite
def members_of(draw: st.DrawFn, *, alike: bool = False) -> dict[str, GroupMember]:
    """A group whose members claim whatever they like, even the same, in whatever generation."""
    common = frozenset(draw(st.lists(st.sampled_from(TOPICS), min_size=1)))
    group: dict[str, GroupMember] = {}
    for member_id in draw(st.lists(st.sampled_from(IDS), min_size=1, unique=True)):
        topics = common if alike else frozenset(draw(st.lists(st.sampled_from(TOPICS), min_size=1)))
        owned = tuple(draw(st.lists(places, max_size=6, unique=True)))
        generation = draw(generations)
        group[member_id] = GroupMember(
            topics,
            owned=owned,
            generation=generation,
            user_data=StickyAssignor().user_data(owned, generation),
            instance_id=draw(st.none() | st.just(f"static-{member_id}")),
        )
    return group


def wanted(members: dict[str, GroupMember], sizes: dict[str, int]) -> list[TopicPartition]:
    topics = {topic for member in members.values() for topic in member.topics}
    return sorted(
        TopicPartition(topic, index) for topic in topics & sizes.keys() for index in range(sizes[topic])
    )


def given_out(assignment: Assignment) -> list[TopicPartition]:
    return sorted(at for share in assignment.values() for at in share)


def spread(assignment: Assignment) -> int:
    counts = [len(share) for share in assignment.values()]
    return max(counts) - min(counts)


def after(
    assignor: Assignor, members: dict[str, GroupMember], assignment: Assignment, generation: int
) -> dict[str, GroupMember]:
    """The same members when they join again, having taken what they were given."""
    return {
        member_id: member._replace(
            owned=tuple(assignment[member_id]) if assignor is COOPERATIVE else (),
            generation=generation,
            user_data=StickyAssignor().user_data(assignment[member_id], generation),
        )
        for member_id, member in members.items()
        if member_id in assignment
    }


@each
@given(members=members_of(), sizes=sizes_of_topics)
@settings(max_examples=40, deadline=None)
def test_every_partition_goes_to_one_subscriber(
    assignor: Assignor, members: dict[str, GroupMember], sizes: dict[str, int]
) -> None:
    assignment = assignor.assign(members, sizes)
    assert assignment.keys() == members.keys()
    assert all(at.topic in members[member_id].topics for member_id in members for at in assignment[member_id])
    if assignor is COOPERATIVE:
        given_twice = len(given_out(assignment)) - len(set(given_out(assignment)))
        assert given_twice == 0
        assert set(given_out(assignment)) <= set(wanted(members, sizes))
    else:
        assert given_out(assignment) == wanted(members, sizes)


@given(members=members_of(), sizes=sizes_of_topics)
@settings(max_examples=50, deadline=None)
def test_cooperation_never_hands_over_what_somebody_owns(
    members: dict[str, GroupMember], sizes: dict[str, int]
) -> None:
    assignment = COOPERATIVE.assign(members, sizes)
    for member_id, share in assignment.items():
        for other_id, other in members.items():
            if other_id != member_id:
                assert set(share).isdisjoint(other.owned)


@given(members=members_of(), sizes=sizes_of_topics)
@example(
    # what m3 holds back in the first rebalance makes the second move another partition
    members={
        "m0": GroupMember(frozenset("a"), generation=0),
        "m1": GroupMember(frozenset("b"), generation=0),
        "m2": GroupMember(frozenset("b"), generation=0),
        "m3": GroupMember(frozenset("ab"), (TopicPartition("a", 0),), generation=1),
        "m4": GroupMember(frozenset("a"), (TopicPartition("a", 0),), generation=0),
    },
    sizes={"a": 1, "b": 3},
)
@settings(max_examples=40, deadline=None)
def test_cooperation_becomes_complete_and_then_nothing_moves(
    members: dict[str, GroupMember], sizes: dict[str, int]
) -> None:
    """A partition is held back only while its owner gives it up, and whoever gives something up joins again:
    so a rebalance follows until all are given out.
    """
    for generation in range(10, 15):
        assignment = COOPERATIVE.assign(members, sizes)
        gives_up = any(set(member.owned) - set(assignment[name]) for name, member in members.items())
        is_complete = given_out(assignment) == wanted(members, sizes)
        assert is_complete or gives_up
        members = after(COOPERATIVE, members, assignment, generation)
        if is_complete and not gives_up:
            break
    assert is_complete
    again = COOPERATIVE.assign(members, sizes)
    assert {key: set(share) for key, share in again.items()} == {
        key: set(share) for key, share in assignment.items()
    }


@pytest.mark.parametrize("name", ["roundrobin", "sticky"])
@given(members=members_of(alike=True), sizes=sizes_of_topics)
@settings(max_examples=50, deadline=None)
def test_members_who_want_the_same_get_equal_shares(
    name: str, members: dict[str, GroupMember], sizes: dict[str, int]
) -> None:
    assert spread(ASSIGNORS[name].assign(members, sizes)) <= 1


@given(members=members_of(), sizes=sizes_of_topics)
@settings(max_examples=50, deadline=None)
def test_range_gives_each_a_contiguous_piece(members: dict[str, GroupMember], sizes: dict[str, int]) -> None:
    for share in ASSIGNORS["range"].assign(members, sizes).values():
        for topic in sizes:
            numbers = [at.partition for at in share if at.topic == topic]
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True


@given(members=members_of(), sizes=sizes_of_topics)
@settings(max_examples=50, deadline=None)
def test_sticky_moves_nothing_without_need(members: dict[str, GroupMember], sizes: dict[str, int]) -> None:
    first = STICKY.assign(members, sizes)
    second = STICKY.assign(after(STICKY, members, first, 10), sizes)
    assert {key: set(share) for key, share in second.items()} == {
        key: set(share) for key, share in first.items()
    }


@given(members=members_of(alike=True), sizes=sizes_of_topics, number=st.integers(0, 5))
@settings(max_examples=50, deadline=None)
def test_when_one_leaves_a_sticky_group_the_others_keep_what_they_have(
    members: dict[str, GroupMember], sizes: dict[str, int], number: int
) -> None:
    first = STICKY.assign(members, sizes)
    rest = after(STICKY, members, first, 10)
    if len(rest) == 1:
        return
    del rest[sorted(rest)[number % len(rest)]]
    second = STICKY.assign(rest, sizes)
    assert all(set(first[member_id]) <= set(second[member_id]) for member_id in rest)


def test_of_two_claims_the_later_generation_is_right() -> None:
    """A member that was away comes back with what it had before somebody else got it."""
    at = TopicPartition("a", 0)
    topics = frozenset({"a"})
    stale = GroupMember(topics, user_data=StickyAssignor().user_data([at], 4))
    owner = GroupMember(topics, user_data=StickyAssignor().user_data([at], 7))
    assert STICKY.assign({"m1": stale, "m2": owner}, {"a": 1}) == {"m1": [], "m2": [at]}
    assert STICKY.assign({"m1": owner, "m2": stale}, {"a": 1}) == {"m1": [at], "m2": []}


@each
@given(members=members_of(), last=st.frozensets(places, max_size=6), generation=generations)
@settings(max_examples=40, deadline=None)
def test_a_subscription_survives_the_wire(
    assignor: Assignor, members: dict[str, GroupMember], last: frozenset[TopicPartition], generation: int
) -> None:
    for member in members.values():
        sent = write_subscription(
            assignor,
            topics=member.topics,
            owned=member.owned,
            generation=member.generation,
            last=LastAssignment(last, generation),
            rack="r1",
        )
        read = read_subscription(memoryview(sent), member.instance_id)
        assert read.topics == member.topics
        assert sorted(read.owned) == sorted(member.owned)
        assert (read.generation, read.instance_id, read.rack) == (member.generation, member.instance_id, "r1")
        assert read_assignment(write_assignment(member.owned)) == frozenset(member.owned)


def test_foreign_user_data_is_no_claim() -> None:
    member = GroupMember(frozenset({"a"}), user_data=b"\x00\x00\x00\x09not ours")
    assert STICKY.assign({"m": member}, {"a": 2}) == {"m": [TopicPartition("a", 0), TopicPartition("a", 1)]}
