"""A cluster under test, whose nodes die, stand still and are cut off from each other."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, Producer

import headrace
from harness.wait import WAIT_S, eventually
from headrace.client.admin.configs import Resource
from headrace.client.errors import ClientError
from headrace.testing import Cluster, HostFailed, NodeFailed

pytest_plugins = ["pytester"]

Make = Callable[..., Cluster]


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with Cluster(3) as cluster:
        yield cluster


@pytest.fixture
def three(shared: Cluster) -> Iterator[Cluster]:
    """Three nodes; a test may leave them as it likes."""
    yield shared
    shared.heal()
    for node in shared.running:
        shared.resume(node)
    shared.start()
    shared.wait_until_in_sync(timeout=WAIT_S)


def values(cluster: Cluster, topic: str) -> list[bytes | None]:
    return [record.value for record in cluster.consume_all(topic)]


def partition_led_beside(cluster: Cluster, controller: int, topic: str) -> tuple[int, int, int]:
    """A partition of a new topic that is not led by the controller, its leader, and the third node."""
    cluster.create_topic(topic, 3)
    partition = next(number for number in range(3) if cluster.leader_of(topic, number) != controller)
    leader = cluster.leader_of(topic, partition)
    return partition, leader, next(node for node in cluster.nodes if node not in (leader, controller))


class TestNodes:
    def test_topics_have_three_replicas_and_need_two(self, three: Cluster) -> None:
        three.create_topic("defaults", 2)
        assert three.in_sync("defaults", 1) == [1, 2, 3]
        with headrace.Admin(three.bootstrap_servers) as admin:
            assert admin.describe_config(Resource.topic("defaults"))["min.insync.replicas"].value == "2"

    def test_a_killed_node_is_replaced_and_comes_back(self, three: Cluster) -> None:
        three.create_topic("killed")
        three.produce_all("killed", ["before"])
        leader = three.leader_of("killed")
        pid = three.pid(leader)
        three.kill(leader)
        assert leader not in three.running
        assert three.leader_of("killed") != leader
        three.produce_all("killed", ["meanwhile"])
        three.start(leader)
        assert three.pid(leader) != pid
        three.wait_until_in_sync("killed")
        assert three.in_sync("killed") == [1, 2, 3]
        three.assert_consumed("killed", ["before", "meanwhile"])

    def test_the_controller_is_killed(self, three: Cluster) -> None:
        before = three.controller()
        three.kill(before)
        assert three.controller() != before

    def test_a_node_that_is_stopped_hands_over_first(self, three: Cluster) -> None:
        three.create_topic("stopped")
        leader = three.leader_of("stopped")
        three.stop(leader)
        assert leader not in three.in_sync("stopped")
        assert three.leader_of("stopped") != leader
        with pytest.raises(NodeFailed, match=rf"node {leader} is not running"):
            three.kill(leader)

    def test_a_node_that_ends_by_itself_is_noticed(self, three: Cluster) -> None:
        os.kill(three.pid(2), signal.SIGKILL)
        eventually(lambda: three.running, [1, 3])

    def test_with_one_of_three_left_nothing_is_acknowledged(self, three: Cluster) -> None:
        three.create_topic("minimum")
        survivor = three.leader_of("minimum")
        first, second = (node for node in three.nodes if node != survivor)
        three.kill(first)
        three.produce_all("minimum", ["two have it"])
        three.kill(second)
        with pytest.raises(ClientError):
            three.produce_all("minimum", ["one has it"], timeout=2)
        three.start()
        three.wait_until_in_sync("minimum")
        assert values(three, "minimum")[0] == b"two have it"


class TestPauses:
    def test_a_paused_leader_is_replaced_and_does_no_harm_when_it_wakes_up(self, three: Cluster) -> None:
        three.create_topic("paused")
        leader = three.leader_of("paused")
        three.pause(leader)
        assert three.leader_of("paused") != leader
        three.produce_all("paused", ["meanwhile"])
        three.resume(leader)
        three.wait_until_in_sync("paused")
        three.assert_consumed("paused", ["meanwhile"])


class TestCuts:
    def test_a_leader_that_is_cut_off_from_all_is_replaced(self, three: Cluster) -> None:
        three.create_topic("isolated")
        leader = three.leader_of("isolated")
        three.isolate(leader)
        assert three.leader_of("isolated", other_than=leader) != leader
        three.produce_all("isolated", ["meanwhile"])
        three.heal()
        three.wait_until_in_sync("isolated")
        three.assert_consumed("isolated", ["meanwhile"])

    def test_a_follower_that_is_cut_off_from_its_leader_leaves_the_in_sync_set(self, three: Cluster) -> None:
        """The controller reaches both, so neither is fenced."""
        controller = three.controller()
        partition, leader, follower = partition_led_beside(three, controller, "followed")
        three.cut(leader, follower)
        with headrace.Producer(three.bootstrap_servers) as producer:
            producer.send("followed", b"x", partition=partition).get(timeout=WAIT_S)
        eventually(lambda: three.in_sync("followed", partition), sorted({leader, controller}))
        assert three.leader_of("followed", partition) == leader
        three.heal()
        three.wait_until_in_sync("followed")

    def test_a_node_that_starts_is_cut_off_from_the_beginning(self, three: Cluster) -> None:
        partition, leader, follower = partition_led_beside(three, three.controller(), "late")
        three.kill(follower)
        three.cut(follower, leader)
        three.start(follower)
        with headrace.Producer(three.bootstrap_servers) as producer:
            producer.send("late", b"x", partition=partition).get(timeout=WAIT_S)
        assert follower not in three.in_sync("late", partition)
        three.heal()
        three.wait_until_in_sync("late")

    def test_nobody_is_cut_off_from_itself(self, three: Cluster) -> None:
        with pytest.raises(ValueError, match="itself"):
            three.cut(1, 1)
        with pytest.raises(ValueError, match="there is no node 4"):
            three.cut(1, 4)


class TestClients:
    def test_confluent_kafka_goes_on_while_a_broker_dies(self, three: Cluster) -> None:
        three.create_topic("confluent", 3)
        servers = {"bootstrap.servers": three.bootstrap_servers, "log_level": 0}
        consumer = Consumer({**servers, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["confluent"])
        # idempotent: a record whose acknowledgement was lost with its leader is not written twice
        producer = Producer({**servers, "enable.idempotence": True})
        for number in range(60):
            producer.produce("confluent", str(number), key=str(number))
            producer.poll(0)
            if number == 20:
                three.kill(three.leader_of("confluent", 0))
        assert producer.flush(WAIT_S) == 0
        read: list[int] = []
        while len(read) < 60:
            message = consumer.poll(WAIT_S)
            assert message is not None
            if message.error() is None:
                read.append(int(message.value() or b""))
        consumer.close()
        assert sorted(read) == list(range(60))

    def test_asyncio(self, three: Cluster) -> None:
        three.create_topic("asyncio")

        async def story() -> None:
            servers = three.bootstrap_servers
            async with AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer:
                await producer.send_and_wait("asyncio", b"one")
                leader = await asyncio.to_thread(three.leader_of, "asyncio")
                await asyncio.to_thread(three.kill, leader)
                await producer.send_and_wait("asyncio", b"two")

        asyncio.run(story())
        three.assert_consumed("asyncio", ["one", "two"])


class TestTheWhole:
    def test_files_stay_in_a_directory_of_the_test(self, tmp_path: Path) -> None:
        with Cluster(2, {"num.partitions": 4}, topics=["kept"], path=tmp_path) as cluster:
            cluster.produce_all("kept", ["x"])
        assert {path.name for path in tmp_path.iterdir()} == {"node-1", "node-2"}
        assert (tmp_path / "node-1" / "data" / ".kafka_cleanshutdown").exists()

    def test_one_node_is_a_cluster_too(self) -> None:
        with Cluster(1, topics={"t": 2}) as cluster:
            cluster.produce_all("t", ["x"])
            assert (cluster.controller(), cluster.leader_of("t", 1)) == (1, 1)

    def test_settings_are_checked(self) -> None:
        with pytest.raises(ValueError, match=r"did you mean 'num.partitions'"):
            Cluster(3, {"num.partition": 3})
        with pytest.raises(ValueError, match=r"node\.id cannot be set"):
            Cluster(3, {"node.id": 1})
        with pytest.raises(ValueError, match="at least 1"):
            Cluster(0)

    def test_a_node_that_cannot_start_says_why(self, tmp_path: Path) -> None:
        (tmp_path / "node-1").mkdir()
        (tmp_path / "node-1" / "data").write_text("not a directory")
        with pytest.raises(NodeFailed, match=r"node 1 cannot start"):
            Cluster(1, path=tmp_path).start()

    def test_after_its_end_it_says_so(self) -> None:
        cluster = Cluster(1)
        with pytest.raises(HostFailed, match="not running"):
            _ = cluster.bootstrap_servers

    def test_metrics_show_a_lost_node(self, headrace_cluster: Make) -> None:
        cluster = headrace_cluster(3, {"headrace.metrics.port": 0}, topics={"t": 3}, log_level="info")

        def metric(node: int, name: str) -> float:
            *_, address = re.findall(r" metrics address=(\S+)", "".join(cluster.log(node)))
            with urllib.request.urlopen(address) as page:
                lines = page.read().decode().splitlines()
            return sum(float(line.split()[-1]) for line in lines if line.split("{")[0].split(" ")[0] == name)

        def summed(name: str) -> float:
            return sum(metric(node, name) for node in cluster.running)

        assert summed("headrace_active_controller") == 1
        assert (summed("headrace_leaders"), summed("headrace_replicas")) == (3, 9)
        assert summed("headrace_under_replicated_partitions") == 0
        lost = next(node for node in cluster.nodes if node != cluster.controller())
        cluster.kill(lost)
        eventually(lambda: summed("headrace_under_replicated_partitions"), 3)
        eventually(lambda: summed("headrace_cluster_fenced_brokers"), 2)  # both controllers know it
        assert summed("headrace_broker_fencings_total") == 1
        assert summed("headrace_leaders") == 3
        assert {metric(node, "headrace_quorum_leader_id") for node in cluster.running} == {
            cluster.controller()
        }
        cluster.start(lost)
        cluster.wait_until_in_sync()
        eventually(lambda: summed("headrace_under_replicated_partitions"), 0)
        assert summed("headrace_isr_expands_total") >= 1


ABANDONED = """
import os, sys, time
from headrace.client.errors import ClientError
from headrace.testing import Cluster
cluster = Cluster(2).start()
cluster.pause(2)
print(cluster.pid(1), cluster.pid(2), flush=True)
sys.stdin.read()
"""


def test_no_node_outlives_a_test_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ABANDONED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        process.kill()

    def is_alive(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except FileNotFoundError:
            return False

    assert len(pids) == 2
    eventually(lambda: [pid for pid in pids if is_alive(pid)], [])


def test_the_fixture_stops_what_it_started(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_three(headrace_cluster):
            global cluster
            cluster = headrace_cluster(3, topics=["orders"])
            cluster.produce_all("orders", ["x"])
            cluster.kill(cluster.leader_of("orders"))
            cluster.assert_consumed("orders", ["x"])

        def test_it_is_gone():
            assert not cluster.is_started
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=2)
