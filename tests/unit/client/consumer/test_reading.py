"""A consumer before the node itself: what it reads, commits, finds again, and leaves behind."""

from __future__ import annotations

import pytest

from harness.consumer_simulation import TOPIC, ConsumerSimulation
from harness.scripted_consumer import ScriptedConsumer
from headrace.client.assignors import ASSIGNORS
from headrace.client.cluster import TopicPartition
from headrace.client.consumer.offsets import OffsetAndTimestamp
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
    simulation = ConsumerSimulation()
    simulation.write(0, b"a", b"b")
    simulation.write(1, b"x")
    reader = simulation.reader()
    reader.session.assign(simulation.now, [T0, T1])
    simulation.run(1.0)
    simulation.write(0, b"c")
    simulation.run(1.0)
    assert (reader.values(0), reader.values(1)) == ([b"a", b"b", b"c"], [b"x"])
    assert (reader.session.position(T0), reader.session.position(T1)) == (3, 1)
    assert (reader.session.lag(T0), reader.session.lag(T1)) == (0, 0)
    metrics = reader.session.metrics()
    assert (metrics.records, metrics.buffered_bytes, metrics.lag) == (4, 0, {T0: 0, T1: 0})
    assert metrics.bytes > 0
    assert metrics.fetches >= 2


def test_a_message_says_all_that_is_known_of_its_record() -> None:
    simulation = ConsumerSimulation()
    simulation.write(0, b"v", timestamp_ms=1234)
    reader = simulation.reader()
    reader.session.assign(simulation.now, [T0])
    simulation.run(1.0)
    (message,) = reader.messages
    assert (message.topic, message.partition, message.offset) == (TOPIC, 0, 0)
    assert (message.timestamp_ms, message.key, message.value, message.headers) == (1234, None, b"v", ())
    assert message.leader_epoch == 0


def test_the_default_reset_begins_at_the_end() -> None:
    simulation = ConsumerSimulation()
    simulation.write(0, b"old")
    reader = simulation.reader(reset="latest")
    reader.session.assign(simulation.now, [T0])
    simulation.run(1.0)
    simulation.write(0, b"new")
    simulation.run(1.0)
    assert reader.values() == [b"new"]


def test_by_duration_begins_with_what_is_young_enough() -> None:
    simulation = ConsumerSimulation()
    now_ms = int(simulation.host.clock.wall_ms)
    simulation.write(0, b"old", timestamp_ms=now_ms - 120_000)
    simulation.write(0, b"young", timestamp_ms=now_ms - 30_000)
    simulation.write(1, b"old", timestamp_ms=now_ms - 120_000)
    reader = simulation.reader(reset="by_duration:PT1M")
    reader.session.assign(simulation.now, [T0, T1])
    simulation.run(1.0)
    assert reader.values() == [b"young"]
    assert reader.session.position(T1) == 1


def test_polls_are_as_large_as_wanted() -> None:
    simulation = ConsumerSimulation()
    for first in range(0, 50, 5):
        simulation.write(0, *(b"%d" % (first + step) for step in range(5)))
    reader = simulation.reader()
    reader.max_records = 7
    reader.session.assign(simulation.now, [T0])
    simulation.run(0.2, lambda: bool(reader.messages))
    assert len(reader.messages) == 7
    assert reader.session.position(T0) == 7
    simulation.run(2.0)
    assert reader.offsets(0) == list(range(50))


# Offsets


def test_offsets_of_partitions() -> None:
    simulation = ConsumerSimulation()
    simulation.write(0, b"a", timestamp_ms=1000)
    simulation.write(0, b"b", timestamp_ms=2000)
    session = simulation.reader().session
    assert simulation.finish(session.beginning_offsets(simulation.now, [T0, T1])) == {T0: 0, T1: 0}
    assert simulation.finish(session.end_offsets(simulation.now, [T0, T1])) == {T0: 2, T1: 0}
    found = simulation.finish(session.offsets_for_times(simulation.now, {T0: 1500, T1: 1500}))
    assert found == {T0: OffsetAndTimestamp(1, 2000, 0), T1: None}
    assert simulation.finish(session.end_offsets(simulation.now, [])) == {}


def test_the_same_partition_can_be_asked_for_twice_at_once() -> None:
    simulation = ConsumerSimulation()
    simulation.write(0, b"a")
    session = simulation.reader().session
    first = session.beginning_offsets(simulation.now, [T0])
    last = session.end_offsets(simulation.now, [T0])
    assert (simulation.finish(first), simulation.finish(last)) == ({T0: 0}, {T0: 1})


