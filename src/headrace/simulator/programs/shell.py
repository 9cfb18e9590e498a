"""Simulated driver of a client session: a connection per lane, opened when it is needed; a broken connection
fails all requests that wait on it.

The network does everything to a connection that TCP allows. Frames of one connection are not reordered;
frames of different connections may be, because those of a connection that was given up may still arrive.
"""

from collections.abc import Callable
from typing import Any, Protocol

from headrace.base.time import NEVER, Instant
from headrace.client.errors import ClientError, ConnectionLost, TimedOut, Unreachable
from headrace.client.session import Answer, Outgoing
from headrace.protocol.messages.produce import ProduceResponse
from headrace.protocol.notation import Request
from headrace.simulator.frames import newest_request
from headrace.simulator.history import SpunIdle
from headrace.simulator.host import Host
from headrace.simulator.nodes import Nodes
from headrace.simulator.wire import Wire

STALL_S_MAX = 2.5  # beyond the request timeouts, so that what was sent again may come before what it repeats
WAKES_PER_S_MAX = 500  # far beyond what deadlines of 10 ms and more need: a machine that spins is a bug


class Driven(Protocol):
    """What of a session the shell needs."""

    def requests(self, now: Instant) -> list[Outgoing]: ...

    def answered(self, now: Instant, ticket: int, answer: Answer) -> None: ...

    def deadline(self) -> Instant: ...


class Line:
    """One connection, from the request it was made for until it breaks."""

    def __init__(self, shell: "Shell", host: Host, lane: str) -> None:
        self.name = shell.name
        self._shell = shell
        self._key = (host.id, lane)
        self._waiting: dict[int, None] = {}  # tickets, in the order of their requests
        self.wire = Wire(host, self)

    def send(self, outgoing: Outgoing) -> None:
        request, version = newest_request(outgoing)
        ticket, world = outgoing.ticket, self._shell.world
        self._waiting[ticket] = None
        if not self.wire.is_open:
            pause = world.between(0.02, 0.2)
            world.after(pause, lambda: self.fail(Unreachable("nobody listens there")))
            return
        self.wire.send(request.KEY, version, request, (ticket, request), is_answered=outgoing.expects_answer)
        if outgoing.expects_answer:
            world.after(outgoing.timeout_s, lambda: self._check(ticket))
        else:
            world.after(0.0, lambda: self._settle(ticket, ProduceResponse()))

    def _check(self, ticket: int) -> None:
        if ticket in self._waiting:
            self._shell.give_up(self.wire)
            self.fail(TimedOut("no answer came in time"))

    def fail(self, error: ClientError) -> None:
        """This connection is of no use any more."""
        waiting, self._waiting = self._waiting, {}
        self._shell.lost(self._key, self)
        for ticket in waiting:
            self._shell.settle(ticket, error)

    def _settle(self, ticket: int, answer: Answer) -> None:
        if ticket in self._waiting:
            del self._waiting[ticket]
            self._shell.settle(ticket, answer)

    # --- the wire's client ------------------------------------------------------------------------

    def promised(self, asked: Any, answer: Any, /) -> None:
        self._shell.promised(asked[1], answer)

    def answered(self, asked: Any, answer: Any, /) -> None:
        self._settle(asked[0], answer)

    def broken(self, wire: Wire, /) -> None:
        self.fail(ConnectionLost("the broker closed the connection"))


class Shell:
    """The shell of one run of a program; it is discarded when the run ends.

    Invariant: every ticket is settled once, unless the program dies first.
    """

    def __init__(
        self,
        host: Nodes,
        name: str,
        session: Driven,
        after_turn: Callable[[], None],
        promised: Callable[[Request, Any], None],
        *,
        leaves_ghosts: bool,
    ) -> None:
        self.host = host
        self.world = host.world
        self.name = name
        self.promised = promised  # hears of every answer that leaves the node, whether it arrives or not
        self.is_alive = True
        self._session = session
        self._after_turn = after_turn  # the program listens, and may ask for more
        self._leaves_ghosts = leaves_ghosts
        self._lines: dict[tuple[int, str], Line] = {}  # by node and lane
        self._wakes_at: float | None = None
        self._wakes: list[float] = []  # within the last second
        self._is_in_turn = False
        self._has_news = False

    @property
    def now(self) -> Instant:
        return Instant(self.world.mono)

    def touch(self) -> None:
        """Something has happened to the session: what it wants now is sent."""
        self._has_news = True
        if self._is_in_turn or not self.is_alive:
            return
        self._is_in_turn = True
        while self._has_news and self.is_alive:
            self._has_news = False
            for outgoing in self._session.requests(self.now):
                self._line(self.host.reach(outgoing.to), outgoing.lane).send(outgoing)
            self._after_turn()
        self._is_in_turn = False
        self._set_timer()

    def settle(self, ticket: int, answer: Answer) -> None:
        if self.is_alive:
            self._session.answered(self.now, ticket, answer)
            self.touch()

    def _line(self, host: Host, lane: str) -> Line:
        line = self._lines.get((host.id, lane))
        if line is None:
            line = self._lines[host.id, lane] = Line(self, host, lane)
        return line

    def lost(self, key: tuple[int, str], line: Line) -> None:
        if self._lines.get(key) is line:
            del self._lines[key]

    def _set_timer(self) -> None:
        if not self.is_alive:
            return
        deadline = self._session.deadline()
        if deadline == NEVER or (self._wakes_at is not None and self._wakes_at <= deadline):
            return
        self._wakes_at = deadline

        def wake() -> None:
            if self.is_alive and self._wakes_at == deadline:
                self._wakes_at = None
                self._count_wake()
                self.touch()

        # timers are late, never early
        self.world.after(deadline - self.world.mono + self.world.between(0.00001, 0.001), wake)

    def _count_wake(self) -> None:
        mono = self.world.mono
        self._wakes = [at for at in self._wakes if at > mono - 1.0] + [mono]
        if len(self._wakes) > WAKES_PER_S_MAX:
            self.host.history.add(SpunIdle(self.name, len(self._wakes)))

    # --- faults -----------------------------------------------------------------------------------

    def hang_up(self) -> None:
        """Something happens to one of its connections, or to all of them."""
        lines = list(self._lines.values())
        if lines and self.world.chance(0.6):
            lines = [self.world.rng.choice(lines)]
        harm = self.world.rng.randrange(4)
        for line in lines:
            if harm == 0:
                line.wire.stall(self._stall_s())
            elif harm == 1:
                line.wire.vanish()
            elif harm == 2:
                line.wire.stall(self._stall_s())
                self.give_up(line.wire)
                line.fail(ConnectionLost("the connection was reset"))
            else:
                line.wire.cut()
                line.fail(ConnectionLost("the connection was reset"))

    def _stall_s(self) -> float:
        return self.world.between(0.0, STALL_S_MAX)

    def die(self) -> None:
        """kill -9: nobody hears anything any more; what was sent may still arrive."""
        self.is_alive = False
        for line in self._lines.values():
            line.wire.stall(self._stall_s())
            self.give_up(line.wire)
        self._lines.clear()

    def give_up(self, wire: Wire) -> None:
        """What was sent may still arrive, long after; or never, where nobody could tell it from a repeat."""
        if self._leaves_ghosts:
            wire.close()
        else:
            wire.cut()
