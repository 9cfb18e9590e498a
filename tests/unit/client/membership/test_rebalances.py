"""Groups that come together, grow, shrink and move, in both protocols, around the node itself."""

from __future__ import annotations

import re
from typing import Any

import pytest

from harness.group_simulation import Application, GroupSimulation, partitions
from headrace.client.assignors import ASSIGNORS
from headrace.client.membership.events import Assigned, Failed, Left, Lost, PolledTooLate, Revoked
from headrace.client.settings.consumer import GroupProtocol
from headrace.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from headrace.protocol.messages.join_group import JoinGroupRequest
from headrace.protocol.messages.leave_group import LeaveGroupRequest
from headrace.protocol.messages.sync_group import SyncGroupRequest

WAYS: dict[str, dict[str, Any]] = {
    **{name: {"assignors": (assignor,)} for name, assignor in ASSIGNORS.items()},
    "consumer": {"protocol": GroupProtocol.CONSUMER},
}
EAGER: dict[str, Any] = {"assignors": (ASSIGNORS["range"],)}
COOPERATIVE = WAYS["cooperative-sticky"]
CONSUMER = WAYS["consumer"]

each_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
each_protocol = pytest.mark.parametrize(
    "way", [EAGER, COOPERATIVE, CONSUMER], ids=["eager", "cooperative", "consumer"]
)
ALL = partitions("a", 0, 1, 2, 3)


@each_way
def test_a_member_alone_gets_everything(way: dict[str, Any]) -> None:
    simulation = GroupSimulation()
    simulation.create_topic("a", 4)
    member = simulation.member("a", **way)
    simulation.settle()
    assert [move for move in member.moves if move != Assigned(frozenset())] == [Assigned(ALL)]


@each_way
def test_a_group_grows_and_shrinks(way: dict[str, Any]) -> None:
    simulation = GroupSimulation()
    simulation.create_topic("a", 5)
    simulation.create_topic("b", 3)
    for _ in range(3):
        simulation.member("a", "b", **way)
        simulation.settle()
    assert sorted(len(member.owned) for member in simulation.members)[0] >= 2
    simulation.members[0].crash()
    simulation.settle()
    simulation.members[1].leave()
    simulation.settle()
    assert len(simulation.members[2].owned) == 8


def test_the_eager_protocol_stops_everybody() -> None:
    simulation = GroupSimulation()
    simulation.create_topic("a", 4)
    first = simulation.member("a", **EAGER)
    simulation.settle()
    simulation.member("a", **EAGER)
    simulation.settle()
    assert first.moves[:2] == [Assigned(ALL), Revoked(ALL)]
    assert first.moves[-1] == Assigned(first.owned)


@pytest.mark.parametrize("way", [COOPERATIVE, CONSUMER], ids=["cooperative", "consumer"])
def test_what_is_kept_is_never_revoked(way: dict[str, Any]) -> None:
    simulation = GroupSimulation()
    simulation.create_topic("a", 4)
    first = simulation.member("a", **way)
    simulation.settle()
    second = simulation.member("a", **way)
    simulation.settle()
    revoked = [move.partitions for move in first.moves if isinstance(move, Revoked)]
    assert revoked == [ALL - first.owned]
    assert len(first.owned) == len(second.owned) == 2


@each_protocol
def test_nobody_gets_a_partition_before_its_owner_has_acknowledged(way: dict[str, Any]) -> None:
    simulation = GroupSimulation()
    simulation.create_topic("a", 4)
    first = simulation.member("a", application=Application(acknowledges=False), **way)
    simulation.settle()
    second = simulation.member("a", **way)
    simulation.run(10.0)
    revoked = first.group.membership.revoking
    assert revoked
    assert not second.owned & revoked
    assert first.owned == ALL, "still its own"
    first.application.acknowledges = True
    simulation.settle()
    assert second.owned


@each_protocol
def test_who_leaves_gives_everything_up_first(way: dict[str, Any]) -> None:
    simulation = GroupSimulation()
    simulation.create_topic("a", 4)
    first, second = simulation.member("a", **way), simulation.member("a", **way)
    simulation.settle()
    had = second.owned
    second.leave()
    simulation.settle()
    assert second.moves[-2:] == [Revoked(had), Left()]
    assert first.owned == ALL


@each_protocol
def test_every_move_has_a_reason(way: dict[str, Any]) -> None:
    """Why did my consumer rebalance? The answer must not need the broker's log."""
    simulation = GroupSimulation()
    simulation.create_topic("a", 4)
    first = simulation.member("a", **way)
    simulation.settle()
    second = simulation.member("a", **way)
    simulation.settle()
    second.application.polls = False
    assert simulation.run(30.0, lambda: any(isinstance(move, Lost) for move in second.moves))
    (lost,) = (move for move in second.moves if isinstance(move, Lost))
    assert lost.reason == "not polled for 20 s"
    first.leave()
    assert simulation.run(5.0, lambda: first.moves[-1] == Left())
    reasons = [move.reason for move in first.moves if isinstance(move, Revoked)]
    assert reasons[0] in (
        "the group is rebalancing",
        "the group gives them to another member",
        "the broker gives them to another member, or they are gone",
    )
    assert reasons[-1] == "the consumer was closed or has unsubscribed"


