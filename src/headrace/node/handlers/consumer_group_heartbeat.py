"""ConsumerGroupHeartbeat, key 68, versions 0–1: join, stay in, and leave a group of the new protocol
(KIP-848).
"""

from typing import Any

from headrace.node.authorization import Operation, Resource
from headrace.node.coordinators.callers import caller
from headrace.node.node import Node
from headrace.node.request import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def handle(node: Node, request: Request) -> Any:
    body: ConsumerGroupHeartbeatRequest = request.body
    if "consumer" not in node.settings.group_coordinator_rebalance_protocols:
        return refused(ErrorCode.UNSUPPORTED_VERSION)
    if not node.allows(request, Operation.READ, Resource.GROUP, body.group_id):
        return refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    for name in body.subscribed_topic_names or ():
        if not node.allows(request, Operation.DESCRIBE, Resource.TOPIC, name):
            return refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    shard = node.groups.shard_of(request.now, body.group_id)
    if isinstance(shard, ErrorCode):
        return refused(shard)
    if body.subscribed_topic_names is not None or body.subscribed_topic_regex is not None:
        size = len(body.subscribed_topic_regex or "") + sum(map(len, body.subscribed_topic_names or ()))
        refusal = node.groups.member_memory.refusal(request.now, shard, body.group_id, body.member_id, [size])
        if refusal is not None:
            return refused(refusal)
    decision = shard.machine.consumer_heartbeat(
        request.now,
        body,
        request.version,
        caller(request),
        lambda name: node.allows(request, Operation.DESCRIBE, Resource.TOPIC, name),
    )
    return shard.answer(request, decision, refused)


def refused(code: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code)
