"""CreateTopics, DeleteTopics, CreatePartitions, DescribeTopicPartitions through the node."""

from __future__ import annotations

import pytest

from harness.authorizers import ByName
from headrace.node.authorization import Operation, Resource
from headrace.node.connection import Connection
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headrace.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from headrace.simulator.manual_host import ManualHost


def creatable(
    name: str, partitions: int = 1, factor: int = 1, configs: dict[str, str | None] | None = None
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )


class TestCreateTopics:
    @pytest.mark.parametrize("version", range(2, 8))
    def test_every_version(self, version: int) -> None:
        host = ManualHost({"num.partitions": "4"})
        topics = [creatable("a", 3, 1, {"retention.ms": "5"}), creatable("b", -1, -1), creatable("bad name")]
        made, defaulted, refused = host.ask(CreateTopicsRequest(topics=topics), version).topics
        assert (made.error_code, defaulted.error_code) == (0, 0)
        assert refused.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert "bad name" in refused.error_message
        assert len(host.partitions("a")) == 3
        assert len(host.partitions("b")) == 4
        if version >= 5:
            assert (made.num_partitions, made.replication_factor) == (3, 1)
            told = {config.name: (config.value, config.config_source) for config in made.configs}
            assert told["retention.ms"] == ("5", 1)
            assert told["segment.bytes"] == ("1073741824", 5)
        if version >= 7:
            assert made.topic_id == host.node.controller.metadata.image.topics["a"].id

    @pytest.mark.parametrize("version", [2, 7])
    def test_what_a_refusal_quotes_is_cut(self, version: int) -> None:
        """A name may have as many characters as a message, and the message says more than the name."""
        topics = [creatable("x" * 32_767), creatable("a", configs={"cleanup.policy": "y" * 32_767})]
        answers = ManualHost().ask(CreateTopicsRequest(topics=topics), version).topics
        codes = [answer.error_code for answer in answers]
        assert codes == [ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_CONFIG]
        assert all(len(answer.error_message) < 1100 for answer in answers)

    def test_settings_reach_the_log(self) -> None:
        host = ManualHost()
        host.create_topic("t", cleanup_policy="compact", segment_bytes="2097152", flush_messages="1")
        (partition,) = host.partitions("t")
        assert partition.config.cleanup_policy == {"compact"}
        assert (partition.config.segment_bytes, partition.config.flush_messages) == (2_097_152, 1)

    def test_a_partition_assigned_twice(self) -> None:
        topic = creatable("t", -1, -1)
        topic.assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])] * 2
        (result,) = ManualHost().ask(CreateTopicsRequest(topics=[topic]), 7).topics
        assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT

    def test_validate_only(self) -> None:
        host = ManualHost()
        request = CreateTopicsRequest(topics=[creatable("t", 2)], validate_only=True)
        (result,) = host.ask(request, 7).topics
        assert (result.error_code, result.num_partitions) == (0, 2)
        assert host.node.controller.metadata.image.topics == {}

    def test_ten_thousand_topics_in_one_request_and_a_million_partitions(self) -> None:
        host = ManualHost()
        topics = [creatable(f"t{number}") for number in range(10_000)] + [creatable("vast", 1_000_000)]
        results = host.ask(CreateTopicsRequest(topics=topics), 4).topics
        assert {result.error_code for result in results[:-1]} == {0}
        assert results[-1].error_code == ErrorCode.POLICY_VIOLATION

    def test_without_the_right(self) -> None:
        class Nothing(ByName):
            def allows(
                self, connection: Connection, operation: Operation, resource: Resource, name: str
            ) -> bool:
                return operation is not Operation.CREATE

        host = ManualHost()
        host.node.access.authorizer = Nothing()
        (result,) = host.ask(CreateTopicsRequest(topics=[creatable("t")]), 7).topics
        assert result.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert host.node.controller.metadata.image.topics == {}


