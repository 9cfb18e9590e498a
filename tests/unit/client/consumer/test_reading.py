"""A consumer before the node itself: what it reads, commits, finds again, and leaves behind."""

from __future__ import annotations

import pytest

from harness.consumer_stage import Stage
from harness.consumer_world import TOPIC, World
from headrace.client.assignors import ASSIGNORS
from headrace.client.cluster import TopicPartition
from headrace.client.consumer.list_offsets import OffsetAndTimestamp
from headrace.client.consumer.position import PositionReset
from headrace.client.errors import InvalidInput, KafkaError, TimedOut
from headrace.client.membership.events import Assigned, CommittedOffset, Lost, Revoked
from headrace.client.membership.subscription import Subscription
from headrace.client.settings.consumer import GroupProtocol, GroupSettings
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

T0, T1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
BOTH = frozenset({T0, T1})
each_protocol = pytest.mark.parametrize("protocol", list(GroupProtocol))


def test_assigned_partitions_are_read_in_order_as_they_are_written() -> None:
    world = World()
    world.write(0, b"a", b"b")
    world.write(1, b"x")
    reader = world.reader()
    reader.session.assign(world.now, [T0, T1])
    world.run(1.0)
    world.write(0, b"c")
    world.run(1.0)
    assert (reader.values(0), reader.values(1)) == ([b"a", b"b", b"c"], [b"x"])
    assert (reader.session.position(T0), reader.session.position(T1)) == (3, 1)
    assert (reader.session.lag(T0), reader.session.lag(T1)) == (0, 0)
    metrics = reader.session.metrics()
    assert (metrics.records, metrics.buffered_bytes, metrics.lag) == (4, 0, {T0: 0, T1: 0})
    assert metrics.bytes > 0
    assert metrics.fetches >= 2


def test_a_message_says_all_that_is_known_of_its_record() -> None:
    world = World()
    world.write(0, b"v", timestamp_ms=1234)
    reader = world.reader()
    reader.session.assign(world.now, [T0])
    world.run(1.0)
    (message,) = reader.messages
    assert (message.topic, message.partition, message.offset) == (TOPIC, 0, 0)
    assert (message.timestamp_ms, message.key, message.value, message.headers) == (1234, None, b"v", ())
    assert message.leader_epoch == 0


def test_the_default_reset_begins_at_the_end() -> None:
    world = World()
    world.write(0, b"old")
    reader = world.reader(reset="latest")
    reader.session.assign(world.now, [T0])
    world.run(1.0)
    world.write(0, b"new")
    world.run(1.0)
    assert reader.values() == [b"new"]


def test_by_duration_begins_with_what_is_young_enough() -> None:
    world = World()
    now_ms = int(world.desk.clock.wall_ms)
    world.write(0, b"old", timestamp_ms=now_ms - 120_000)
    world.write(0, b"young", timestamp_ms=now_ms - 30_000)
    world.write(1, b"old", timestamp_ms=now_ms - 120_000)
    reader = world.reader(reset="by_duration:PT1M")
    reader.session.assign(world.now, [T0, T1])
    world.run(1.0)
    assert reader.values() == [b"young"]
    assert reader.session.position(T1) == 1


def test_polls_are_as_large_as_wanted() -> None:
    world = World()
    for first in range(0, 50, 5):
        world.write(0, *(b"%d" % (first + step) for step in range(5)))
    reader = world.reader()
    reader.max_records = 7
    reader.session.assign(world.now, [T0])
    world.run(0.2, lambda: bool(reader.messages))
    assert len(reader.messages) == 7
    assert reader.session.position(T0) == 7
    world.run(2.0)
    assert reader.offsets(0) == list(range(50))


# Offsets


def test_offsets_of_partitions() -> None:
    world = World()
    world.write(0, b"a", timestamp_ms=1000)
    world.write(0, b"b", timestamp_ms=2000)
    session = world.reader().session
    assert world.finish(session.beginning_offsets(world.now, [T0, T1])) == {T0: 0, T1: 0}
    assert world.finish(session.end_offsets(world.now, [T0, T1])) == {T0: 2, T1: 0}
    found = world.finish(session.offsets_for_times(world.now, {T0: 1500, T1: 1500}))
    assert found == {T0: OffsetAndTimestamp(1, 2000, 0), T1: None}
    assert world.finish(session.end_offsets(world.now, [])) == {}


