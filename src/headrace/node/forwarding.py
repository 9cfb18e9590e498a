"""Requests of clients that only the active controller can answer, sent there inside Envelopes.

A broker copies the frame as it came, with the client's principal and address. The controller authorizes and
answers it, and the broker passes the answer on to the client. While there is no controller it is sent again
and again, as long as the client waits. If this node becomes the controller meanwhile, it serves the request.
"""

from struct import Struct
from typing import Any, cast

from headrace.base.time import Instant, Now
from headrace.node.connection import Connection
from headrace.node.controller_channel import FORWARDING, ControllerChannel
from headrace.node.not_controller import is_from_no_controller, not_controller, refused
from headrace.node.peers import Unanswered
from headrace.node.routes import Request, Route
from headrace.node.waiting import Parked, Waiting
from headrace.protocol.api import ApiKey
from headrace.protocol.compiler import Codec, codec
from headrace.protocol.errors import ErrorCode, ProtocolError
from headrace.protocol.framing import decode_request_header, request_frame
from headrace.protocol.messages.envelope import DefaultPrincipalData, EnvelopeRequest

SIZE_BYTES = 4  # before a frame; those that are forwarded have none
_THROTTLE = Struct(">i")  # what the answers to all forwarded requests but DescribeQuorum begin with
FORWARDING_MS_MAX = 30_000  # then the client is told that the controller did not answer, as in Kafka


class Forwarding:
    def __init__(self, channel: ControllerChannel, waiting: Waiting) -> None:
        self._channel = channel
        self._waiting = waiting

    def forward(
        self,
        now: Now,
        connection: Connection,
        frame: memoryview,
        route: Route,
        correlation_id: int,
        client_id: str | None,
    ) -> Parked | None:
        """The parked request, or None if this node can answer it."""
        if self._channel.is_local:
            return None
        route.metrics.requests += 1
        raw = Route(
            route.api_key,
            route.version,
            route.handle,
            route.request,
            ForwardedResponse(route.response),  # type: ignore[arg-type]
            route.metrics,
        )
        request = Request(now, connection, raw, route.version, correlation_id, client_id, bytes(frame))
        forwarded = ForwardedRequest(self._waiting, request, route, self._channel)
        forwarded.ask(now)
        return forwarded


class ControllersAnswer:
    """The bytes of the controller's answer. The client is throttled by this broker, too."""

    __slots__ = ("_body", "throttle_time_ms")

    def __init__(self, body: bytes) -> None:
        self._body = body
        (self.throttle_time_ms,) = _THROTTLE.unpack_from(body)

    def encoded(self) -> bytes:
        return _THROTTLE.pack(self.throttle_time_ms) + self._body[_THROTTLE.size :]


class ForwardedResponse:
    """Encodes the answer of a forwarded request: the controller's, or a message of our own."""

    __slots__ = ("_codec", "header_version")

    def __init__(self, response: Codec[Any]) -> None:
        self._codec = response
        self.header_version = response.header_version

    def encode_parts(self, reply: Any) -> Any:
        if isinstance(reply, ControllersAnswer):
            return [reply.encoded()]
        return [reply] if isinstance(reply, bytes) else self._codec.encode_parts(reply)