class TestDeleteTopics:
    @pytest.mark.parametrize("version", range(1, 7))
    def test_every_version(self, version: int) -> None:
        host = ManualHost()
        host.create_topic("t", 2)
        if version < 6:
            request = DeleteTopicsRequest(topic_names=["t", "nope"])
        else:
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t"), DeleteTopicState(name="nope")])
        deleted, missing = host.ask(request, version).responses
        assert (deleted.name, deleted.error_code) == ("t", 0)
        assert (missing.name, missing.error_code) == ("nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert host.node.broker.partitions.of_name("t") is None
        assert host.node.controller.metadata.image.topics == {}

    def test_by_id(self) -> None:
        host = ManualHost()
        host.create_topic("t")
        topic_id = host.node.controller.metadata.image.topics["t"].id
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)])
        (result,) = host.ask(request, 6).responses
        assert (result.name, result.error_code) == ("t", 0)
        (result,) = host.ask(request, 6).responses
        assert (result.name, result.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)

    @pytest.mark.parametrize(
        ("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (4, ErrorCode.TOPIC_DELETION_DISABLED)]
    )
    def test_switched_off(self, version: int, code: ErrorCode) -> None:
        host = ManualHost({"delete.topic.enable": "false"})
        host.create_topic("t")
        (result,) = host.ask(DeleteTopicsRequest(topic_names=["t"]), version).responses
        assert result.error_code == code
        assert "t" in host.node.controller.metadata.image.topics

    def test_a_recreated_topic_is_empty_and_has_another_id(self) -> None:
        host = ManualHost()
        host.create_topic("t")
        first = host.node.controller.metadata.image.topics["t"].id
        host.ask(DeleteTopicsRequest(topic_names=["t"]), 4)
        host.create_topic("t")
        assert host.node.controller.metadata.image.topics["t"].id != first
        again = ManualHost(disks=host.disks, seed=5)
        assert (
            again.node.controller.metadata.image.topics["t"].id
            == host.node.controller.metadata.image.topics["t"].id
        )


class TestCreatePartitions:
    @pytest.mark.parametrize("version", range(4))
    def test_every_version(self, version: int) -> None:
        host = ManualHost()
        host.create_topic("t", 2)
        request = CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(name="t", count=4, assignments=None),
                CreatePartitionsTopic(name="nope", count=4, assignments=None),
            ]
        )
        grown, missing = host.ask(request, version).results
        assert (grown.name, grown.error_code, grown.error_message) == ("t", 0, None)
        assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert len(host.partitions("t")) == 4

    def test_by_hand(self) -> None:
        host = ManualHost()
        host.create_topic("t")
        assignment = CreatePartitionsAssignment(broker_ids=[1])
        topic = CreatePartitionsTopic(name="t", count=2, assignments=[assignment])
        (result,) = host.ask(CreatePartitionsRequest(topics=[topic]), 3).results
        assert result.error_code == 0
        topic = CreatePartitionsTopic(name="t", count=3, assignments=[])
        (result,) = host.ask(CreatePartitionsRequest(topics=[topic]), 3).results
        assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


class TestDescribeTopicPartitions:
    def host(self) -> ManualHost:
        host = ManualHost()
        for name, partitions in [("b", 3), ("a", 4), ("c", 1)]:
            host.create_topic(name, partitions)
        return host

    @staticmethod
    def pages(host: ManualHost, names: list[str], limit: int) -> list[list[tuple[str, int]]]:
        """Follow the cursor to the end."""
        pages = []
        cursor = None
        while True:
            request = DescribeTopicPartitionsRequest(
                topics=[TopicRequest(name=name) for name in names],
                response_partition_limit=limit,
                cursor=cursor,
            )
            response = host.ask(request, 0)
            pages.append(
                [
                    (topic.name, partition.partition_index)
                    for topic in response.topics
                    for partition in topic.partitions
                ]
            )
            cursor = response.next_cursor
            if cursor is None:
                return pages

    @pytest.mark.parametrize("limit", [0, 1, 2, 3, 4, 5, 7, 8, 100])
    def test_pages_put_together_are_everything_in_order(self, limit: int) -> None:
        everything = [("a", 0), ("a", 1), ("a", 2), ("a", 3), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]
        pages = self.pages(self.host(), [], limit)
        assert [each for page in pages for each in page] == everything
        assert all(len(page) == max(limit, 1) for page in pages[:-1])

    def test_chosen_topics_in_order_of_their_names(self) -> None:
        (page,) = self.pages(self.host(), ["c", "b", "c"], 100)
        assert page == [("b", 0), ("b", 1), ("b", 2), ("c", 0)]

    def test_a_missing_topic_and_a_bad_name(self) -> None:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name="nope"), TopicRequest(name="bad name")]
        )
        told = {topic.name: topic.error_code for topic in self.host().ask(request, 0).topics}
        assert told == {
            "nope": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }

    @pytest.mark.parametrize("cursor", [Cursor(topic_name="b", partition_index=-1), Cursor(topic_name="x")])
    def test_a_cursor_that_cannot_be_ours(self, cursor: Cursor) -> None:
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="b")], cursor=cursor)
        (topic,) = self.host().ask(request, 0).topics
        assert topic.error_code == ErrorCode.INVALID_REQUEST

    def test_the_cursors_topic_was_deleted_between_two_pages(self) -> None:
        host = self.host()
        host.ask(DeleteTopicsRequest(topic_names=["b"]), 4)
        request = DescribeTopicPartitionsRequest(cursor=Cursor(topic_name="b", partition_index=2))
        response = host.ask(request, 0)
        assert [(topic.name, len(topic.partitions)) for topic in response.topics] == [("c", 1)]
