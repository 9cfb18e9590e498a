"""Groups change their protocol while members of both are at work."""

import pytest

from harness.consumer_groups import GROUP, ClassicConsumer, Consumer, Coordinator
from harness.group_shard import FakeTopics
from headrace.machines.coordination import Caller
from headrace.machines.groups.classic.group import ClassicGroup
from headrace.machines.groups.classic.requests import Join, Joined
from headrace.machines.groups.consumer import ConsumerGroup
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_protocol import AssignedTopic, ConsumerProtocolAssignment
from headrace.protocol.versioned import encode_versioned


def share(*partitions: int, user_data: bytes | None = None) -> bytes:
    topics = [AssignedTopic(topic="orders", partitions=list(partitions))]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=topics, user_data=user_data), 3)


def classic_pair(coordinator: Coordinator, **first_share: bytes) -> tuple[ClassicConsumer, ClassicConsumer]:
    """A classic group of two, the first having partitions 0 and 1 of four, the second 2 and 3."""
    first, second = ClassicConsumer(coordinator, "orders"), ClassicConsumer(coordinator, "orders")
    first.join("first joins")
    second.join("second joins")
    coordinator.pass_time(7)  # the initial delay, twice: the second came while it ran
    answers = dict(coordinator.answers)
    first.joined(answers["first joins"])
    second.joined(answers["second joins"])
    second.sync("second syncs")
    shares = {first.member_id: share(0, 1, **first_share), second.member_id: share(2, 3)}
    first.sync("first syncs", assignments=shares)
    answers = dict(coordinator.answers)
    first.synced(answers["first syncs"])
    second.synced(answers["second syncs"])
    assert isinstance(coordinator.groups.groups[GROUP], ClassicGroup)
    return first, second


def places(*partitions: int) -> set[tuple[str, int]]:
    return {("orders", number) for number in partitions}


def test_a_classic_group_is_upgraded_while_its_members_read() -> None:
    topics = FakeTopics(orders=4)
    coordinator = Coordinator(topics)
    first, second = classic_pair(coordinator)
    generation = first.generation

    new = Consumer(coordinator, "new", "orders")
    response = new.beat()
    assert (response.error_code, new.epoch, new.owned) == (0, generation + 1, set())
    group = coordinator.group
    assert group.classic_count == 2
    assert group.members[first.member_id].epoch == generation
    # Both keep what they have until they join again and give up.
    assert (first.partitions, second.partitions) == (places(0, 1), places(2, 3))
    assert first.beat() is ErrorCode.REBALANCE_IN_PROGRESS

    for _ in range(4):
        first.settle(1)
        second.settle(1)
        new.beat()
    assert first.generation == second.generation == new.epoch == generation + 1
    owned = [len(first.partitions), len(second.partitions), len(new.owned)]
    assert sorted(owned) == [1, 1, 2]
    named = {("orders", number) for _, number in new.owned}
    assert first.partitions | second.partitions | named == places(0, 1, 2, 3)
    assert coordinator.group.state_name == "Stable"
    assert (first.beat(), second.beat()) == (ErrorCode.NONE, ErrorCode.NONE)


def test_a_silent_member_of_an_upgraded_group_is_removed_after_its_own_session() -> None:
    coordinator = Coordinator(FakeTopics(orders=4))
    first, _ = classic_pair(coordinator)
    new = Consumer(coordinator, "new", "orders").settle(1)
    coordinator.pass_time(9)
    first.beat()
    new.beat()
    coordinator.pass_time(1.5)
    assert set(coordinator.group.members) == {first.member_id, new.member_id}


def test_the_last_one_of_the_new_protocol_leaves_and_the_group_is_classic_again() -> None:
    coordinator = Coordinator(FakeTopics(orders=4))
    first, second = classic_pair(coordinator)
    new = Consumer(coordinator, "new", "orders")
    for _ in range(4):
        new.beat()
        first.settle(1)
        second.settle(1)
    epoch = coordinator.group.epoch

    assert new.leave().error_code == ErrorCode.NONE
    classic = coordinator.groups.groups[GROUP]
    assert isinstance(classic, ClassicGroup)
    coordinator.pass_time(0)
    assert set(classic.members) == {first.member_id, second.member_id}
    assert first.beat() is ErrorCode.REBALANCE_IN_PROGRESS

    coordinator.answers.clear()
    first.join("first again")
    second.join("second again")
    answers = dict(coordinator.answers)
    assert answers["first again"].generation == answers["second again"].generation == epoch + 1
    leaders = [answer.leader for answer in answers.values()]
    assert leaders == [first.member_id] * 2
    assert [member.member_id for member in answers["first again"].members] == [
        first.member_id,
        second.member_id,
    ]