def test_offsets_of_a_partition_that_is_not_there_are_not_found_in_time() -> None:
    simulation = ConsumerSimulation()
    session = simulation.reader().session
    pending = session.end_offsets(simulation.now, [T0, TopicPartition(TOPIC, 9)], timeout_s=3.0)
    with pytest.raises(TimedOut):
        simulation.finish(pending)


def test_partitions_of_topics() -> None:
    simulation = ConsumerSimulation()
    session = simulation.reader(allow_auto_create_topics=False).session
    found = simulation.finish(session.partitions_for(simulation.now, TOPIC))
    assert [(each.index, each.leader) for each in found] == [(0, 1), (1, 1)]
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        simulation.finish(session.partitions_for(simulation.now, "nowhere"))


# Groups


@each_protocol
def test_a_group_reads_on_where_it_has_committed(protocol: GroupProtocol) -> None:
    simulation = ConsumerSimulation()
    simulation.write(0, b"a", b"b")
    simulation.write(1, b"x")
    first = simulation.reader("g", protocol=protocol)
    first.subscribe()
    assert simulation.run(20.0, lambda: len(first.messages) == 3)
    assert first.moves() == [Assigned(BOTH)]
    kept = simulation.finish(first.session.commit(simulation.now))
    assert kept == {T0: CommittedOffset(2, 0), T1: CommittedOffset(1, 0)}
    simulation.finish(first.session.close(simulation.now))
    assert first.moves() == [Assigned(BOTH), Revoked(BOTH)]
    simulation.readers.remove(first)
    simulation.write(0, b"c")
    second = simulation.reader("g", protocol=protocol, reset="none")
    second.subscribe()
    assert simulation.run(20.0, lambda: bool(second.messages))
    assert (second.values(), second.errors) == ([b"c"], [])
    found = simulation.finish(second.session.committed(simulation.now, [T0, T1]))
    assert found == kept


@each_protocol
def test_members_share_and_nothing_is_read_twice_or_left_out(protocol: GroupProtocol) -> None:
    simulation = ConsumerSimulation()
    readers = [simulation.reader("g", protocol=protocol) for _ in range(2)]
    for reader in readers:
        reader.subscribe()
    assert simulation.run(60.0, lambda: [len(reader.session.assignment) for reader in readers] == [1, 1])
    for number in range(10):
        simulation.write(number % 2, b"%d" % number)
    assert simulation.run(10.0, lambda: sum(len(reader.messages) for reader in readers) >= 10)
    simulation.run(2.0)
    assert sorted(value for reader in readers for value in reader.values()) == [b"%d" % n for n in range(10)]


def test_what_was_read_is_committed_on_its_own_before_it_goes_to_others() -> None:
    simulation = ConsumerSimulation()
    simulation.write(0, b"a", b"b")
    simulation.write(1, b"x")
    first = simulation.reader("g", auto_commit_interval_s=1000.0)
    first.subscribe()
    assert simulation.run(20.0, lambda: len(first.messages) == 3)
    second = simulation.reader("g", auto_commit_interval_s=1000.0)
    second.subscribe()
    assert simulation.run(60.0, lambda: len(second.session.assignment) == 1)
    simulation.run(5.0)
    assert second.messages == [], "what the first has read is not read again"
    assert len(first.messages) == 3


def test_what_was_only_handed_out_does_not_count_as_read() -> None:
    """A process that dies while it works on its records gets them again after its restart."""
    simulation = ConsumerSimulation()
    simulation.write(0, b"a", b"b", b"c")
    reader = simulation.reader("g", auto_commit_interval_s=0.5)
    reader.max_records = 2
    reader.subscribe()
    assert simulation.run(20.0, lambda: len(reader.messages) == 2)
    reader.polls = False
    for _ in range(40):
        simulation.run(0.1)
    other = simulation.reader("g")
    assert simulation.finish(other.session.committed(simulation.now, [T0])) == {T0: None}
    reader.polls = True
    simulation.run(2.0)
    assert simulation.finish(other.session.committed(simulation.now, [T0])) == {T0: CommittedOffset(3, 0)}


def test_what_was_handed_out_by_the_last_poll_is_not_committed_when_it_is_revoked() -> None:
    """An application that is still at it when it hears of the rebalance has not read it to its end."""
    simulation = ConsumerSimulation()
    simulation.write(0, b"a", b"b")
    reader = simulation.reader("g", auto_commit_interval_s=1000.0)
    reader.subscribe()
    assert simulation.run(20.0, lambda: len(reader.messages) == 2)
    reader.polls = False
    simulation.reader("g").subscribe()
    assert simulation.run(20.0, lambda: reader.session.has_news)
    assert reader.session.take_events() == [Revoked(BOTH)]
    reader.session.acknowledge(simulation.now)
    assert simulation.run(20.0, lambda: reader.session.has_news)
    lookup = simulation.reader("g").session.committed(simulation.now, [T0])
    assert simulation.finish(lookup) == {T0: None}


