"""ListGroups, key 16, versions 0–5: all groups of this coordinator, by state and type."""

from typing import Any

from headrace.machines.groups import group as groups
from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.coordinators.combined_replies import when_all_committed
from headrace.node.coordinators.groups import GroupCoordinator
from headrace.node.coordinators.shard import Shard
from headrace.node.routes import Request
from headrace.node.waiting import Waiting
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


class ListGroups:
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
        body: ListGroupsRequest = request.body
        sees_all = self._access.shows(request, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)
        reply = ListGroupsResponse()
        shards: list[Shard[Any]] = []
        for shard in self._groups.shards(request.now):
            if isinstance(shard, ErrorCode):
                reply.error_code = shard  # what others told is sent all the same, as Kafka does
                continue
            if self._groups.waits_for_any_group(shard):
                shards.append(shard)
            reply.groups += [
                respond(group)
                for group in shard.machine.list_groups(body.states_filter, body.types_filter)
                if sees_all or self._access.shows(request, Operation.DESCRIBE, Resource.GROUP, group.group_id)
            ]
        return when_all_committed(self._waiting, request, shards, reply, refused)


def respond(group: groups.ListedGroup) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type,
        group_state=group.state,
        group_type=group.kind,
    )


def refused(code: ErrorCode) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=code)
