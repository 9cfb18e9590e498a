"""Three brokers replicate a partition: what followers get, when it is committed, what a new leader does."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from harness.replica_brokers import TOPIC_ID, ReplicaBrokers
from harness.rules import Rules
from headrace.machines.security.acl_rules import Operation, ResourceType
from headrace.node.connection import Connection
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from headrace.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.protocol.metadata_records import ConfigRecord
from headrace.simulator.manual_host import ManualHost
from headrace.storage.memory_disk import MemoryDisk


@pytest.fixture
def brokers() -> ReplicaBrokers:
    brokers = ReplicaBrokers()
    brokers.create_topic(min_insync_replicas="2")
    brokers.exchange()
    return brokers


def code_of(asked: tuple[ManualHost, Connection]) -> int | None:
    """The error code of a produce; None: no answer yet."""
    host, connection = asked
    response = host.receive(connection)
    if response is None:
        return None
    code: int = response.responses[0].partition_responses[0].error_code
    return code


def ends(brokers: ReplicaBrokers) -> list[int]:
    return [brokers.partition(id).opened(brokers.clock.now()).log_end_offset for id in brokers.hosts]


def high_watermarks(brokers: ReplicaBrokers) -> list[int]:
    return [brokers.partition(id).high_watermark for id in brokers.hosts]


def test_a_write_is_acknowledged_when_all_in_sync_replicas_have_it(brokers: ReplicaBrokers) -> None:
    asked = brokers.produce(1, b"a", b"b")
    assert code_of(asked) is None
    brokers.exchange()
    assert code_of(asked) == ErrorCode.NONE
    assert [brokers.values(id) for id in brokers.ids] == [[b"a", b"b"]] * 3
    assert brokers.content(1) == brokers.content(2) == brokers.content(3)


def test_with_acks_1_it_is_acknowledged_before(brokers: ReplicaBrokers) -> None:
    assert code_of(brokers.produce(1, b"a", acks=1)) == ErrorCode.NONE
    assert ends(brokers) == [1, 0, 0]


def test_followers_learn_the_high_watermark_within_a_fetch(brokers: ReplicaBrokers) -> None:
    brokers.produce(1, b"a")
    brokers.exchange()
    assert high_watermarks(brokers) == [1, 0, 0]
    brokers.advance(0.6)
    assert high_watermarks(brokers) == [1, 1, 1]


def test_a_follower_refuses_clients(brokers: ReplicaBrokers) -> None:
    assert code_of(brokers.produce(2, b"a")) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_partition_that_others_have_is_not_led_here() -> None:
    brokers = ReplicaBrokers(2)
    brokers.ids = (1,)
    brokers.hosts, both = {1: brokers.hosts[1]}, brokers.hosts
    brokers.create_topic(leader=1)
    brokers.ids, brokers.hosts = (1, 2), both
    from headrace.protocol.metadata_records import PartitionRecord, TopicRecord

    brokers.tell(
        TopicRecord(name="t", topic_id=TOPIC_ID),
        PartitionRecord(
            partition_id=0,
            topic_id=TOPIC_ID,
            replicas=[1],
            isr=[1],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=[bytes(16)],
        ),
        to=[2],
    )
    assert code_of(brokers.produce(2, b"a")) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code_of(brokers.produce(2, b"a", index=1)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert brokers.hosts[2].node.broker.partitions.all() == []


class TestInSyncReplicas:
    def test_a_follower_that_is_cut_off_leaves_and_comes_back(self, brokers: ReplicaBrokers) -> None:
        brokers.separate(1, 3)
        asked = brokers.produce(1, b"a")
        brokers.exchange()
        assert code_of(asked) is None
        brokers.advance(2.0)
        assert brokers.control() == [ErrorCode.NONE]
        assert brokers.state().isr == (1, 2)
        assert code_of(asked) == ErrorCode.NONE
        brokers.heal()
        brokers.advance(2.0)
        assert brokers.control() == [ErrorCode.NONE]
        assert set(brokers.state().isr) == {1, 2, 3}
        assert ends(brokers) == [1, 1, 1]

    def test_with_too_few_of_them_nothing_is_accepted_nor_committed(self, brokers: ReplicaBrokers) -> None:
        brokers.separate(1, 2)
        brokers.separate(1, 3)
        waits = brokers.produce(1, b"a")
        brokers.advance(2.0)
        brokers.control()
        assert brokers.state().isr == (1,)
        assert code_of(brokers.produce(1, b"b")) == ErrorCode.NOT_ENOUGH_REPLICAS
        assert high_watermarks(brokers)[0] == 0
        brokers.advance(10.0)
        assert code_of(waits) == ErrorCode.REQUEST_TIMED_OUT

    def test_a_proposal_that_is_rejected_is_withdrawn(self, brokers: ReplicaBrokers) -> None:
        brokers.separate(1, 3)
        brokers.produce(1, b"a")
        brokers.advance(2.0)
        brokers.control()
        brokers.heal()
        brokers.advance(1.0)
        # broker 3 was proposed, and is not what the leader takes it for
        (question,) = brokers.channels[1].questions
        question[0].topics[0].partitions[0].new_isr_with_epochs[-1].broker_epoch += 7
        assert brokers.control()[0] == ErrorCode.INELIGIBLE_REPLICA
        leader = brokers.partition(1).leader
        assert leader is not None
        brokers.control()
        assert leader.maximal_isr == {1, 2}


class TestANewLeader:
    def test_what_followers_have_is_kept_and_their_own_records_are_cut_off(
        self, brokers: ReplicaBrokers
    ) -> None:
        brokers.produce(1, b"a")
        brokers.exchange()
        for id in (2, 3):
            brokers.separate(1, id)
        lost = brokers.produce(1, b"lost", b"too")
        brokers.lead(2, (2, 3))
        assert code_of(lost) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        kept = brokers.produce(2, b"b")
        brokers.exchange()
        assert code_of(kept) == ErrorCode.NONE
        brokers.heal()
        brokers.advance(3.0)
        brokers.control()
        assert [brokers.values(id) for id in brokers.ids] == [[b"a", b"b"]] * 3
        assert brokers.content(1) == brokers.content(2)
        assert set(brokers.state().isr) == {1, 2, 3}

    def test_it_tells_no_latest_offset_before_it_knows_what_is_committed(
        self, brokers: ReplicaBrokers
    ) -> None:
        brokers.produce(1, b"a")
        brokers.exchange()
        assert brokers.partition(2).high_watermark == 0  # it has the record, and does not know that it counts
        brokers.separate(2, 3)
        brokers.lead(2, (2, 3))
        assert latest(brokers, 2) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
        assert latest(brokers, 2, version=5) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
        assert latest(brokers, 2, version=4) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert latest(brokers, 2, timestamp=-2) == (ErrorCode.NONE, 0)
        host = brokers.hosts[2]
        reader = host.connect()
        host.send(reader, consumer_fetch(0), 12)
        assert host.receive(reader) is None
        brokers.heal()
        brokers.advance(1.0)
        assert latest(brokers, 2) == (ErrorCode.NONE, 1)
        assert bytes(host.receive(reader).responses[0].partitions[0].records)

    def test_an_old_leader_is_fenced_by_its_epoch(self, brokers: ReplicaBrokers) -> None:
        """Broker 1 hears late that it does not lead any more: nothing that it appends is committed."""
        brokers.lead(2, (1, 2, 3), to=[2, 3])
        zombie = brokers.produce(1, b"z")
        brokers.advance(1.0)
        assert code_of(zombie) is None
        assert brokers.partition(1).high_watermark == 0
        brokers.lead(2, (1, 2, 3), to=[1])
        assert code_of(zombie) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        brokers.produce(2, b"a")
        brokers.advance(1.0)
        assert [brokers.values(id) for id in brokers.ids] == [[b"a"]] * 3

    def test_a_restarted_broker_follows_from_where_it_was(self, brokers: ReplicaBrokers) -> None:
        brokers.produce(1, b"a")
        brokers.advance(6.0)
        brokers.kill(3)
        brokers.produce(1, b"b")
        brokers.advance(2.0)
        brokers.control()
        brokers.restart(3)
        assert brokers.partition(3).high_watermark == 1  # from the checkpoint
        brokers.advance(2.0)
        brokers.control()
        assert [brokers.values(id) for id in brokers.ids] == [[b"a", b"b"]] * 3

    def test_a_partition_without_a_leader_serves_nobody(self, brokers: ReplicaBrokers) -> None:
        brokers.lead(-1, (1,))
        assert code_of(brokers.produce(1, b"a")) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        brokers.lead(1, (1, 2))
        brokers.exchange()
        asked = brokers.produce(1, b"a")
        brokers.exchange()
        assert code_of(asked) == ErrorCode.NONE


class TestDeletedRecords:
    def test_the_answer_waits_for_all_followers_that_are_alive(self, brokers: ReplicaBrokers) -> None:
        brokers.produce(1, b"a")
        brokers.produce(1, b"b")
        brokers.advance(1.0)
        host = brokers.hosts[1]
        connection = host.connect()
        host.send(connection, deletion(1), 2)
        assert host.receive(connection) is None
        brokers.exchange()
        (result,) = host.receive(connection).topics[0].partitions
        assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 1)
        starts = [brokers.partition(id).opened(brokers.clock.now()).log_start_offset for id in brokers.ids]
        assert starts == [1, 1, 1]

    def test_the_answer_tells_what_all_followers_have_deleted(self, brokers: ReplicaBrokers) -> None:
        """A deletion that is not answered yet has moved the leader's start further: followers that do not
        know it begin elsewhere, and may lead next.
        """
        for value in (b"a", b"b", b"c"):
            brokers.produce(1, value)
        brokers.advance(1.0)
        host = brokers.hosts[1]
        first, unknown, nothing = host.connect(), host.connect(), host.connect()
        host.send(first, deletion(1), 2)
        brokers.exchange()
        assert host.receive(first).topics[0].partitions[0].low_watermark == 1
        brokers.separate(1, 3)
        host.send(unknown, deletion(3), 2)
        brokers.exchange()
        assert brokers.partition(1).opened(brokers.clock.now()).log_start_offset == 3
        for offset in (1, 0):
            host.send(nothing, deletion(offset), 2)
            (result,) = host.receive(nothing).topics[0].partitions
            assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 1)
        assert host.receive(unknown) is None

    def test_a_follower_that_is_further_behind_starts_over(self, brokers: ReplicaBrokers) -> None:
        brokers.separate(1, 3)
        for number in range(5):
            brokers.produce(1, b"%d" % number)
        brokers.advance(2.0)
        brokers.control()
        host = brokers.hosts[1]
        host.send(host.connect(), deletion(3), 2)
        brokers.heal()
        brokers.advance(2.0)
        brokers.control()
        log = brokers.partition(3).opened(brokers.clock.now())
        assert (log.log_start_offset, log.log_end_offset) == (3, 5)
        assert brokers.partition(3).high_watermark == 5

    def test_a_follower_that_has_started_over_and_is_killed_keeps_its_end(
        self, brokers: ReplicaBrokers
    ) -> None:
        """Everything was deleted, so that no record and no file says where its log ends; and it may be in
        sync: these offsets would be given to others.
        """
        brokers.separate(1, 3)
        for number in range(5):
            brokers.produce(1, b"%d" % number)
        brokers.advance(2.0)
        brokers.control()
        host = brokers.hosts[1]
        host.send(host.connect(), deletion(5), 2)
        brokers.heal()
        for _ in range(200):
            if brokers.partition(3).opened(brokers.clock.now()).log_end_offset == 5:
                break
            brokers.advance(0.02)
        brokers.kill(3)
        brokers.separate(1, 3)
        brokers.restart(3)
        log = brokers.partition(3).opened(brokers.clock.now())
        assert (log.log_start_offset, log.log_end_offset) == (5, 5)

    def test_only_the_leader_deletes(self, brokers: ReplicaBrokers) -> None:
        (result,) = brokers.hosts[2].ask(deletion(0), 2).topics[0].partitions
        assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


class TestStrangers:
    @pytest.mark.parametrize(("replica", "shift"), [(2, -1), (9, 0), (1, 0)])
    def test_nobody_is_believed_to_be_a_follower(
        self, brokers: ReplicaBrokers, replica: int, shift: int
    ) -> None:
        brokers.produce(1, b"a")
        epoch = brokers.epoch_of(replica) if replica in brokers.hosts else 5
        data = self.fetch(brokers, replica, epoch + shift)
        assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert not data.records

    def test_whoever_knows_id_and_epoch_of_a_broker_needs_its_right(self, brokers: ReplicaBrokers) -> None:
        """Neither is a secret. The right to read the topic is not enough: a follower reads what is not
        committed, and what it says about itself moves the high watermark.
        """
        brokers.separate(1, 2)
        brokers.separate(1, 3)
        brokers.produce(1, b"a", acks=1)
        partition = brokers.partition(1)
        before = partition.high_watermark
        Rules(brokers.hosts[1]).allow(Operation.READ, ResourceType.TOPIC, "*")
        data = self.fetch(brokers, 2, brokers.epoch_of(2), offset=1)
        assert data.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert not data.records
        assert partition.high_watermark == before

    @staticmethod
    def fetch(brokers: ReplicaBrokers, replica: int, epoch: int, offset: int = 0) -> PartitionData:
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            replica_state=ReplicaState(replica_id=replica, replica_epoch=epoch),
            topics=[
                FetchTopic(
                    topic_id=TOPIC_ID,
                    partitions=[FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)],
                )
            ],
        )
        data: PartitionData = brokers.hosts[1].ask(request, 17).responses[0].partitions[0]
        return data


def test_a_damaged_batch_is_not_replicated(brokers: ReplicaBrokers) -> None:
    """It fails its checksum on the follower, which takes what is before it and asks again."""
    brokers.produce(1, b"good")
    brokers.exchange()
    brokers.separate(1, 2)
    brokers.separate(1, 3)
    brokers.produce(1, b"bad", acks=1)
    log = brokers.partition(1).log
    assert log is not None
    rot(brokers, 1, log.active.size - 2)
    brokers.heal()
    brokers.advance(0.5)
    assert [brokers.values(id) for id in (2, 3)] == [[b"good"]] * 2
    refused = [
        one for one in brokers.hosts[2].effects if getattr(one, "event", "") == "replica_records_refused"
    ]
    assert refused


def test_a_leader_with_a_damaged_batch_lets_another_lead_and_gets_the_rest_from_it(
    brokers: ReplicaBrokers,
) -> None:
    """All replicas have the batch; the leader's copy rots, and broker 3 has to read it again."""
    brokers.produce(1, b"good")
    brokers.produce(1, b"rotten")
    brokers.produce(1, b"last")
    brokers.advance(1.0)
    log = brokers.partition(1).log
    assert log is not None
    rot(brokers, 1, log.segments.items[0].locate(1)[0] + 65)  # type: ignore[index]
    third = brokers.partition(3).log
    assert third is not None
    third.cut_to(1, brokers.clock.now().wall_ms)
    brokers.lead(1, (1, 2))
    brokers.advance(1.0)
    assert brokers.values(3) == [b"good"]
    assert brokers.control() == [ErrorCode.NEW_LEADER_ELECTED]
    assert (brokers.state().leader, brokers.state().isr) == (2, (2,))
    brokers.advance(2.0)
    brokers.control()
    brokers.advance(1.0)
    brokers.control()
    assert [brokers.values(id) for id in brokers.ids] == [[b"good", b"rotten", b"last"]] * 3
    assert set(brokers.state().isr) == {1, 2, 3}


