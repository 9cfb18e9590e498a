"""Brokers register, are unfenced, fall silent, stop and return; what becomes of the partitions they lead."""

from __future__ import annotations

import pytest

from headrace.machines.metadata.controller.allocations import ReplicaPlace
from headrace.machines.metadata.controller.alter_configs import KeyChange, Operation, ResourceChange
from headrace.machines.metadata.controller.brokers import Registration
from headrace.machines.metadata.controller.create_topics import NewTopic
from headrace.machines.metadata.controller.decision import Refusal
from headrace.machines.metadata.controller.heartbeats import Heartbeat, HeartbeatReply
from headrace.machines.metadata.controller.sessions import BrokerSessions
from headrace.machines.metadata.image import BROKER_RESOURCE, NO_LEADER, TOPIC_RESOURCE
from headrace.protocol.errors import ErrorCode
from headrace.protocol.metadata_records import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from headrace.protocol.notation import Data
from unit.machines.metadata.cluster import SESSION_TIMEOUT_MS, Cluster, directory

FENCED = HeartbeatReply(is_caught_up=True, is_fenced=True)
UNFENCED = HeartbeatReply(is_caught_up=True, is_fenced=False)


def cluster_of_three(min_isr: int = 2, assignment: tuple[int, ...] = (1, 2, 3), **options: object) -> Cluster:
    cluster = Cluster(3, static={"min.insync.replicas": str(min_isr)})
    configs = {name.replace("_", "."): str(value) for name, value in options.items()}
    topic = NewTopic("t", assignments={0: list(assignment)}, configs=dict(configs))
    (created,) = cluster.apply(cluster.controller.create_topics([topic]))
    assert created.error is ErrorCode.NONE, created.message
    cluster.log.clear()
    return cluster


def summary(cluster: Cluster) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    state = cluster.partition()
    return state.leader, state.isr, state.eligible_leader_replicas


def kinds(records: list[Data]) -> list[type[Data]]:
    return [type(record) for record in records]


class TestRegistration:
    def test_a_broker_begins_fenced_with_the_offset_of_its_record_as_its_epoch(self) -> None:
        cluster = Cluster(1)
        offset = cluster.end_offset
        assert cluster.register(2) == offset
        record = cluster.log[offset]
        assert isinstance(record, RegisterBrokerRecord)
        assert (record.broker_epoch, record.fenced) == (offset, True)
        assert [broker.id for broker in cluster.image.live_brokers()] == [1]

    def test_it_is_unfenced_once_it_has_replayed_its_registration(self) -> None:
        cluster = Cluster(1)
        epoch = cluster.register(2)
        assert cluster.beat(2, offset=epoch - 1) == HeartbeatReply(is_caught_up=False, is_fenced=True)
        assert cluster.beat(2, offset=epoch, wants_fence=True) == FENCED
        assert cluster.beat(2, offset=epoch) == UNFENCED
        assert cluster.log[-1] == BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=epoch, fenced=-1)
        assert cluster.beat(2, offset=epoch) == UNFENCED

    def test_another_run_with_its_id_waits_until_the_session_ends(self) -> None:
        cluster = Cluster(2)
        other = cluster.registration(2)
        with pytest.raises(Refusal) as refusal:
            cluster.controller.register_broker(other, cluster.end_offset, is_live=True)
        assert refusal.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        cluster.clock.advance(SESSION_TIMEOUT_MS / 1000)
        assert not cluster.sessions.is_live(cluster.clock.now(), 2)
        assert cluster.controller.register_broker(other, cluster.end_offset).reply == cluster.end_offset

    def test_a_run_that_is_stopping_may_be_followed_by_the_next(self) -> None:
        cluster = Cluster(2)
        cluster.beat(2, wants_shutdown=True)
        decision = cluster.controller.register_broker(
            cluster.registration(2), cluster.end_offset, is_live=True
        )
        assert decision.reply == cluster.end_offset

    def test_the_same_run_registers_twice_and_keeps_its_epoch(self) -> None:
        """The answer to its first request was lost."""
        cluster = Cluster(1)
        registration = cluster.registration(2)
        epoch = cluster.apply(cluster.controller.register_broker(registration, cluster.end_offset))
        again = cluster.controller.register_broker(registration, cluster.end_offset, is_live=True)
        assert (again.reply, again.records) == (epoch, [])
        cluster.beat(2)
        registration.rack = "elsewhere"
        cluster.apply(cluster.controller.register_broker(registration, cluster.end_offset, is_live=True))
        state = cluster.image.brokers[2]
        assert (state.epoch, state.is_fenced, state.rack) == (epoch, False, "elsewhere")

    @pytest.mark.parametrize(
        ("directories", "says"),
        [
            ([bytes(15) + b"\x05"], "Reserved"),
            ([directory(2), directory(2)], "Duplicate"),
            ([directory(1)], "Broker 1 is already registered"),
        ],
    )
    def test_directories_that_cannot_be_its_own(self, directories: list[bytes], says: str) -> None:
        cluster = Cluster(1)
        registration = cluster.registration(2)
        registration.directories = directories
        with pytest.raises(Refusal, match=says) as refusal:
            cluster.controller.register_broker(registration, cluster.end_offset)
        assert refusal.value.code is ErrorCode.INVALID_REGISTRATION

    def test_a_broker_without_listeners(self) -> None:
        cluster = Cluster(1)
        registration = cluster.registration(2)
        registration.endpoints = {}
        with pytest.raises(Refusal, match="No listeners") as refusal:
            cluster.controller.register_broker(registration, cluster.end_offset)
        assert refusal.value.code is ErrorCode.INVALID_REGISTRATION

    def test_a_broker_that_does_not_know_a_finalized_feature(self) -> None:
        cluster = Cluster(1)
        registration = cluster.registration(2)
        registration.features = {"metadata.version": (7, 30)}
        with pytest.raises(Refusal, match=r"does not support version 1 of eligible\.leader") as refusal:
            cluster.controller.register_broker(registration, cluster.end_offset)
        assert refusal.value.code is ErrorCode.UNSUPPORTED_VERSION


