"""Coordinators whose partition takes no records for a while, because too few replicas are in sync.

As in Kafka they refuse what they would have to write, and nothing else. What was refused leaves no trace, and
what time demands is done as soon as it can be written.
"""

from __future__ import annotations

import errno
from typing import Any

import pytest

from harness.node_groups import SETTINGS, commit, committed, find, join, member_of
from harness.node_transactions import Producer, latest
from harness.two_brokers import lead, register
from headrace.node.connection import Connection
from headrace.node.effects import Report
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest
from headrace.protocol.messages.describe_groups import DescribeGroupsRequest
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.join_sink import JoinSinkRequest
from headrace.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.protocol.messages.list_groups import ListGroupsRequest
from headrace.protocol.messages.list_sinks import ListSinksRequest
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.simulator.manual_host import ManualHost
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk

OFFSETS, TRANSACTIONS, SINKS = "__consumer_offsets", "__transaction_state", "__sink_sessions"
REFUSED = ErrorCode.COORDINATOR_NOT_AVAILABLE
SESSION = 10.0  # of the members, in seconds
READ_COMMITTED = 1


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk(MemoryDisk())


@pytest.fixture
def host(disk: FaultyDisk) -> ManualHost:
    """Of two replicas of the internal topics one is in sync. At first that is enough."""
    host = ManualHost(
        {
            **SETTINGS,
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
            "group.consumer.assignment.interval.ms": "0",
            "transaction.state.log.min.isr": "1",
            "log.dirs": "data",
            "metadata.log.dir": "meta",
        },
        disks={"meta": MemoryDisk(), "data": disk},
    )
    host.create_topic("t")
    for kind in (0, 1, 100):
        find(host, "g", kind)
    register(host, 2)
    for topic in (OFFSETS, TRANSACTIONS, SINKS):
        for partition in host.partitions(topic):
            lead(host, topic, partition.index, 1, isr=(1,))
    host.advance(5)
    assert commit(host, "g", "t", 7) == 0
    return host


def demand(host: ManualHost, topic: str, replicas: int) -> None:
    for partition in host.partitions(topic):
        partition.configure(host.clock.now(), partition.config, replicas)


def refuse_records(host: ManualHost, topic: str) -> None:
    demand(host, topic, 2)


def take_records(host: ManualHost, topic: str) -> None:
    demand(host, topic, 1)


def beat(host: ManualHost, group: str, member: str, generation: int) -> int:
    code: int = host.ask(
        HeartbeatRequest(group_id=group, generation_id=generation, member_id=member), 4
    ).error_code
    return code


def described(host: ManualHost, group: str) -> tuple[str, list[str]]:
    """Its state and members."""
    (found,) = host.ask(DescribeGroupsRequest(groups=[group]), 5).groups
    assert found.error_code == 0
    return found.group_state, [member.member_id for member in found.members]


def listed(host: ManualHost) -> list[str]:
    answer = host.ask(ListGroupsRequest(), 4)
    assert answer.error_code == 0
    return [group.group_id for group in answer.groups]


def end_of_log(host: ManualHost, topic: str) -> int:
    (partition,) = host.partitions(topic)
    return partition.opened(host.clock.now()).log_end_offset