def test_a_damaged_log_is_not_cut_while_its_replica_may_be_elected(brokers: ReplicaBrokers) -> None:
    """The controller takes it for in sync: without the record, a new leader would have lost it for all."""
    for value in (b"good", b"rotten", b"last"):
        brokers.produce(1, value)
    brokers.advance(1.0)
    log = brokers.partition(3).log
    assert log is not None
    rot(brokers, 3, log.segments.items[0].locate(1)[0] + 65)  # type: ignore[index]
    assert log.check_batch_at(1) is not None
    brokers.lead(1, (1, 2, 3))
    brokers.advance(2.5)
    assert log.log_end_offset == 3
    brokers.lead(1, (1, 2))
    brokers.advance(2.5)
    brokers.control()
    assert brokers.values(3) == [b"good", b"rotten", b"last"]
    assert set(brokers.state().isr) == {1, 2, 3}


def test_a_leader_that_knows_of_damage_lets_another_lead_at_once(brokers: ReplicaBrokers) -> None:
    for value in (b"good", b"rotten"):
        brokers.produce(1, value)
    brokers.advance(1.0)
    log = brokers.partition(1).log
    assert log is not None
    rot(brokers, 1, log.segments.items[0].locate(1)[0] + 65)  # type: ignore[index]
    assert log.check_batch_at(1) is not None
    brokers.lead(1, (1, 2, 3))
    brokers.advance(0.1)
    assert brokers.control() == [ErrorCode.NEW_LEADER_ELECTED]
    assert 1 not in (brokers.state().leader, *brokers.state().isr)