@each_protocol
def test_who_left_may_come_back(way: dict[str, Any]) -> None:
    simulation = GroupSimulation()
    simulation.create_topic("a", 4)
    member = simulation.member("a", **way)
    simulation.settle()
    member.leave()
    member.subscribe("a")
    simulation.settle()
    assert member.moves.count(Left()) == 1
    assert member.moves[-1] == Assigned(ALL)


@each_protocol
def test_a_slow_application_leaves_and_is_told_so(way: dict[str, Any]) -> None:
    """A consumer that hangs must not keep partitions from the others, and must not think it has them."""
    simulation = GroupSimulation()
    simulation.create_topic("a", 4)
    slow, quick = simulation.member("a", **way), simulation.member("a", **way)
    simulation.settle()
    had = slow.owned
    slow.application.polls = False
    assert simulation.run(30.0, lambda: quick.owned == ALL)
    assert slow.moves[-2:] == [PolledTooLate(20.0), Lost(had)]
    slow.application.polls = True
    simulation.settle()
    assert len(slow.owned) == 2


@each_protocol
def test_an_application_that_never_acknowledges_is_left_behind(way: dict[str, Any]) -> None:
    simulation = GroupSimulation()
    simulation.forbids_overlap = False
    simulation.create_topic("a", 4)
    stuck = simulation.member("a", application=Application(acknowledges=False), **way)
    simulation.settle()
    other = simulation.member("a", **way)
    assert simulation.run(60.0, lambda: bool(other.owned) and Lost(ALL) in stuck.moves)
    stuck.application.acknowledges = True
    simulation.settle()
    assert len(stuck.owned) == 2


@each_protocol
def test_a_member_that_the_group_forgot_joins_again(way: dict[str, Any]) -> None:
    simulation = GroupSimulation()
    simulation.create_topic("a", 4)
    member = simulation.member("a", **way)
    simulation.settle()
    simulation.forbids_overlap = False
    simulation.faults.loss = 1.0
    simulation.run(15.0)
    simulation.faults.loss = 0.0
    assert simulation.run(10.0, lambda: Lost(ALL) in member.moves)
    simulation.settle()
    assert member.owned == ALL


@each_protocol
def test_the_node_restarts_under_the_group(way: dict[str, Any]) -> None:
    simulation = GroupSimulation()
    simulation.create_topic("a", 4)
    first, second = simulation.member("a", **way), simulation.member("a", **way)
    simulation.settle()
    simulation.restart_node()
    simulation.run(5.0)
    simulation.settle()
    assert first.owned | second.owned == ALL


@each_protocol
def test_a_subscription_changes(way: dict[str, Any]) -> None:
    simulation = GroupSimulation()
    simulation.create_topic("a", 4)
    simulation.create_topic("b", 2)
    first, second = simulation.member("a", **way), simulation.member("a", **way)
    simulation.settle()
    first.subscribe("b")
    simulation.settle()
    assert first.owned == partitions("b", 0, 1)
    assert second.owned == ALL


@each_protocol
def test_a_topic_that_comes_later_is_noticed(way: dict[str, Any]) -> None:
    simulation = GroupSimulation()
    member = simulation.member("a", allow_auto_create_topics=False, **way)
    simulation.run(5.0)
    assert member.owned == frozenset()
    simulation.create_topic("a", 4)
    simulation.settle()
    assert member.owned == ALL


@each_protocol
def test_a_pattern_takes_in_new_topics_and_no_internal_ones(way: dict[str, Any]) -> None:
    simulation = GroupSimulation()
    simulation.create_topic("sales.1", 2)
    simulation.create_topic("other", 1)
    member = simulation.member(metadata_max_age_s=5.0, **way)
    member.subscribe(pattern=re.compile(r"sales\..*|__.*"))
    simulation.settle()
    assert member.owned == partitions("sales.1", 0, 1)
    simulation.create_topic("sales.2", 1)
    simulation.settle()
    assert member.owned == partitions("sales.1", 0, 1) | partitions("sales.2", 0)


@each_protocol
def test_a_topic_that_cannot_be_read_is_told_of_once(way: dict[str, Any]) -> None:
    simulation = GroupSimulation()
    simulation.create_topic("a", 4)
    member = simulation.member("a", "not a name", **way)
    simulation.run(10.0)
    assert [refused.topic for refused in member.refusals] == ["not a name"]
    assert "INVALID_TOPIC_EXCEPTION" in str(member.refusals[0].error)
    assert member.owned == ALL


def test_the_broker_matches_a_pattern() -> None:
    simulation = GroupSimulation()
    simulation.create_topic("sales.1", 2)
    simulation.create_topic("other", 1)
    member = simulation.member(**CONSUMER)
    member.subscribe(broker_pattern=r"sales\..*")
    assert simulation.run(30.0, lambda: member.owned == partitions("sales.1", 0, 1))
    member.subscribe("other")
    simulation.settle()
    assert member.owned == partitions("other", 0)


