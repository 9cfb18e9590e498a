"""ConsumerGroupDescribe, key 69, versions 0–1: state, epochs and members of groups of the new protocol."""

from typing import Any

from headrace.node.authorization import Operation, Resource, operations_bits
from headrace.node.coordinators.groups import GroupCoordinator
from headrace.node.coordinators.shard import Shard, when_all_committed
from headrace.node.routes import Request
from headrace.node.waiting import Waiting
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


class ConsumerGroupDescribe:
    def __init__(
        self,
        groups: GroupCoordinator,
        waiting: Waiting,
    ) -> None:
        self._groups = groups
        self._waiting = waiting

    def handle(self, request: Request) -> Any:
        body: ConsumerGroupDescribeRequest = request.body
        shards: list[Shard[Any]] = []
        groups = [self._described(request, group_id, shards) for group_id in body.group_ids]

        def refused(code: ErrorCode) -> ConsumerGroupDescribeResponse:
            return ConsumerGroupDescribeResponse(
                groups=[DescribedGroup(group_id=group_id, error_code=code) for group_id in body.group_ids]
            )

        return when_all_committed(
            self._waiting, request, shards, ConsumerGroupDescribeResponse(groups=groups), refused
        )

    def _described(self, request: Request, group_id: str, shards: list[Shard[Any]]) -> DescribedGroup:
        shard = self._groups.asked(request, Operation.DESCRIBE, group_id)
        if isinstance(shard, ErrorCode):
            return DescribedGroup(group_id=group_id, error_code=shard)
        shards.append(shard)
        group: DescribedGroup = shard.machine.describe_consumer(request.now, group_id)
        if request.body.include_authorized_operations and not group.error_code:
            group.authorized_operations = operations_bits(Resource.GROUP)
        return group