def test_a_replica_whose_end_is_damaged_after_a_kill_gets_it_from_its_leader(brokers: ReplicaBrokers) -> None:
    """Alone it could not tell which offset is the next, and would be offline."""
    for value in (b"good", b"rotten"):
        brokers.produce(1, value)
    brokers.advance(1.0)
    log = brokers.partition(3).log
    assert log is not None
    position = log.segments.items[0].locate(1)[0]  # type: ignore[index]
    brokers.kill(3)
    for byte in (8, 16, 23, 65):
        rot(brokers, 3, position + byte)
    brokers.restart(3)
    brokers.lead(1, (1, 2))
    brokers.advance(3.0)
    assert not brokers.partition(3).is_offline
    assert brokers.values(3) == [b"good", b"rotten"]


def test_a_start_that_finds_damage_cuts_it_off(brokers: ReplicaBrokers) -> None:
    """If it is flushed as it is, no later start looks at it again: it would stay in the log for good."""
    for value in (b"good", b"rotten"):
        brokers.produce(1, value)
    brokers.advance(1.0)
    log = brokers.partition(3).log
    assert log is not None
    position = log.segments.items[0].locate(1)[0]  # type: ignore[index]
    brokers.kill(3)
    rot(brokers, 3, position + 65)
    brokers.restart(3)
    after = brokers.partition(3)
    assert after.log is not None
    assert (after.log.log_end_offset, after.log.damages) == (1, [])
    assert brokers.hosts[3].node.broker.registration.previous_epoch == -1


