"""A coordinator that another broker has replaced, and that does not know it: it reaches clients, and neither
the controller nor its followers.
"""

from __future__ import annotations

from unittest.mock import patch

import pytest

from harness.simulated_cluster import APART, ClusterClient, SimulatedCluster
from harness.single_partition import commit_of, committed_of
from headrace.node.coordinators.groups import GroupCoordinator
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "2",
    "min.insync.replicas": "1",
    "broker.session.timeout.ms": "3000",
}


class Scene:
    """Two brokers, 4 and 5. The one that coordinated the group is cut off, and the other one has a commit
    that it does not know.
    """

    def __init__(self, seed: int) -> None:
        self.cluster = cluster = SimulatedCluster(seed, roles=APART, settings=SETTINGS)
        cluster.until(lambda: cluster.unfenced() == [4, 5] and cluster.all_ready())
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=2)
        ClusterClient(cluster, 4).ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
        cluster.until(lambda: self.coordinator(4) > 0)
        cluster.run(1)
        self.old = self.coordinator(4)
        self.new = 9 - self.old
        self.commit(self.old, 5)
        cluster.run(1)
        for other in cluster.hosts:
            if other != self.old:
                cluster.network.cut(self.old, other)
                cluster.network.cut(other, self.old)
        cluster.until(lambda: self.coordinator(self.new) == self.new, 30)
        cluster.run(1)
        self.commit(self.new, 9)

    def coordinator(self, asked: int) -> int:
        question = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        (found,) = ClusterClient(self.cluster, asked).ask(question, 4).coordinators
        return found.node_id if found.error_code == 0 else -1

    def commit(self, broker: int, offset: int) -> None:
        answer = ClusterClient(self.cluster, broker).ask(commit_of("g", "t", offset), 8)
        assert answer.topics[0].partitions[0].error_code == 0

    def told(self, broker: int, *, require_stable: bool) -> tuple[int, int]:
        """An error, and the offset that this broker tells."""
        request = committed_of("g", "t")
        request.require_stable = require_stable
        (group,) = ClusterClient(self.cluster, broker).ask(request, 9).groups
        offsets = [one.committed_offset for topic in group.topics for one in topic.partitions]
        return group.error_code, (offsets or [-1])[0]


@pytest.mark.parametrize("seed", range(3))
def test_it_does_not_tell_stable_offsets_of_before(seed: int) -> None:
    scene = Scene(seed)
    assert scene.told(scene.new, require_stable=True) == (0, 9)
    assert scene.told(scene.old, require_stable=False) == (0, 5), "as Kafka's: it does not know better"
    assert scene.told(scene.old, require_stable=True) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


def test_a_planted_bug_is_caught() -> None:
    scene = Scene(1)
    with patch.object(GroupCoordinator, "confirm", staticmethod(lambda now, shard, group_id: None)):
        assert scene.told(scene.old, require_stable=True) == (0, 5)
