"""Members of a classic group against the node itself, without sockets."""

import pytest

from harness.group_members import World
from headrace.client.assignors import ASSIGNORS
from headrace.client.cluster import TopicPartition
from headrace.client.membership.events import Assigned, Left, Revoked


def partitions(topic: str, *numbers: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in numbers)


def test_a_member_alone_gets_everything() -> None:
    world = World()
    world.create_topic("a", 3)
    member = world.member("a")
    world.settle()
    assert member.events == [Assigned(partitions("a", 0, 1, 2))]


def test_a_second_member_is_given_its_share_after_the_first_gave_it_up() -> None:
    world = World()
    world.create_topic("a", 4)
    first = world.member("a")
    world.settle()
    second = world.member("a")
    world.settle()
    everything = partitions("a", 0, 1, 2, 3)
    assert first.events[:2] == [Assigned(everything), Revoked(everything)]
    assert {len(first.owned), len(second.owned)} == {2}


def test_who_leaves_makes_room() -> None:
    world = World()
    world.create_topic("a", 4)
    first, second = world.member("a"), world.member("a")
    world.settle()
    second.leave()
    world.settle()
    assert second.events[-1] == Left()
    assert second.owned == frozenset()
    assert first.owned == partitions("a", 0, 1, 2, 3)


@pytest.mark.parametrize("name", ASSIGNORS)
def test_every_assignor_settles_a_group_that_grows_and_shrinks(name: str) -> None:
    world = World()
    world.create_topic("a", 5)
    world.create_topic("b", 3)
    for _ in range(3):
        world.member("a", "b", assignors=(ASSIGNORS[name],))
        world.settle()
    world.members[0].crash()
    world.settle()
    world.members[1].leave()
    world.settle()
    assert len(world.members[2].owned) == 8
