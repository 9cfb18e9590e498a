"""JoinSink, key 30010: an attempt to write a part of a sink's batch begins."""

from typing import Any

from headrace.node.authorization import Access, Operation, Resource
from headrace.node.coordinators.sinks import SinkCoordinator
from headrace.node.faults import FAULTS
from headrace.node.producer_ids import NotGrantedYet, ProducerIds
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.join_sink import JoinSinkRequest, JoinSinkResponse


class JoinSink:
    def __init__(
        self,
        sinks: SinkCoordinator,
        producer_ids: ProducerIds,
        access: Access,
    ) -> None:
        self._sinks = sinks
        self._producer_ids = producer_ids
        self._access = access

    def handle(self, request: Request) -> Any:
        body: JoinSinkRequest = request.body
        if not self._access.allows(request, Operation.WRITE, Resource.TRANSACTIONAL_ID, body.app_id):
            return refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        shard = self._sinks.shard_of(request.now, body.app_id)
        if isinstance(shard, ErrorCode):
            return refused(shard)
        fresh_id = self._producer_ids.source(request.now)
        try:
            decision = shard.machine.join(request.now, body, fresh_id)
        except (NotGrantedYet, *FAULTS):
            return refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return shard.answer(request, decision, refused)


def refused(code: ErrorCode) -> JoinSinkResponse:
    return JoinSinkResponse(error_code=code, error_message=None)
