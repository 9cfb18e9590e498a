"""Groups that come together, grow, shrink and move, in both protocols, around the node itself."""

from __future__ import annotations

import re
from typing import Any

import pytest

from harness.group_members import Application, World, partitions
from headrace.client.assignors import ASSIGNORS
from headrace.client.membership.events import Assigned, Failed, Left, Lost, PolledTooLate, Revoked
from headrace.client.settings.consumer import GroupProtocol
from headrace.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from headrace.protocol.messages.join_group import JoinGroupRequest
from headrace.protocol.messages.leave_group import LeaveGroupRequest

WAYS: dict[str, dict[str, Any]] = {
    **{name: {"assignors": (assignor,)} for name, assignor in ASSIGNORS.items()},
    "consumer": {"protocol": GroupProtocol.CONSUMER},
}
EAGER = {"assignors": (ASSIGNORS["range"],)}
COOPERATIVE = WAYS["cooperative-sticky"]
CONSUMER = WAYS["consumer"]

each_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
each_protocol = pytest.mark.parametrize(
    "way", [EAGER, COOPERATIVE, CONSUMER], ids=["eager", "cooperative", "consumer"]
)
ALL = partitions("a", 0, 1, 2, 3)


@each_way
def test_a_member_alone_gets_everything(way: dict[str, Any]) -> None:
    world = World()
    world.create_topic("a", 4)
    member = world.member("a", **way)
    world.settle()
    assert [move for move in member.moves if move != Assigned(frozenset())] == [Assigned(ALL)]


@each_way
def test_a_group_grows_and_shrinks(way: dict[str, Any]) -> None:
    world = World()
    world.create_topic("a", 5)
    world.create_topic("b", 3)
    for _ in range(3):
        world.member("a", "b", **way)
        world.settle()
    assert sorted(len(member.owned) for member in world.members)[0] >= 2
    world.members[0].crash()
    world.settle()
    world.members[1].leave()
    world.settle()
    assert len(world.members[2].owned) == 8


def test_the_eager_protocol_stops_everybody() -> None:
    world = World()
    world.create_topic("a", 4)
    first = world.member("a", **EAGER)
    world.settle()
    world.member("a", **EAGER)
    world.settle()
    assert first.moves[:2] == [Assigned(ALL), Revoked(ALL)]
    assert first.moves[-1] == Assigned(first.owned)


@pytest.mark.parametrize("way", [COOPERATIVE, CONSUMER], ids=["cooperative", "consumer"])
def test_what_is_kept_is_never_revoked(way: dict[str, Any]) -> None:
    world = World()
    world.create_topic("a", 4)
    first = world.member("a", **way)
    world.settle()
    second = world.member("a", **way)
    world.settle()
    revoked = [move.partitions for move in first.moves if isinstance(move, Revoked)]
    assert revoked == [ALL - first.owned]
    assert len(first.owned) == len(second.owned) == 2


@each_protocol
def test_nobody_gets_a_partition_before_its_owner_has_acknowledged(way: dict[str, Any]) -> None:
    world = World()
    world.create_topic("a", 4)
    first = world.member("a", application=Application(acknowledges=False), **way)
    world.settle()
    second = world.member("a", **way)
    world.run(10.0)
    revoked = first.group.membership.revoking
    assert revoked
    assert not second.owned & revoked
    assert first.owned == ALL, "still its own"
    first.application.acknowledges = True
    world.settle()
    assert second.owned


@each_protocol
def test_who_leaves_gives_everything_up_first(way: dict[str, Any]) -> None:
    world = World()
    world.create_topic("a", 4)
    first, second = world.member("a", **way), world.member("a", **way)
    world.settle()
    had = second.owned
    second.leave()
    world.settle()
    assert second.moves[-2:] == [Revoked(had), Left()]
    assert first.owned == ALL


@each_protocol
def test_every_move_has_a_reason(way: dict[str, Any]) -> None:
    """Why did my consumer rebalance? The answer must not need the broker's log."""
    world = World()
    world.create_topic("a", 4)
    first = world.member("a", **way)
    world.settle()
    second = world.member("a", **way)
    world.settle()
    second.application.polls = False
    assert world.run(30.0, lambda: any(isinstance(move, Lost) for move in second.moves))
    (lost,) = (move for move in second.moves if isinstance(move, Lost))
    assert lost.reason == "not polled for 20 s"
    first.leave()
    assert world.run(5.0, lambda: first.moves[-1] == Left())
    reasons = [move.reason for move in first.moves if isinstance(move, Revoked)]
    assert reasons[0] in (
        "the group is rebalancing",
        "the group gives them to another member",
        "the broker gives them to another member, or they are gone",
    )
    assert reasons[-1] == "the consumer was closed or has unsubscribed"


