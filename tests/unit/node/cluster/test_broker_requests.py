"""What an active controller answers to brokers, and how it notices that one is gone."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from harness.authorizers import Nobody
from harness.remote_broker import CONTROLLER_ALONE, RemoteBroker, answer_dial, dialled
from harness.two_brokers import change_metadata
from headrace.node.effects import Hangup, Report
from headrace.node.metadata_log import MetadataLog
from headrace.node.peers import Unanswered
from headrace.protocol.api import response_codec
from headrace.protocol.errors import ErrorCode
from headrace.protocol.framing import answer_frame
from headrace.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from headrace.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from headrace.protocol.messages.api_versions import ApiVersionsResponse
from headrace.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    DirectoryData,
)
from headrace.protocol.messages.assign_replicas_to_dirs import PartitionData as PlacedPartition
from headrace.protocol.messages.assign_replicas_to_dirs import TopicData as PlacedTopic
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.unregister_broker import UnregisterBrokerRequest
from headrace.protocol.metadata_records import PartitionChangeRecord
from headrace.simulator.manual_host import ManualHost
from headrace.storage.faulty_disk import Fail, Fault, FaultyDisk
from headrace.storage.memory_disk import MemoryDisk


@pytest.fixture
def controller() -> ManualHost:
    return ManualHost(CONTROLLER_ALONE)


def create(controller: ManualHost, *, partitions: int = 1, factor: int = 1) -> bytes:
    wanted = CreatableTopic(name="t", num_partitions=partitions, replication_factor=factor)
    (created,) = controller.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=1000), 7).topics
    assert created.error_code == ErrorCode.NONE, created
    return bytes(created.topic_id)


def reports(controller: ManualHost, event: str) -> list[dict[str, object]]:
    return [one.facts for one in controller.effects if isinstance(one, Report) and one.event == event]


class TestRegistration:
    def test_a_broker_is_fenced_until_its_heartbeat_has_its_registration(
        self, controller: ManualHost
    ) -> None:
        broker = RemoteBroker(controller, 1)
        assert broker.register() is ErrorCode.NONE
        assert broker.state.is_fenced
        assert broker.state.epoch == broker.epoch
        late = broker.beat(current_metadata_offset=broker.epoch - 1)
        assert (late.is_caught_up, late.is_fenced) == (False, True)
        beat = broker.beat()
        assert (beat.error_code, beat.is_caught_up, beat.is_fenced, beat.should_shut_down) == (
            0,
            True,
            False,
            False,
        )
        create(controller)

    def test_a_broker_of_another_cluster(self, controller: ManualHost) -> None:
        broker = RemoteBroker(controller, 1)
        assert broker.register(cluster_id="another") is ErrorCode.INCONSISTENT_CLUSTER_ID

    def test_a_second_run_is_let_in_as_soon_as_nobody_listens_where_the_first_was(
        self, controller: ManualHost
    ) -> None:
        RemoteBroker(controller, 1).start()
        again = RemoteBroker(controller, 1, run=2)
        assert again.register() is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        assert dialled(controller) == [1]
        assert (controller.sent[0].peer.host, controller.sent[0].peer.port) == ("host1", 9092)
        answer_dial(controller, Unanswered.REFUSED)
        assert again.register() is ErrorCode.NONE

    def test_a_second_run_beside_the_first_waits(self, controller: ManualHost) -> None:
        first = RemoteBroker(controller, 1).start()
        again = RemoteBroker(controller, 1, run=2)
        for _ in range(3):
            assert again.register() is ErrorCode.DUPLICATE_BROKER_REGISTRATION
            frame = answer_frame(response_codec(18, 4), 1, ApiVersionsResponse())
            answer_dial(controller, b"".join(frame)[4:])
            controller.advance(4)
            assert not first.beat().is_fenced
        assert [one for one in controller.effects if isinstance(one, Hangup)][-1] == Hangup(1, "dial")

    def test_a_broker_that_an_earlier_epoch_speaks_for(self, controller: ManualHost) -> None:
        first = RemoteBroker(controller, 1).start()
        controller.advance(10)
        RemoteBroker(controller, 1, run=2).start()
        assert first.beat().error_code == ErrorCode.STALE_BROKER_EPOCH
        block = AllocateProducerIdsRequest(broker_id=1, broker_epoch=first.epoch)
        assert first.ask(block, 0).error_code == ErrorCode.STALE_BROKER_EPOCH


class TestGone:
    def test_silence_is_noticed_when_the_session_ends(self, controller: ManualHost) -> None:
        first, second = (RemoteBroker(controller, id).start() for id in (1, 2))
        create(controller, factor=2)
        for _ in range(4):
            controller.advance(3)
            first.beat()
        assert second.state.is_fenced
        assert not first.state.is_fenced
        image = controller.node.controller.metadata.image
        assert image.topics["t"].partitions[0].leader == 1
        assert reports(controller, "broker_fenced") == [{"brokers": [2], "reason": "it sent no heartbeat"}]
        assert not second.beat().is_fenced, "it was only slow"

    def test_an_ended_process_is_noticed_at_once(self, controller: ManualHost) -> None:
        broker = RemoteBroker(controller, 1).start()
        broker.hang_up()
        assert dialled(controller) == [1]
        answer_dial(controller, Unanswered.REFUSED)
        assert broker.state.is_fenced
        assert reports(controller, "broker_fenced") == [{"brokers": [1], "reason": "its process has ended"}]

    def test_a_dial_that_is_lost_is_tried_again(self, controller: ManualHost) -> None:
        """The process closes its sockets one by one."""
        broker = RemoteBroker(controller, 1).start()
        broker.hang_up()
        broker.hang_up()
        assert dialled(controller) == [1], "one dial at a time"
        answer_dial(controller, Unanswered.LOST)
        assert not dialled(controller)
        controller.advance(0.02)
        answer_dial(controller, Unanswered.REFUSED)
        assert broker.state.is_fenced

    def test_a_silent_peer_keeps_its_session(self, controller: ManualHost) -> None:
        broker = RemoteBroker(controller, 1).start()
        broker.hang_up()
        answer_dial(controller, Unanswered.SILENT)
        assert not broker.state.is_fenced
        controller.advance(9.1)
        assert broker.state.is_fenced

    def test_who_registered_again_meanwhile_is_not_fenced_for_its_earlier_run(
        self, controller: ManualHost
    ) -> None:
        broker = RemoteBroker(controller, 1).start()
        broker.beat(want_shut_down=True)
        broker.hang_up()
        again = RemoteBroker(controller, 1, run=2).start()
        while dialled(controller):
            answer_dial(controller, Unanswered.REFUSED)
        assert not again.state.is_fenced

    def test_an_elected_controller_dials_all_that_are_unfenced(self, controller: ManualHost) -> None:
        RemoteBroker(controller, 1).start()
        RemoteBroker(controller, 2).start()
        assert RemoteBroker(controller, 3).register() is ErrorCode.NONE
        controller.sent.clear()
        controller.restart()
        assert dialled(controller) == [1, 2]
        answer_dial(controller, Unanswered.REFUSED)
        image = controller.node.controller.metadata.image
        assert [broker.id for broker in image.live_brokers()] == [2]

    def test_it_dials_until_it_hears_from_them(self, controller: ManualHost) -> None:
        """A broker that died after the dial had no connection yet that could break."""
        broker = RemoteBroker(controller, 1).start()
        controller.restart()
        broker.connection = controller.connect()
        for _ in range(3):
            frame = answer_frame(response_codec(18, 4), 1, ApiVersionsResponse())
            answer_dial(controller, b"".join(frame)[4:])
            assert not dialled(controller)
            controller.advance(0.2)
        assert dialled(controller) == [1]
        assert not broker.beat().is_fenced
        answer_dial(controller, b"".join(frame)[4:])
        controller.advance(1)
        assert not dialled(controller)


class TestShutdown:
    def test_leaders_move_first(self, controller: ManualHost) -> None:
        first, second = (RemoteBroker(controller, id).start() for id in (1, 2))
        create(controller, partitions=2, factor=2)
        beat = first.beat(want_shut_down=True)
        assert (beat.is_fenced, beat.should_shut_down) == (False, False)
        partitions = controller.node.controller.metadata.image.topics["t"].partitions
        assert {state.leader for state in partitions.values()} == {2}
        assert not first.beat(want_shut_down=True).should_shut_down, "2 does not know yet"
        second.beat()
        assert first.beat(want_shut_down=True).should_shut_down
        assert first.state.is_fenced


class TestRequestsOfLeaders:
    def wanted(self, topic_id: bytes, leader: RemoteBroker, *members: RemoteBroker) -> AlterPartitionRequest:
        states = [BrokerState(broker_id=one.id, broker_epoch=one.epoch) for one in members]
        partition = PartitionData(partition_index=0, new_isr_with_epochs=states)
        topics = [TopicData(topic_id=topic_id, partitions=[partition])]
        return AlterPartitionRequest(broker_id=leader.id, broker_epoch=leader.epoch, topics=topics)

    def brokers(self, controller: ManualHost) -> tuple[bytes, RemoteBroker, RemoteBroker]:
        started = {id: RemoteBroker(controller, id).start() for id in (1, 2)}
        topic_id = create(controller, factor=2)
        leader = controller.node.controller.metadata.image.topics["t"].partitions[0].leader
        return topic_id, started[leader], started[3 - leader]

    @pytest.mark.parametrize("version", [2, 3])
    def test_a_smaller_isr(self, controller: ManualHost, version: int) -> None:
        topic_id, leader, _ = self.brokers(controller)
        request = self.wanted(topic_id, leader, leader)
        if version == 2:
            (partition,) = request.topics[0].partitions
            partition.new_isr_with_epochs, partition.new_isr = [], [leader.id]
        response = leader.ask(request, version)
        ((told,),) = [topic.partitions for topic in response.topics]
        assert (told.error_code, told.leader_id, told.isr, told.partition_epoch) == (
            0,
            leader.id,
            [leader.id],
            1,
        )

    def test_a_refused_one(self, controller: ManualHost) -> None:
        topic_id, leader, other = self.brokers(controller)
        response = other.ask(self.wanted(topic_id, other, other), 3)
        assert response.topics[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
        stale = self.wanted(topic_id, leader, leader)
        stale.broker_epoch = 0
        assert leader.ask(stale, 3).error_code == ErrorCode.STALE_BROKER_EPOCH

    def test_directories_and_producer_ids(self, controller: ManualHost) -> None:
        topic_id, leader, _ = self.brokers(controller)
        directory = b"d" * 16
        placed = [PlacedPartition(partition_index=index) for index in (0, 1)]
        request = AssignReplicasToDirsRequest(
            broker_id=leader.id,
            broker_epoch=leader.epoch,
            directories=[
                DirectoryData(id=directory, topics=[PlacedTopic(topic_id=topic_id, partitions=placed)])
            ],
        )
        response = leader.ask(request, 0)
        told = response.directories[0].topics[0].partitions
        assert [one.error_code for one in told] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        state = controller.node.controller.metadata.image.topics["t"].partitions[0]
        assert state.directories[state.replicas.index(leader.id)] == directory
        block = AllocateProducerIdsRequest(broker_id=leader.id, broker_epoch=leader.epoch)
        blocks = [leader.ask(block, 0) for _ in range(2)]
        assert [(one.producer_id_start, one.producer_id_len) for one in blocks] == [(0, 1000), (1000, 1000)]

    def test_an_unclean_election_by_a_directory_is_reported(self, controller: ManualHost) -> None:
        """The last leader says where its replica lies now. It may lead, and may lack records."""
        topic_id, leader, _ = self.brokers(controller)
        image = controller.node.controller.metadata.image
        unknown, known = b"?" * 16, image.brokers[leader.id].directories[0]
        change_metadata(
            controller,
            PartitionChangeRecord(
                topic_id=topic_id,
                partition_id=0,
                leader=-1,
                isr=[],
                last_known_elr=[leader.id],
                directories=[unknown, unknown],
            ),
        )
        placed = PlacedTopic(topic_id=topic_id, partitions=[PlacedPartition(partition_index=0)])
        request = AssignReplicasToDirsRequest(
            broker_id=leader.id,
            broker_epoch=leader.epoch,
            directories=[DirectoryData(id=known, topics=[placed])],
        )
        assert leader.ask(request, 0).error_code == ErrorCode.NONE
        assert image.topics["t"].partitions[0].leader == leader.id
        assert [one["partition"] for one in reports(controller, "unclean_leader_election")] == ["t-0"]

    def test_a_broker_that_will_not_come_back(self, controller: ManualHost) -> None:
        broker = RemoteBroker(controller, 1).start()
        assert controller.ask(UnregisterBrokerRequest(broker_id=1), 0).error_code == 0
        assert 1 not in controller.node.controller.metadata.image.brokers
        assert broker.beat().error_code == ErrorCode.STALE_BROKER_EPOCH
        absent = controller.ask(UnregisterBrokerRequest(broker_id=1), 0)
        assert absent.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_strangers_are_refused(controller: ManualHost) -> None:
    broker = RemoteBroker(controller, 1).start()
    controller.node.access.authorizer = Nobody()
    refused = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert broker.register() is refused
    assert broker.beat().error_code == refused
    assert broker.ask(AlterPartitionRequest(), 3).error_code == refused
    assert broker.ask(AllocateProducerIdsRequest(), 0).error_code == refused
    assert broker.ask(AssignReplicasToDirsRequest(), 0).error_code == refused
    assert broker.ask(UnregisterBrokerRequest(), 0).error_code == refused


def test_another_node_is_the_controller(controller: ManualHost, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = RemoteBroker(controller, 1).start()
    monkeypatch.setattr(MetadataLog, "is_active", False)
    refused = ErrorCode.NOT_CONTROLLER
    assert broker.register() is refused
    assert broker.beat().error_code == refused
    assert broker.ask(AlterPartitionRequest(), 3).error_code == refused
    assert controller.ask(UnregisterBrokerRequest(), 0).error_code == refused
    (topic,) = controller.ask(CreateTopicsRequest(topics=[CreatableTopic(name="t")]), 7).topics
    assert topic.error_code == refused


def test_a_silent_broker_is_fenced_as_soon_as_the_log_has_space() -> None:
    disk = FaultyDisk(MemoryDisk())
    controller = ManualHost(CONTROLLER_ALONE, disks={"data": disk})
    first, second = RemoteBroker(controller, 1).start(), RemoteBroker(controller, 2).start()
    disk.faults = [Fault(Fail(errno.ENOSPC), "append", times=1_000_000)]
    controller.advance(12.0)
    assert not first.state.is_fenced
    assert not second.state.is_fenced
    assert brokers_in(controller, "fencing_postponed")[:2] == [1, 2]
    assert brokers_in(controller, "broker_fenced") == []
    disk.faults = []
    controller.advance(2.0)
    assert first.state.is_fenced
    assert second.state.is_fenced
    assert sorted(brokers_in(controller, "broker_fenced")) == [1, 2]
    reasons = {one["reason"] for one in reports(controller, "broker_fenced")}
    assert reasons == {"it sent no heartbeat"}
    controller.advance(30.0)
    assert sorted(brokers_in(controller, "broker_fenced")) == [1, 2], "once"


def test_a_broker_that_was_heard_again_is_not_fenced_when_the_log_has_space() -> None:
    """Neither one that was only slow, nor the next run of one whose process ended."""
    disk = FaultyDisk(MemoryDisk())
    controller = ManualHost(CONTROLLER_ALONE, disks={"data": disk})
    slow, ended = RemoteBroker(controller, 1).start(), RemoteBroker(controller, 2).start()
    controller.advance(8.0)
    ended.beat()
    disk.faults = [Fault(Fail(errno.ENOSPC), "append", times=1_000_000)]
    controller.advance(1.2)
    assert dialled(controller) == []
    assert brokers_in(controller, "fencing_postponed") == [1]
    RemoteBroker(controller, 2, run=2).register()
    answer_dial(controller, Unanswered.REFUSED)
    assert brokers_in(controller, "fencing_postponed") == [1, 2]
    disk.faults = []
    assert not slow.beat().is_fenced
    again = RemoteBroker(controller, 2, run=2).start()
    controller.advance(1.5)
    assert brokers_in(controller, "broker_fenced") == []
    assert not slow.state.is_fenced
    assert not again.state.is_fenced
    controller.advance(30.0)
    assert sorted(brokers_in(controller, "broker_fenced")) == [1, 2], "they are silent since"


def brokers_in(controller: ManualHost, event: str) -> list[int]:
    told: list[Any] = [one["brokers"] for one in reports(controller, event)]
    return [broker for brokers in told for broker in brokers]