@pytest.mark.parametrize("way", [EAGER, COOPERATIVE, CONSUMER], ids=["eager", "cooperative", "consumer"])
def test_a_static_member_finds_its_place_kept(way: dict[str, Any]) -> None:
    """A rolling restart must not move partitions: the others hear nothing of it."""
    simulation = GroupSimulation()
    simulation.create_topic("a", 4)
    first = simulation.member("a", instance_id="i1", **way)
    second = simulation.member("a", instance_id="i2", **way)
    simulation.settle()
    had, moves = first.owned, list(second.moves)
    first.leave()
    assert simulation.run(1.0, lambda: first.moves[-1] == Left())
    again = simulation.member("a", instance_id="i1", **way)
    simulation.settle()
    assert again.owned == had
    assert second.moves == moves
    assert not any(isinstance(request, LeaveGroupRequest) for _, request in simulation.requests)


@pytest.mark.parametrize(("dies", "size"), [(0, 3), (1, 4)], ids=["leader", "other"])
def test_a_static_member_that_dies_before_it_gives_up_leaves_nothing_unowned(dies: int, size: int) -> None:
    """It alone has to give up a partition, and comes back without any: what the leader held back for another
    member would wait for a rebalance that nobody starts.
    """
    simulation = GroupSimulation()
    simulation.create_topic("a", size)
    for number in (1, 2):
        simulation.member("a", instance_id=f"i{number}", **COOPERATIVE)
        simulation.settle()
    dying = simulation.members[dies]
    third = simulation.member("a", **COOPERATIVE)

    def syncs() -> set[str]:
        """Who has sent SyncGroup since the third one came."""
        names = [name for name, request in simulation.requests if isinstance(request, SyncGroupRequest)]
        return set(names[before:])

    before = sum(isinstance(request, SyncGroupRequest) for _, request in simulation.requests)
    assert simulation.run(10.0, lambda: {dying.name, third.name} <= syncs())
    assert len(dying.owned) == 2, "it has not heard yet what it has to give up"
    dying.crash()
    simulation.member("a", instance_id=f"i{dies + 1}", **COOPERATIVE)
    simulation.settle()


def test_a_static_member_that_was_replaced_ends() -> None:
    simulation = GroupSimulation()
    simulation.create_topic("a", 4)
    simulation.forbids_overlap = False
    first = simulation.member("a", instance_id="i1", **EAGER)
    simulation.settle()
    second = simulation.member("a", instance_id="i1", **EAGER)
    assert simulation.run(30.0, lambda: first.failure is not None)
    assert "FENCED_INSTANCE_ID" in str(first.failure)
    assert isinstance(first.moves[-2], Failed)
    assert first.moves[-1] == Lost(ALL)
    first.subscription = None
    simulation.settle()
    assert second.owned == ALL


def test_members_of_both_assignors_agree_on_one() -> None:
    """A group changes its assignor member by member: what all have in common is taken."""
    simulation = GroupSimulation()
    simulation.create_topic("a", 4)
    both = (ASSIGNORS["cooperative-sticky"], ASSIGNORS["range"])
    first, second = simulation.member("a", assignors=both), simulation.member("a", **EAGER)
    simulation.settle()
    assert {len(first.owned), len(second.owned)} == {2}


def test_an_assignor_of_ones_own() -> None:
    class Generous:
        name = "generous"

        def assign(self, members: Any, sizes: Any) -> Any:
            taker = max(members)
            return {taker: [at for topic, size in sizes.items() for at in partitions(topic, *range(size))]}

    simulation = GroupSimulation()
    simulation.create_topic("a", 4)
    for _ in range(2):
        simulation.member("a", assignors=(Generous(),))
    simulation.settle()
    assert sorted(len(member.owned) for member in simulation.members) == [0, 4]


def test_an_assignor_that_fails_says_so() -> None:
    class Broken:
        name = "broken"

        def assign(self, members: Any, sizes: Any) -> Any:
            raise ZeroDivisionError("oh")

    simulation = GroupSimulation()
    simulation.create_topic("a", 4)
    member = simulation.member("a", assignors=(Broken(),))
    assert simulation.run(10.0, lambda: member.failure is not None)
    assert "the assignor 'broken' failed: oh" in str(member.failure)


def test_only_the_leader_minds_the_sizes_of_topics() -> None:
    """A topic that grows makes one rebalance, not one for each member that notices."""
    simulation = GroupSimulation()
    simulation.create_topic("a", 2)
    for _ in range(3):
        simulation.member("a", metadata_max_age_s=3.0, **COOPERATIVE)
    simulation.settle()
    before = sum(isinstance(request, JoinGroupRequest) for _, request in simulation.requests)
    grow(simulation, "a", 6)
    simulation.settle()
    joins = sum(isinstance(request, JoinGroupRequest) for _, request in simulation.requests) - before
    assert joins == 3
    assert {len(member.owned) for member in simulation.members} == {2}


def grow(simulation: GroupSimulation, topic: str, size: int) -> None:
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic, count=size, assignments=None)], timeout_ms=1000
    )
    (result,) = simulation.host.ask(request, 3).results
    assert result.error_code == 0, result
    simulation.topics[topic] = size
