"""Kafka's DumpLogSegments reads all replicas after nodes were killed: they are the same, batch by batch."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from harness.cluster import Cluster
from harness.wait import WAIT_S
from interop.java_tools import DUMP_LOG_COMPLAINTS, JavaTools

TOPIC, PARTITIONS = "replicated", 2
CODECS = ("none", "lz4", "gzip", "zstd")  # between which the nodes are killed, one after the other
SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
GROUP = "g"

POSITION = re.compile(r" position: \d+")  # in its file: segments need not begin at the same offsets


def fill(cluster: Cluster, codec: str) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap, "log_level": 0}
    sender = Producer(
        settings | {"transactional.id": "t", "compression.type": codec, "batch.num.messages": 20}
    )
    sender.init_transactions(WAIT_S)
    reader = Consumer(settings | {"group.id": GROUP})
    for transaction in range(20):
        sender.begin_transaction()
        for number in range(100):
            sender.produce(TOPIC, bytes(400), b"%d" % number, partition=number % PARTITIONS)
            sender.poll(0)
        offsets = [TopicPartition(TOPIC, 0, transaction)]
        sender.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), WAIT_S)
        if transaction % 3:
            sender.commit_transaction(WAIT_S)
        else:
            sender.abort_transaction(WAIT_S)
    reader.close()


@pytest.fixture(scope="module")
def stopped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """All nodes were in sync when they were stopped."""
    kind = request.config.getoption("--broker")
    with Cluster(kind, tmp_path_factory.mktemp("cluster"), SETTINGS) as cluster:
        admin = cluster.admin()
        topic = NewTopic(TOPIC, PARTITIONS, config={"segment.bytes": str(1 << 20), "retention.ms": "-1"})
        admin.create_topics([topic])[TOPIC].result(WAIT_S)
        fill(cluster, CODECS[0])
        for number, codec in enumerate(CODECS[1:], 1):
            cluster.kill(number)
            fill(cluster, codec)
            cluster.start()
            for name in (TOPIC, "__consumer_offsets", "__transaction_state"):
                cluster.wait(lambda name=name: cluster.in_sync(name), f"{name} in sync")  # type: ignore[misc]
        cluster.stop()
        yield cluster


def batches(tools: JavaTools, cluster: Cluster, partition: str) -> dict[int, list[str]]:
    """By node, a line for each batch: offsets, leader epoch, producer, sequence, times, size and checksum."""
    found = {}
    for number, node in cluster.nodes.items():
        paths = sorted((node.data / partition).glob("*.log"))
        told = tools("kafka-dump-log", "--files", ",".join(map(str, paths)))
        assert told.code == 0, told
        for complaint in (*DUMP_LOG_COMPLAINTS, "isvalid: false"):
            assert complaint not in told.out, told.out[told.out.index(complaint) :][:500]
        found[number] = [POSITION.sub("", line) for line in told.lines if line.startswith("baseOffset")]
        assert found[number], told
    return found


@pytest.mark.parametrize(
    "partition", [f"{TOPIC}-0", f"{TOPIC}-1", "__consumer_offsets-0", "__transaction_state-0"]
)
def test_replicas_are_the_same(tools: JavaTools, stopped: Cluster, partition: str) -> None:
    of_node = batches(tools, stopped, partition)
    first = of_node[1]
    epochs = {re.findall(r"partitionLeaderEpoch: (\d+)", line)[0] for line in first}
    assert len(epochs) > 1, "its leader was killed"
    for number, theirs in of_node.items():
        for ours, line in zip(first, theirs, strict=False):
            assert line == ours, f"node 1 and node {number}"
        assert len(theirs) == len(first)


def test_metadata_logs_are_the_same(tools: JavaTools, stopped: Cluster) -> None:
    """As far as they go: the last entries, which tell that nodes stop, need not be everywhere."""
    of_node = batches(tools, stopped, "__cluster_metadata-0")
    shortest = min(map(len, of_node.values()))
    assert shortest > 20
    for theirs in of_node.values():
        assert theirs[: shortest - 5] == of_node[1][: shortest - 5]
