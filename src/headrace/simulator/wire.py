"""A client's connection, seen from the client: frames that take their time, in order, until it breaks.

A network may be unkind to it: hold frames back, cut it with all that is under way, or forget it so that each
side waits for the other. What a client has hung up on may still arrive, long after the client sent the same
by another connection.

Requests are real frames, made and read with the protocol's codecs. An answer is taken apart the moment it
leaves the node, since from then on it is a promise, and reaches the client later or never.
"""

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from headrace.node.connection import Connection
from headrace.protocol.api import request_codec, response_codec
from headrace.protocol.framing import decode_response_header, request_frame
from headrace.simulator.history import AnswerLeft

if TYPE_CHECKING:
    from headrace.simulator.machine import Machine

SIZE_BYTES = 4


class Client(Protocol):
    @property
    def name(self) -> str: ...

    def promised(self, asked: Any, answer: Any, /) -> None:
        """The answer left the node."""
        ...

    def answered(self, asked: Any, answer: Any, /) -> None:
        """The answer arrived."""
        ...

    def broken(self, wire: "Wire", /) -> None:
        """The connection is gone, and with it every answer that had not arrived."""
        ...


@dataclass(slots=True)
class _Awaited:
    correlation_id: int
    api_key: int
    version: int
    asked: Any  # what the client wants back with the answer


class Wire:
    def __init__(self, machine: "Machine", client: Client) -> None:
        self._machine = machine
        self._world = machine.world
        self._client = client
        self._connection: Connection | None = machine.accept(self)
        self._awaited: deque[_Awaited] = deque()
        self._inbox: deque[bytearray] = deque()  # arrived, not yet read by the node
        self._correlation_id = 0
        self._last_arrival = 0.0  # at the node
        self._last_delivery = 0.0  # at the client
        self._muted_until = 0.0
        self._is_void = False  # nothing arrives any more, in either direction
        self.is_open = self._connection is not None  # as the client knows

    def send(
        self,
        api_key: int,
        version: int,
        body: Any,
        asked: Any,
        *,
        is_answered: bool = True,
        at_once: bool = False,
    ) -> None:
        """at_once: it arrives now, unless something that was sent before is still on its way."""
        assert self.is_open
        self._correlation_id += 1
        parts = request_codec(api_key, version).encode_parts(body)
        frame = bytearray().join(
            part  # type: ignore[misc]  # requests hold no spans
            for part in request_frame(api_key, version, self._correlation_id, self._client.name, parts)
        )
        del frame[:SIZE_BYTES]
        if is_answered:
            self._awaited.append(_Awaited(self._correlation_id, api_key, version, asked))
        if at_once and self._last_arrival <= self._world.mono:
            self._arrived(frame)
            return
        self._last_arrival = max(self._last_arrival, self._world.mono + self._world.short_delay())
        self._world.after(self._last_arrival - self._world.mono, lambda: self._arrived(frame))

    def close(self) -> None:
        """The client hangs up; what it had sent before still arrives."""
        if self.is_open:
            self.is_open = False
            until = max(self._last_arrival, self._muted_until)
            self._world.after(until - self._world.mono + 0.0001, self._hang_up)

    # --- an unkind network ------------------------------------------------------------------------

    def stall(self, seconds: float) -> None:
        """Nothing arrives for a while; nothing is lost."""
        until = self._world.mono + seconds
        self._muted_until = max(self._muted_until, until)
        self._last_delivery = max(self._last_delivery, until)

    def cut(self) -> None:
        """The connection is gone at once, with all that is under way; the client knows."""
        self._is_void = True
        self._inbox.clear()
        self.close()

    def vanish(self) -> None:
        """All that is sent is lost, and nobody is told: only patience ends this."""
        self._is_void = True

    # --- at the node ------------------------------------------------------------------------------

    def _arrived(self, frame: bytearray) -> None:
        if self._is_void:
            return
        self._inbox.append(frame)
        self._pump()

    def _pump(self) -> None:
        while self._inbox and self._connection is not None and not self._connection.is_full:
            wait = self._muted_until - self._world.mono
            if wait > 0:
                self._world.after(wait, self._pump)
                return
            self._machine.received(self, self._connection, self._inbox.popleft())

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._machine.hung_up(connection)

    def mute(self, until: float) -> None:
        self._muted_until = max(self._muted_until, until)

    def answered(self, frame: bytes) -> None:
        """A frame left the node on this connection."""
        if not self._awaited:
            self._machine.history.add(AnswerLeft(self._client.name, _correlation_id_of(frame), -1))
            return
        awaited = self._awaited.popleft()
        codec = response_codec(awaited.api_key, awaited.version)
        view = memoryview(frame)[SIZE_BYTES:]
        correlation_id, position = decode_response_header(view, codec.header_version)
        self._machine.history.add(AnswerLeft(self._client.name, correlation_id, awaited.correlation_id))
        answer = codec.decode(view, position)
        self._client.promised(awaited.asked, answer)
        self._last_delivery = max(self._last_delivery, self._world.mono + self._world.short_delay())
        self._world.after(
            self._last_delivery - self._world.mono, lambda: self._deliver(awaited.asked, answer)
        )
        if self._inbox:
            self._world.after(0.0, self._pump)

    def broke(self) -> None:
        """The node or its machine is gone, or it closed the connection."""
        self._connection = None
        self._inbox.clear()
        self._world.after(self._world.short_delay(), self._notice)

    # --- at the client ----------------------------------------------------------------------------

    def _deliver(self, asked: Any, answer: Any) -> None:
        if self.is_open and not self._is_void:
            self._client.answered(asked, answer)

    def _notice(self) -> None:
        if self.is_open and not self._is_void:
            self.is_open = False
            self._client.broken(self)


def _correlation_id_of(frame: bytes) -> int:
    return int.from_bytes(frame[SIZE_BYTES : SIZE_BYTES + 4], "big", signed=True)
