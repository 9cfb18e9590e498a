"""ConsumerGroupHeartbeat, key 68, versions 0–1: join, stay in, and leave a group of the new protocol
(KIP-848).

Version 0 lets the coordinator name a new member, from version 1 on the client does.
"""

from typing import Any

from headrace.base.limits import COORDINATOR_NAME_CHARACTERS_MAX
from headrace.machines.groups.consumer.heartbeat import Heartbeat, HeartbeatResult
from headrace.node.authorization import Access, Operation, Resource
from headrace.node.coordinators.groups import GroupCoordinator
from headrace.node.coordinators.shard import caller
from headrace.node.routes import Request
from headrace.node.settings import LiveSettings
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

CHOOSES_ID_SINCE = 1


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
        shard = self._groups.asked(request, Operation.READ, body.group_id)
        if shard is ErrorCode.GROUP_AUTHORIZATION_FAILED:
            return refused(shard)
        for name in body.subscribed_topic_names or ():
            if not self._access.allows(request, Operation.DESCRIBE, Resource.TOPIC, name):
                return refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if isinstance(shard, ErrorCode):
            return refused(shard)
        names = (body.member_id, body.instance_id, body.rack_id, body.server_assignor, request.client_id)
        if any(len(name or "") > COORDINATOR_NAME_CHARACTERS_MAX for name in names):
            return refused(ErrorCode.INVALID_REQUEST)
        decision = shard.decide(
            request.now,
            body.group_id,
            shard.machine.consumer_heartbeat,
            asked(body, request.version),
            caller(request),
            lambda name: self._access.shows(request, Operation.DESCRIBE, Resource.TOPIC, name),
        )
        return shard.answer(request, decision, respond, refused)


def asked(body: ConsumerGroupHeartbeatRequest, version: int) -> Heartbeat:
    owned: dict[bytes, list[int]] | None = None
    if body.topic_partitions is not None:
        owned = {}
        for topic in body.topic_partitions:
            owned.setdefault(topic.topic_id, []).extend(topic.partitions)
    return Heartbeat(
        body.group_id,
        body.member_id,
        body.member_epoch,
        body.instance_id,
        body.rack_id,
        body.rebalance_timeout_ms,
        body.subscribed_topic_names,
        body.subscribed_topic_regex,
        body.server_assignor,
        owned,
        version >= CHOOSES_ID_SINCE,
    )


def respond(result: HeartbeatResult) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if result.assignment is not None:
        assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic, partitions=numbers) for topic, numbers in result.assignment
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        error_code=result.error,
        error_message=result.message,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=assignment,
    )


def refused(code: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code)