def test_members_of_a_downgraded_group_have_their_sessions() -> None:
    coordinator = Coordinator(FakeTopics(orders=4))
    classic_pair(coordinator)
    Consumer(coordinator, "new", "orders").settle(1).leave()
    coordinator.pass_time(31)  # neither joins again
    group = coordinator.groups.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert group.is_empty


def test_a_crash_of_the_last_one_of_the_new_protocol_downgrades_too() -> None:
    coordinator = Coordinator(FakeTopics(orders=4))
    first, second = classic_pair(coordinator)
    Consumer(coordinator, "new", "orders").beat()
    for _ in range(5):
        coordinator.pass_time(7.6)
        first.settle(2)
        second.settle(2)
    assert isinstance(coordinator.groups.groups[GROUP], ConsumerGroup)
    coordinator.pass_time(7.5)
    assert isinstance(coordinator.groups.groups[GROUP], ClassicGroup)
    assert first.beat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_whoever_waits_for_a_rebalance_when_the_group_is_upgraded_joins_again() -> None:
    coordinator = Coordinator(FakeTopics(orders=4))
    first, second = classic_pair(coordinator)
    coordinator.answers.clear()
    first.join("waits for the second")
    Consumer(coordinator, "new", "orders").beat()
    [(ticket, answer)] = coordinator.answers
    assert ticket == "waits for the second"
    assert isinstance(answer, Joined)
    assert (answer.error, answer.member_id) == (ErrorCode.REBALANCE_IN_PROGRESS, first.member_id)
    first.is_rejoining = True
    first.settle()
    second.settle()
    assert coordinator.group.members[first.member_id].epoch == coordinator.group.epoch


def test_a_classic_group_is_upgraded_before_its_first_generation() -> None:
    coordinator = Coordinator(FakeTopics(orders=4))
    old = ClassicConsumer(coordinator, "orders")
    old.join("waits for the initial delay")
    new = Consumer(coordinator, "new")  # subscribes to nothing: the others' wishes count all the same
    new.beat()
    assert (new.error, new.epoch) == (ErrorCode.NONE, 2)
    [(_, answer)] = coordinator.answers
    assert answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    for _ in range(4):
        old.settle(1)
        new.beat()
    assert old.partitions == places(0, 1, 2, 3)


def test_a_refused_join_upgrades_nothing() -> None:
    coordinator = Coordinator(FakeTopics(orders=4))
    first, second = classic_pair(coordinator)
    coordinator.answers.clear()
    first.join("waits for the second")
    broken = Consumer(coordinator, "new", regex="(")
    broken.beat()
    assert broken.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert isinstance(coordinator.groups.groups[GROUP], ClassicGroup)
    assert coordinator.answers == []
    second.join("second")
    assert {ticket for ticket, _ in coordinator.answers} == {"waits for the second", "second"}


@pytest.mark.parametrize(
    ("settings", "first_share"),
    [
        ({"group_consumer_migration_policy": "disabled"}, {}),
        ({"group_consumer_migration_policy": "Downgrade"}, {}),
        ({"group_consumer_max_size": 1}, {}),
        ({}, {"user_data": b"of an assignor of one's own"}),
    ],
)
def test_an_upgrade_is_refused(settings: dict[str, object], first_share: dict[str, bytes]) -> None:
    coordinator = Coordinator(FakeTopics(orders=4), **settings)
    first, _ = classic_pair(coordinator, **first_share)
    new = Consumer(coordinator, "new", "orders")
    new.beat()
    assert new.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert isinstance(coordinator.groups.groups[GROUP], ClassicGroup)
    assert first.beat() is ErrorCode.NONE


def test_without_downgrades_the_group_stays_what_it_is() -> None:
    coordinator = Coordinator(FakeTopics(orders=4), group_consumer_migration_policy="upgrade")
    first, second = classic_pair(coordinator)
    new = Consumer(coordinator, "new", "orders").settle(1)
    new.leave()
    for _ in range(4):
        first.settle(1)
        second.settle(1)
    assert coordinator.group.classic_count == 2
    assert first.partitions | second.partitions == places(0, 1, 2, 3)


def test_a_classic_member_joins_a_consumer_group() -> None:
    coordinator = Coordinator(FakeTopics(orders=4))
    new = Consumer(coordinator, "new", "orders").settle()
    old = ClassicConsumer(coordinator, "orders")
    for _ in range(4):
        old.settle(1)
        new.beat()
    assert (len(new.owned), len(old.owned)) == (2, 2)
    assert old.beat() is ErrorCode.NONE

    assert old.leave().members == (ErrorCode.NONE,)
    new.settle()
    assert len(new.owned) == 4