def rot(brokers: ReplicaBrokers, id: int, position: int) -> None:
    """A bit of the log flips on the disk."""
    disk = brokers.disks[id]
    assert isinstance(disk, MemoryDisk)
    (path,) = [name for name, _ in disk.files() if name.endswith(".log") and name.startswith("t-0/")]
    file = disk.open(path)
    data = bytearray(file.read(0, file.size()))
    data[position] ^= 0xFF
    file.truncate(0)
    file.append(bytes(data))


def test_where_each_message_is_flushed_a_follower_confirms_what_is_durable() -> None:
    brokers = ReplicaBrokers()
    brokers.create_topic(flush_messages="1")
    brokers.exchange()
    for id in (2, 3):
        brokers.hosts[id].runs_jobs = False
    asked = brokers.produce(1, b"a")
    brokers.exchange()
    assert ends(brokers) == [1, 1, 1]
    assert code_of(asked) is None
    for id in (2, 3):
        brokers.hosts[id].run_jobs()
    brokers.exchange()
    assert code_of(asked) == ErrorCode.NONE


def flush_after(brokers: ReplicaBrokers, messages: str) -> None:
    brokers.tell(ConfigRecord(resource_type=2, resource_name="t", name="flush.messages", value=messages))


def test_followers_go_on_when_messages_need_not_be_flushed_any_more() -> None:
    """They waited for a flush that nobody ordered."""
    brokers = ReplicaBrokers()
    brokers.create_topic(flush_messages="1")
    brokers.exchange()
    for id in (2, 3):
        brokers.hosts[id].runs_jobs = False
    waiting = brokers.produce(1, b"a")
    brokers.exchange()
    for id in (2, 3):
        brokers.hosts[id].jobs.clear()  # the disk is slow
        brokers.hosts[id].runs_jobs = True
    flush_after(brokers, "1000")
    brokers.exchange()
    assert code_of(waiting) == ErrorCode.NONE
    asked = brokers.produce(1, b"b")
    brokers.exchange()
    assert code_of(asked) == ErrorCode.NONE
    assert ends(brokers) == [2, 2, 2]