def test_closing_commits_what_was_read() -> None:
    simulation = ConsumerSimulation()
    simulation.write(0, b"a", b"b")
    reader = simulation.reader("g", auto_commit_interval_s=1000.0)
    reader.session.assign(simulation.now, [T0])
    simulation.run(5.0)
    assert len(reader.messages) == 2
    simulation.finish(reader.session.close(simulation.now))
    other = simulation.reader("g")
    assert simulation.finish(other.session.committed(simulation.now, [T0])) == {T0: CommittedOffset(2, 0)}


def test_assigned_partitions_begin_where_their_group_has_committed() -> None:
    simulation = ConsumerSimulation()
    simulation.write(0, b"a", b"b")
    reader = simulation.reader("g")
    reader.session.assign(simulation.now, [T0])
    simulation.finish(reader.session.commit(simulation.now, {T0: 1}))
    other = simulation.reader("g", reset="none")
    other.session.assign(simulation.now, [T0, T1])
    simulation.run(2.0)
    assert other.values() == [b"b"]
    assert [type(error).__name__ for error in other.errors][:1] == ["NoOffset"], "partition 1 has none"


def test_a_seek_goes_before_what_is_still_asked_for() -> None:
    simulation = ConsumerSimulation()
    simulation.write(0, b"a", b"b", b"c")
    reader = simulation.reader("g")
    reader.session.assign(simulation.now, [T0])
    simulation.finish(reader.session.commit(simulation.now, {T0: 1}))
    other = simulation.reader("g")
    other.session.assign(simulation.now, [T0])
    other.network.pump()
    other.session.seek(simulation.now, T0, 2)
    simulation.run(2.0)
    assert other.values() == [b"c"]


def test_a_seek_of_the_listener_goes_before_what_was_committed() -> None:
    simulation = ConsumerSimulation()
    simulation.write(0, b"a", b"b", b"c")
    first = simulation.reader("g")
    first.session.assign(simulation.now, [T0])
    simulation.finish(first.session.commit(simulation.now, {T0: 1}))
    simulation.readers.remove(first)
    reader = simulation.reader("g")
    reader.on_assigned = lambda event: reader.session.seek(simulation.now, T0, 2)
    reader.subscribe()
    assert simulation.run(20.0, lambda: bool(reader.messages))
    assert reader.values() == [b"c"]


def test_nothing_is_handed_out_of_partitions_that_the_application_has_not_heard_of() -> None:
    simulation = ConsumerSimulation()
    simulation.write(0, b"a")
    reader = simulation.reader("g")
    reader.polls = False
    reader.subscribe()
    simulation.run(20.0, lambda: reader.session.metrics().buffered_bytes > 0)
    assert reader.session.metrics().buffered_bytes > 0
    assert reader.session.take_records(simulation.now, 10) == []
    assert reader.session.take_events() == [
        Assigned(BOTH),
        PositionReset(T0, None, 0),
        PositionReset(T1, None, 0),
    ]
    assert [each.value for each in reader.session.take_records(simulation.now, 10)] == [b"a"]


def test_a_consumer_that_was_too_slow_has_lost_all_and_joins_again() -> None:
    simulation = ConsumerSimulation()
    simulation.write(0, b"a")
    reader = simulation.reader("g", max_poll_interval_s=10.0)
    reader.subscribe()
    assert simulation.run(20.0, lambda: bool(reader.messages))
    name = reader.session.group_metadata()
    assert name.group_id == "g"
    assert name.generation > 0
    reader.polls = False
    simulation.run(12.0)
    assert reader.session.assignment == frozenset()
    assert reader.session.group_metadata() == name, "it does not know yet, and is to be refused"
    reader.polls = True
    assert simulation.run(20.0, lambda: len(reader.moves()) == 3)
    assert reader.moves() == [Assigned(BOTH), Lost(BOTH), Assigned(BOTH)]
    assert reader.session.group_metadata() != name


def test_what_the_application_was_not_told_of_is_not_acknowledged() -> None:
    """A listener that unsubscribes hears more than it is about to acknowledge."""
    simulation = ConsumerSimulation(partitions=4)
    reader = simulation.reader("g", assignors=(ASSIGNORS["cooperative-sticky"],))
    reader.subscribe()
    assert simulation.run(20.0, lambda: len(reader.session.assignment) == 4)
    reader.polls = False
    simulation.reader("g", assignors=(ASSIGNORS["cooperative-sticky"],)).subscribe()
    assert simulation.run(20.0, lambda: reader.session.has_news)
    (revoked,) = (each for each in reader.session.take_events() if isinstance(each, Revoked))
    assert len(revoked.partitions) == 2
    pending = reader.session.unsubscribe(simulation.now)
    reader.session.acknowledge(simulation.now)
    simulation.run(1.0)
    assert len(reader.session.assignment) == 4, "two of them have a listener that does not know yet"
    reader.polls = True
    simulation.finish(pending)
    assert reader.session.assignment == frozenset()