class TestFencing:
    def test_its_leaders_move_and_it_leaves_every_isr_in_one_decision(self) -> None:
        cluster = cluster_of_three()
        assert cluster.fence(1, 7) == [1]
        topic_id, epoch = cluster.image.topics["t"].id, cluster.image.brokers[1].epoch
        assert cluster.log == [
            PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[2, 3], leader=2),
            BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, fenced=1),
        ]
        assert cluster.fence(1) == []

    def test_fencing_two_at_once_elects_neither(self) -> None:
        cluster = cluster_of_three()
        cluster.fence(1, 2)
        assert summary(cluster) == (3, (3,), (1, 2))
        assert len(cluster.log) == 3

    def test_only_partitions_of_that_broker_are_looked_at(self) -> None:
        cluster = Cluster(3)
        topic = NewTopic("t", assignments={index: [index % 3 + 1] for index in range(30)})
        cluster.apply(cluster.controller.create_topics([topic]))
        decision = cluster.controller.fence_brokers([2])
        changed = [record for record in decision.records if isinstance(record, PartitionChangeRecord)]
        assert [record.partition_id for record in changed] == list(range(1, 30, 3))

    def test_who_returns_leads_what_nobody_leads(self) -> None:
        cluster = cluster_of_three(min_isr=1)
        cluster.fence(1)
        cluster.fence(2)
        cluster.fence(3)
        assert summary(cluster) == (NO_LEADER, (), (3,))
        cluster.beat(1)
        assert cluster.partition().leader == NO_LEADER, "it may lack acknowledged records"
        cluster.beat(3)
        assert summary(cluster) == (3, (3,), ())
        assert cluster.unclean == []

    def test_an_unclean_election_is_told_loudly(self) -> None:
        cluster = cluster_of_three(min_isr=1, unclean_leader_election_enable="true")
        cluster.fence(2)
        cluster.fence(3)
        cluster.fence(1)
        cluster.beat(2)
        assert summary(cluster) == (2, (2,), ())
        assert cluster.unclean == ["t-0"]

    def test_the_sessions_deadline(self) -> None:
        cluster = Cluster(2)
        now = cluster.clock.now()
        sessions = BrokerSessions(now, cluster.image, SESSION_TIMEOUT_MS, own_broker=1)
        assert sessions.deadline() == now.after_ms(SESSION_TIMEOUT_MS)
        later = cluster.clock.advance(5)
        sessions.touch(later, cluster.image.brokers[2], 0)
        assert sessions.deadline() == later.after_ms(SESSION_TIMEOUT_MS)
        assert sessions.take_ended(cluster.clock.advance(8.9)) == []
        assert sessions.take_ended(cluster.clock.advance(0.2)) == [2]
        assert sessions.deadline() is None
        assert sessions.is_live(cluster.clock.now(), 1), "the controller's own broker is always heard"

    def test_a_heartbeat_of_an_earlier_run_changes_nothing(self) -> None:
        cluster = Cluster(1)
        epoch = cluster.image.brokers[1].epoch
        cluster.start(1)
        for broker, told in ((1, epoch), (9, 0)):
            beat = Heartbeat(broker, told, cluster.end_offset)
            with pytest.raises(Refusal) as refusal:
                cluster.controller.heartbeat(cluster.clock.now(), beat, cluster.sessions)
            assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH

    def test_a_broker_may_ask_to_be_fenced(self) -> None:
        cluster = cluster_of_three()
        assert cluster.beat(2, wants_fence=True) == FENCED
        assert summary(cluster) == (1, (1, 3), ())