class TestGroups:
    def test_questions_and_heartbeats_go_on(self, host: ManualHost) -> None:
        member, generation = member_of(host, "h")
        refuse_records(host, OFFSETS)
        end = end_of_log(host, OFFSETS)
        for _ in range(3):
            assert commit(host, "h", "t", 9, member=member, generation=generation) == REFUSED
            assert beat(host, "h", member, generation) == 0
            assert committed(host, "g", "t").committed_offset == 7
            assert committed(host, "h", "t").committed_offset == -1
            assert described(host, "h") == ("Stable", [member])
            assert listed(host) == ["g", "h"]
            host.advance(SESSION - 1)
        assert end_of_log(host, OFFSETS) == end
        take_records(host, OFFSETS)
        assert commit(host, "h", "t", 9, member=member, generation=generation) == 0
        assert committed(host, "h", "t").committed_offset == 9

    def test_whoever_commits_is_alive_though_it_is_refused(self, host: ManualHost) -> None:
        member, generation = member_of(host, "h")
        refuse_records(host, OFFSETS)
        for _ in range(5):
            host.advance(SESSION / 2)
            assert commit(host, "h", "t", 9, member=member, generation=generation) == REFUSED
        take_records(host, OFFSETS)
        host.advance(2)
        assert beat(host, "h", member, generation) == 0

    def test_a_group_that_could_not_be_written_is_not_there(self, host: ManualHost) -> None:
        refuse_records(host, OFFSETS)
        for _ in range(3):
            assert join(host, "new").error_code == REFUSED
        assert listed(host) == ["g"]
        take_records(host, OFFSETS)
        member, generation = member_of(host, "new")
        assert beat(host, "new", member, generation) == 0

    def test_an_assignment_that_is_refused_is_sent_again(self, host: ManualHost) -> None:
        """The others wait meanwhile: nobody sends them away from a rebalance that is almost over."""
        joins = {name: self.join(host, name) for name in ("one", "two")}
        host.advance(0)
        answers = {name: host.receive(connection) for name, connection in joins.items()}
        assert {answer.error_code for answer in answers.values()} == {0}
        leader = next(name for name, answer in answers.items() if answer.members)
        follower = "two" if leader == "one" else "one"
        waiting = self.sync(host, answers[follower], {})
        refuse_records(host, OFFSETS)
        shares = {answers[name].member_id: name.encode() for name in answers}
        for _ in range(2):
            refused = host.receive(self.sync(host, answers[leader], shares))
            assert refused.error_code == REFUSED
        assert described(host, "new")[0] == "CompletingRebalance"
        assert host.receive(waiting) is None
        take_records(host, OFFSETS)
        assert host.receive(self.sync(host, answers[leader], shares)).assignment == leader.encode()
        assert host.receive(waiting).assignment == follower.encode()
        assert described(host, "new")[0] == "Stable"

    @staticmethod
    def join(host: ManualHost, instance: str) -> Connection:
        connection = host.connect()
        request = JoinGroupRequest(
            group_id="new",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            group_instance_id=instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        host.send(connection, request, 9)
        return connection

    @staticmethod
    def sync(host: ManualHost, joined: Any, shares: dict[str, bytes]) -> Connection:
        connection = host.connect()
        request = SyncGroupRequest(
            group_id="new",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=share)
                for member, share in shares.items()
            ],
        )
        host.send(connection, request, 5)
        return connection

    def test_the_last_member_cannot_leave_and_stays(self, host: ManualHost) -> None:
        member, generation = member_of(host, "h")
        refuse_records(host, OFFSETS)
        leaving = LeaveGroupRequest(group_id="h", members=[MemberIdentity(member_id=member)])
        answer = host.ask(leaving, 5)
        assert REFUSED in (answer.error_code, *(one.error_code for one in answer.members))
        assert beat(host, "h", member, generation) == 0
        take_records(host, OFFSETS)
        assert host.ask(leaving, 5).error_code == 0
        assert described(host, "h") == ("Empty", [])

    def test_a_member_that_is_silent_goes_when_that_can_be_written(self, host: ManualHost) -> None:
        member, _ = member_of(host, "h")
        refuse_records(host, OFFSETS)
        host.advance(300)
        assert described(host, "h") == ("Stable", [member])
        (shard,) = host.node.broker.groups.loaded_shards()
        assert len(shard.machine.timers._heap) < 10
        assert len(host.node.deadlines._heap) < 50
        take_records(host, OFFSETS)
        host.advance(2)
        assert described(host, "h") == ("Empty", [])

    def test_others_are_looked_after_meanwhile(self, host: ManualHost) -> None:
        """A member that cannot go holds nobody up: here a rebalance waits for the one that went."""
        silent, _ = member_of(host, "h")
        first, generation = member_of(host, "i")
        refuse_records(host, OFFSETS)
        second = join(host, "i").member_id
        connection = host.connect()
        host.send(connection, self.join_request("i", second), 9)
        for _ in range(4):
            host.advance(SESSION - 1)
        assert described(host, "h") == ("Stable", [silent])
        assert described(host, "i")[1] == [second]
        assert host.receive(connection).error_code == 0
        assert beat(host, "i", first, generation) == ErrorCode.UNKNOWN_MEMBER_ID

    @staticmethod
    def join_request(group: str, member: str) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=group,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=10_000,
            member_id=member,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"wants")],
        )

    def test_members_of_the_new_protocol_too(self, host: ManualHost) -> None:
        joins = ConsumerGroupHeartbeatRequest(
            group_id="new",
            member_id="member-1",
            member_epoch=0,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=["t", "u"],
            topic_partitions=[],
        )
        joined = host.ask(joins, 1)
        assert joined.error_code == 0
        refuse_records(host, OFFSETS)
        goes_on = ConsumerGroupHeartbeatRequest(
            group_id="new",
            member_id="member-1",
            member_epoch=joined.member_epoch,
            rebalance_timeout_ms=-1,
            subscribed_topic_names=None,
            topic_partitions=None,
        )
        assert host.ask(goes_on, 1).error_code == 0
        host.create_topic("u")  # there is something to be assigned
        for _ in range(10):
            assert host.ask(goes_on, 1).error_code == REFUSED
            host.advance(20)
        take_records(host, OFFSETS)
        host.advance(2)
        answer = host.ask(goes_on, 1)
        assert answer.error_code == 0, "it was never silent, so it is still a member"
        assert len(answer.assignment.topic_partitions) == 2

    def test_who_has_given_its_partitions_up_is_not_removed_for_it(self, host: ManualHost) -> None:
        """It says so again and again, and nobody could write it down in the time that it had for that."""
        host.create_topic("v", 2)

        def beat(member: str, epoch: int, owned: list[int] | None = None) -> Any:
            is_joining = epoch == 0
            topic_id = host.node.broker.metadata.image.topics["v"].id
            held = [] if not owned else [TopicPartitions(topic_id=topic_id, partitions=owned)]
            request = ConsumerGroupHeartbeatRequest(
                group_id="new",
                member_id=member,
                member_epoch=epoch,
                rebalance_timeout_ms=10_000 if is_joining else -1,
                subscribed_topic_names=["v"] if is_joining else None,
                topic_partitions=None if owned is None else held,
            )
            return host.ask(request, 1)

        first = beat("member-1", 0, [])
        assert first.error_code == 0
        assert beat("member-2", 0, []).error_code == 0
        told = beat("member-1", first.member_epoch, [0, 1])
        (kept,) = told.assignment.topic_partitions
        refuse_records(host, OFFSETS)
        for _ in range(10):
            assert beat("member-1", told.member_epoch, kept.partitions).error_code == REFUSED
            host.advance(5)
        take_records(host, OFFSETS)
        host.advance(2)
        answer = beat("member-1", told.member_epoch, kept.partitions)
        assert (answer.error_code, answer.error_message) == (0, None)
        assert answer.member_epoch > told.member_epoch

    def test_an_admin_deletes_a_group_later(self, host: ManualHost) -> None:
        refuse_records(host, OFFSETS)
        for code in (REFUSED, REFUSED):
            (result,) = host.ask(DeleteGroupsRequest(groups_names=["g"]), 2).results
            assert result.error_code == code
        assert committed(host, "g", "t").committed_offset == 7
        take_records(host, OFFSETS)
        (result,) = host.ask(DeleteGroupsRequest(groups_names=["g"]), 2).results
        assert (result.error_code, listed(host)) == (0, [])

    def test_offsets_of_a_deleted_topic_are_forgotten_later(self, host: ManualHost) -> None:
        refuse_records(host, OFFSETS)
        request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1_000)
        assert host.ask(request, 5).responses[0].error_code == 0
        end = end_of_log(host, OFFSETS)
        host.advance(30)
        assert end_of_log(host, OFFSETS) == end
        take_records(host, OFFSETS)
        host.advance(2)
        (shard,) = host.node.broker.groups.loaded_shards()
        assert shard.machine.offsets.of_group("g") == {}
        assert end_of_log(host, OFFSETS) == end + 1

    def test_offsets_expire_later(self, host: ManualHost) -> None:
        (shard,) = host.node.broker.groups.loaded_shards()
        shard.machine.settings.offsets_retention_minutes = 1
        refuse_records(host, OFFSETS)
        host.advance(1_800)
        assert committed(host, "g", "t").committed_offset == 7
        take_records(host, OFFSETS)
        host.advance(600)
        assert committed(host, "g", "t").committed_offset == -1
        assert listed(host) == []

    def test_a_coordinator_is_loaded_all_the_same(self, host: ManualHost) -> None:
        after = ManualHost(host.texts, disks=host.disks, clock=host.clock)
        refuse_records(after, OFFSETS)
        after.advance(1)
        assert committed(after, "g", "t").committed_offset == 7
        assert commit(after, "g", "t", 8) == REFUSED
        take_records(after, OFFSETS)
        assert commit(after, "g", "t", 9) == 0

    def test_the_operator_is_told_once_in_a_while(self, host: ManualHost) -> None:
        refuse_records(host, OFFSETS)
        host.effects.clear()
        for _ in range(100):
            assert commit(host, "g", "t", 8) == REFUSED
        assert len(self.warnings(host)) == 1
        host.advance(60)
        assert commit(host, "g", "t", 8) == REFUSED
        assert len(self.warnings(host)) == 2

    @staticmethod
    def warnings(host: ManualHost) -> list[Report]:
        reports = [effect for effect in host.effects if isinstance(effect, Report)]
        return [report for report in reports if report.event == "coordinator_lacks_replicas"]


