"""Metadata, key 3, versions 0–13: the brokers, and where each partition of the asked topics is led.

From version 1 null topics are all and an empty list is none; version 0 has an empty list for all. Topics can
be asked for by id from version 12 on. A missing topic is created when the client and the settings allow it;
then the answer waits until the topic is durable.
"""

from collections.abc import Iterable

from headrace.base.ids import NO_TOPIC_ID, TopicId
from headrace.machines.metadata.controller.create_topics import NewTopic
from headrace.machines.metadata.controller.names import name_fault
from headrace.machines.metadata.image import NO_LEADER, PartitionState, TopicState
from headrace.node.authorization import CLUSTER_NAME, Operation, Resource, operations_bits
from headrace.node.committed_reply import CommittedReply, when_committed
from headrace.node.faults import FAULTS, code_of
from headrace.node.node import Node
from headrace.node.request import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

INTERNAL_TOPICS = frozenset(("__consumer_offsets", "__transaction_state", "__share_group_state"))
LISTENER_ERROR_SINCE = 6
BY_ID_SINCE = 12


def handle(node: Node, request: Request) -> MetadataResponse | CommittedReply:
    body: MetadataRequest = request.body
    asked = body.topics
    if asked is None or (not asked and request.version == 0):
        topics = all_topics(node, request)
    elif request.version < BY_ID_SINCE and any(topic.topic_id != NO_TOPIC_ID for topic in asked):
        return MetadataResponse(topics=[refused(topic, ErrorCode.INVALID_REQUEST) for topic in asked])
    else:
        topics = asked_topics(node, request, asked, is_create_allowed=body.allow_auto_topic_creation)
    response = MetadataResponse(
        brokers=brokers(node, request.connection.listener),
        cluster_id=node.partitions.cluster_id,
        controller_id=node.id,
        topics=topics,
    )
    if body.include_cluster_authorized_operations and node.allows(
        request, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME
    ):
        response.cluster_authorized_operations = operations_bits(Resource.CLUSTER)
    # the image may be ahead of what is durable
    return when_committed(node, request, node.metadata.end_offset, response)


def brokers(node: Node, listener: str) -> list[MetadataResponseBroker]:
    """Those that can be reached by the client's own listener, at the address it is told there."""
    return [
        MetadataResponseBroker(node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
        for broker in node.metadata.image.live_brokers()
        if (endpoint := broker.endpoints.get(listener)) is not None
    ]


def all_topics(node: Node, request: Request) -> list[MetadataResponseTopic]:
    return [
        described(node, request, topic)
        for name, topic in node.metadata.image.topics.items()
        if node.allows(request, Operation.DESCRIBE, Resource.TOPIC, name)
    ]


def asked_topics(
    node: Node, request: Request, asked: Iterable[MetadataRequestTopic], *, is_create_allowed: bool
) -> list[MetadataResponseTopic]:
    image = node.metadata.image
    found: dict[object, MetadataResponseTopic] = {}  # each is told once, in the order asked
    missing: list[MetadataRequestTopic] = []
    for topic in asked:
        if topic.topic_id != NO_TOPIC_ID:
            by_id = image.topics_by_id.get(TopicId(topic.topic_id))
            if by_id is None or not node.allows(request, Operation.DESCRIBE, Resource.TOPIC, by_id.name):
                found[topic.topic_id] = MetadataResponseTopic(
                    error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic.topic_id
                )
            else:
                found[topic.topic_id] = described(node, request, by_id)
            continue
        name = topic.name
        if name is None:
            found[None] = refused(topic, ErrorCode.INVALID_REQUEST)
        elif not node.allows(request, Operation.DESCRIBE, Resource.TOPIC, name):
            found[name] = refused(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif name in image.topics:
            found[name] = described(node, request, image.topics[name])
        elif name_fault(name) is not None:
            found[name] = refused(topic, ErrorCode.INVALID_TOPIC_EXCEPTION)
        else:
            found[name] = refused(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            missing.append(topic)
    if missing and is_create_allowed and node.settings.auto_create_topics_enable:
        for name, created in auto_created(node, request, missing).items():
            found[name] = created
    return list(found.values())


def auto_created(
    node: Node, request: Request, missing: Iterable[MetadataRequestTopic]
) -> dict[str, MetadataResponseTopic]:
    """Create what is missing, with the broker's defaults."""
    results: dict[str, MetadataResponseTopic] = {}
    wanted: dict[str, NewTopic] = {}
    for topic in missing:
        name = topic.name
        assert name is not None
        if may_create(node, request, name):
            wanted[name] = NewTopic(name)
        else:
            results[name] = refused(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    decision = node.metadata.controller.create_topics(list(wanted.values()))
    try:
        node.metadata.propose(request.now, decision)
    except FAULTS as fault:
        for name in wanted:
            results[name] = MetadataResponseTopic(error_code=code_of(fault), name=name)
        return results
    for created in decision.reply:
        if created.error is ErrorCode.NONE:
            results[created.name] = described(node, request, node.metadata.image.topics[created.name])
        else:
            # a name that collides, or too few brokers: to a consumer the topic is just not there
            results[created.name] = MetadataResponseTopic(error_code=created.error, name=created.name)
    return results


def may_create(node: Node, request: Request, name: str) -> bool:
    return node.allows(request, Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME) or node.allows(
        request, Operation.CREATE, Resource.TOPIC, name
    )


def refused(topic: MetadataRequestTopic, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id)


def described(node: Node, request: Request, topic: TopicState) -> MetadataResponseTopic:
    body: MetadataRequest = request.body
    listener = request.connection.listener
    response = MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            described_partition(node, request.version, listener, topic, index, partition)
            for index, partition in topic.partitions.items()
        ],
    )
    if body.include_topic_authorized_operations:
        response.topic_authorized_operations = operations_bits(Resource.TOPIC)
    return response


def described_partition(
    node: Node, version: int, listener: str, topic: TopicState, index: int, partition: PartitionState
) -> MetadataResponsePartition:
    offline = offline_replicas(node, topic, index, partition)
    leader = NO_LEADER if partition.leader in offline else partition.leader
    code = ErrorCode.NONE
    if leader == NO_LEADER:
        code = ErrorCode.LEADER_NOT_AVAILABLE
    elif node.endpoint(leader, listener) is None:
        code = (
            ErrorCode.LISTENER_NOT_FOUND
            if version >= LISTENER_ERROR_SINCE
            else ErrorCode.LEADER_NOT_AVAILABLE
        )
    return MetadataResponsePartition(
        error_code=code,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=offline,
    )


def offline_replicas(node: Node, topic: TopicState, index: int, partition: PartitionState) -> list[int]:
    """Replicas on brokers that are not there, and our own when its log directory failed."""
    live = node.metadata.image.brokers
    offline = [broker for broker in partition.replicas if broker not in live or live[broker].is_fenced]
    own = node.partitions.of_id(topic.id)
    if own is not None and index < len(own) and own[index].is_offline and node.id in partition.replicas:
        offline.append(node.id)
    return offline