class TestStartsAgain:
    def test_after_a_clean_stop_what_it_has_still_counts(self) -> None:
        cluster = cluster_of_three()
        cluster.fence(1, 2)
        cluster.fence(3)
        assert summary(cluster) == (NO_LEADER, (), (1, 2, 3))
        cluster.start(2)
        assert summary(cluster) == (2, (2,), (1, 3))

    def test_after_its_machine_went_down_it_is_neither_in_sync_nor_eligible(self) -> None:
        cluster = cluster_of_three()
        cluster.fence(1, 2)
        cluster.fence(3)
        cluster.start(2, is_clean=False)
        assert summary(cluster) == (NO_LEADER, (), (1, 3))
        cluster.start(1)
        assert summary(cluster) == (1, (1,), (3,))

    def test_if_all_machines_went_down_the_last_leader_leads_and_that_is_told(self) -> None:
        cluster = cluster_of_three()
        cluster.fence(1, 2)
        cluster.fence(3)
        for broker in (1, 2, 3):
            cluster.start(broker, is_clean=False)
        assert summary(cluster) == (3, (3,), ())
        assert cluster.unclean == ["t-0"]

    def test_a_run_that_nobody_saw_end_leaves_the_isr_when_the_next_registers(self) -> None:
        cluster = cluster_of_three()
        registration = cluster.registration(1, is_clean=False)
        cluster.apply(cluster.controller.register_broker(registration, cluster.end_offset))
        assert summary(cluster) == (2, (2, 3), ())

    def test_what_only_it_has_stays_with_it(self) -> None:
        cluster = cluster_of_three(assignment=(1,))
        cluster.start(1, is_clean=False)
        assert summary(cluster) == (1, (1,), ())
        assert cluster.unclean == []


class TestTheControllersOwnBroker:
    """It registers in the controller's first decision, and is unfenced by it."""

    def start(self, cluster: Cluster, registration: Registration) -> list[Data]:
        decision = cluster.controller.register_broker(registration, cluster.end_offset, is_local=True)
        cluster.apply(decision)
        return decision.records

    def test_one_record_for_each_partition(self) -> None:
        cluster = Cluster(0)
        self.start(cluster, cluster.registration(1))
        cluster.apply(cluster.controller.create_topics([NewTopic("t", 3, 1)]))
        before = {index: state.leader_epoch for index, state in cluster.image.topics["t"].partitions.items()}
        for is_clean in (True, False):
            records = self.start(cluster, cluster.registration(1, is_clean=is_clean))
            topic_id = cluster.image.topics["t"].id
            assert records[1:] == [
                PartitionChangeRecord(partition_id=index, topic_id=topic_id, leader=1) for index in range(3)
            ]
        for index, state in cluster.image.topics["t"].partitions.items():
            assert (state.leader, state.leader_epoch) == (1, before[index] + 2)
        assert not cluster.image.brokers[1].is_fenced

    def test_others_in_sync_lead_instead(self) -> None:
        cluster = cluster_of_three()
        self.start(cluster, cluster.registration(1))
        assert summary(cluster) == (2, (2, 3), ())

    def test_it_leads_again_what_nobody_else_can(self) -> None:
        cluster = cluster_of_three()
        cluster.fence(2, 3)
        assert summary(cluster) == (1, (1,), (2, 3))
        epoch = cluster.partition().leader_epoch
        records = self.start(cluster, cluster.registration(1))
        assert summary(cluster) == (1, (1,), (2, 3))
        assert cluster.partition().leader_epoch > epoch
        assert kinds(records) == [RegisterBrokerRecord, PartitionChangeRecord]


