"""Answers that take long to put together: a slice per turn, so that others are served in between.

The work is a generator: it yields after each unit, and returns the reply. `spliced` is one for messages with
a long list, which is encoded piece by piece as well; together the pieces are what encoding all of it would
have given.
"""

from collections.abc import Generator, Iterable
from itertools import islice
from struct import Struct
from typing import TYPE_CHECKING, Any

from headrace.base.limits import SLICED_REPLIES_MAX
from headrace.base.time import Instant, Now
from headrace.node.parking import Parked
from headrace.node.request import Request
from headrace.protocol.compiler import Codec
from headrace.protocol.varint import encode_varint

if TYPE_CHECKING:
    from headrace.node.node import Node

Steps = Generator[None, None, Any]

PAUSE_MS = 1

# Elements that may be encoded together: their count has to fit one byte, in old versions the last of four,
# since that byte tells where in the message they are.
TOGETHER_MAX = 100

_COUNT = Struct(">i")


class SlicedReply(Parked):
    """Goes on after a pause until the work is done, then waits until what it told of is durable."""

    __slots__ = ("_is_counted", "_offset", "_reply", "_steps", "_units")

    def __init__(self, node: "Node", request: Request, steps: Steps, *, units: int) -> None:
        super().__init__(node, request)
        self._steps = steps
        self._units = units  # per slice: about a millisecond of work
        self._reply: Any = None
        self._offset = 0
        self._is_counted = True  # among those that are put together, or wait for it
        request.connection.is_slicing = True
        node.slicing.begin(self)

    def deadline(self) -> Instant | None:
        return None

    def go_on(self, now: Now) -> None:
        try:
            for _ in range(self._units):
                next(self._steps)
        except StopIteration as end:
            self._reply = end.value
            self._end()
            self._offset = self.node.metadata.end_offset  # the image may be ahead of what is durable
            self.wait_for(self.node.metadata)
            self.woken(now)
        except Exception:
            self.failed()
            raise
        else:
            Turn(self, now)

    def forget(self) -> None:
        super().forget()
        self._end()

    def _end(self) -> None:
        """There is nothing more to put together."""
        if self._is_counted:
            self._is_counted = False
            connection = self.request.connection
            connection.is_slicing = False
            if not connection.is_closed:
                self.node.let_proceed(connection)
            self.node.slicing.end(self)

    def reply(self, now: Now, *, is_expired: bool) -> Any:
        return self._reply if self.node.metadata.committed_offset >= self._offset else None


class Slicing:
    """Those that are put together now, in turns, and those that wait until one of them is done."""

    __slots__ = ("_node", "_running", "_waiting")

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._running: set[SlicedReply] = set()
        self._waiting: dict[SlicedReply, None] = {}

    def begin(self, reply: SlicedReply) -> None:
        if len(self._running) >= SLICED_REPLIES_MAX:
            self._waiting[reply] = None
        else:
            self._running.add(reply)
            Turn(reply, reply.request.now)

    def end(self, reply: SlicedReply) -> None:
        self._waiting.pop(reply, None)
        self._running.discard(reply)
        if self._waiting and len(self._running) < SLICED_REPLIES_MAX:
            first = next(iter(self._waiting))
            del self._waiting[first]
            self.begin(first)


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

    def __init__(self, reply: SlicedReply, now: Now) -> None:
        self._reply = reply
        self.is_done = False
        reply.node.deadlines.add(now.after_ms(PAUSE_MS), self)

    def expired(self, now: Now) -> None:
        if not self._reply.is_done:  # else its connection is gone
            self._reply.go_on(now)


class Spliced:
    """A message whose long list is encoded already, piece by piece; the rest of it is not."""

    __slots__ = ("_at", "_codec", "_count", "_elements", "_field", "_message")

    def __init__(self, codec: Codec[Any], message: Any, field: str) -> None:
        """`message` has an empty list in that field."""
        self._codec = codec
        self._message = message
        self._field = field
        self._at = 0  # where the count of elements is, in the encoded message
        self._count = 0
        self._elements: list[bytes] = []

    @property
    def throttle_time_ms(self) -> int:
        return int(self._message.throttle_time_ms)

    @throttle_time_ms.setter
    def throttle_time_ms(self, value: int) -> None:
        self._message.throttle_time_ms = value

    def add(self, items: list[Any]) -> None:
        """At least one, at most TOGETHER_MAX."""
        empty = self._codec.encode(self._message)
        setattr(self._message, self._field, items)
        full = self._codec.encode(self._message)
        setattr(self._message, self._field, [])
        if not self._count:
            self._at = next(
                at for at, (one, other) in enumerate(zip(empty, full, strict=False)) if one != other
            )
            self._at -= 0 if self._codec.flexible else 3
        before = self._at + self._count_bytes
        self._elements.append(full[before : len(full) - len(empty) + before])
        self._count += len(items)

    def encoded(self) -> list[bytes]:
        """The whole message."""
        empty = self._codec.encode(self._message)
        if not self._count:
            return [empty]
        count = encode_varint(self._count + 1) if self._codec.flexible else _COUNT.pack(self._count)
        return [empty[: self._at] + count, *self._elements, empty[self._at + self._count_bytes :]]

    @property
    def _count_bytes(self) -> int:
        return 1 if self._codec.flexible else 4


def spliced(request: Request, message: Any, field: str, items: Iterable[Any], *, together: int) -> Steps:
    """The message with all items in that field; each unit puts so many of them together."""
    reply = Spliced(request.route.response, message, field)
    rest = iter(items)
    while some := list(islice(rest, together)):
        reply.add(some)
        yield
    return reply
