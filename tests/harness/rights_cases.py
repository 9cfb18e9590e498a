"""Every question of the table of rights (`node/rights.py`), with a request for which it comes up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from headrace.machines.security.acl_rules import (
    CLUSTER_NAME,
    IMPLIED_BY,
    OPERATIONS,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from headrace.node.rights import RIGHTS, RIGHTS_ON_CONTROLLERS, Question, Right
from headrace.node.routes import SERVED, SERVED_TO_NODES
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from headrace.protocol.messages.list_transactions import ListTransactionsRequest
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from headrace.records.builder import build_batch

TOPIC, GROUP, TRANSACTIONAL_ID = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
NAMES = {TOPIC: "t", GROUP: "g", TRANSACTIONAL_ID: "tx", ResourceType.CLUSTER: CLUSTER_NAME}
MEMBER = "AAAAAAAAAAAAAAAAAAAAAA"


class Case(NamedTuple):
    """How a question of the table comes up, where a request with all fields filled does not do."""

    values: dict[str, Any] = {}  # of fields
    request: Callable[[bytes], Any] | None = None  # from the id of the topic
    version: int | None = None  # the highest, unless this says otherwise
    names: dict[ResourceType, str] = {}
    shown: str | None = None  # what is in the answer of a client with the right, if that is not a name


def _delete_by_id(topic_id: bytes) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)], timeout_ms=5_000)


def _fetch_as_replica(topic_id: bytes) -> FetchRequest:
    wanted = FetchPartition(partition=0, partition_max_bytes=1000)
    return FetchRequest(
        replica_state=ReplicaState(replica_id=5, replica_epoch=1),
        topics=[FetchTopic(topic_id=topic_id, partitions=[wanted])],
        max_bytes=1000,
    )


def _by_pattern(topic_id: bytes) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id="patterns",
        member_id=MEMBER,
        rebalance_timeout_ms=1000,
        subscribed_topic_regex="t",
        topic_partitions=[],
    )


TRANSACTIONAL = build_batch(
    [(1_700_000_000_000, None, b"v", ())],
    producer_id=0,
    producer_epoch=0,
    base_sequence=0,
    transactional=True,
)
NEW = {TOPIC: "new"}
RULE = {
    "operation": Operation.READ,
    "permission_type": Permission.ALLOW,
    "resource_pattern_type": PatternType.LITERAL,
    "pattern_type_filter": PatternType.LITERAL,
    "principal": "User:nobody",
    "host": "*",
    "resource_type_filter": TOPIC,
}
CASES: dict[tuple[int, int], Case] = {
    (0, 0): Case({"records": TRANSACTIONAL}),
    (0, 1): Case({"transactional_id": None}),
    (1, 0): Case(request=_fetch_as_replica),
    (3, 0): Case({"topic_id": bytes(16)}),
    (3, 1): Case(request=lambda topic_id: MetadataRequest(topics=None)),
    (3, 2): Case(
        request=lambda topic_id: MetadataRequest(
            topics=[MetadataRequestTopic(name="new")], allow_auto_topic_creation=True
        ),
        names=NEW,
    ),
    (9, 2): Case(
        request=lambda topic_id: OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]
        ),
        version=9,
    ),
    (10, 1): Case({"key_type": 1, "coordinator_keys": "tx"}),
    (19, 0): Case({"name": "new", "configs": [], "assignments": []}, names=NEW),
    (19, 1): Case({"name": "new", "configs": [], "assignments": [], "validate_only": True}, names=NEW),
    (20, 0): Case({"topic_id": bytes(16)}),
    (20, 1): Case(request=_delete_by_id),
    (22, 2): Case({"transactional_id": None}),
    (24, 0): Case(version=3),
    (24, 1): Case(version=3),
    (65, 1): Case(),
    (66, 0): Case(request=lambda topic_id: ListTransactionsRequest()),
    (68, 2): Case(request=_by_pattern, names={GROUP: "patterns"}, shown="TOPIC-ID"),
    (69, 0): Case({"group_ids": "new-protocol"}, names={GROUP: "new-protocol"}),
    (69, 1): Case({"group_ids": "new-protocol"}, names={GROUP: "new-protocol"}),
    (75, 0): Case(request=lambda topic_id: DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")])),
    (75, 1): Case(request=lambda topic_id: DescribeTopicPartitionsRequest(topics=[])),
    **{
        (key, index): Case({"resource_type": kind, "type": kind, "resource_name": name, **setting})
        for key in (32, 33, 44)
        for index, (kind, name, setting) in enumerate(
            (
                (2, "t", {"name": "retention.ms", "value": "1000000"}),
                (32, "g", {"name": "consumer.session.timeout.ms", "value": "45000"}),
                (4, "1", {"name": "message.max.bytes", "value": "1048588"}),
            )
        )
    },
    **{(key, 0): Case(RULE) for key in (29, 30, 31)},
    **{(key, 0): Case(names={TRANSACTIONAL_ID: "t"}) for key in (30010, 30011, 30012, 30013, 30014)},
}
# Two-phase commit comes with a version that is not served yet.
NOT_YET = {(22, 1)}
# What a delegation token needs depends on its owner and on the login: its own tests look at that.
ELSEWHERE = {38, 39, 40, 41}


class Asked(NamedTuple):
    key: int
    number: int  # of the question in its row
    question: Question
    on_controller: bool

    @property
    def case(self) -> Case:
        return Case() if self.on_controller else CASES.get((self.key, self.number), Case())

    def name(self, resource: ResourceType) -> str:
        return {**NAMES, **self.case.names}[resource]

    def __str__(self) -> str:
        return f"{self.key}-{self.number}{'-on-controller' if self.on_controller else ''}"


def asked() -> Iterator[Asked]:
    for served, rows, on_controller in (
        (SERVED, RIGHTS, False),
        (SERVED_TO_NODES, RIGHTS, True),
        (RIGHTS_ON_CONTROLLERS, RIGHTS_ON_CONTROLLERS, True),
    ):
        for key in served:
            for number, question in enumerate(rows[key]):
                if (key, number) not in NOT_YET and key not in ELSEWHERE:
                    yield Asked(key, number, question, on_controller)


def allows(right: Right, other: Right) -> bool:
    """Whether a rule for the one allows the other."""
    operations = (other.operation, *IMPLIED_BY.get(other.operation, ()))
    return right.resource == other.resource and right.operation in operations


def useless(right: Right, question: Question) -> Operation | None:
    """Another operation on the same resource, which allows nothing of what is asked."""
    for operation in OPERATIONS[right.resource]:
        candidate = Right(operation, right.resource)
        if not any(allows(candidate, wanted) for wanted in question.rights):
            return operation
    return None
