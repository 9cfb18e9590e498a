"""Peers: the port through which parts of a node send requests to other nodes.

Requests of one lane to one peer share a connection and are answered in order. Different lanes are different
connections, so that a vote does not wait behind a long poll. A request always ends: with its answer, or with
one of three facts, because each says something else about the peer (`Unanswered`).
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import Any, NamedTuple, cast

from headrace.base.time import Now
from headrace.node.effects import Effect, Hangup, Send
from headrace.node.ports import Deadlines
from headrace.protocol.api import APIS, request_codec, response_codec
from headrace.protocol.compiler import Codec
from headrace.protocol.errors import ProtocolError
from headrace.protocol.framing import decode_response_header, request_frame
from headrace.protocol.notation import Request

TICKET_MAX = 2**31 - 1  # a ticket is the correlation id on the wire, too
CLIENT_ID_PREFIX = "node-"  # of requests of nodes, before the node's id


class Unanswered(Enum):
    """Why a request has no answer."""

    REFUSED = auto()  # nobody listens at the address, or there is no way to it: the request did not leave
    LOST = auto()  # the connection broke, and the peer may have the request; or we could make none
    SILENT = auto()  # no answer in time: the peer may have received it, and may still answer


# Which of a peer's listeners is asked: the settings say how safe the connection to it has to be. A dial only
# finds out whether somebody listens there. It trusts nobody and needs no login.
BROKERS = "brokers"
CONTROLLERS = "controllers"
DIALLED = "dialled"
DIALLED_BY_TLS = "dialled by TLS"


class Peer(NamedTuple):
    """Another node, and the address of the listener that is asked."""

    id: int
    host: str
    port: int
    listener: str = BROKERS


def dialled(*, by_tls: bool) -> str:
    return DIALLED_BY_TLS if by_tls else DIALLED


Completion = Callable[[Now, Any], None]  # takes the response, or an Unanswered


class Peers:
    __slots__ = ("_awaited", "_client_id", "_deadlines", "_effects", "_is_kept", "_last_ticket")

    def __init__(self, node_id: int, effects: list[Effect], deadlines: Deadlines) -> None:
        self._client_id = f"{CLIENT_ID_PREFIX}{node_id}"
        self._effects = effects
        self._deadlines = deadlines
        self._last_ticket = 0
        self._is_kept = False
        self._awaited: dict[int, _Awaited] = {}

    def send(
        self,
        now: Now,
        peer: Peer,
        lane: str,
        body: Request,
        timeout_ms: int,
        then: Completion,
        *,
        version: int | None = None,
    ) -> None:
        """Send a request in our highest version, or in `version`. `then` is called once, in a later call of
        the node. Views in a response are valid only during that call, unless it calls `keep_answer`.
        """
        key = body.KEY
        if version is None:
            version = APIS[key].last
        self._last_ticket = ticket = self._last_ticket % TICKET_MAX + 1
        parts = request_frame(
            key, version, ticket, self._client_id, request_codec(key, version).encode_parts(body)
        )
        frame = b"".join(cast("list[bytes]", parts))  # requests contain no data that lies in files
        awaited = _Awaited(self, ticket, peer, lane, response_codec(key, version), then)
        self._awaited[ticket] = awaited
        self._deadlines.add(now.after_ms(timeout_ms), awaited)
        self._effects.append(Send(ticket, peer, lane, frame))

    def close(self, peer_id: int, lane: str) -> None:
        """Give the lane's connection up. Requests that are under way there end LOST."""
        self._effects.append(Hangup(peer_id, lane))

    def keep_answer(self) -> None:
        """Whoever gets an answer still uses views of it after this call."""
        self._is_kept = True

    def answered(self, now: Now, ticket: int, answer: "memoryview | Unanswered") -> bool:
        """The driver has the frame of a response (without its size), or the reason why there is none. True:
        the memory of the frame must not be used for anything else.
        """
        self._is_kept = False
        self._answered(now, ticket, answer)
        return self._is_kept

    def _answered(self, now: Now, ticket: int, answer: "memoryview | Unanswered") -> None:
        awaited = self._awaited.pop(ticket, None)
        if awaited is None:
            return  # its time was over
        awaited.is_done = True
        self._deadlines.cancelled()
        if isinstance(answer, Unanswered):
            awaited.then(now, answer)
            return
        response = awaited.response
        try:
            _, position = decode_response_header(answer, response.header_version)
            body = response.decode(answer, position)
        except ProtocolError:
            self.close(awaited.peer.id, awaited.lane)
            awaited.then(now, Unanswered.LOST)
            return
        awaited.then(now, body)

    def timed_out(self, now: Now, awaited: "_Awaited") -> None:
        """Later answers on that connection would wait behind this one, so the connection is closed."""
        del self._awaited[awaited.ticket]
        self.close(awaited.peer.id, awaited.lane)
        awaited.then(now, Unanswered.SILENT)


class _Awaited:
    """A request without an answer yet; an entry in the heap of deadlines."""

    __slots__ = ("_peers", "is_done", "lane", "peer", "response", "then", "ticket")

    def __init__(
        self, peers: Peers, ticket: int, peer: Peer, lane: str, response: Codec[Any], then: Completion
    ) -> None:
        self._peers = peers
        self.ticket = ticket
        self.peer = peer
        self.lane = lane
        self.response = response
        self.then = then
        self.is_done = False

    def expired(self, now: Now) -> None:
        self.is_done = True
        self._peers.timed_out(now, self)
