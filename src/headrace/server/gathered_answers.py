"""Small answers of one turn of the event loop: gathered, and sent together at the end of the turn.

A client with fifty connections that is woken once instead of fifty times needs half the CPU, and its next
requests arrive together in the broker's next turn. An answer waits only for requests that have arrived
already, and for at most a millisecond. If a connection is answered twice in a row, no other connection is
active, and its answer does not wait at all.
"""

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.server.connection import Channel

# After so long the answers leave, whoever else is to be served in this turn. A request takes some 30
# microseconds, so that the fifty of a busy turn leave in two groups.
WAIT_S_MAX = 0.001

# The same after so many, or so many bytes: what answers hold of the memory until they leave.
ANSWERS_MAX = 64
BYTES_MAX = 256 * 1024


class GatheredAnswers:
    """Those of all connections. Answers of one connection stay in order: whatever else it sends goes out
    behind them (`send_of`).
    """

    __slots__ = ("_began_at", "_bytes", "_count", "_is_due", "_soon", "last", "waiting")

    def __init__(self, soon: Callable[[Callable[[], None]], object]) -> None:
        self._soon = soon
        self.waiting: dict[Channel, list[bytes]] = {}
        self._count = 0
        self._bytes = 0
        self._began_at = 0.0  # when the first of them came
        self._is_due = False  # whether the loop will call us at the end of its turn
        self.last: Channel | None = None  # the connection that was answered last

    def add(self, channel: "Channel", data: bytes) -> None:
        """To be sent later: others have answers waiting, or were answered last. Else the connection is alone,
        and sends the answer itself.
        """
        waiting = self.waiting
        if not waiting:
            self._count = self._bytes = 0
            self._began_at = monotonic()
            if not self._is_due:
                self._is_due = True
                self._soon(self._end_turn)
        self.last = channel
        if channel in waiting:
            waiting[channel].append(data)
        else:
            waiting[channel] = [data]
        self._count += 1
        self._bytes += len(data)
        if (
            self._count >= ANSWERS_MAX
            or self._bytes >= BYTES_MAX
            or monotonic() - self._began_at >= WAIT_S_MAX
        ):
            self.send()

    def send(self) -> None:
        """Sends all of them now."""
        waiting = self.waiting
        while waiting:  # not a loop over it: whoever cannot take its answer may cause another to be closed
            self.send_of(next(iter(waiting)))

    def send_of(self, channel: "Channel") -> None:
        """Sends those of one connection now."""
        answers = self.waiting.pop(channel, None)
        if answers is not None:
            channel.send_now(answers[0] if len(answers) == 1 else b"".join(answers))

    def forget(self, channel: "Channel") -> None:
        """Its client has gone."""
        self.waiting.pop(channel, None)
        if self.last is channel:
            self.last = None

    def _end_turn(self) -> None:
        self._is_due = False
        try:
            self.send()
        finally:
            if self.waiting:  # after a mistake of ours in one connection: the others have their answers
                self._is_due = True
                self._soon(self._end_turn)
