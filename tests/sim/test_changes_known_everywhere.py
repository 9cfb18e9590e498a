"""A client changes metadata and then asks any broker: all know the change when its answer leaves."""

from __future__ import annotations

from typing import Any

import pytest

from harness.simulated_cluster import APART, ClusterClient, SimulatedCluster
from headrace.machines.raft.leader import Leader
from headrace.node.metadata_log import MetadataLog
from headrace.node.metadata_replies import KNOWN_MS_MAX
from headrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest
from headrace.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

SLOW_SECONDS = 0.1  # one way, so that a broker hears of a commit after the controller could have answered
TOPIC, SET = 2, 0


class Watcher(ClusterClient):
    """Notes what each broker knows when an answer arrives."""

    def __init__(self, cluster: SimulatedCluster, id: int) -> None:
        super().__init__(cluster, id)
        self.known: dict[int, dict[str, dict[str, str]]] = {}  # the configs of each topic

    def answered(self, frame: bytes) -> None:
        super().answered(frame)
        for id in self.cluster.up:
            image = self.cluster.image(id)
            self.known[id] = {name: dict(image.topic_config(name)) for name in image.topics}


def ready(seed: int, roles: dict[int, str] | None = None) -> SimulatedCluster:
    cluster = SimulatedCluster(seed, roles=roles)
    brokers = [
        id for id, its_roles in (roles or dict.fromkeys((1, 2, 3), "broker")).items() if "broker" in its_roles
    ]
    cluster.until(lambda: cluster.unfenced() == brokers and cluster.all_ready())
    return cluster


def slow_broker(cluster: SimulatedCluster, asked: int) -> int:
    """One that is neither asked nor the active controller; what it sends and gets is late."""
    slow = next(id for id in reversed(cluster.unfenced()) if id not in (asked, cluster.active()))
    for id in cluster.up:
        if id != slow:
            cluster.network.slow_down(slow, id, SLOW_SECONDS)
            cluster.network.slow_down(id, slow, SLOW_SECONDS)
    return slow


def create(client: ClusterClient, name: str) -> CreateTopicsResponse:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=2)
    return client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)


def set_retention(name: str) -> IncrementalAlterConfigsRequest:
    config = AlterableConfig(name="retention.ms", config_operation=SET, value="1000")
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[config])
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("roles", "asked"), [(None, 1), (None, 2), (APART, 4)])
def test_every_broker_knows_a_change_that_was_answered(
    seed: int, roles: dict[int, str] | None, asked: int
) -> None:
    cluster = ready(seed, roles)
    slow_broker(cluster, asked)
    client = Watcher(cluster, asked)
    brokers = cluster.unfenced()

    assert not create(client, "t").topics[0].error_code
    assert [list(client.known[id]) for id in brokers] == [["t"]] * len(brokers)

    altered: Any = client.ask(set_retention("t"), 1)
    assert not altered.responses[0].error_code
    assert [client.known[id]["t"] for id in brokers] == [{"retention.ms": "1000"}] * len(brokers)

    deleted: Any = client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    assert not deleted.responses[0].error_code
    assert [client.known[id] for id in brokers] == [{}] * len(brokers)


@pytest.mark.parametrize("seed", range(4))
def test_a_broker_that_hears_nothing_is_not_awaited_for_long(seed: int) -> None:
    cluster = ready(seed)
    client = Watcher(cluster, 1)
    silent = slow_broker(cluster, 1)
    for id in cluster.up:
        if id != silent:
            cluster.network.cut(id, silent)
            cluster.network.cut(silent, id)
    begin = cluster.world.mono
    assert not create(client, "t").topics[0].error_code
    assert "t" not in client.known[silent]
    assert KNOWN_MS_MAX / 1000 <= cluster.world.mono - begin < 2 * KNOWN_MS_MAX / 1000


def test_a_broker_that_is_fenced_meanwhile_is_not_awaited() -> None:
    cluster = ready(1)
    client = Watcher(cluster, 1)
    gone = slow_broker(cluster, 1)
    cluster.network.heal()
    cluster.hosts[gone].kill()
    begin = cluster.world.mono
    assert not create(client, "t").topics[0].error_code
    assert cluster.world.mono - begin < KNOWN_MS_MAX / 1000


@pytest.mark.parametrize("seed", range(4))
def test_a_change_that_is_committed_is_answered_when_its_controller_resigns(seed: int) -> None:
    """The answer waits for a broker that hears nothing; meanwhile the controller loses its majority."""
    cluster = ready(seed)
    active = cluster.active()
    assert active is not None
    client = Watcher(cluster, active)
    silent = slow_broker(cluster, active)
    for id in cluster.up:
        if id != silent:
            cluster.network.cut(id, silent)
            cluster.network.cut(silent, id)
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=2)
    client.send(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
    cluster.until(lambda: "t" in cluster.image(active).topics)
    assert not client.answers
    cluster.hosts[active].touch(lambda node, now: node.controller.metadata.hand_over(now))
    cluster.until(lambda: client.answers)


def test_the_work_grows_with_what_changes_not_with_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fetch of metadata may be the one that answers: it must not ask all brokers for all of them."""
    changes = 60
    cluster = ready(1, APART)
    slow_broker(cluster, 4)
    counts = {"asked": 0, "fetched": 0, "applied": 0}

    def count(owner: type, name: str, what: str) -> None:
        before = getattr(owner, name)

        def counted(self: Any, *arguments: Any) -> Any:
            counts[what] += 1
            return before(self, *arguments)

        monkeypatch.setattr(owner, name, counted)

    count(Leader, "applied_offset", "asked")
    count(Leader, "_heard", "fetched")
    count(MetadataLog, "_apply", "applied")
    topics = [CreatableTopic(name=f"t{n}", num_partitions=1, replication_factor=2) for n in range(changes)]
    clients = [ClusterClient(cluster, 4) for _ in topics]
    for asking, topic in zip(clients, topics, strict=True):
        asking.send(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7)
    cluster.until(lambda: all(asking.answers for asking in clients))
    brokers = len(cluster.unfenced())
    assert counts["applied"] >= changes
    assert counts["asked"] <= counts["fetched"] + brokers * counts["applied"]
