"""Long requests, with very many elements: decoded in slices, so that other requests are served in between.

They are decoded one after the other. While a request of a connection is among them, nothing is read from the
connection, because requests are handled in the order in which they arrived.
"""

from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from headrace.base.limits import LONG_FRAMES_BYTES_MAX
from headrace.base.time import Now
from headrace.node.connection import Connection
from headrace.node.ports import Deadlines, Reports
from headrace.node.routes import Request
from headrace.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from headrace.node.routes import Route

PAUSE_MS = 1
STEPS_PER_TURN = 8  # about a millisecond of work


class LongFrame:
    """A request that is not decoded yet."""

    __slots__ = ("client_id", "connection", "correlation_id", "route", "size", "steps")

    def __init__(
        self,
        connection: Connection,
        route: "Route",
        correlation_id: int,
        client_id: str | None,
        body: bytes,
    ) -> None:
        self.connection = connection
        self.route = route
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.size = len(body)
        self.steps: Generator[None, None, Any] = route.request.decode_steps(body)


class LongFrames:
    """The queue of them; among the node's deadlines while it is not empty."""

    __slots__ = ("_deadlines", "_queue", "_queued_bytes", "_reports", "_serve", "is_done")

    def __init__(self, deadlines: Deadlines, reports: Reports, serve: Callable[[Request], None]) -> None:
        self._deadlines = deadlines
        self._reports = reports
        self._serve = serve  # the request, once it is decoded
        self._queue: deque[LongFrame] = deque()
        self._queued_bytes = 0
        self.is_done = False

    @property
    def is_empty(self) -> bool:
        return not self._queue

    def has_room(self, size: int) -> bool:
        return self._queued_bytes + size <= LONG_FRAMES_BYTES_MAX

    def add(self, now: Now, frame: LongFrame) -> None:
        frame.connection.is_decoding = True
        self._queued_bytes += frame.size
        self._queue.append(frame)
        if len(self._queue) == 1:
            self._deadlines.add(now.mono, self)

    def expired(self, now: Now) -> None:
        frame = self._queue[0]
        is_over = True  # also when it fails: a mistake of ours costs this one request, not those behind it
        try:
            is_over = frame.connection.is_closed or self._advance(now, frame)
        except Exception:
            self._reports.close(frame.connection, "internal error")
            raise
        finally:
            if is_over:
                self._queue.popleft()
                self._queued_bytes -= frame.size
            if self._queue:
                self._deadlines.add(now.after_ms(PAUSE_MS), self)

    def _advance(self, now: Now, frame: LongFrame) -> bool:
        """One slice of it; whether that was the last."""
        connection = frame.connection
        try:
            for _ in range(STEPS_PER_TURN):
                next(frame.steps)
        except StopIteration as end:
            connection.is_decoding = False
            self._serve(
                Request(
                    now,
                    connection,
                    frame.route,
                    frame.route.version,
                    frame.correlation_id,
                    frame.client_id,
                    end.value,
                )
            )
        except ProtocolError as fault:
            self._reports.close(connection, str(fault))
        else:
            return False
        return True
