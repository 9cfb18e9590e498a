"""ListSinks, key 30013: the sinks of this coordinator."""

from typing import Any

from headrace.node.authorization import Access, Operation, Resource
from headrace.node.coordinators.shard import Shard, when_all_committed
from headrace.node.coordinators.sinks import SinkCoordinator
from headrace.node.routes import Request
from headrace.node.waiting import Waiting
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.list_sinks import ListSinksResponse


class ListSinks:
    def __init__(
        self,
        sinks: SinkCoordinator,
        access: Access,
        waiting: Waiting,
    ) -> None:
        self._sinks = sinks
        self._access = access
        self._waiting = waiting

    def handle(self, request: Request) -> Any:
        reply = ListSinksResponse()
        shards: list[Shard[Any]] = []
        for shard in self._sinks.shards(request.now):
            if isinstance(shard, ErrorCode):
                return refused(shard)  # half a list would look like the whole one
            shards.append(shard)
            reply.sinks += [
                sink
                for sink in shard.machine.listed()
                if self._access.allows(request, Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, sink.app_id)
            ]
        return when_all_committed(self._waiting, request, shards, reply, refused)


def refused(code: ErrorCode) -> ListSinksResponse:
    return ListSinksResponse(error_code=code)
