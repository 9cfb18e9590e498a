"""AddOffsetsToTxn, key 25, versions 0–4: a transaction is about to commit offsets of a group."""

from typing import Any

from headrace.node.authorization import Operation, Resource
from headrace.node.faults import FAULTS
from headrace.node.node import Node
from headrace.node.request import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse


def handle(node: Node, request: Request) -> Any:
    body: AddOffsetsToTxnRequest = request.body
    if not node.allows(request, Operation.WRITE, Resource.TRANSACTIONAL_ID, body.transactional_id):
        return refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not node.allows(request, Operation.READ, Resource.GROUP, body.group_id):
        return refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    partition = node.groups.partition_of(body.group_id)
    if partition is None:
        # a producer asks this before it looks for the group's coordinator, which would create the topic
        try:
            node.groups.create_topic(request.now)
        except FAULTS:
            return refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        partition = node.groups.partition_of(body.group_id)
    if partition is None:
        return refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    # loaded while it is empty, in no time: the transaction's end will be written there, offsets or not
    node.groups.shard_of(request.now, body.group_id)
    shard = node.transactions.shard_of(request.now, body.transactional_id)
    if isinstance(shard, ErrorCode):
        return refused(shard)
    decision = shard.machine.add_offsets(
        request.now, body, (partition.topic, partition.index), version=request.version
    )
    return shard.answer(request, decision, refused)


def refused(code: ErrorCode) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=code)
