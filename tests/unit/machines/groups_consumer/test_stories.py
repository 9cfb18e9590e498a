"""Whole lives of consumer groups, told heartbeat by heartbeat."""

from dataclasses import replace

from harness.consumer_groups import GROUP, Consumer, Coordinator
from harness.group_shard import FakeTopics
from headrace.machines.coordination import Decision
from headrace.machines.groups.consumer import records
from headrace.machines.groups.describe import DescribedConsumerGroup
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_heartbeat import TopicPartitions


def test_the_only_member_gets_everything_at_once() -> None:
    topics = FakeTopics(orders=3)
    coordinator = Coordinator(topics)
    alone = Consumer(coordinator, "a", "orders")
    response = alone.beat()
    assert (response.error_code, response.member_id, response.member_epoch) == (0, "a", 2)
    assert response.heartbeat_interval_ms == 5_000
    assert alone.owned == topics.places("orders")
    assert coordinator.group.state_name == "Stable"


def test_a_second_member_waits_until_the_first_has_given_up() -> None:
    topics = FakeTopics(orders=4)
    coordinator = Coordinator(topics)
    first = Consumer(coordinator, "a", "orders").settle()
    second = Consumer(coordinator, "b", "orders")

    second.beat()
    assert (second.epoch, second.partitions) == (3, [])
    assert coordinator.group.state_name == "Reconciling"
    first.beat()
    assert (first.epoch, first.partitions) == (2, [0, 1])  # told to give up, and still at its epoch
    second.beat()
    assert second.partitions == []  # nobody knows yet whether the first has stopped reading

    first.beat()
    assert first.epoch == 3
    second.beat()
    assert second.partitions == [2, 3]
    assert coordinator.group.state_name == "Stable"


def test_the_rest_takes_over_from_one_that_leaves() -> None:
    coordinator = Coordinator(FakeTopics(orders=4))
    first, second = (Consumer(coordinator, name, "orders") for name in "ab")
    for _ in range(4):
        first.beat()
        second.beat()
    assert (first.partitions, second.partitions) == ([0, 1], [2, 3])

    response = first.leave()
    assert (response.error_code, response.member_id, response.member_epoch) == (0, "a", -1)
    assert coordinator.group.state_name == "Assigning"
    second.beat()
    assert second.partitions == [0, 1, 2, 3]
    assert list(coordinator.group.members) == ["b"]


def test_a_silent_member_is_removed_after_its_session() -> None:
    coordinator = Coordinator(FakeTopics(orders=4))
    first, second = (Consumer(coordinator, name, "orders") for name in "ab")
    for _ in range(4):
        first.beat()
        second.beat()
    coordinator.pass_time(40)
    second.beat()
    coordinator.pass_time(5.1)
    assert list(coordinator.group.members) == ["b"]
    second.beat()
    assert second.partitions == [0, 1, 2, 3]

    first.beat()
    assert first.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert first.owned == set()


def test_a_member_that_does_not_give_up_in_time_is_fenced() -> None:
    coordinator = Coordinator(FakeTopics(orders=4))
    Consumer(coordinator, "a", "orders").settle()
    second = Consumer(coordinator, "b", "orders")
    second.beat()
    for _ in range(2):
        coordinator.heartbeat(member_id="a", member_epoch=2)  # alive, but it never says what it owns
        coordinator.pass_time(14)
        second.beat()
    assert set(coordinator.group.members) == {"a", "b"}
    coordinator.pass_time(2.1)  # 30.1 s after the demand
    assert set(coordinator.group.members) == {"b"}
    second.beat()
    assert second.partitions == [0, 1, 2, 3]


def test_partitions_are_added_and_their_topic_is_made_anew() -> None:
    topics = FakeTopics(orders=1)
    coordinator = Coordinator(topics)
    alone = Consumer(coordinator, "a", "orders").settle()
    topics.grow("orders", 3)
    alone.settle()
    assert (alone.epoch, alone.partitions) == (3, [0, 1, 2])
    topics.delete("orders")
    alone.settle()
    assert (alone.epoch, alone.partitions) == (4, [])
    topics.create("orders", 2)
    alone.settle()
    assert (alone.epoch, alone.owned) == (5, topics.places("orders"))


