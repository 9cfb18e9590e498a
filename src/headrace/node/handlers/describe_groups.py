"""DescribeGroups, key 15, versions 0–6: state and members of classic groups.

Version 6 has an error for a group that is not there; before, such a group was Dead.
"""

from typing import Any

from headrace.machines.groups.describe import DescribedClassicGroup
from headrace.node.authorization import Access, Operation, Resource
from headrace.node.coordinators.combined_replies import when_all_committed
from headrace.node.coordinators.groups import GroupCoordinator
from headrace.node.coordinators.shard import Shard
from headrace.node.routes import Request
from headrace.node.waiting import Waiting
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

NOT_FOUND_SINCE = 6


class DescribeGroups:
    def __init__(
        self,
        groups: GroupCoordinator,
        access: Access,
        waiting: Waiting,
    ) -> None:
        self._groups = groups
        self._access = access
        self._waiting = waiting

    def handle(self, request: Request) -> Any:
        body: DescribeGroupsRequest = request.body
        shards: list[Shard[Any]] = []
        groups = [self._described(request, group_id, shards) for group_id in body.groups]

        def refused(code: ErrorCode) -> DescribeGroupsResponse:
            return DescribeGroupsResponse(
                groups=[DescribedGroup(group_id=group_id, error_code=code) for group_id in body.groups]
            )

        return when_all_committed(
            self._waiting, request, shards, DescribeGroupsResponse(groups=groups), refused
        )

    def _described(self, request: Request, group_id: str, shards: list[Shard[Any]]) -> DescribedGroup:
        shard = self._groups.asked(request, Operation.DESCRIBE, group_id)
        if isinstance(shard, ErrorCode):
            return DescribedGroup(group_id=group_id, error_code=shard)
        if self._groups.waits_for_group(shard, group_id):
            shards.append(shard)
        described = shard.machine.describe_classic(request.now, group_id)
        group = respond(group_id, described, request.version)
        if request.body.include_authorized_operations and not group.error_code:
            group.authorized_operations = self._access.operations_bits(request, Resource.GROUP, group_id)
        return group


def respond(group_id: str, described: DescribedClassicGroup | str, version: int) -> DescribedGroup:
    """Of a group, or of the reason why there is none."""
    if isinstance(described, str):
        if version < NOT_FOUND_SINCE:
            return DescribedGroup(group_id=group_id, group_state="Dead")
        return DescribedGroup(
            group_id=group_id,
            group_state="Dead",
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {described}.",
        )
    return DescribedGroup(
        group_id=group_id,
        group_state=described.state,
        protocol_type=described.protocol_type,
        protocol_data=described.protocol,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in described.members
        ],
    )
