"""ConsumerGroupHeartbeat, key 68, versions 0–1: join, stay in, and leave a group of the new protocol
(KIP-848).
"""

from typing import Any

from headrace.node.authorization import Access, Operation, Resource
from headrace.node.coordinators.groups import GroupCoordinator
from headrace.node.coordinators.shard import caller
from headrace.node.routes import Request
from headrace.node.settings import LiveSettings
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


class ConsumerGroupHeartbeat:
    def __init__(
        self,
        groups: GroupCoordinator,
        settings: LiveSettings,
        access: Access,
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._access = access

    def handle(self, request: Request) -> Any:
        body: ConsumerGroupHeartbeatRequest = request.body
        if "consumer" not in self._settings.current.group_coordinator_rebalance_protocols:
            return refused(ErrorCode.UNSUPPORTED_VERSION)
        if not self._access.allows(request, Operation.READ, Resource.GROUP, body.group_id):
            return refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        for name in body.subscribed_topic_names or ():
            if not self._access.allows(request, Operation.DESCRIBE, Resource.TOPIC, name):
                return refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        shard = self._groups.shard_of(request.now, body.group_id)
        if isinstance(shard, ErrorCode):
            return refused(shard)
        if body.subscribed_topic_names is not None or body.subscribed_topic_regex is not None:
            size = len(body.subscribed_topic_regex or "") + sum(map(len, body.subscribed_topic_names or ()))
            refusal = self._groups.member_refusal(request.now, shard, body.group_id, body.member_id, [size])
            if refusal is not None:
                return refused(refusal)
        decision = shard.machine.consumer_heartbeat(
            request.now,
            body,
            request.version,
            caller(request),
            lambda name: self._access.allows(request, Operation.DESCRIBE, Resource.TOPIC, name),
        )
        return shard.answer(request, decision, refused)


def refused(code: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code)