def test_a_classic_member_cannot_join_where_migration_is_disabled() -> None:
    coordinator = Coordinator(FakeTopics(orders=4), group_consumer_migration_policy="disabled")
    Consumer(coordinator, "new", "orders").settle()
    old = ClassicConsumer(coordinator, "orders", member_id="old")
    with pytest.raises(AssertionError):
        old.join()
    assert set(coordinator.group.members) == {"new"}


def test_a_classic_member_that_does_not_join_again_is_removed() -> None:
    coordinator = Coordinator(FakeTopics(orders=4))
    new = Consumer(coordinator, "new", "orders").settle()
    old = ClassicConsumer(coordinator, "orders").settle(2)
    another = Consumer(coordinator, "another", "orders")
    another.beat()
    for _ in range(3):
        assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS  # alive, and does not do as it is told
        coordinator.pass_time(6.5)
    assert old.member_id in coordinator.group.members
    old.beat()
    coordinator.pass_time(1)
    assert old.member_id not in coordinator.group.members
    assert new.member_id in coordinator.group.members


def test_a_classic_member_that_never_syncs_is_removed() -> None:
    coordinator = Coordinator(FakeTopics(orders=4))
    new = Consumer(coordinator, "new", "orders").settle()
    old = ClassicConsumer(coordinator, "orders")
    old.join()
    for _ in range(3):
        old.beat()
        new.beat()
        coordinator.pass_time(6.8)
    assert set(coordinator.group.members) == {"new"}


def test_a_static_member_comes_back_with_the_other_protocol() -> None:
    coordinator = Coordinator(FakeTopics(orders=4))
    keeps = Consumer(coordinator, "keeps", "orders").settle()
    old = ClassicConsumer(coordinator, "orders", instance_id="one")
    for _ in range(4):
        old.settle(1)
        keeps.beat()
    owned = {number for _, number in old.partitions}
    assert len(owned) == 2

    # To the consumer protocol: no leave is needed, and what it had is still its own.
    new = Consumer(coordinator, "one-again", "orders", instance_id="one")
    new.beat()
    assert (new.error, set(new.partitions)) == (ErrorCode.NONE, owned)
    assert old.beat() is ErrorCode.FENCED_INSTANCE_ID

    # And back to the classic one.
    back = ClassicConsumer(coordinator, "orders", instance_id="one")
    back.settle(2)
    assert {number for _, number in back.partitions} == owned
    assert coordinator.group.classic_count == 1


def test_the_last_one_of_the_new_protocol_comes_back_as_a_classic_member() -> None:
    coordinator = Coordinator(FakeTopics(orders=4))
    last = Consumer(coordinator, "last", "orders", instance_id="one").settle()
    old = ClassicConsumer(coordinator, "orders")
    for _ in range(4):
        old.settle(1)
        last.beat()
    back = ClassicConsumer(coordinator, "orders", instance_id="one")
    response = back.join("ticket")
    assert response is not None
    assert response.error is ErrorCode.NONE
    group = coordinator.groups.groups[GROUP]
    coordinator.pass_time(0)
    assert isinstance(group, ClassicGroup)
    assert set(group.members) == {old.member_id, back.member_id}
    assert group.generation == response.generation


def test_an_empty_group_makes_room_for_the_other_protocol() -> None:
    coordinator = Coordinator(FakeTopics(orders=4), group_initial_rebalance_delay_ms=0)
    Consumer(coordinator, "new", "orders").settle().leave()
    old = ClassicConsumer(coordinator, "orders")
    old.join("joins")
    coordinator.pass_time(0)
    assert isinstance(coordinator.groups.groups[GROUP], ClassicGroup)
    old.joined(dict(coordinator.answers)["joins"])
    old.leave()
    coordinator.pass_time(0)

    again = Consumer(coordinator, "again", "orders").settle()
    assert isinstance(coordinator.groups.groups[GROUP], ConsumerGroup)
    assert (again.epoch, again.partitions) == (2, [0, 1, 2, 3])