def test_followers_confirm_what_is_durable_from_the_change_of_the_setting_on() -> None:
    brokers = ReplicaBrokers()
    brokers.create_topic(flush_messages="1000")
    brokers.exchange()
    brokers.produce(1, b"a")
    brokers.advance(1.0)
    flush_after(brokers, "1")
    assert [brokers.partition(id).opened(brokers.clock.now()).flushed_offset for id in brokers.ids] == [1] * 3
    for id in (2, 3):
        brokers.hosts[id].runs_jobs = False
    asked = brokers.produce(1, b"b")
    brokers.exchange()
    assert ends(brokers) == [2, 2, 2]
    assert code_of(asked) is None
    for id in (2, 3):
        brokers.hosts[id].run_jobs()
    brokers.exchange()
    assert code_of(asked) == ErrorCode.NONE


def test_idle_partitions_cost_nothing() -> None:
    """A fetch names one partition of a hundred, and so does its answer."""
    brokers = ReplicaBrokers()
    brokers.create_topic(partitions=100)
    brokers.exchange()
    brokers.produce(1, b"warm")
    brokers.exchange()
    brokers.advance(0.6)
    sizes: list[int] = []
    original = ManualHost.send_frame

    def measured(self: ManualHost, connection: Any, frame: Any) -> None:
        sizes.append(len(frame))
        original(self, connection, frame)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ManualHost, "send_frame", measured)
        brokers.produce(1, b"a", index=7)
        brokers.exchange()
    assert max(sizes) < 300


