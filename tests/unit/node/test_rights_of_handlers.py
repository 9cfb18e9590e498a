"""What the matrix of rights does not look at: several topics in one request, ids, what a refusal hides."""

from __future__ import annotations

from harness.node_groups import SETTINGS, find
from harness.node_transactions import Producer
from harness.rules import Rules
from headrace.machines.security.acl_rules import Operation, PatternType, ResourceType
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.protocol.messages.produce import PartitionProduceData, TopicProduceData
from headrace.records.builder import build_batch
from headrace.simulator.manual_host import ManualHost

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
BATCH = build_batch([(1_700_000_000_000, None, b"v", ())])
NO_TOPIC, NO_TRANSACTION = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
SOME_ID = b"\7" * 16


def host_with(*topics: str) -> ManualHost:
    host = ManualHost(SETTINGS)
    for topic in topics:
        host.create_topic(topic)
    return host


def id_of(host: ManualHost, topic: str) -> bytes:
    return bytes(host.partitions(topic)[0].topic_id)


def end_of(host: ManualHost, topic: str) -> int:
    (partition,) = host.partitions(topic)
    return partition.high_watermark


class TestProduce:
    def test_one_transactional_batch_without_the_right_refuses_all(self) -> None:
        host = host_with("a", "b")
        producer = Producer(host)
        Rules(host).allow(Operation.WRITE, TOPIC, "*")
        batch = build_batch(
            [(1_700_000_000_000, None, b"v", ())],
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            base_sequence=0,
            transactional=True,
        )
        request = host.produce_request("a", bytearray(BATCH))
        data = PartitionProduceData(index=0, records=bytearray(batch))
        request.topic_data.append(TopicProduceData(name="b", partition_data=[data]))
        request.transactional_id = producer.name
        answers = host.ask(request, 9).responses
        assert [one.partition_responses[0].error_code for one in answers] == [NO_TRANSACTION] * 2
        assert end_of(host, "a") == end_of(host, "b") == 0

    def test_each_topic_by_itself(self) -> None:
        host = host_with("a", "b")
        Rules(host).allow(Operation.WRITE, TOPIC, "b")
        request = host.produce_request("a", bytearray(BATCH))
        request.topic_data += host.produce_request("b", bytearray(BATCH)).topic_data
        answers = host.ask(request, 9).responses
        assert [one.partition_responses[0].error_code for one in answers] == [NO_TOPIC, 0]
        assert (end_of(host, "a"), end_of(host, "b")) == (0, 1)

    def test_without_an_answer_the_connection_is_closed(self) -> None:
        host = host_with("t")
        Rules(host)
        connection = host.connect()
        host.send(connection, host.produce_request("t", bytearray(BATCH), acks=0), 9)
        assert "TOPIC_AUTHORIZATION_FAILED" in host.closed[connection.id]
        assert end_of(host, "t") == 0


class TestIds:
    """As in Kafka, an id that no topic has is told as such; the name of one that it has is not told."""

    def test_fetch(self) -> None:
        host = host_with("t")
        Rules(host)
        wanted = [FetchPartition(partition=0, partition_max_bytes=1000)]
        topics = [FetchTopic(topic_id=each, partitions=wanted) for each in (id_of(host, "t"), SOME_ID)]
        answers = host.ask(FetchRequest(topics=topics, max_bytes=1000), 16).responses
        assert [one.partitions[0].error_code for one in answers] == [NO_TOPIC, ErrorCode.UNKNOWN_TOPIC_ID]

    def test_metadata(self) -> None:
        host = host_with("t")
        Rules(host)
        topics = [MetadataRequestTopic(topic_id=each, name=None) for each in (id_of(host, "t"), SOME_ID)]
        there, absent = host.ask(MetadataRequest(topics=topics), 12).topics
        assert (there.error_code, there.name, there.partitions) == (NO_TOPIC, None, [])
        assert (absent.error_code, absent.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)


class TestDeleteTopics:
    def delete(self, host: ManualHost, *topics: DeleteTopicState) -> list[tuple[str | None, int]]:
        answers = host.ask(DeleteTopicsRequest(topics=list(topics)), 6).responses
        return sorted(((one.name, one.error_code) for one in answers), key=str)

    def test_who_may_see_a_topic_learns_that_it_is_not_there(self) -> None:
        host = host_with("t")
        Rules(host).allow(Operation.DESCRIBE, TOPIC, "*")
        told = self.delete(host, DeleteTopicState(name="t"), DeleteTopicState(name="absent"))
        assert told == [("absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ("t", NO_TOPIC)]

    def test_who_may_not_does_not(self) -> None:
        host = host_with("t")
        Rules(host)
        told = self.delete(host, DeleteTopicState(name="t"), DeleteTopicState(name="absent"))
        assert told == [("absent", NO_TOPIC), ("t", NO_TOPIC)]
        assert self.delete(host, DeleteTopicState(name=None, topic_id=id_of(host, "t"))) == [(None, NO_TOPIC)]


def test_who_may_write_to_topics_with_a_prefix_may_do_it_idempotently() -> None:
    host = host_with("t")
    rules = Rules(host)
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    assert host.ask(request, 4).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    rules.allow(Operation.WRITE, TOPIC, "mine-", pattern=PatternType.PREFIXED)
    assert host.ask(request, 4).error_code == 0
    rules.deny(Operation.WRITE, TOPIC, "*")
    assert host.ask(request, 4).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_group_with_a_topic_that_may_not_be_seen_is_not_described() -> None:
    host = host_with("a", "b")
    find(host, "g")
    beat = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="AAAAAAAAAAAAAAAAAAAAAA",
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["a", "b"],
        topic_partitions=[],
    )
    assert host.ask(beat, 1).error_code == 0
    rules = Rules(host)
    rules.allow(Operation.DESCRIBE, GROUP, "g")
    rules.allow(Operation.DESCRIBE, TOPIC, "a")
    (group,) = host.ask(ConsumerGroupDescribeRequest(group_ids=["g"]), 1).groups
    assert (group.error_code, group.members) == (NO_TOPIC, [])
    rules.allow(Operation.DESCRIBE, TOPIC, "b")
    (group,) = host.ask(ConsumerGroupDescribeRequest(group_ids=["g"]), 1).groups
    assert (group.error_code, len(group.members)) == (0, 1)