@each_protocol
def test_who_left_may_come_back(way: dict[str, Any]) -> None:
    world = World()
    world.create_topic("a", 4)
    member = world.member("a", **way)
    world.settle()
    member.leave()
    member.subscribe("a")
    world.settle()
    assert member.moves.count(Left()) == 1
    assert member.moves[-1] == Assigned(ALL)


@each_protocol
def test_a_slow_application_leaves_and_is_told_so(way: dict[str, Any]) -> None:
    """A consumer that hangs must not keep partitions from the others, and must not think it has them."""
    world = World()
    world.create_topic("a", 4)
    slow, quick = world.member("a", **way), world.member("a", **way)
    world.settle()
    had = slow.owned
    slow.application.polls = False
    assert world.run(30.0, lambda: quick.owned == ALL)
    assert slow.moves[-2:] == [PolledTooLate(20.0), Lost(had)]
    slow.application.polls = True
    world.settle()
    assert len(slow.owned) == 2


@each_protocol
def test_an_application_that_never_acknowledges_is_left_behind(way: dict[str, Any]) -> None:
    world = World()
    world.forbids_overlap = False
    world.create_topic("a", 4)
    stuck = world.member("a", application=Application(acknowledges=False), **way)
    world.settle()
    other = world.member("a", **way)
    assert world.run(60.0, lambda: bool(other.owned) and Lost(ALL) in stuck.moves)
    stuck.application.acknowledges = True
    world.settle()
    assert len(stuck.owned) == 2


@each_protocol
def test_a_member_that_the_group_forgot_joins_again(way: dict[str, Any]) -> None:
    world = World()
    world.create_topic("a", 4)
    member = world.member("a", **way)
    world.settle()
    world.forbids_overlap = False
    world.faults.loss = 1.0
    world.run(15.0)
    world.faults.loss = 0.0
    assert world.run(10.0, lambda: Lost(ALL) in member.moves)
    world.settle()
    assert member.owned == ALL


@each_protocol
def test_the_node_restarts_under_the_group(way: dict[str, Any]) -> None:
    world = World()
    world.create_topic("a", 4)
    first, second = world.member("a", **way), world.member("a", **way)
    world.settle()
    world.restart_node()
    world.run(5.0)
    world.settle()
    assert first.owned | second.owned == ALL


@each_protocol
def test_a_subscription_changes(way: dict[str, Any]) -> None:
    world = World()
    world.create_topic("a", 4)
    world.create_topic("b", 2)
    first, second = world.member("a", **way), world.member("a", **way)
    world.settle()
    first.subscribe("b")
    world.settle()
    assert first.owned == partitions("b", 0, 1)
    assert second.owned == ALL


@each_protocol
def test_a_topic_that_comes_later_is_noticed(way: dict[str, Any]) -> None:
    world = World()
    member = world.member("a", allow_auto_create_topics=False, **way)
    world.run(5.0)
    assert member.owned == frozenset()
    world.create_topic("a", 4)
    world.settle()
    assert member.owned == ALL


@each_protocol
def test_a_pattern_takes_in_new_topics_and_no_internal_ones(way: dict[str, Any]) -> None:
    world = World()
    world.create_topic("sales.1", 2)
    world.create_topic("other", 1)
    member = world.member(metadata_max_age_s=5.0, **way)
    member.subscribe(pattern=re.compile(r"sales\..*|__.*"))
    world.settle()
    assert member.owned == partitions("sales.1", 0, 1)
    world.create_topic("sales.2", 1)
    world.settle()
    assert member.owned == partitions("sales.1", 0, 1) | partitions("sales.2", 0)