class TestTransactions:
    def test_they_stay_as_they_are(self, host: ManualHost) -> None:
        producer, other = Producer(host), Producer(host, "other")
        assert producer.add("t") == 0
        assert producer.write("t", version=9) == 0
        refuse_records(host, TRANSACTIONS)
        for _ in range(3):
            assert other.add("t") == REFUSED
            assert producer.add("t") == 0, "it is there already: nothing is written"
            assert producer.end(commit=True, version=3).error_code == REFUSED
            begin = InitProducerIdRequest(transactional_id="third", transaction_timeout_ms=1_000)
            assert host.ask(begin, 5).error_code == REFUSED
            again = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
            assert host.ask(again, 5).error_code == REFUSED
            assert (producer.state(), other.state()) == ("Ongoing", "Empty")
            host.advance(10)
        take_records(host, TRANSACTIONS)
        assert producer.end(commit=True, version=3).error_code == 0
        assert producer.state() == "CompleteCommit"
        assert latest(host, "t", READ_COMMITTED) == 2
        assert other.add("t") == 0

    def test_an_epoch_that_was_not_granted_is_asked_for_again(self, host: ManualHost) -> None:
        producer = Producer(host)
        request = InitProducerIdRequest(
            transactional_id="tx",
            transaction_timeout_ms=60_000,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
        )
        refuse_records(host, TRANSACTIONS)
        assert host.ask(request, 5).error_code == REFUSED
        take_records(host, TRANSACTIONS)
        granted = host.ask(request, 5)
        assert (granted.error_code, granted.producer_epoch) == (0, producer.epoch + 1)
        again = host.ask(request, 5)
        assert (again.error_code, again.producer_epoch) == (0, producer.epoch + 1)

    def test_refused_producers_use_no_ids_up(self, host: ManualHost) -> None:
        """Each block of ids is a record of the metadata, and they come back many times a second."""
        first = Producer(host)
        refuse_records(host, TRANSACTIONS)
        for name in ("tx", "tx 2", "tx 3"):
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
            assert host.ask(request, 5).error_code == REFUSED
        take_records(host, TRANSACTIONS)
        request = InitProducerIdRequest(transactional_id="tx 4", transaction_timeout_ms=60_000)
        assert host.ask(request, 5).producer_id == first.id + 1

    def test_a_timeout_aborts_as_soon_as_that_can_be_written(self, host: ManualHost) -> None:
        producer = Producer(host, timeout_ms=1_000)
        assert producer.add("t") == 0
        assert producer.write("t", version=9) == 0
        refuse_records(host, TRANSACTIONS)
        host.advance(300)
        assert producer.state() == "Ongoing"
        (shard,) = host.node.broker.transactions.loaded_shards()
        assert len(shard.machine._timeouts) < 10
        take_records(host, TRANSACTIONS)
        host.advance(2)
        assert producer.state() == "CompleteAbort"
        assert latest(host, "t", READ_COMMITTED) == 2

    def test_an_end_is_completed_as_soon_as_that_can_be_written(
        self, host: ManualHost, disk: FaultyDisk
    ) -> None:
        producer = Producer(host)
        assert producer.write("t", version=13) == 0
        disk.faults.append(Fault(Fail(errno.ENOSPC), "append", "t-0"))
        assert producer.end(commit=True, version=5).error_code == 0
        refuse_records(host, TRANSACTIONS)
        host.advance(30)
        assert latest(host, "t", READ_COMMITTED) == 2, "the marker is in another topic"
        assert producer.state() == "PrepareCommit"
        take_records(host, TRANSACTIONS)
        host.advance(2)
        assert producer.state() == "CompleteCommit"
        assert producer.write("t", version=13) == 0