def calls_of(act: Callable[[], object]) -> int:
    """How many functions of Headrace are called: what the work costs, on any machine."""
    calls = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        if event == "call" and f"{os.sep}headrace{os.sep}" in frame.f_code.co_filename:
            calls += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(before)
    return calls


def cost_of_a_round(partitions: int, news: int) -> int:
    """Of a record in each of so many partitions, until all replicas know that it is committed."""
    brokers = ReplicaBrokers()
    brokers.create_topic(partitions=partitions)

    def write() -> None:
        for index in range(news):
            brokers.produce(1, b"a", index=index)
        brokers.exchange()

    write()  # it opens logs and learns the requests
    write()
    return calls_of(write)


def test_the_cost_grows_with_the_partitions_that_have_news_not_with_those_followed() -> None:
    alone = cost_of_a_round(1, 1)
    assert cost_of_a_round(200, 1) <= alone + 10
    assert cost_of_a_round(200, 8) <= 8 * alone + 10


def test_a_fetch_that_waits_is_answered_in_the_call_of_the_append(brokers: ReplicaBrokers) -> None:
    host = brokers.hosts[1]
    before = sum(map(len, host.answers.values()))
    brokers.produce(1, b"a")
    assert sum(map(len, host.answers.values())) - before == 2  # one for each follower


def test_partitions_that_move_to_a_leader_with_a_waiting_fetch_are_fetched_at_once() -> None:
    brokers = ReplicaBrokers()
    brokers.create_topic(partitions=2)
    brokers.lead(2, (1, 2, 3), 1)
    brokers.exchange()
    brokers.produce(2, b"x", index=1)
    brokers.exchange()  # all fetches wait at their leaders
    brokers.lead(2, (2, 3), 0)
    asked = brokers.produce(2, b"y", index=0)
    brokers.exchange()  # and time stands still
    assert code_of(asked) == ErrorCode.NONE


def deletion(offset: int) -> DeleteRecordsRequest:
    partitions = [DeleteRecordsPartition(partition_index=0, offset=offset)]
    return DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name="t", partitions=partitions)], timeout_ms=30_000
    )


def consumer_fetch(offset: int) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
    return FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[wanted])])


def latest(brokers: ReplicaBrokers, id: int, *, timestamp: int = -1, version: int = 7) -> tuple[int, int]:
    asked = ListOffsetsTopic(
        name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
    )
    response = brokers.hosts[id].ask(ListOffsetsRequest(replica_id=-1, topics=[asked]), version)
    (result,) = response.topics[0].partitions
    return result.error_code, result.offset


def test_batches_are_written_once_per_answer(brokers: ReplicaBrokers) -> None:
    brokers.separate(1, 2)
    for number in range(20):
        brokers.produce(1, b"%d" % number, acks=1)
    brokers.heal()
    brokers.advance(1.0)
    assert brokers.values(2) == [b"%d" % number for number in range(20)]
