"""ListSinks, key 30013: the sinks of this coordinator."""

from typing import Any

from headrace.machines.sinks.sink import Sink
from headrace.node.authorization import Access, Operation, Resource
from headrace.node.coordinators.combined_replies import when_all_committed
from headrace.node.coordinators.shard import Shard
from headrace.node.coordinators.sinks import SinkCoordinator
from headrace.node.routes import Request
from headrace.node.waiting import Waiting
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.list_sinks import ListedSink, ListSinksResponse


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
                respond(sink)
                for sink in shard.machine.sinks()
                if self._access.shows(request, Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, sink.app_id)
            ]
        return when_all_committed(self._waiting, request, shards, reply, refused)


def respond(sink: Sink) -> ListedSink:
    return ListedSink(
        app_id=sink.app_id,
        query_id=sink.query_id,
        run_id=sink.run_id,
        committed_batch_id=sink.committed_batch_id,
        batch_id=sink.batch_id,
        open_attempts=len(sink.open_attempts),
        ending_attempts=len(sink.ending_attempts),
        producer_ids=sorted(sink.attempts),
        updated_ms=sink.updated_ms,
    )


def refused(code: ErrorCode) -> ListSinksResponse:
    return ListSinksResponse(error_code=code)