def test_a_topic_that_nobody_subscribed_to_changes_nothing() -> None:
    topics = FakeTopics(orders=1)
    coordinator = Coordinator(topics)
    alone = Consumer(coordinator, "a", "orders").settle()
    topics.create("other", 1)
    assert coordinator.decide(member_id="a", member_epoch=alone.epoch).records == []


def test_a_subscription_changes() -> None:
    topics = FakeTopics(orders=2, bills=2)
    coordinator = Coordinator(topics)
    alone = Consumer(coordinator, "a", "orders").settle()
    alone.subscribe("bills")
    alone.settle()
    assert alone.owned == topics.places("bills")
    assert not coordinator.group.is_subscribed_to("orders")
    assert coordinator.group.is_subscribed_to("bills")
    topics.grow("orders", 3)
    assert coordinator.decide(member_id="a", member_epoch=alone.epoch).records == []


def test_a_lost_answer_is_asked_for_again() -> None:
    coordinator = Coordinator(FakeTopics(orders=4))
    first = Consumer(coordinator, "a", "orders").settle()
    second = Consumer(coordinator, "b", "orders")
    second.beat()
    first.beat()
    first.beat(is_answer_lost=True)  # it is at epoch 3 by now, and does not know
    first.beat()
    assert (first.error, first.epoch, first.partitions) == (ErrorCode.NONE, 3, [0, 1])


def test_a_lost_answer_to_a_join_leaves_one_member() -> None:
    coordinator = Coordinator(FakeTopics(orders=4))
    alone = Consumer(coordinator, "a", "orders")
    alone.beat(is_answer_lost=True)
    alone.beat()
    assert (alone.epoch, alone.partitions) == (2, [0, 1, 2, 3])
    assert list(coordinator.group.members) == ["a"]


def test_a_static_member_comes_back_to_what_it_had() -> None:
    coordinator = Coordinator(FakeTopics(orders=4))
    first = Consumer(coordinator, "a", "orders", instance_id="one")
    second = Consumer(coordinator, "b", "orders", instance_id="two")
    for _ in range(4):
        first.beat()
        second.beat()
    before = coordinator.group.epoch

    assert first.leave(epoch=-2).member_epoch == -2
    second.beat()
    assert second.partitions == [2, 3]  # nothing is taken over
    back = Consumer(coordinator, "a2", "orders", instance_id="one")
    back.beat()
    assert (back.error, back.epoch, back.partitions) == (ErrorCode.NONE, before, [0, 1])
    assert coordinator.group.epoch == before
    assert set(coordinator.group.members) == {"a2", "b"}

    first.epoch = before
    first.beat()
    assert first.error is ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_comes_back_with_another_wish() -> None:
    topics = FakeTopics(orders=4, bills=2)
    coordinator = Coordinator(topics)
    first = Consumer(coordinator, "a", "orders", instance_id="one").settle()
    second = Consumer(coordinator, "b", "orders")
    for _ in range(4):
        first.beat()
        second.beat()
    first.leave(epoch=-2)
    back = Consumer(coordinator, "a2", "orders", "bills", instance_id="one")
    for _ in range(4):
        back.beat()
        second.beat()
    assert set(coordinator.group.targets) == {"a2", "b"}
    assert back.owned | second.owned == topics.places("orders", "bills")


def test_a_static_member_that_does_not_come_back_is_removed() -> None:
    coordinator = Coordinator(FakeTopics(orders=4))
    first = Consumer(coordinator, "a", "orders", instance_id="one").settle()
    first.leave(epoch=-2)
    coordinator.pass_time(44)
    assert list(coordinator.group.members) == ["a"]
    coordinator.pass_time(2)
    assert coordinator.group.is_empty


def test_many_that_start_together_are_assigned_once_a_second() -> None:
    coordinator = Coordinator(FakeTopics(orders=12), group_consumer_assignment_interval_ms=1_000)
    members = [Consumer(coordinator, f"m{number}", "orders") for number in range(4)]
    for member in members:
        member.beat()
    assert [member.partitions for member in members] == [list(range(12)), [], [], []]
    assert (coordinator.group.epoch, coordinator.group.assignment_epoch) == (5, 2)
    assert coordinator.group.state_name == "Assigning"
    coordinator.pass_time(1)
    for _ in range(3):
        for member in members:
            member.beat()
    assert [len(member.owned) for member in members] == [3, 3, 3, 3]
    assert coordinator.group.assignment_epoch == 5