def test_a_classic_member_that_was_removed_needs_another_id_once_the_group_is_empty() -> None:
    """A new coordinator gives it its own session; whoever founds a group of its own has no id yet."""
    coordinator = Coordinator(
        FakeTopics(orders=4), group_initial_rebalance_delay_ms=0, group_consumer_migration_policy="upgrade"
    )
    new = Consumer(coordinator, "new", "orders").settle()
    old = ClassicConsumer(coordinator, "orders").settle(2)
    coordinator.restart()
    coordinator.pass_time(9.9)
    assert set(coordinator.group.members) == {"new", old.member_id}
    coordinator.pass_time(0.2)
    assert set(coordinator.group.members) == {"new"}
    new.leave()
    assert coordinator.group.is_empty

    removed = ClassicConsumer(coordinator, "orders", member_id=old.member_id)
    assert refused(removed) is ErrorCode.UNKNOWN_MEMBER_ID
    assert old.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    old.join("joins")
    coordinator.pass_time(0)
    old.joined(dict(coordinator.answers)["joins"])
    assert old.member_id != removed.member_id
    group = coordinator.groups.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert set(group.members) == {old.member_id}


def refused(joining: ClassicConsumer) -> ErrorCode:
    """The reason; the group is what it was."""
    before = joining.coordinator.groups.state()
    request = Join(
        GROUP,
        joining.member_id,
        None,
        "consumer",
        (("cooperative-sticky", b""),),
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        joins_twice=True,
        can_skip_assignment=True,
    )
    coordinator = joining.coordinator
    decision = coordinator.groups.join(coordinator.clock.now(), request, Caller("old", "/10.0.0.2"), None)
    joined: Joined = coordinator.settle(decision)
    assert coordinator.groups.state() == before
    return joined.error


@pytest.mark.parametrize("who", ["leader", "new", "follower that changed"])
def test_a_join_that_comes_before_a_downgraded_group_has_begun_its_rebalance(who: str) -> None:
    """The group is a classic one as soon as its record is replayed; its first timer rings a moment later."""
    coordinator = Coordinator(FakeTopics(orders=4, bills=2))
    first, second = classic_pair(coordinator)
    new = Consumer(coordinator, "new", "orders").settle(1)
    coordinator.answers.clear()
    new.leave()
    group = coordinator.groups.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    members = {first.member_id: first, second.member_id: second}
    if who == "new":
        early = ClassicConsumer(coordinator, "orders")
    else:
        early = members[group.leader or ""] if who == "leader" else second
        early.topics = ["bills"] if who == "follower that changed" else early.topics
    assert early.join("early") is None
    coordinator.pass_time(0)

    for number, member in enumerate((first, second)):
        if member is not early:
            member.join(number)
    answers = dict(coordinator.answers)
    assert answers["early"].error is ErrorCode.NONE
    assert len({answer.generation for answer in answers.values()}) == 1
    assert set(group.members) == {answer.member_id for answer in answers.values()}
    assert group.joining == 0


def test_sessions_begin_when_a_group_is_downgraded_also_if_somebody_joins_at_once() -> None:
    coordinator = Coordinator(FakeTopics(orders=4))
    classic_pair(coordinator)
    Consumer(coordinator, "new", "orders").settle(1).leave()
    early = ClassicConsumer(coordinator, "orders")
    early.join("early")
    coordinator.pass_time(10)  # the others are not heard of any more
    assert dict(coordinator.answers)["early"].error is ErrorCode.NONE
    group = coordinator.groups.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert len(group.members) == 1


def test_a_sync_that_comes_before_a_downgraded_group_has_begun_its_rebalance() -> None:
    """Its record has what everybody was to have, also what others have not given up yet."""
    coordinator = Coordinator(FakeTopics(orders=6))
    new = Consumer(coordinator, "new", "orders").settle(2)
    first = ClassicConsumer(coordinator, "orders").settle(2)
    for _ in range(3):
        new.beat()
        first.settle(1)
    assert len(first.partitions) == 3
    third = ClassicConsumer(coordinator, "orders")
    third.join()
    new.leave()
    assert isinstance(coordinator.groups.groups[GROUP], ClassicGroup)
    third.sync()
    assert not third.partitions & first.partitions
    assert third.is_rejoining
    coordinator.pass_time(0)
    assert third.beat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_downgraded_group_rebalances_also_when_its_coordinator_is_restarted_first() -> None:
    """Otherwise nobody would get what the last one of the new protocol had."""
    coordinator = Coordinator(FakeTopics(orders=4))
    first, second = classic_pair(coordinator)
    new = Consumer(coordinator, "new", "orders")
    for _ in range(4):
        new.beat()
        first.settle(1)
        second.settle(1)
    new.leave()
    assert len(first.partitions | second.partitions) < 4
    coordinator.restart()
    assert first.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert second.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    coordinator.answers.clear()
    first.join("first again")
    second.join("second again")
    assert {answer.leader for _, answer in coordinator.answers} == {first.member_id}