def test_the_same_partition_can_be_asked_for_twice_at_once() -> None:
    world = World()
    world.write(0, b"a")
    session = world.reader().session
    first = session.beginning_offsets(world.now, [T0])
    last = session.end_offsets(world.now, [T0])
    assert (world.finish(first), world.finish(last)) == ({T0: 0}, {T0: 1})


def test_offsets_of_a_partition_that_is_not_there_are_not_found_in_time() -> None:
    world = World()
    session = world.reader().session
    pending = session.end_offsets(world.now, [T0, TopicPartition(TOPIC, 9)], timeout_s=3.0)
    with pytest.raises(TimedOut):
        world.finish(pending)


def test_partitions_of_topics() -> None:
    world = World()
    session = world.reader(allow_auto_create_topics=False).session
    found = world.finish(session.partitions_for(world.now, TOPIC))
    assert [(each.index, each.leader) for each in found] == [(0, 1), (1, 1)]
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        world.finish(session.partitions_for(world.now, "nowhere"))


# Groups


@each_protocol
def test_a_group_reads_on_where_it_has_committed(protocol: GroupProtocol) -> None:
    world = World()
    world.write(0, b"a", b"b")
    world.write(1, b"x")
    first = world.reader("g", protocol=protocol)
    first.subscribe()
    assert world.run(20.0, lambda: len(first.messages) == 3)
    assert first.moves() == [Assigned(BOTH)]
    kept = world.finish(first.session.commit(world.now))
    assert kept == {T0: CommittedOffset(2, 0), T1: CommittedOffset(1, 0)}
    world.finish(first.session.close(world.now))
    assert first.moves() == [Assigned(BOTH), Revoked(BOTH)]
    world.readers.remove(first)
    world.write(0, b"c")
    second = world.reader("g", protocol=protocol, reset="none")
    second.subscribe()
    assert world.run(20.0, lambda: bool(second.messages))
    assert (second.values(), second.errors) == ([b"c"], [])
    found = world.finish(second.session.committed(world.now, [T0, T1]))
    assert found == kept


@each_protocol
def test_members_share_and_nothing_is_read_twice_or_left_out(protocol: GroupProtocol) -> None:
    world = World()
    readers = [world.reader("g", protocol=protocol) for _ in range(2)]
    for reader in readers:
        reader.subscribe()
    assert world.run(60.0, lambda: [len(reader.session.assignment) for reader in readers] == [1, 1])
    for number in range(10):
        world.write(number % 2, b"%d" % number)
    assert world.run(10.0, lambda: sum(len(reader.messages) for reader in readers) >= 10)
    world.run(2.0)
    assert sorted(value for reader in readers for value in reader.values()) == [b"%d" % n for n in range(10)]


def test_what_was_read_is_committed_on_its_own_before_it_goes_to_others() -> None:
    world = World()
    world.write(0, b"a", b"b")
    world.write(1, b"x")
    first = world.reader("g", auto_commit_interval_s=1000.0)
    first.subscribe()
    assert world.run(20.0, lambda: len(first.messages) == 3)
    second = world.reader("g", auto_commit_interval_s=1000.0)
    second.subscribe()
    assert world.run(60.0, lambda: len(second.session.assignment) == 1)
    world.run(5.0)
    assert second.messages == [], "what the first has read is not read again"
    assert len(first.messages) == 3


def test_what_was_only_handed_out_does_not_count_as_read() -> None:
    """A process that dies while it works on its records gets them again after its restart."""
    world = World()
    world.write(0, b"a", b"b", b"c")
    reader = world.reader("g", auto_commit_interval_s=0.5)
    reader.max_records = 2
    reader.subscribe()
    assert world.run(20.0, lambda: len(reader.messages) == 2)
    reader.polls = False
    for _ in range(40):
        world.run(0.1)
    other = world.reader("g")
    assert world.finish(other.session.committed(world.now, [T0])) == {T0: None}
    reader.polls = True
    world.run(2.0)
    assert world.finish(other.session.committed(world.now, [T0])) == {T0: CommittedOffset(3, 0)}


def test_what_was_handed_out_by_the_last_poll_is_not_committed_when_it_is_revoked() -> None:
    """An application that is still at it when it hears of the rebalance has not read it to its end."""
    world = World()
    world.write(0, b"a", b"b")
    reader = world.reader("g", auto_commit_interval_s=1000.0)
    reader.subscribe()
    assert world.run(20.0, lambda: len(reader.messages) == 2)
    reader.polls = False
    world.reader("g").subscribe()
    assert world.run(20.0, lambda: reader.session.has_news)
    assert reader.session.take_events() == [Revoked(BOTH)]
    reader.session.acknowledge(world.now)
    assert world.run(20.0, lambda: reader.session.has_news)
    lookup = world.reader("g").session.committed(world.now, [T0])
    assert world.finish(lookup) == {T0: None}