def test_a_clock_that_was_set_back_stops_no_assignment() -> None:
    coordinator = Coordinator(FakeTopics(orders=2), group_consumer_assignment_interval_ms=1_000)
    first = Consumer(coordinator, "a", "orders").settle()
    coordinator.clock.wall_ms -= 3_600_000
    second = Consumer(coordinator, "b", "orders")
    for _ in range(4):
        first.beat()
        second.beat()
    assert (len(first.owned), len(second.owned)) == (1, 1)


def test_a_new_coordinator_goes_on_where_the_old_one_ended() -> None:
    coordinator = Coordinator(FakeTopics(orders=4))
    first = Consumer(coordinator, "a", "orders").settle()
    second = Consumer(coordinator, "b", "orders")
    second.beat()
    first.beat()  # has to give up
    coordinator.restart()
    first.beat()
    second.beat()
    assert (first.partitions, second.partitions) == ([0, 1], [2, 3])

    third = Consumer(coordinator, "c", "orders")
    third.beat()
    first.beat()
    coordinator.restart()
    coordinator.pass_time(46)  # sessions run again, and nobody is heard of
    assert coordinator.group.is_empty


def test_a_new_coordinator_gives_time_to_give_up_once_more() -> None:
    coordinator = Coordinator(FakeTopics(orders=4))
    Consumer(coordinator, "a", "orders").settle()
    second = Consumer(coordinator, "b", "orders")
    second.beat()
    coordinator.heartbeat(member_id="a", member_epoch=2)
    coordinator.pass_time(20)
    coordinator.restart()
    for _ in range(2):
        coordinator.heartbeat(member_id="a", member_epoch=2)
        second.beat()
        coordinator.pass_time(14)
    assert set(coordinator.group.members) == {"a", "b"}
    coordinator.pass_time(3)
    assert set(coordinator.group.members) == {"b"}


def test_what_is_owned_may_be_said_in_pieces() -> None:
    topics = FakeTopics(orders=4)
    coordinator = Coordinator(topics)
    Consumer(coordinator, "a", "orders").settle()
    Consumer(coordinator, "b", "orders").beat()
    topic_id = topics.id_of("orders") or b""
    pieces = [TopicPartitions(topic_id=topic_id, partitions=[number]) for number in (3, 2, 1, 0)]
    response = coordinator.heartbeat(member_id="a", member_epoch=2, topic_partitions=pieces)
    assert response.member_epoch == 2, "it still owns what it has to give up, though not in the last piece"


def test_assignors_that_we_do_not_have_are_passed_over() -> None:
    coordinator = Coordinator(FakeTopics(orders=4), group_consumer_assignors=["com.example.Mine", "range"])
    alone = Consumer(coordinator, "a", "orders").settle()
    now = coordinator.clock.now()
    described = coordinator.groups.describe_consumer(now, GROUP)
    assert isinstance(described, DescribedConsumerGroup)
    assert described.assignor == "range"
    refused = coordinator.heartbeat(member_id="a", member_epoch=2, server_assignor="com.example.Mine")
    assert refused.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR

    # A log of another broker may hold any.
    member = replace(coordinator.group.members["a"], assignor="com.example.Mine")
    coordinator.settle(Decision(records=[records.member_metadata(GROUP, member)]))
    alone.subscribe("orders", "missing")
    alone.settle()
    assert (alone.error, alone.partitions) == (ErrorCode.NONE, [0, 1, 2, 3])


def test_an_empty_group_is_deleted_whole() -> None:
    coordinator = Coordinator(FakeTopics(orders=4, bills=1))
    alone = Consumer(coordinator, "a", regex=".*").settle()
    now = coordinator.clock.now()
    assert coordinator.settle(coordinator.groups.delete_group(now, GROUP)) is ErrorCode.NON_EMPTY_GROUP
    alone.leave()
    assert coordinator.group.state_name == "Empty"
    assert coordinator.settle(coordinator.groups.delete_group(now, GROUP)) is ErrorCode.NONE
    assert coordinator.groups.groups == {}
    last = {type(record.key): record.value for record in coordinator.log}
    assert set(last.values()) == {None}, "every kind of record ends with a tombstone"
