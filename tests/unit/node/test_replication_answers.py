"""Answers between brokers, field by field: sessions of followers, epochs that are over, and ISR proposals."""

from __future__ import annotations

from typing import Any

import pytest

from harness.replica_brokers import TOPIC_ID, ReplicaBrokers
from harness.rules import Rules
from harness.two_brokers import change_metadata
from headrace.base.limits import FETCH_WAIT_MS_MAX
from headrace.machines.security.acl_rules import CLUSTER_NAME, Operation, ResourceType
from headrace.node.effects import Mute
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_partition import AlterPartitionResponse
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from headrace.protocol.metadata_records import (
    BrokerEndpoint,
    ClientQuotaRecord,
    EntityData,
    RegisterBrokerRecord,
)


@pytest.fixture
def brokers() -> ReplicaBrokers:
    brokers = ReplicaBrokers()
    brokers.create_topic(min_insync_replicas="2")
    brokers.exchange()
    return brokers


def ends(brokers: ReplicaBrokers) -> list[int]:
    return [brokers.partition(id).opened(brokers.clock.now()).log_end_offset for id in brokers.hosts]


def test_fetches_of_replicas_have_no_quota(brokers: ReplicaBrokers) -> None:
    """Neither of bytes nor of time, and their connections are never muted."""
    leader = brokers.hosts[1]
    entity = [EntityData(entity_type="client-id", entity_name=None)]
    for key in ("consumer_byte_rate", "request_percentage"):
        change_metadata(leader, ClientQuotaRecord(entity=entity, key=key, value=1.0))
    assert leader.node.quotas.version is not None
    replica = Replica(brokers)
    leader.effects.clear()
    for epoch in range(3):
        answer = replica.fetch(epoch)
        assert (answer.error_code, answer.throttle_time_ms) == (0, 0)
        assert replica.connection.meters is None
    assert not any(isinstance(effect, Mute) for effect in leader.effects)


class Replica:
    """Broker 2 as its leader sees it, with fetches that the test writes."""

    def __init__(self, brokers: ReplicaBrokers) -> None:
        self.brokers = brokers
        brokers.separate(1, 2)  # the true one is silent
        self.session = 0
        self.connection = brokers.hosts[1].connect()

    def fetch(self, epoch: int, **more: Any) -> Any:
        answer = self.brokers.hosts[1].ask(self.request(epoch, **more), 17, self.connection)
        if answer.session_id:
            self.session = answer.session_id
        return answer

    def request(
        self,
        epoch: int,
        *,
        offset: int = 0,
        session: int | None = None,
        max_wait_ms: int = 0,
        **changes: Any,
    ) -> FetchRequest:
        wanted: dict[str, Any] = {
            "partition": 0,
            "fetch_offset": offset,
            "partition_max_bytes": 1_000_000,
            "current_leader_epoch": 0,
            "last_fetched_epoch": -1,
            "log_start_offset": 0,
        }
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1_000_000,
            session_id=self.session if session is None else session,
            session_epoch=epoch,
            replica_state=ReplicaState(replica_id=2, replica_epoch=self.brokers.epoch_of(2)),
            topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[FetchPartition(**wanted | changes)])],
        )


