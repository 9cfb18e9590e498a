"""A broker that starts again leads nothing before it is registered: in the leader epochs of its last run it
may lack records that others have.
"""

from __future__ import annotations

from harness.controllers import Controller, Controllers
from harness.node_records import batch
from headrace.node.error_codes import NotLeader
from headrace.node.partition import Partition
from headrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

TOPIC = "t"


def cluster_with_topic() -> tuple[Controllers, Controller, Controller, int]:
    """The active controller, another broker, and a partition which that one leads."""
    cluster = Controllers(are_brokers=True).start()
    active = cluster.elected()
    brokers = active.metadata.image.brokers
    assert cluster.run(20, lambda: [broker.is_fenced for broker in brokers.values()] == [False] * 3)
    configs = [CreatableTopicConfig(name="min.insync.replicas", value="2")]
    topic = CreatableTopic(name=TOPIC, num_partitions=3, replication_factor=3, configs=configs)
    create = CreateTopicsRequest(topics=[topic], timeout_ms=1000)
    cluster.answer_on(cluster.send_request(active, create, 7, "PLAINTEXT"), create, 7)
    cluster.run(2)
    partitions = active.metadata.image.topics[TOPIC].partitions
    index = next(index for index, one in partitions.items() if one.leader != active.id)
    return cluster, active, cluster.nodes[partitions[index].leader], index


def produce(cluster: Controllers, leader: Controller, index: int, value: bytes) -> None:
    data = TopicProduceData(
        name=TOPIC, partition_data=[PartitionProduceData(index=index, records=batch(value))]
    )
    request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data])
    answer = cluster.answer_on(cluster.send_request(leader, request, 9, "PLAINTEXT"), request, 9, seconds=5)
    assert answer.responses[0].partition_responses[0].error_code == 0


def partition_of(one: Controller, index: int) -> Partition:
    partition = one.up.broker.partitions.at(TOPIC, index)
    assert partition is not None
    return partition


def content(cluster: Controllers, one: Controller, index: int) -> bytes:
    log = partition_of(one, index).opened(cluster.clock.now())
    files = [segment for segment in log.segments.items if not segment.is_new]
    return b"".join(bytes(segment.file().read(0, segment.measure())) for segment in files)


def test_nothing_is_appended_in_an_epoch_of_the_last_run() -> None:
    """Its host went down, and it has lost the end of a log that others have. A coordinator in its process
    would write to that place, in the same epoch, and no follower could find the difference.
    """
    cluster, active, leader, index = cluster_with_topic()
    produce(cluster, leader, index, b"kept")
    log = partition_of(leader, index).log
    assert log is not None
    log.flush_now()
    produce(cluster, leader, index, b"lost")
    active.runs_jobs = False  # no metadata are committed
    leader.kill(how="lost")
    leader.start()
    cluster.run(2)
    assert leader.metadata.is_caught_up
    assert leader.up.broker.lifecycle.epoch < 0, "it is not registered yet"
    partition = partition_of(leader, index)
    assert partition.opened(cluster.clock.now()).log_end_offset == 1
    appended = memoryview(bytearray(batch(b"of a coordinator")))
    try:
        partition.append(appended, cluster.clock.now(), from_client=False)
    except NotLeader:
        pass
    active.run_jobs()
    cluster.run(30)
    contents = {content(cluster, one, index) for one in cluster.nodes.values()}
    assert len(contents) == 1, "two values of one offset"
    assert b"lost" in contents.pop()
    assert set(active.metadata.image.topics[TOPIC].partitions[index].isr) == {1, 2, 3}