def test_closing_commits_what_was_read() -> None:
    world = World()
    world.write(0, b"a", b"b")
    reader = world.reader("g", auto_commit_interval_s=1000.0)
    reader.session.assign(world.now, [T0])
    world.run(5.0)
    assert len(reader.messages) == 2
    world.finish(reader.session.close(world.now))
    other = world.reader("g")
    assert world.finish(other.session.committed(world.now, [T0])) == {T0: CommittedOffset(2, 0)}


def test_assigned_partitions_begin_where_their_group_has_committed() -> None:
    world = World()
    world.write(0, b"a", b"b")
    reader = world.reader("g")
    reader.session.assign(world.now, [T0])
    world.finish(reader.session.commit(world.now, {T0: 1}))
    other = world.reader("g", reset="none")
    other.session.assign(world.now, [T0, T1])
    world.run(2.0)
    assert other.values() == [b"b"]
    assert [type(error).__name__ for error in other.errors][:1] == ["NoOffset"], "partition 1 has none"


def test_a_seek_goes_before_what_is_still_asked_for() -> None:
    world = World()
    world.write(0, b"a", b"b", b"c")
    reader = world.reader("g")
    reader.session.assign(world.now, [T0])
    world.finish(reader.session.commit(world.now, {T0: 1}))
    other = world.reader("g")
    other.session.assign(world.now, [T0])
    other.pump()
    other.session.seek(world.now, T0, 2)
    world.run(2.0)
    assert other.values() == [b"c"]


def test_a_seek_of_the_listener_goes_before_what_was_committed() -> None:
    world = World()
    world.write(0, b"a", b"b", b"c")
    first = world.reader("g")
    first.session.assign(world.now, [T0])
    world.finish(first.session.commit(world.now, {T0: 1}))
    world.readers.remove(first)
    reader = world.reader("g")
    reader.on_assigned = lambda event: reader.session.seek(world.now, T0, 2)
    reader.subscribe()
    assert world.run(20.0, lambda: bool(reader.messages))
    assert reader.values() == [b"c"]


def test_nothing_is_handed_out_of_partitions_that_the_application_has_not_heard_of() -> None:
    world = World()
    world.write(0, b"a")
    reader = world.reader("g")
    reader.polls = False
    reader.subscribe()
    world.run(20.0, lambda: reader.session.metrics().buffered_bytes > 0)
    assert reader.session.metrics().buffered_bytes > 0
    assert reader.session.take_records(world.now, 10) == []
    assert reader.session.take_events() == [
        Assigned(BOTH),
        PositionReset(T0, None, 0),
        PositionReset(T1, None, 0),
    ]
    assert [each.value for each in reader.session.take_records(world.now, 10)] == [b"a"]


def test_a_consumer_that_was_too_slow_has_lost_all_and_joins_again() -> None:
    world = World()
    world.write(0, b"a")
    reader = world.reader("g", max_poll_interval_s=10.0)
    reader.subscribe()
    assert world.run(20.0, lambda: bool(reader.messages))
    name = reader.session.group_metadata()
    assert name.group_id == "g"
    assert name.generation > 0
    reader.polls = False
    world.run(12.0)
    assert reader.session.assignment == frozenset()
    assert reader.session.group_metadata() == name, "it does not know yet, and is to be refused"
    reader.polls = True
    assert world.run(20.0, lambda: len(reader.moves()) == 3)
    assert reader.moves() == [Assigned(BOTH), Lost(BOTH), Assigned(BOTH)]
    assert reader.session.group_metadata() != name


def test_what_the_application_was_not_told_of_is_not_acknowledged() -> None:
    """A listener that unsubscribes is told of more than it is about to acknowledge."""
    world = World(partitions=4)
    reader = world.reader("g", assignors=(ASSIGNORS["cooperative-sticky"],))
    reader.subscribe()
    assert world.run(20.0, lambda: len(reader.session.assignment) == 4)
    reader.polls = False
    world.reader("g", assignors=(ASSIGNORS["cooperative-sticky"],)).subscribe()
    assert world.run(20.0, lambda: reader.session.has_news)
    (revoked,) = (each for each in reader.session.take_events() if isinstance(each, Revoked))
    assert len(revoked.partitions) == 2
    pending = reader.session.unsubscribe(world.now)
    reader.session.acknowledge(world.now)
    world.run(1.0)
    assert len(reader.session.assignment) == 4, "two of them have a listener that does not know yet"
    reader.polls = True
    world.finish(pending)
    assert reader.session.assignment == frozenset()


