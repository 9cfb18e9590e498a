"""Envelope, key 58, version 0: a client's request from a broker that is not the active controller.

The request inside is authorized and answered here as if the client had sent it.
"""

from collections.abc import Generator
from typing import Any, cast

from headrace.base.limits import LONG_FRAME_BYTES
from headrace.base.time import Instant, Now
from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.connection import Connection
from headrace.node.forwarding import decode_address, decode_principal
from headrace.node.long_frames import PAUSE_MS, STEPS_PER_TURN
from headrace.node.metadata_log import MetadataLog
from headrace.node.not_controller import is_from_no_controller
from headrace.node.ports import Deadlines, Once
from headrace.node.routes import FORWARDED, Request, Route, Routes
from headrace.node.waiting import Parked, Waiting
from headrace.protocol.compiler import Codec
from headrace.protocol.errors import ErrorCode, ProtocolError, UnsupportedVersion
from headrace.protocol.framing import answer_frame, decode_request_header
from headrace.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse

SIZE_BYTES = 4  # before a frame; what is inside an envelope has no size of its own


class Envelope:
    def __init__(
        self, routes: Routes, metadata: MetadataLog, access: Access, waiting: Waiting, deadlines: Deadlines
    ) -> None:
        self._routes = routes
        self._metadata = metadata
        self._access = access
        self._waiting = waiting
        self._deadlines = deadlines

    def handle(self, request: Request) -> EnvelopeResponse | Parked:
        if not self._access.allows(request, Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
            return EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if not self._metadata.is_active:
            return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
        frame = bytes(request.body.request_data)
        try:
            inner, position = self._inner(request, frame)
            if len(frame) > LONG_FRAME_BYTES:
                steps = inner.route.request.decode_steps(frame[position:])
                return LongEnvelope(self, self._waiting, self._deadlines, request, inner, steps)
            inner.body = inner.route.decode(frame, position)
        except ProtocolError as fault:
            return refused(fault)
        return self.serve(inner)

    def serve(self, inner: Request) -> EnvelopeResponse | Parked:
        if not self._metadata.is_active:  # not any more, after a long frame was decoded
            return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
        reply = inner.route.handle(inner)
        if isinstance(reply, Parked):
            return reply
        response: EnvelopeResponse = cast("EnvelopedResponse", inner.route.response).wrapped(reply)
        return response

    def _inner(self, request: Request, frame: bytes) -> tuple[Request, int]:
        """The client's request without its body, and where that begins in the frame."""
        body: EnvelopeRequest = request.body
        api_key, version, correlation_id, client_id, position = decode_request_header(frame)
        outer = request.connection
        route = self._routes.find(outer.listener, api_key, version)
        if route is None or api_key not in FORWARDED:
            raise UnsupportedVersion(api_key, version)
        principal, with_token = outer.principal, outer.with_token
        if body.request_principal is not None:
            principal, with_token = decode_principal(bytes(body.request_principal))
        client = Connection(
            outer.id,
            listener=outer.listener,
            address=decode_address(bytes(body.client_host_address)),
            principal=principal,
        )
        client.is_forwarded, client.with_token = True, with_token
        client.pending = outer.pending  # its answer leaves among those of the broker's connection
        wrapped = Route(
            api_key,
            version,
            route.handle,
            route.request,
            cast("Any", EnvelopedResponse(route.response, correlation_id, request.route.response)),
            route.metrics,
        )
        inner = Request(request.now, client, wrapped, version, request.correlation_id, client_id, None)
        return inner, position


def refused(fault: ProtocolError) -> EnvelopeResponse:
    is_unknown = isinstance(fault, UnsupportedVersion)
    code = ErrorCode.UNSUPPORTED_VERSION if is_unknown else ErrorCode.INVALID_REQUEST
    return EnvelopeResponse(error_code=code)


class LongEnvelope(Parked):
    """A forwarded request with very many elements: it is decoded in slices, others are served in between."""

    __slots__ = ("_deadlines", "_handler", "_inner", "_steps")

    def __init__(
        self,
        handler: Envelope,
        waiting: Waiting,
        deadlines: Deadlines,
        request: Request,
        inner: Request,
        steps: Generator[None, None, Any],
    ) -> None:
        super().__init__(waiting, request)
        self._handler = handler
        self._deadlines = deadlines
        self._inner = inner
        self._steps = steps
        Once(deadlines, request.now.mono, self._go_on)

    def deadline(self) -> Instant | None:
        return None

    def _go_on(self, now: Now) -> None:
        if self.is_done:
            return  # the broker has gone
        reply: EnvelopeResponse | Parked
        try:
            for _ in range(STEPS_PER_TURN):
                next(self._steps)
        except StopIteration as end:
            self._inner.now, self._inner.body = now, end.value
            reply = self._handler.serve(self._inner)
        except ProtocolError as fault:
            reply = refused(fault)
        else:
            Once(self._deadlines, now.after_ms(PAUSE_MS), self._go_on)
            return
        if isinstance(reply, Parked):
            self.waiting.hand_over(self, reply)
        else:
            self.waiting.answer(now, self, reply)


class EnvelopedResponse:
    """Encodes the answer to the request inside, and puts it into the envelope's answer."""

    __slots__ = ("_correlation_id", "_envelope", "_inner", "header_version")

    def __init__(self, inner: Codec[Any], correlation_id: int, envelope: Codec[Any]) -> None:
        self._inner = inner
        self._correlation_id = correlation_id
        self._envelope = envelope
        self.header_version = envelope.header_version

    def wrapped(self, reply: Any) -> EnvelopeResponse:
        if is_from_no_controller(reply):  # the broker asks the next one, and the client hears nothing of it
            return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
        parts = answer_frame(self._inner, self._correlation_id, reply)
        return EnvelopeResponse(response_data=b"".join(parts)[SIZE_BYTES:])

    def encode_parts(self, reply: Any) -> Any:
        return self._envelope.encode_parts(self.wrapped(reply))