@each_protocol
def test_a_topic_that_cannot_be_read_is_told_of_once(way: dict[str, Any]) -> None:
    world = World()
    world.create_topic("a", 4)
    member = world.member("a", "not a name", **way)
    world.run(10.0)
    assert [refused.topic for refused in member.refusals] == ["not a name"]
    assert "INVALID_TOPIC_EXCEPTION" in str(member.refusals[0].error)
    assert member.owned == ALL


def test_the_broker_matches_a_pattern() -> None:
    world = World()
    world.create_topic("sales.1", 2)
    world.create_topic("other", 1)
    member = world.member(**CONSUMER)
    member.subscribe(broker_pattern=r"sales\..*")
    assert world.run(30.0, lambda: member.owned == partitions("sales.1", 0, 1))
    member.subscribe("other")
    world.settle()
    assert member.owned == partitions("other", 0)


@pytest.mark.parametrize("way", [EAGER, COOPERATIVE, CONSUMER], ids=["eager", "cooperative", "consumer"])
def test_a_static_member_finds_its_place_kept(way: dict[str, Any]) -> None:
    """A rolling restart must not move partitions: the others hear nothing of it."""
    world = World()
    world.create_topic("a", 4)
    first = world.member("a", instance_id="i1", **way)
    second = world.member("a", instance_id="i2", **way)
    world.settle()
    had, moves = first.owned, list(second.moves)
    first.leave()
    assert world.run(1.0, lambda: first.moves[-1] == Left())
    again = world.member("a", instance_id="i1", **way)
    world.settle()
    assert again.owned == had
    assert second.moves == moves
    assert not any(isinstance(request, LeaveGroupRequest) for _, request in world.requests)


def test_a_static_member_that_was_replaced_ends() -> None:
    world = World()
    world.create_topic("a", 4)
    world.forbids_overlap = False
    first = world.member("a", instance_id="i1", **EAGER)
    world.settle()
    second = world.member("a", instance_id="i1", **EAGER)
    assert world.run(30.0, lambda: first.failure is not None)
    assert "FENCED_INSTANCE_ID" in str(first.failure)
    assert isinstance(first.moves[-2], Failed)
    assert first.moves[-1] == Lost(ALL)
    first.subscription = None
    world.settle()
    assert second.owned == ALL


def test_members_of_both_assignors_agree_on_one() -> None:
    """A group changes its assignor member by member: what all have in common is taken."""
    world = World()
    world.create_topic("a", 4)
    both = (ASSIGNORS["cooperative-sticky"], ASSIGNORS["range"])
    first, second = world.member("a", assignors=both), world.member("a", **EAGER)
    world.settle()
    assert {len(first.owned), len(second.owned)} == {2}


def test_an_assignor_of_ones_own() -> None:
    class Generous:
        name = "generous"

        def assign(self, members: Any, sizes: Any) -> Any:
            taker = max(members)
            return {taker: [at for topic, size in sizes.items() for at in partitions(topic, *range(size))]}

    world = World()
    world.create_topic("a", 4)
    for _ in range(2):
        world.member("a", assignors=(Generous(),))
    world.settle()
    assert sorted(len(member.owned) for member in world.members) == [0, 4]


def test_an_assignor_that_fails_says_so() -> None:
    class Broken:
        name = "broken"

        def assign(self, members: Any, sizes: Any) -> Any:
            raise ZeroDivisionError("oh")

    world = World()
    world.create_topic("a", 4)
    member = world.member("a", assignors=(Broken(),))
    assert world.run(10.0, lambda: member.failure is not None)
    assert "the assignor 'broken' failed: oh" in str(member.failure)


def test_only_the_leader_minds_the_sizes_of_topics() -> None:
    """A topic that grows makes one rebalance, not one for each member that notices."""
    world = World()
    world.create_topic("a", 2)
    for _ in range(3):
        world.member("a", metadata_max_age_s=3.0, **COOPERATIVE)
    world.settle()
    before = sum(isinstance(request, JoinGroupRequest) for _, request in world.requests)
    grow(world, "a", 6)
    world.settle()
    joins = sum(isinstance(request, JoinGroupRequest) for _, request in world.requests) - before
    assert joins == 3
    assert {len(member.owned) for member in world.members} == {2}


def grow(world: World, topic: str, size: int) -> None:
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic, count=size, assignments=None)], timeout_ms=1000
    )
    (result,) = world.desk.ask(request, 3).results
    assert result.error_code == 0, result
    world.topics[topic] = size