def test_a_group_that_may_not_be_read_is_raised_once_and_not_for_each_partition() -> None:
    stage = Stage(group=GroupSettings("g"))
    stage.session.assign(stage.now, [T0, T1])
    for _ in range(2):
        _, outgoing = stage.next(FindCoordinatorRequest)
        told = Coordinator(key="g", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        stage.answer(outgoing, FindCoordinatorResponse(coordinators=[told]))
        with pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED"):
            stage.take()
        assert stage.take() == []


def test_who_has_no_group_any_more_hears_of_it_until_he_subscribes_anew() -> None:
    stage = Stage(group=GroupSettings("g"))
    stage.session.subscribe(stage.now, Subscription(frozenset({"a"})))
    _, outgoing = stage.next(FindCoordinatorRequest)
    told = Coordinator(key="g", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    stage.answer(outgoing, FindCoordinatorResponse(coordinators=[told]))
    for _ in range(3):
        assert stage.session.has_news
        with pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED"):
            stage.take()
    stage.session.subscribe(stage.now, Subscription(frozenset({"a"})))
    assert stage.take() == []


def test_unsubscribing_gives_everything_back() -> None:
    world = World()
    reader = world.reader("g")
    reader.subscribe()
    assert world.run(20.0, lambda: bool(reader.session.assignment))
    world.finish(reader.session.unsubscribe(world.now))
    assert reader.session.assignment == frozenset()
    assert reader.moves() == [Assigned(BOTH), Revoked(BOTH)]
    reader.session.assign(world.now, [T0])
    assert reader.session.assignment == {T0}
    world.finish(reader.session.unsubscribe(world.now))
    assert reader.session.assignment == frozenset()


def test_subscriptions_and_assignments_do_not_mix() -> None:
    world = World()
    reader = world.reader("g")
    reader.session.assign(world.now, [T0])
    with pytest.raises(InvalidInput, match="unsubscribe before"):
        reader.subscribe()
    world.finish(reader.session.unsubscribe(world.now))
    reader.subscribe()
    with pytest.raises(InvalidInput, match="unsubscribe before"):
        reader.session.assign(world.now, [T0])
    alone = world.reader()
    with pytest.raises(InvalidInput, match=r"group\.id"):
        alone.session.subscribe(world.now, Subscription(frozenset({TOPIC})))
    with pytest.raises(InvalidInput, match=r"group\.id"):
        alone.session.commit(world.now)


def test_closing_without_a_broker_ends_in_time() -> None:
    world = World()
    reader = world.reader("g")
    reader.subscribe()
    assert world.run(20.0, lambda: bool(reader.session.assignment))
    pending = reader.session.close(world.now, timeout_s=2.0)
    for _ in range(30):
        reader.pump()
        reader.poll()
        world.desk.advance(0.1)
    assert isinstance(pending.error, TimedOut)


# The world changes


def test_a_topic_that_is_deleted_and_made_anew_is_read_from_its_beginning() -> None:
    world = World()
    world.write(0, b"old 1", b"old 2")
    reader = world.reader(reset="latest")
    reader.session.assign(world.now, {T0: 0})
    world.run(1.0)
    world.delete_topic()
    world.desk.create_topic(TOPIC, 2)
    world.write(0, b"new 1", b"new 2", b"new 3")
    world.run(20.0)
    assert reader.values() == [b"old 1", b"old 2", b"new 1", b"new 2", b"new 3"]
    assert [event for event in reader.events if isinstance(event, PositionReset)] == [PositionReset(T0, 2, 0)]


def test_a_crash_of_the_broker_is_not_noticed() -> None:
    world = World()
    world.write(0, b"a")
    reader = world.reader("g")
    reader.subscribe()
    assert world.run(20.0, lambda: bool(reader.messages))
    world.crash()
    world.write(0, b"b")
    assert world.run(30.0, lambda: len(reader.messages) == 2)
    assert (reader.values(), reader.errors) == ([b"a", b"b"], [])