class TestShutdown:
    def test_leaders_move_then_others_hear_of_it_then_it_may_stop(self) -> None:
        cluster = cluster_of_three()
        assert cluster.beat(1, wants_shutdown=True) == UNFENCED
        cluster.sessions.shutting_down(1, cluster.end_offset)
        assert kinds(cluster.log) == [BrokerRegistrationChangeRecord, PartitionChangeRecord]
        assert summary(cluster) == (2, (2, 3), ())
        assert cluster.beat(1, wants_shutdown=True) == UNFENCED
        cluster.beat(2)
        assert cluster.beat(1, wants_shutdown=True) == UNFENCED, "3 still sends to it"
        cluster.beat(3)
        assert cluster.beat(1, wants_shutdown=True) == HeartbeatReply(True, is_fenced=True, may_stop=True)
        assert cluster.image.brokers[1].is_fenced

    def test_a_fenced_broker_may_stop_at_once(self) -> None:
        cluster = cluster_of_three()
        cluster.fence(1)
        assert cluster.beat(1, wants_shutdown=True) == HeartbeatReply(True, is_fenced=True, may_stop=True)

    def test_while_it_stops_it_gets_no_new_partitions(self) -> None:
        cluster = cluster_of_three()
        cluster.beat(1, wants_shutdown=True)
        cluster.apply(cluster.controller.create_topics([NewTopic("u", 6, 2)]))
        assert {
            replica for state in cluster.image.topics["u"].partitions.values() for replica in state.isr
        } == {
            2,
            3,
        }


class TestUnregister:
    def test_its_partitions_forget_it(self) -> None:
        cluster = cluster_of_three()
        cluster.fence(1, 2)
        epoch = cluster.image.brokers[1].epoch
        cluster.log.clear()
        cluster.apply(cluster.controller.unregister_broker(1))
        assert kinds(cluster.log) == [PartitionChangeRecord, UnregisterBrokerRecord]
        assert cluster.log[-1] == UnregisterBrokerRecord(broker_id=1, broker_epoch=epoch)
        assert summary(cluster) == (3, (3,), (2,))
        with pytest.raises(Refusal) as refusal:
            cluster.controller.unregister_broker(1)
        assert refusal.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