class ForwardedRequest(Parked):
    """Waits for the controller's answer. The request's body is its whole frame."""

    __slots__ = ("_channel", "_served", "_tries")

    def __init__(self, waiting: Waiting, request: Request, served: Route, channel: ControllerChannel) -> None:
        """`served` is its route in the active controller."""
        super().__init__(waiting, request)
        self._served = served
        self._channel = channel
        self._tries = 0
        # until it is answered: a connection that has too much of that waiting is not read from
        request.connection.held_bytes += len(request.body)

    def forget(self) -> None:
        if not self.is_done:
            self.request.connection.held_bytes -= len(self.request.body)
        super().forget()

    def ask(self, now: Now) -> None:
        """Unless the client has gone, or was told that it took too long: nothing is done for it then."""
        if self.is_done:
            return
        if self._channel.is_local:
            self._serve(now)
            return
        self._tries += 1
        connection = self.request.connection
        envelope = EnvelopeRequest(
            request_data=self.request.body,
            request_principal=encode_principal(connection.principal, with_token=connection.with_token),
            client_host_address=encode_address(connection.address),
        )
        # a controller that is only slow is not asked twice: it would refuse what it has just done
        self._channel.send(
            now, envelope, self._answered, lane=FORWARDING, timeout_ms=FORWARDING_MS_MAX, retries=False
        )

    def _serve(self, now: Now) -> None:
        """This node has become the active controller."""
        outer, route = self.request, self._served
        try:
            body = self._body()
        except ProtocolError:
            self.failed()
            return
        inner = Request(
            now, outer.connection, route, outer.version, outer.correlation_id, outer.client_id, body
        )
        reply = route.handle(inner)
        if isinstance(reply, Parked):
            self.hand_over(reply)
        else:
            self.waiting.answer(now, self, reply)

    def deadline(self) -> Instant | None:
        return self.request.now.after_ms(FORWARDING_MS_MAX)

    def reply(self, now: Now, *, is_expired: bool) -> Any:
        return self._refused(ErrorCode.REQUEST_TIMED_OUT) if is_expired else None

    def _answered(self, now: Now, response: Any) -> None:
        if self.is_done:
            return  # the client has gone, or was told that it took too long
        if isinstance(response, Unanswered) or is_from_no_controller(response):
            self._channel.later(now, self._tries, self.ask)
            return
        if response.error_code != ErrorCode.NONE:
            try:
                self.waiting.answer(now, self, self._refused(ErrorCode(response.error_code)))
            except ProtocolError:  # it is malformed, which is why it was refused
                self.failed()
            return
        header_bytes = 4 + self.request.route.response.header_version
        body = bytes(response.response_data[header_bytes:])
        if self.request.route.api_key == ApiKey.DESCRIBE_QUORUM or len(body) < _THROTTLE.size:
            self.waiting.answer(now, self, body)
            return
        answer = ControllersAnswer(body)
        if answer.throttle_time_ms > 0:
            self.waiting.mute(now, self.request.connection, answer.throttle_time_ms)
        self.waiting.answer(now, self, answer)

    def _refused(self, code: ErrorCode) -> Any:
        route = self.request.route
        return refused(route.api_key, route.version, self._body(), code)

    def failed(self) -> None:
        self.waiting.give_up(self.request.connection, "the request is malformed")

    def _body(self) -> Any:
        """ProtocolError: it is malformed."""
        frame = self.request.body
        return self._served.decode(frame, decode_request_header(frame)[4])


def ask_the_next(now: Now, parked: Parked) -> Any:
    """The answer to a request that this node has decided, and then lost the right to. A client of a broker
    gets that of the next controller: None, and another waits for it.
    """
    request, route = parked.request, parked.request.route
    if route.forward is not None:
        body = route.request.encode_parts(request.body)
        parts = request_frame(route.api_key, request.version, request.correlation_id, request.client_id, body)
        frame = memoryview(b"".join(cast("list[bytes]", parts)))[SIZE_BYTES:]
        forwarded = route.forward(
            now, request.connection, frame, route, request.correlation_id, request.client_id
        )
        if forwarded is not None:
            parked.hand_over(forwarded)
            return None
    return not_controller(request)


# --- the client of a forwarded request ------------------------------------------------------------------

PRINCIPAL_VERSION = 0


def encode_principal(principal: str, *, with_token: bool = False) -> bytes:
    """As Kafka's default principal builder does: a version, then type and name, and whether the client has
    logged in with a delegation token.
    """
    kind, _, name = principal.partition(":")
    data = DefaultPrincipalData(type=kind, name=name, token_authenticated=with_token)
    version = PRINCIPAL_VERSION.to_bytes(2, "big")
    return version + codec(DefaultPrincipalData, PRINCIPAL_VERSION).encode(data)


def decode_principal(encoded: bytes) -> tuple[str, bool]:
    """MalformedMessage or UnsupportedVersion when it is something else."""
    data = codec(DefaultPrincipalData, int.from_bytes(encoded[:2], "big")).decode(encoded, 2)
    return f"{data.type}:{data.name}", data.token_authenticated


def encode_address(address: str) -> bytes:
    """The bytes of an IPv4 or IPv6 address."""
    from ipaddress import ip_address

    try:
        return ip_address(address).packed
    except ValueError:
        return b""  # a client inside the process


def decode_address(encoded: bytes) -> str:
    from ipaddress import ip_address

    return str(ip_address(encoded)) if len(encoded) in (4, 16) else ""