def test_a_group_that_may_not_be_read_is_raised_once_and_not_for_each_partition() -> None:
    consumer = ScriptedConsumer(group=GroupSettings("g"))
    consumer.session.assign(consumer.now, [T0, T1])
    for _ in range(2):
        _, outgoing = consumer.next(FindCoordinatorRequest)
        told = Coordinator(key="g", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        consumer.answer(outgoing, FindCoordinatorResponse(coordinators=[told]))
        with pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED"):
            consumer.take()
        assert consumer.take() == []


def test_who_has_no_group_any_more_hears_of_it_until_he_subscribes_anew() -> None:
    consumer = ScriptedConsumer(group=GroupSettings("g"))
    consumer.session.subscribe(consumer.now, Subscription(frozenset({"a"})))
    _, outgoing = consumer.next(FindCoordinatorRequest)
    told = Coordinator(key="g", error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    consumer.answer(outgoing, FindCoordinatorResponse(coordinators=[told]))
    for _ in range(3):
        assert consumer.session.has_news
        with pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED"):
            consumer.take()
    consumer.session.subscribe(consumer.now, Subscription(frozenset({"a"})))
    assert consumer.take() == []


def test_unsubscribing_gives_everything_back() -> None:
    simulation = ConsumerSimulation()
    reader = simulation.reader("g")
    reader.subscribe()
    assert simulation.run(20.0, lambda: bool(reader.session.assignment))
    simulation.finish(reader.session.unsubscribe(simulation.now))
    assert reader.session.assignment == frozenset()
    assert reader.moves() == [Assigned(BOTH), Revoked(BOTH)]
    reader.session.assign(simulation.now, [T0])
    assert reader.session.assignment == {T0}
    simulation.finish(reader.session.unsubscribe(simulation.now))
    assert reader.session.assignment == frozenset()


def test_subscriptions_and_assignments_do_not_mix() -> None:
    simulation = ConsumerSimulation()
    reader = simulation.reader("g")
    reader.session.assign(simulation.now, [T0])
    with pytest.raises(InvalidInput, match=r"call unsubscribe\(\) before"):
        reader.subscribe()
    simulation.finish(reader.session.unsubscribe(simulation.now))
    reader.subscribe()
    with pytest.raises(InvalidInput, match=r"call unsubscribe\(\) before"):
        reader.session.assign(simulation.now, [T0])
    alone = simulation.reader()
    with pytest.raises(InvalidInput, match=r"group\.id"):
        alone.session.subscribe(simulation.now, Subscription(frozenset({TOPIC})))
    with pytest.raises(InvalidInput, match=r"group\.id"):
        alone.session.commit(simulation.now)


def test_closing_without_a_broker_ends_in_time() -> None:
    simulation = ConsumerSimulation()
    reader = simulation.reader("g")
    reader.subscribe()
    assert simulation.run(20.0, lambda: bool(reader.session.assignment))
    pending = reader.session.close(simulation.now, timeout_s=2.0)
    for _ in range(30):
        reader.network.pump()
        reader.poll()
        simulation.host.advance(0.1)
    assert isinstance(pending.error, TimedOut)


# The simulation changes


def test_a_topic_that_is_deleted_and_made_anew_is_read_from_its_beginning() -> None:
    simulation = ConsumerSimulation()
    simulation.write(0, b"old 1", b"old 2")
    reader = simulation.reader(reset="latest")
    reader.session.assign(simulation.now, {T0: 0})
    simulation.run(1.0)
    simulation.delete_topic()
    simulation.host.create_topic(TOPIC, 2)
    simulation.write(0, b"new 1", b"new 2", b"new 3")
    simulation.run(20.0)
    assert reader.values() == [b"old 1", b"old 2", b"new 1", b"new 2", b"new 3"]
    assert [event for event in reader.events if isinstance(event, PositionReset)] == [PositionReset(T0, 2, 0)]


def test_a_crash_of_the_broker_is_not_noticed() -> None:
    simulation = ConsumerSimulation()
    simulation.write(0, b"a")
    reader = simulation.reader("g")
    reader.subscribe()
    assert simulation.run(20.0, lambda: bool(reader.messages))
    simulation.crash()
    simulation.write(0, b"b")
    assert simulation.run(30.0, lambda: len(reader.messages) == 2)
    assert (reader.values(), reader.errors) == ([b"a", b"b"], [])
