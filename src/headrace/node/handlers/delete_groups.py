"""DeleteGroups, key 42, versions 0–2: groups without members, with all that they committed."""

from typing import Any

from headrace.node.authorization import Operation
from headrace.node.coordinators.combined_replies import when_all_committed
from headrace.node.coordinators.groups import GroupCoordinator
from headrace.node.coordinators.shard import Shard
from headrace.node.routes import Request
from headrace.node.waiting import Waiting
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


class DeleteGroups:
    def __init__(
        self,
        groups: GroupCoordinator,
        waiting: Waiting,
    ) -> None:
        self._groups = groups
        self._waiting = waiting

    def handle(self, request: Request) -> Any:
        body: DeleteGroupsRequest = request.body
        names = list(dict.fromkeys(body.groups_names))  # one that is named twice is deleted once
        shards: list[Shard[Any]] = []
        results = [
            DeletableGroupResult(group_id=name, error_code=self._deleted(request, name, shards))
            for name in names
        ]

        def refused(code: ErrorCode) -> DeleteGroupsResponse:
            return DeleteGroupsResponse(
                results=[DeletableGroupResult(group_id=name, error_code=code) for name in names]
            )

        return when_all_committed(
            self._waiting, request, shards, DeleteGroupsResponse(results=results), refused
        )

    def _deleted(self, request: Request, name: str, shards: list[Shard[Any]]) -> ErrorCode:
        shard = self._groups.asked(request, Operation.DELETE, name)
        if isinstance(shard, ErrorCode):
            return shard
        decision = shard.if_writable(request.now, shard.machine.delete_group(request.now, name))
        if isinstance(decision, ErrorCode) or not shard.carry_out(request.now, decision):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        shards.append(shard)
        code: ErrorCode = decision.reply
        return code
