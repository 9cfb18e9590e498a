"""Coordinators on a cluster with two brokers, of which one is away for a while: the in-sync set of the
internal topics falls below min.insync.replicas and grows again.
"""

from __future__ import annotations

from typing import Any

import pytest

from harness.simulated_cluster import APART, ClusterClient, SimulatedCluster
from harness.single_partition import commit_of, committed_of
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.describe_groups import DescribeGroupsRequest
from headrace.protocol.messages.describe_transactions import DescribeTransactionsRequest
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.protocol.messages.list_groups import ListGroupsRequest
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

BROKERS = (4, 5)
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "2",
    "group.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": "3000",
}
SESSION_MS = 20_000
REFUSED = ErrorCode.COORDINATOR_NOT_AVAILABLE


class Scene:
    def __init__(self, seed: int) -> None:
        self.cluster = cluster = SimulatedCluster(seed, roles=APART, settings=SETTINGS)
        cluster.until(lambda: cluster.unfenced() == [4, 5] and cluster.all_ready())
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=2)
        ClusterClient(cluster, 4).ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
        cluster.until(lambda: self.coordinator(0) > 0 and self.coordinator(1) > 0)
        cluster.until(lambda: self.are_in_sync(set(BROKERS)))
        cluster.run(1)

    def coordinator(self, kind: int) -> int:
        """Of the group, or of the transactional id, that is called "g"; -1: there is none yet."""
        question = FindCoordinatorRequest(key_type=kind, coordinator_keys=["g"])
        (found,) = ClusterClient(self.cluster, self.brokers_up[0]).ask(question, 4).coordinators
        return found.node_id if found.error_code == 0 else -1

    @property
    def brokers_up(self) -> list[int]:
        return [id for id in self.cluster.up if id in BROKERS]

    def are_in_sync(self, isr: set[int]) -> bool:
        """As all brokers know that are up."""
        images = [self.cluster.image(id) for id in self.brokers_up]
        return all(
            topic in image.topics
            and all(set(partition.isr) == isr for partition in image.topics[topic].partitions.values())
            for image in images
            for topic in (OFFSETS, TRANSACTIONS)
        )

    def ask(self, request: Any, version: int, kind: int = 0) -> Any:
        return ClusterClient(self.cluster, self.coordinator(kind)).ask(request, version)

    # --- the group --------------------------------------------------------------------------------------

    def join(self, group: str, member: str = "") -> Any:
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id=member,
            protocol_type="consumer",
            protocols=protocols,
        )
        return self.ask(request, 9)

    def member_of(self, group: str) -> dict[str, Any]:
        """The only member of a group, as it names itself in requests."""
        joined = self.join(group, self.join(group).member_id)
        assert joined.error_code == 0
        member = {"member_id": joined.member_id, "generation_id": joined.generation_id}
        shares = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")]
        synced = self.ask(SyncGroupRequest(group_id=group, assignments=shares, **member), 3)
        assert (synced.error_code, synced.assignment) == (0, b"all")
        return member

    def commit(self, offset: int, member: dict[str, Any]) -> int:
        request = commit_of(
            "g",
            "t",
            offset,
            member_id=member["member_id"],
            generation_id_or_member_epoch=member["generation_id"],
        )
        code: int = self.ask(request, 8).topics[0].partitions[0].error_code
        return code

    def committed(self) -> int:
        (group,) = self.ask(committed_of("g", "t"), 9).groups
        assert group.error_code == 0
        offset: int = group.topics[0].partitions[0].committed_offset
        return offset

    def begin_transactions(self) -> tuple[int, int, int]:
        request = InitProducerIdRequest(transactional_id="g", transaction_timeout_ms=60_000)
        answer = self.ask(request, 5, kind=1)
        return answer.error_code, answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize("away", ["follower", "leader"])
@pytest.mark.parametrize("seed", range(3))
def test_only_what_would_be_written_is_refused(seed: int, away: str) -> None:
    scene = Scene(seed)
    cluster = scene.cluster
    member = scene.member_of("g")
    assert scene.commit(5, member) == 0
    while (begun := scene.begin_transactions())[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        cluster.run(0.1)  # until producer ids are granted
    code, producer_id, epoch = begun
    assert code == 0
    cluster.run(1)

    leader = scene.coordinator(0)
    victim = leader if away == "leader" else 9 - leader
    cluster.hosts[victim].kill()
    left = 9 - victim
    cluster.until(lambda: scene.are_in_sync({left}), 30)
    cluster.until(lambda: scene.coordinator(0) == scene.coordinator(1) == left)
    cluster.run(1)  # both are loaded
    for offset in range(6, 16):
        assert scene.commit(offset, member) == REFUSED
        assert scene.join("new").error_code == REFUSED
        assert scene.begin_transactions()[0] == REFUSED
        assert scene.ask(HeartbeatRequest(group_id="g", **member), 4).error_code == 0
        assert scene.committed() == 5
        (group,) = scene.ask(DescribeGroupsRequest(groups=["g"]), 5).groups
        assert (group.error_code, group.group_state, len(group.members)) == (0, "Stable", 1)
        listed = scene.ask(ListGroupsRequest(), 4)
        assert (listed.error_code, [one.group_id for one in listed.groups]) == (0, ["g"])
        request = DescribeTransactionsRequest(transactional_ids=["g"])
        (transaction,) = scene.ask(request, 0, kind=1).transaction_states
        assert (transaction.error_code, transaction.producer_epoch) == (0, epoch)
        cluster.run(SESSION_MS / 2_000)

    cluster.hosts[victim].start()
    cluster.until(lambda: scene.are_in_sync(set(BROKERS)), 30)
    assert scene.commit(17, member) == 0
    assert scene.committed() == 17
    assert scene.begin_transactions() == (0, producer_id, epoch + 1)
    scene.member_of("new")


def test_a_member_that_fell_silent_meanwhile_goes_when_replicas_are_back() -> None:
    scene = Scene(1)
    cluster = scene.cluster
    scene.member_of("g")
    cluster.run(1)
    victim = 9 - scene.coordinator(0)
    cluster.hosts[victim].kill()
    cluster.until(lambda: scene.are_in_sync({9 - victim}), 30)
    cluster.run(3 * SESSION_MS / 1_000)
    (group,) = scene.ask(DescribeGroupsRequest(groups=["g"]), 5).groups
    assert (group.group_state, len(group.members)) == ("Stable", 1)
    cluster.hosts[victim].start()
    cluster.until(lambda: scene.are_in_sync(set(BROKERS)), 30)
    cluster.run(2)
    (group,) = scene.ask(DescribeGroupsRequest(groups=["g"]), 5).groups
    assert (group.group_state, len(group.members)) == ("Empty", 0)
