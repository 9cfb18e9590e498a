"""JoinSink, key 30010: begins an attempt to write a part of a sink's batch."""

from typing import Any

from headrace.machines.sinks.sinks import SinkJoin, SinkJoined
from headrace.node.authorization import Operation
from headrace.node.coordinators.sinks import SinkCoordinator
from headrace.node.error_codes import FAULTS
from headrace.node.producer_ids import NotGrantedYet, ProducerIds
from headrace.node.routes import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.join_sink import JoinSinkRequest, JoinSinkResponse


class JoinSink:
    def __init__(
        self,
        sinks: SinkCoordinator,
        producer_ids: ProducerIds,
    ) -> None:
        self._sinks = sinks
        self._producer_ids = producer_ids

    def handle(self, request: Request) -> Any:
        body: JoinSinkRequest = request.body
        shard = self._sinks.asked(request, Operation.WRITE, body.app_id, (body.query_id, body.run_id))
        if isinstance(shard, ErrorCode):
            return refused(shard)
        fresh_id = self._producer_ids.source(request.now)
        try:
            decision = shard.decide(request.now, body.app_id, shard.machine.join, asked(body), fresh_id)
        except (NotGrantedYet, *FAULTS):
            return refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if isinstance(decision, ErrorCode):
            fresh_id.give_back()
        return shard.answer(request, decision, respond, refused)


def asked(body: JoinSinkRequest) -> SinkJoin:
    return SinkJoin(
        body.app_id,
        body.query_id,
        body.run_id,
        body.batch_id,
        body.task,
        body.attempt,
        body.timeout_ms,
        body.producer_id,
        body.producer_epoch,
        body.is_passing,
    )


def respond(joined: SinkJoined) -> JoinSinkResponse:
    return JoinSinkResponse(
        error_code=joined.error,
        error_message=joined.message,
        committed_batch_id=joined.committed_batch_id,
        producer_id=joined.producer_id,
        producer_epoch=joined.producer_epoch,
    )


def refused(code: ErrorCode) -> JoinSinkResponse:
    return JoinSinkResponse(error_code=code, error_message=None)