class TestSessions:
    def test_each_request_has_the_next_number(self, brokers: ReplicaBrokers) -> None:
        replica = Replica(brokers)
        first = replica.fetch(0)
        assert (first.error_code, first.session_id > 0) == (ErrorCode.NONE, True)
        assert replica.fetch(1).error_code == ErrorCode.NONE
        assert replica.fetch(3).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert replica.fetch(2, session=replica.session + 1).error_code == (
            ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        )
        assert replica.fetch(2).error_code == ErrorCode.NONE
        again = replica.fetch(0, session=0)
        assert (again.error_code, again.session_id > 0) == (ErrorCode.NONE, True)
        assert replica.fetch(1).error_code == ErrorCode.NONE

    @pytest.mark.parametrize("is_removed", [True, False])
    def test_a_right_that_is_taken_away_while_a_fetch_waits(
        self, brokers: ReplicaBrokers, *, is_removed: bool
    ) -> None:
        """Who was allowed to act as a replica gets nothing that is written from now on."""
        leader = brokers.hosts[1]
        rules = Rules(leader)
        rules.allow(Operation.WRITE, ResourceType.TOPIC, "*")
        rule = rules.allow(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
        replica = Replica(brokers)
        replica.fetch(0)
        request = replica.request(1, max_wait_ms=2**31 - 1)
        leader.send(replica.connection, request, 17)
        assert leader.receive(replica.connection) is None, "it waits"
        rules.allow(Operation.READ, ResourceType.TOPIC, "other")
        if is_removed:
            rules.remove(rule)
        brokers.produce(1, b"secret")
        answer = leader.receive(replica.connection)
        if is_removed:
            assert (answer.error_code, answer.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
        else:
            assert bytes(answer.responses[0].partitions[0].records) == brokers.content(1)

    def test_a_fetch_waits_for_minutes_at_the_most(self, brokers: ReplicaBrokers) -> None:
        replica = Replica(brokers)
        replica.fetch(0)
        leader = brokers.hosts[1]
        leader.send(replica.connection, replica.request(1, max_wait_ms=2**31 - 1), 17)
        leader.advance(FETCH_WAIT_MS_MAX / 1000 + 1)
        assert leader.receive(replica.connection) is not None

    def test_what_is_told_of_a_partition(self, brokers: ReplicaBrokers) -> None:
        brokers.produce(1, b"a", b"b")
        replica = Replica(brokers)
        (data,) = replica.fetch(0).responses[0].partitions
        assert (data.partition_index, data.error_code) == (0, ErrorCode.NONE)
        assert (data.high_watermark, data.log_start_offset) == (0, 0)
        assert bytes(data.records) == brokers.content(1)
        (data,) = replica.fetch(1, offset=2, last_fetched_epoch=0).responses[0].partitions
        assert not data.records
        assert data.diverging_epoch is None

    @pytest.mark.parametrize(
        ("epoch", "error"),
        [
            (0, ErrorCode.NONE),
            (1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ],
    )
    def test_only_followers_of_the_same_epoch_are_served(
        self, brokers: ReplicaBrokers, epoch: int, error: ErrorCode
    ) -> None:
        brokers.produce(1, b"a")
        (data,) = Replica(brokers).fetch(0, current_leader_epoch=epoch).responses[0].partitions
        assert data.error_code == error
        assert bool(data.records) == (error is ErrorCode.NONE)

    def test_a_follower_of_an_older_epoch_is_told_and_goes_on_when_it_has_heard(
        self, brokers: ReplicaBrokers
    ) -> None:
        brokers.lead(1, (1, 2, 3), to=[1, 2])
        brokers.produce(1, b"a")
        brokers.advance(0.4)
        assert ends(brokers) == [1, 1, 0]
        (data,) = Replica(brokers).fetch(0, current_leader_epoch=0).responses[0].partitions
        assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        brokers.lead(1, (1, 2, 3), to=[3])
        brokers.advance(1.5)
        assert ends(brokers) == [1, 1, 1]

    def test_one_whose_log_is_another_is_told_where_they_part(self, brokers: ReplicaBrokers) -> None:
        brokers.produce(1, b"a")
        brokers.exchange()
        brokers.lead(1, (1, 2, 3))
        brokers.produce(1, b"b")
        replica = Replica(brokers)
        (data,) = (
            replica.fetch(0, offset=5, last_fetched_epoch=0, current_leader_epoch=1).responses[0].partitions
        )
        assert (data.error_code, data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 0, 1)
        assert not data.records
        (data,) = (
            replica.fetch(1, offset=1, last_fetched_epoch=0, current_leader_epoch=1).responses[0].partitions
        )
        assert data.diverging_epoch is None
        assert data.records


def test_a_broker_that_registered_again_fetches_under_its_new_epoch(brokers: ReplicaBrokers) -> None:
    brokers.produce(1, b"a")
    brokers.exchange()
    epoch = brokers.epoch_of(3) + 50
    for id, host in brokers.hosts.items():
        endpoint = BrokerEndpoint(name="PLAINTEXT", host="127.0.0.1", port=9093, security_protocol=0)
        record = RegisterBrokerRecord(broker_id=3, broker_epoch=epoch, end_points=[endpoint], fenced=False)
        change_metadata(host, record)
        assert brokers.image(id).brokers[3].epoch == epoch
    brokers.produce(1, b"b")
    brokers.advance(0.9)
    assert ends(brokers) == [2, 2, 2]
    assert set(brokers.state().isr) == {1, 2, 3}


class TestProposals:
    def shrunk(self, brokers: ReplicaBrokers) -> None:
        brokers.separate(1, 3)
        brokers.produce(1, b"a")
        brokers.advance(2.0)
        assert brokers.control() == [ErrorCode.NONE]
        brokers.heal()
        brokers.advance(1.0)

    def test_after_a_rejection_the_same_is_proposed_again_without_a_write(
        self, brokers: ReplicaBrokers
    ) -> None:
        self.shrunk(brokers)
        (question,) = brokers.channels[1].questions
        question[0].topics[0].partitions[0].new_isr_with_epochs[-1].broker_epoch += 7
        assert brokers.control()[0] == ErrorCode.INELIGIBLE_REPLICA
        brokers.advance(3.0)
        assert brokers.control() == [ErrorCode.NONE]
        assert set(brokers.state().isr) == {1, 2, 3}

    def test_an_outdated_one_is_not_repeated(self, brokers: ReplicaBrokers) -> None:
        self.shrunk(brokers)
        (question,) = brokers.channels[1].questions
        question[0].topics[0].partitions[0].partition_epoch -= 1
        assert brokers.control() == [ErrorCode.INVALID_UPDATE_VERSION]
        leader = brokers.partition(1).leader
        assert leader is not None
        assert leader.maximal_isr == {1, 2, 3}, "it may have been accepted: metadata will tell"
        brokers.lead(1, (1, 2))
        brokers.advance(2.0)
        assert brokers.control() == [ErrorCode.NONE]
        assert set(brokers.state().isr) == {1, 2, 3}

    def test_without_an_answer_it_is_asked_again(self, brokers: ReplicaBrokers) -> None:
        self.shrunk(brokers)
        body, then = brokers.channels[1].questions.popleft()
        assert [one.broker_id for one in body.topics[0].partitions[0].new_isr_with_epochs] == [1, 2, 3]
        assert (body.broker_id, body.broker_epoch) == (1, brokers.epoch_of(1))
        then(brokers.clock.now(), AlterPartitionResponse(error_code=ErrorCode.REQUEST_TIMED_OUT))
        brokers.hosts[1].settle()
        assert not brokers.channels[1].questions
        brokers.advance(1.0)
        assert brokers.control() == [ErrorCode.NONE]
        assert set(brokers.state().isr) == {1, 2, 3}
