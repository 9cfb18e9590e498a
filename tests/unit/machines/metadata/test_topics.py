"""Creating, growing and deleting topics: what is granted, what is refused and with which words."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.base.ids import METADATA_TOPIC_ID, NO_TOPIC_ID, TopicId
from headrace.base.limits import PARTITIONS_PER_REQUEST_MAX
from headrace.machines.metadata.controller import create_topics
from headrace.machines.metadata.controller.create_partitions import MorePartitions
from headrace.machines.metadata.controller.create_topics import NewTopic, new_topic_id
from headrace.machines.metadata.controller.delete_topics import DoomedTopic
from headrace.machines.metadata.controller.names import name_fault
from headrace.machines.metadata.image import ClusterImage
from headrace.protocol.errors import ErrorCode
from unit.machines.metadata.cluster import Cluster


def create(cluster: Cluster, *topics: NewTopic) -> list[tuple[ErrorCode, str | None]]:
    reply = cluster.apply(cluster.controller.create_topics(topics))
    return [(topic.error, topic.message) for topic in reply]


class TestCreate:
    def test_a_topic_is_there_with_its_partitions_and_settings(self) -> None:
        cluster = Cluster()
        decision = cluster.controller.create_topics([NewTopic("t", 3, 1, {}, {"retention.ms": "5"})])
        assert "t" not in cluster.image.topics, "a decision changes nothing by itself"
        (created,) = cluster.apply(decision)
        topic = cluster.image.topics["t"]
        assert (created.topic_id, created.partitions, created.replication_factor) == (topic.id, 3, 1)
        assert cluster.image.topics_by_id[topic.id] is topic
        assert cluster.image.topic_config("t") == {"retention.ms": "5"}
        assert sorted(topic.partitions) == [0, 1, 2]
        partition = topic.partitions[0]
        assert (partition.replicas, partition.isr, partition.leader) == ((1,), (1,), 1)
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
        assert partition.directories == cluster.image.brokers[1].directories

    def test_validate_only_answers_the_same_and_writes_nothing(self) -> None:
        cluster = Cluster()
        decision = cluster.controller.create_topics([NewTopic("t", 3, 1)], validate_only=True)
        assert decision.records == []
        assert (decision.reply[0].error, decision.reply[0].partitions) == (ErrorCode.NONE, 3)

    @pytest.mark.parametrize(
        ("topic", "code", "says"),
        [
            (NewTopic(""), ErrorCode.INVALID_TOPIC_EXCEPTION, "the empty string is not allowed"),
            (NewTopic("."), ErrorCode.INVALID_TOPIC_EXCEPTION, "'.' is not allowed"),
            (NewTopic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION, "'..' is not allowed"),
            (NewTopic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "other than ASCII alphanumerics"),
            (NewTopic("a\\b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "other than ASCII alphanumerics"),
            (NewTopic("ä"), ErrorCode.INVALID_TOPIC_EXCEPTION, "other than ASCII alphanumerics"),
            (NewTopic("a\n"), ErrorCode.INVALID_TOPIC_EXCEPTION, "other than ASCII alphanumerics"),
            (NewTopic("a" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION, "max allowed length 249"),
            (NewTopic("__cluster_metadata"), ErrorCode.INVALID_REQUEST, "prohibited"),
            (NewTopic("old"), ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'old' already exists."),
            (NewTopic("dot_ted"), ErrorCode.INVALID_TOPIC_EXCEPTION, "collides with existing topic: dot.ted"),
            (NewTopic("t", 0), ErrorCode.INVALID_PARTITIONS, "non-positive"),
            (NewTopic("t", -2), ErrorCode.INVALID_PARTITIONS, "non-positive"),
            (NewTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "larger than 0"),
            (NewTopic("t", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR, "only 1 broker(s)"),
            (NewTopic("t", 10**6), ErrorCode.POLICY_VIOLATION, str(PARTITIONS_PER_REQUEST_MAX)),
            (NewTopic("t", configs={"foo": "1"}), ErrorCode.INVALID_CONFIG, "Unknown topic config name: foo"),
            (NewTopic("t", configs={"retention.ms": "x"}), ErrorCode.INVALID_CONFIG, "Not a number"),
            (NewTopic("t", configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG, "Null value"),
            (NewTopic("t", 2, -1, {0: [1]}), ErrorCode.INVALID_REQUEST, "numPartitions"),
            (NewTopic("t", -1, 1, {0: [1]}), ErrorCode.INVALID_REQUEST, "replication factor"),
            (NewTopic("t", -1, -1, {1: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "consecutive"),
            (NewTopic("t", -1, -1, {0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "empty replica list"),
            (NewTopic("t", -1, -1, {0: [1, 1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "more than once"),
            (NewTopic("t", -1, -1, {0: [9]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no such broker"),
        ],
    )
    def test_refused(self, topic: NewTopic, code: ErrorCode, says: str) -> None:
        cluster = Cluster()
        create(cluster, NewTopic("old"), NewTopic("dot.ted"))
        ((error, message),) = create(cluster, topic)
        assert error is code
        assert says in (message or "")
        assert topic.name not in cluster.image.topics or topic.name == "old"

    def test_one_refusal_does_not_hold_up_the_others(self) -> None:
        cluster = Cluster()
        results = create(cluster, NewTopic("a"), NewTopic("bad name"), NewTopic("b"))
        assert [error for error, _ in results] == [
            ErrorCode.NONE,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.NONE,
        ]
        assert sorted(cluster.image.topics) == ["a", "b"]

    def test_a_name_asked_for_twice_is_told_once_and_made_never(self) -> None:
        cluster = Cluster()
        results = create(cluster, NewTopic("a"), NewTopic("a"), NewTopic("b"))
        assert results == [(ErrorCode.INVALID_REQUEST, "Duplicate topic name."), (ErrorCode.NONE, None)]
        assert sorted(cluster.image.topics) == ["b"]

    def test_names_that_collide_within_one_request(self) -> None:
        first, second = create(Cluster(), NewTopic("a.b"), NewTopic("a_b"))
        assert first[0] is ErrorCode.NONE
        assert second[0] is ErrorCode.INVALID_TOPIC_EXCEPTION

    def test_the_limit_counts_the_whole_request(self) -> None:
        half = PARTITIONS_PER_REQUEST_MAX // 2 + 1
        codes = [error for error, _ in create(Cluster(), NewTopic("a", half), NewTopic("b", half))]
        assert codes == [ErrorCode.NONE, ErrorCode.POLICY_VIOLATION]

    def test_all_partitions_together_are_limited_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(create_topics, "PARTITIONS_MAX", 10)
        cluster = Cluster()
        assert create(cluster, NewTopic("a", 6)) == [(ErrorCode.NONE, None)]
        ((code, message), (also, _)) = create(cluster, NewTopic("b", 5), NewTopic("c", 4))
        assert (code, also) == (ErrorCode.POLICY_VIOLATION, ErrorCode.NONE)
        assert message is not None
        assert "5 where 4 more can be created" in message
        (grown,) = cluster.controller.create_partitions([MorePartitions("a", 7)]).reply
        assert grown.error is ErrorCode.POLICY_VIOLATION
        cluster.apply(cluster.controller.delete_topics([DoomedTopic("c")]))
        (grown,) = cluster.controller.create_partitions([MorePartitions("a", 10)]).reply
        assert grown.error is ErrorCode.NONE

    def test_a_deleted_name_is_free_again_with_another_id(self) -> None:
        cluster = Cluster()
        create(cluster, NewTopic("a.b"))
        first = cluster.image.topics["a.b"].id
        cluster.apply(cluster.controller.delete_topics([DoomedTopic("a.b")]))
        assert create(cluster, NewTopic("a_b")) == [(ErrorCode.NONE, None)]
        assert cluster.image.topics["a_b"].id != first

    def test_replicas_spread_over_brokers_and_directories(self) -> None:
        cluster = Cluster(3, directories=2)
        create(cluster, NewTopic("t", 12, 2))
        partitions = cluster.image.topics["t"].partitions.values()
        leaders = [partition.leader for partition in partitions]
        assert {broker: leaders.count(broker) for broker in (1, 2, 3)} == {1: 4, 2: 4, 3: 4}
        assert all(len(set(partition.replicas)) == 2 for partition in partitions)
        held = cluster.image.partitions_by_directory
        assert len(held) == 6
        assert set(held.values()) == {4}

    def test_a_reserved_id_is_never_given(self) -> None:
        class Loaded:
            """Throws the reserved ids first."""

            throws = [bytes(NO_TOPIC_ID), bytes(METADATA_TOPIC_ID), b"\xfa" + bytes(15), b"\x01" * 16]

            def randbytes(self, n: int) -> bytes:
                return self.throws.pop(0)

            def randrange(self, stop: int) -> int:
                return 0

        topic_id = new_topic_id(ClusterImage(), Loaded())
        assert topic_id not in (NO_TOPIC_ID, METADATA_TOPIC_ID)
        assert (topic_id[6] >> 4, topic_id[8] >> 6) == (4, 2), "a version-4 UUID, as Kafka's"


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=260))
def test_a_name_that_passes_is_a_safe_directory_name(name: str) -> None:
    if name_fault(name) is None:
        assert name.isascii()
        assert "/" not in name
        assert name not in (".", "..")
        assert 0 < len(name) <= 249


class TestGrow:
    def grow(self, cluster: Cluster, *wanted: MorePartitions) -> list[tuple[ErrorCode, str | None]]:
        reply = cluster.apply(cluster.controller.create_partitions(wanted))
        return [(topic.error, topic.message) for topic in reply]

    def test_new_partitions_follow_the_old_ones(self) -> None:
        cluster = Cluster()
        create(cluster, NewTopic("t", 2))
        assert self.grow(cluster, MorePartitions("t", 5)) == [(ErrorCode.NONE, None)]
        assert sorted(cluster.image.topics["t"].partitions) == [0, 1, 2, 3, 4]

    @pytest.mark.parametrize(
        ("wanted", "code", "says"),
        [
            (MorePartitions("t", 2), ErrorCode.INVALID_PARTITIONS, "already has 2 partition(s)"),
            (MorePartitions("t", 1), ErrorCode.INVALID_PARTITIONS, "would not be an increase"),
            (MorePartitions("t", -1), ErrorCode.INVALID_PARTITIONS, "would not be an increase"),
            (MorePartitions("nope", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""),
            (MorePartitions("t", 4, [[1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "2 additional"),
            (MorePartitions("t", 3, [[2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no such broker"),
            (MorePartitions("t", 3, [[]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "empty replica list"),
            (MorePartitions("t", 10**6), ErrorCode.POLICY_VIOLATION, "Excessively large"),
        ],
    )
    def test_refused(self, wanted: MorePartitions, code: ErrorCode, says: str) -> None:
        cluster = Cluster()
        create(cluster, NewTopic("t", 2))
        ((error, message),) = self.grow(cluster, wanted)
        assert error is code
        assert says in (message or "")
        assert len(cluster.image.topics["t"].partitions) == 2

    def test_told_once(self) -> None:
        cluster = Cluster()
        create(cluster, NewTopic("t", 2))
        results = self.grow(cluster, MorePartitions("t", 3), MorePartitions("t", 4))
        assert results == [(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")]


class TestDelete:
    def test_by_name_and_by_id_with_everything_that_belonged_to_it(self) -> None:
        cluster = Cluster()
        create(cluster, NewTopic("a", 2, configs={"retention.ms": "1"}), NewTopic("b", 2))
        by_id = cluster.image.topics["b"].id
        doomed = [DoomedTopic("a"), DoomedTopic(None, by_id)]
        reply = cluster.apply(cluster.controller.delete_topics(doomed))
        assert [(topic.name, topic.error) for topic in reply] == [
            ("a", ErrorCode.NONE),
            ("b", ErrorCode.NONE),
        ]
        image = cluster.image
        assert (image.topics, image.topics_by_id, image.configs) == ({}, {}, {})
        assert not any(image.partitions_by_directory.values())

    @pytest.mark.parametrize(
        ("doomed", "code"),
        [
            (DoomedTopic("nope"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (DoomedTopic(None, TopicId(b"x" * 16)), ErrorCode.UNKNOWN_TOPIC_ID),
            (DoomedTopic(None), ErrorCode.INVALID_REQUEST),
            (DoomedTopic("a", TopicId(b"x" * 16)), ErrorCode.INVALID_REQUEST),
        ],
    )
    def test_refused(self, doomed: DoomedTopic, code: ErrorCode) -> None:
        cluster = Cluster()
        create(cluster, NewTopic("a"))
        (result,) = cluster.apply(cluster.controller.delete_topics([doomed]))
        assert result.error is code
        assert "a" in cluster.image.topics

    def test_the_same_topic_by_name_and_by_id(self) -> None:
        cluster = Cluster()
        create(cluster, NewTopic("a"))
        doomed = [DoomedTopic("a"), DoomedTopic(None, cluster.image.topics["a"].id)]
        (result,) = cluster.apply(cluster.controller.delete_topics(doomed))
        assert result.error is ErrorCode.INVALID_REQUEST
        assert "a" in cluster.image.topics
