"""A simulated connection, seen from the client: frames arrive late and in order, until it breaks.

The network may delay frames, break the connection with all frames in flight, or drop it silently so that each
side waits for the other. Frames of a connection that the client has closed may still arrive, long after the
client sent the same on another connection.

Requests are real frames, encoded and decoded with the protocol's codecs. An answer is decoded when it leaves
the node, because from then on it is a promise; it reaches the client later or never.
"""

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from headrace.node.connection import Connection
from headrace.simulator.frames import correlation_id_of, read_answer, request_bytes
from headrace.simulator.history import AnswerLeft

if TYPE_CHECKING:
    from headrace.simulator.host import Host


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
    def __init__(self, host: "Host", client: Client) -> None:
        self._host = host
        self._world = host.world
        self._client = client
        self._connection: Connection | None = host.accept(self)
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
        frame = request_bytes(api_key, version, self._correlation_id, self._client.name, body)
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

    # --- network faults ------------------------------------------------------------------------

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
            self._host.received(self, self._connection, self._inbox.popleft())

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._host.hung_up(connection)

    def mute(self, until: float) -> None:
        self._muted_until = max(self._muted_until, until)

    def answered(self, frame: bytes) -> None:
        """A frame left the node on this connection."""
        if not self._awaited:
            self._host.history.add(AnswerLeft(self._client.name, correlation_id_of(frame), -1))
            return
        awaited = self._awaited.popleft()
        # before it is decoded, which the answer to another request may not survive
        self._host.history.add(
            AnswerLeft(self._client.name, correlation_id_of(frame), awaited.correlation_id)
        )
        answer = read_answer(frame, awaited.api_key, awaited.version)
        self._client.promised(awaited.asked, answer)
        self._last_delivery = max(self._last_delivery, self._world.mono + self._world.short_delay())
        self._world.after(
            self._last_delivery - self._world.mono, lambda: self._deliver(awaited.asked, answer)
        )
        if self._inbox:
            self._world.after(0.0, self._pump)

    def broke(self) -> None:
        """The node or its host is gone, or it closed the connection."""
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
