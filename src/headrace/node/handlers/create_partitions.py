"""CreatePartitions, key 37, versions 0–3: more partitions for topics, a result for each of them."""

from headrace.machines.metadata.controller.create_partitions import GrownTopic, MorePartitions
from headrace.node.authorization import Operation, Resource
from headrace.node.committed_reply import CommittedReply, propose, when_committed
from headrace.node.node import Node
from headrace.node.request import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


def handle(node: Node, request: Request) -> CreatePartitionsResponse | CommittedReply:
    body: CreatePartitionsRequest = request.body
    refused: list[GrownTopic] = []
    wanted: list[MorePartitions] = []
    for topic in body.topics:
        if node.allows(request, Operation.ALTER, Resource.TOPIC, topic.name):
            wanted.append(MorePartitions(topic.name, topic.count, assignments(topic)))
        else:
            refused.append(GrownTopic(topic.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    decision = node.metadata.controller.create_partitions(wanted, validate_only=body.validate_only)
    offset = propose(node, request.now, decision)
    response = CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=grown.name, error_code=grown.error, error_message=grown.message)
            for grown in refused + decision.reply
        ]
    )
    return when_committed(node, request, offset, response)


def assignments(topic: CreatePartitionsTopic) -> list[list[int]] | None:
    if topic.assignments is None:
        return None
    return [assignment.broker_ids for assignment in topic.assignments]