class TestDirectories:
    def test_a_replica_in_a_failed_directory_leaves_the_isr(self) -> None:
        cluster = Cluster(3, directories=2)
        assignments = {index: [1, 2, 3] for index in range(4)}
        cluster.apply(cluster.controller.create_topics([NewTopic("t", assignments=assignments)]))
        partitions = cluster.image.topics["t"].partitions
        failed = partitions[0].directories[0]
        touched = [index for index in range(4) if partitions[index].directories[0] == failed]
        cluster.beat(1, offline=[failed])
        assert len(touched) == 2
        for index, state in partitions.items():
            assert (state.leader, state.isr) == ((2, (2, 3)) if index in touched else (1, (1, 2, 3)))
        assert failed not in cluster.image.brokers[1].directories
        before = len(cluster.log)
        assert cluster.beat(1, offline=[failed]) == UNFENCED
        assert len(cluster.log) == before, "told once"

    def test_so_does_one_that_is_told_to_be_there_after_the_failure(self) -> None:
        """It was moved there, and both requests were under way at the same time."""
        cluster = Cluster(3, directories=2)
        assignments = {0: [1, 2, 3]}
        cluster.apply(cluster.controller.create_topics([NewTopic("t", assignments=assignments)]))
        topic = cluster.image.topics["t"]
        (other,) = {directory(1, 1), directory(1, 2)} - {topic.partitions[0].directories[0]}
        cluster.beat(1, offline=[other])
        assert topic.partitions[0].leader == 1
        places = [ReplicaPlace(topic.id, 0, other)]
        epoch = cluster.image.brokers[1].epoch
        (place,) = cluster.apply(cluster.controller.assign_directories(1, epoch, places))
        assert place.error is ErrorCode.NONE
        state = topic.partitions[0]
        assert (state.leader, state.isr, state.directories[0]) == (2, (2, 3), other)

    def test_a_replica_that_is_told_to_be_on_the_new_disk_may_lead(self) -> None:
        """Its broker came back with an empty disk and got all records again. Before it could say where they
        are now, the others left: nobody led, and nobody would have looked again.
        """
        cluster = Cluster(3)
        cluster.apply(cluster.controller.create_topics([NewTopic("t", assignments={0: [1, 2, 3]})]))
        topic = cluster.image.topics["t"]
        old = directory(3, 9)
        cluster.change(directories=[directory(1), directory(2), old])
        cluster.fence(1, 2)
        assert summary(cluster) == (-1, (3,), ())
        cluster.start(1)
        cluster.start(2)
        assert summary(cluster) == (-1, (3,), ()), "they may lack what was acknowledged since"
        places = [ReplicaPlace(topic.id, 0, directory(3))]
        cluster.apply(cluster.controller.assign_directories(3, cluster.image.brokers[3].epoch, places))
        state = topic.partitions[0]
        assert (state.leader, state.leader_epoch, state.directories[2]) == (3, 2, directory(3))

    def test_a_broker_without_directories_is_fenced(self) -> None:
        cluster = cluster_of_three()
        cluster.beat(1, offline=[directory(1)])
        assert cluster.image.brokers[1].is_fenced

    def test_what_nobody_else_has_stays(self) -> None:
        cluster = Cluster(1, directories=2)
        cluster.apply(cluster.controller.create_topics([NewTopic("t", 2, 1)]))
        cluster.beat(1, offline=[directory(1)])
        assert {state.leader for state in cluster.image.topics["t"].partitions.values()} == {1}


class TestMinInsyncReplicas:
    """KIP-966 counts on it: who left the ISR is eligible only while the ISR is too small to acknowledge."""

    def alter(self, cluster: Cluster, kind: int, name: str, value: str | None) -> ErrorCode:
        operation = Operation.DELETE if value is None else Operation.SET
        change = ResourceChange(kind, name, [KeyChange("min.insync.replicas", operation, value)])
        (altered,) = cluster.apply(cluster.controller.alter_configs([change]))
        return altered.error

    def test_another_value_for_a_topic_ends_its_elr(self) -> None:
        cluster = cluster_of_three()
        cluster.fence(1, 2)
        assert summary(cluster) == (3, (3,), (1, 2))
        assert self.alter(cluster, TOPIC_RESOURCE, "t", "1") is ErrorCode.NONE
        assert cluster.log[-1] == ClearElrRecord(topic_name="t")
        assert summary(cluster) == (3, (3,), ())

    def test_another_value_for_all_ends_every_elr(self) -> None:
        cluster = cluster_of_three()
        cluster.fence(1, 2)
        assert self.alter(cluster, BROKER_RESOURCE, "", "1") is ErrorCode.NONE
        assert cluster.log[-1] == ClearElrRecord(topic_name="")
        assert summary(cluster) == (3, (3,), ())

    def test_the_controllers_value_is_everybodys(self) -> None:
        cluster = cluster_of_three()
        assert cluster.image.cluster_config == {"min.insync.replicas": "2"}
        assert self.alter(cluster, BROKER_RESOURCE, "", None) is ErrorCode.INVALID_CONFIG
        assert self.alter(cluster, BROKER_RESOURCE, "1", "1") is ErrorCode.INVALID_CONFIG
        assert Cluster(1).image.cluster_config == {}
