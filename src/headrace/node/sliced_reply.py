"""Sliced replies: replies that take long to build are built in slices, so that others are served in between.

The work is a generator: it yields after each unit, and returns the reply. `encode_in_chunks`
(`protocol/chunked_message.py`) is such a generator, for messages with a long list.
"""

from collections.abc import Generator
from typing import Any

from headrace.base.limits import SLICED_REPLIES_MAX
from headrace.base.time import Instant, Now
from headrace.node.metadata_log import MetadataLog
from headrace.node.ports import Deadlines, Reports
from headrace.node.routes import Request
from headrace.node.waiting import Parked, Waiting

PAUSE_MS = 1

# Work that takes long: it yields after each unit, and returns the reply.
Steps = Generator[None, None, Any]


class SlicedReply(Parked):
    """Builds the reply, with a pause after each slice; then waits until the metadata in it is durable."""

    __slots__ = ("_is_counted", "_metadata", "_offset", "_reply", "_slicing", "_steps", "_units")

    def __init__(
        self,
        waiting: Waiting,
        slicing: "Slicing",
        metadata: MetadataLog,
        request: Request,
        steps: Steps,
        *,
        units: int,
    ) -> None:
        super().__init__(waiting, request)
        self._slicing = slicing
        self._metadata = metadata
        self._steps = steps
        self._units = units  # per slice: about a millisecond of work
        self._reply: Any = None
        self._offset = 0
        self._is_counted = True  # among those that are put together, or wait for it
        request.connection.is_slicing = True

    def deadline(self) -> Instant | None:
        return None

    def go_on(self, now: Now) -> None:
        try:
            for _ in range(self._units):
                next(self._steps)
        except StopIteration as end:
            self._reply = end.value
            self._end()
            self._offset = self._metadata.image_offset
            self.wait_for(self._metadata)
            self.woken(now)
        except Exception:
            self.failed()
            raise
        else:
            self._slicing.pause(now, self)

    def forget(self) -> None:
        super().forget()
        self._end()

    def _end(self) -> None:
        """There is nothing more to put together."""
        if self._is_counted:
            self._is_counted = False
            self.request.connection.is_slicing = False
            self._slicing.end(self)

    def reply(self, now: Now, *, is_expired: bool) -> Any:
        return self._reply if self._metadata.committed_offset >= self._offset else None


class Slicing:
    """The replies that are being built, in turns, and those that wait until one of them is done."""

    __slots__ = ("_deadlines", "_metadata", "_queue", "_reports", "_running", "_waiting")

    def __init__(
        self, deadlines: Deadlines, reports: Reports, waiting: Waiting, metadata: MetadataLog
    ) -> None:
        self._deadlines = deadlines
        self._reports = reports
        self._waiting = waiting
        self._metadata = metadata
        self._running: set[SlicedReply] = set()
        self._queue: dict[SlicedReply, None] = {}

    def reply(self, request: Request, steps: Steps, *, units: int) -> SlicedReply:
        """The parked request that is answered with what the steps return."""
        sliced = SlicedReply(self._waiting, self, self._metadata, request, steps, units=units)
        self._begin(sliced)
        return sliced

    def _begin(self, reply: SlicedReply) -> None:
        if len(self._running) >= SLICED_REPLIES_MAX:
            self._queue[reply] = None
        else:
            self._running.add(reply)
            self.pause(reply.request.now, reply)

    def pause(self, now: Now, reply: SlicedReply) -> None:
        """Schedules the next slice after a pause, in which other requests are served."""
        self._deadlines.add(now.after_ms(PAUSE_MS), Turn(reply))

    def end(self, reply: SlicedReply) -> None:
        """Its work is done, or its connection is closed."""
        connection = reply.request.connection
        if not connection.is_closed:
            self._reports.let_proceed(connection)
        self._queue.pop(reply, None)
        self._running.discard(reply)
        if self._queue and len(self._running) < SLICED_REPLIES_MAX:
            first = next(iter(self._queue))
            del self._queue[first]
            self._begin(first)


def at_once(steps: Steps) -> Any:
    """The reply, without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


class Turn:
    """The next slice's place among the deadlines."""

    __slots__ = ("_reply", "is_done")

    def __init__(self, reply: SlicedReply) -> None:
        self._reply = reply
        self.is_done = False

    def expired(self, now: Now) -> None:
        if not self._reply.is_done:  # else its connection is gone
            self._reply.go_on(now)
