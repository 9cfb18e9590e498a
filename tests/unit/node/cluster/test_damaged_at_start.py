"""A broker whose disk has lost a log does not lead at its start, also if its process is the controller."""

from __future__ import annotations

import pytest

from harness.controllers import Controller, Controllers
from harness.node_records import batch
from headrace.machines.metadata.image import PartitionState
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.storage.disk import Disk


def partition(one: Controller) -> PartitionState:
    state: PartitionState = one.metadata.image.topics["t"].partitions[0]
    return state


def with_one_record(flush_messages: str) -> tuple[Controllers, Controller]:
    """Three brokers that have it, and the one that leads."""
    cluster = Controllers(are_brokers=True).start()
    first = cluster.elected()
    brokers = first.metadata.image.brokers
    assert cluster.run(20, lambda: [broker.is_fenced for broker in brokers.values()] == [False] * 3)
    configs = {"flush.messages": flush_messages, "min.insync.replicas": "2"}
    topic = CreatableTopic(
        name="t",
        num_partitions=1,
        replication_factor=3,
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
    )
    create = CreateTopicsRequest(topics=[topic], timeout_ms=1000)
    cluster.answer_on(cluster.send_request(first, create, 7, "PLAINTEXT"), create, 7)
    cluster.run(2)
    leader = cluster.nodes[partition(first).leader]
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch(b"a"))])
    produce = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data])
    answer = cluster.answer_on(cluster.send_request(leader, produce, 9, "PLAINTEXT"), produce, 9, seconds=5)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    cluster.run(10)  # checkpoints are written
    return cluster, leader


def lose_log(disk: Disk, *, with_directory: bool) -> None:
    for name in disk.list("t-0"):
        if with_directory or name.partition(".")[0].isdigit():
            disk.remove(f"t-0/{name}")
    if with_directory:
        disk.remove("t-0")


@pytest.mark.parametrize("with_directory", [False, True])
@pytest.mark.parametrize("flush_messages", ["1", "1000"])
def test_what_others_have_is_not_lost(with_directory: bool, flush_messages: str) -> None:
    cluster, last = with_one_record(flush_messages)
    other, eligible = (one for one in cluster.nodes.values() if one is not last)
    other.kill()
    assert cluster.run(60, lambda: other.id not in partition(last).isr)
    eligible.kill()
    other.start()  # the quorum needs it
    assert cluster.run(60, lambda: partition(last).isr == (last.id,))
    assert partition(last).eligible_leader_replicas == (eligible.id,)
    last.kill()
    other.kill()
    lose_log(last.disk, with_directory=with_directory)
    last.start()
    cluster.run(3)
    eligible.start()
    assert cluster.elected(30) is last
    cluster.run(30)
    assert partition(last).leader == eligible.id
    now = cluster.clock.now()
    for one in (eligible, last):
        log = one.up.broker.partitions.at("t", 0).opened(now)  # type: ignore[union-attr]
        assert (log.log_start_offset, log.log_end_offset) == (0, 1)
