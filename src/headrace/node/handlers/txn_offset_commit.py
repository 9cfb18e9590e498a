"""TxnOffsetCommit, key 28, versions 0–5: offsets that count when the transaction commits.

From version 5 on (KIP-890) the request itself adds the group's partition to the transaction; before, it
must have been added with AddOffsetsToTxn.
"""

from typing import Any

from headrace.node.authorization import Operation, Resource
from headrace.node.node import Node
from headrace.node.request import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)


def handle(node: Node, request: Request) -> Any:
    body: TxnOffsetCommitRequest = request.body
    asked = body.topics

    def refused(code: ErrorCode) -> TxnOffsetCommitResponse:
        return TxnOffsetCommitResponse(topics=[refused_topic(topic, code) for topic in asked])

    if not node.allows(request, Operation.WRITE, Resource.TRANSACTIONAL_ID, body.transactional_id):
        return refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not node.allows(request, Operation.READ, Resource.GROUP, body.group_id):
        return refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    shard = node.groups.shard_of(request.now, body.group_id)
    if isinstance(shard, ErrorCode):
        return refused(shard)
    rest: list[TxnOffsetCommitResponseTopic] = []
    body.topics = []
    for topic in asked:
        if not node.allows(request, Operation.READ, Resource.TOPIC, topic.name):
            rest.append(refused_topic(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        elif node.groups.topics.partition_count(topic.name) is None:
            rest.append(refused_topic(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        else:
            body.topics.append(topic)
    if not body.topics:
        return TxnOffsetCommitResponse(topics=rest)
    code = node.transactions.fault_of_commit(request, shard.partition)
    if code is not ErrorCode.NONE:
        return refused(code)
    decision = shard.machine.commit_transactional(request.now, body, request.version)
    decision.reply.topics += rest
    return shard.answer(request, decision, refused)


def refused_topic(topic: TxnOffsetCommitRequestTopic, code: ErrorCode) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
            for partition in topic.partitions
        ],
    )