class TestSinks:
    def test_they_stay_as_they_are(self, host: ManualHost) -> None:
        request = JoinSinkRequest(
            app_id="app", query_id="q", run_id="r", batch_id=0, task=0, attempt=0, timeout_ms=1_000
        )
        refuse_records(host, SINKS)
        for _ in range(3):
            assert host.ask(request, 0).error_code == REFUSED
            host.advance(2)
        assert host.ask(ListSinksRequest(), 0).sinks == []
        take_records(host, SINKS)
        assert host.ask(request, 0).error_code == 0
        refuse_records(host, SINKS)
        host.advance(100)
        (sink,) = host.ask(ListSinksRequest(), 0).sinks
        assert sink.open_attempts == 1
        take_records(host, SINKS)
        host.advance(2)
        (sink,) = host.ask(ListSinksRequest(), 0).sinks
        assert sink.open_attempts == 0

    def test_a_batch_whose_tasks_keep_asking_stays_open(self, host: ManualHost) -> None:
        def join(task: int) -> int:
            request = JoinSinkRequest(
                app_id="app", query_id="q", run_id="r", batch_id=0, task=task, attempt=0, timeout_ms=10_000
            )
            code: int = host.ask(request, 0).error_code
            return code

        assert join(0) == 0
        refuse_records(host, SINKS)
        for _ in range(5):
            host.advance(5)
            assert join(1) == REFUSED
        take_records(host, SINKS)
        host.advance(2)
        (sink,) = host.ask(ListSinksRequest(), 0).sinks
        assert sink.open_attempts == 1
        assert join(1) == 0
