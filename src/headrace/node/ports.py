"""Ports: the interfaces through which parts of a node ask for deadlines, jobs and reports, and see its
lifecycle.

A part takes the ports that it uses in its constructor. Each port writes to the list of effects that the
driver carries out after every call of the node, or to the one heap of deadlines, for which the driver sets
one timer. Requests that wait have a port of their own (`node/waiting.py`), and so have requests to other
nodes (`node/peers.py`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from headrace.base.time import Instant, Now
from headrace.node.connection import Connection
from headrace.node.effects import Close, Effect, Fetch, Halt, Proceed, Report, Run
from headrace.storage.jobs import Job

if TYPE_CHECKING:
    from headrace.node.peers import Peers
    from headrace.node.waiting import Waiting

Completion = Callable[[Now, Any], None]  # takes a job's result, or the exception that it ended with


class Lifecycle:
    """How far the stop of a node has come. Parts read it; only the node and `Reports.halt` change it."""

    __slots__ = ("is_halted", "is_leaving", "is_stopped", "is_stopping")

    def __init__(self) -> None:
        self.is_leaving = False  # its duties go to other nodes of the cluster; it still serves
        self.is_stopping = False  # requests are turned away, and no background work is begun
        self.is_stopped = False  # everything is flushed and closed
        self.is_halted = False  # a fault ended the node: nothing more is promised to anybody


class Jobs:
    """Work for threads and other processes. Jobs of one queue of a directory run one after the other."""

    __slots__ = ("_effects", "_last_ticket", "_under_way")

    def __init__(self, effects: list[Effect]) -> None:
        self._effects = effects
        self._last_ticket = 0
        self._under_way: dict[int, tuple[str, Completion]] = {}  # by ticket: the queue, and what to call

    def run(self, directory: str, queue: str, job: Job, then: Completion) -> None:
        self._last_ticket += 1
        self._under_way[self._last_ticket] = queue, then
        self._effects.append(Run(self._last_ticket, directory, queue, job))

    def fetch(self, url: str, bytes_max: int, then: Completion) -> None:
        """The document at the URL, or an OSError or ValueError that says why there is none."""
        self._last_ticket += 1
        self._under_way[self._last_ticket] = "fetch", then
        self._effects.append(Fetch(self._last_ticket, url, bytes_max))

    def is_busy(self, queue: str) -> bool:
        """A job of that queue is under way, in any directory."""
        return any(name == queue for name, _ in self._under_way.values())

    def end(self, ticket: int) -> Completion:
        """The driver has the result of a job: what has to be called with it."""
        _, then = self._under_way.pop(ticket)
        return then


class Reports:
    """Events for the operator's log, closed connections, and the halt of the node."""

    __slots__ = ("_effects", "_lifecycle", "damages")

    def __init__(self, effects: list[Effect], lifecycle: Lifecycle) -> None:
        self._effects = effects
        self._lifecycle = lifecycle
        self.damages = 0  # files and batches that were found damaged

    def report(self, level: str, event: str, **facts: Any) -> None:
        self._effects.append(Report(level, event, facts))

    def damage(self, path: str, what: str) -> None:
        """Something on disk is not what was written there."""
        self.damages += 1
        self.report("error", "damaged_file", path=path, what=what)

    def halt(self, reason: str) -> None:
        """The node cannot keep its promises any more: the process ends, without a clean stop."""
        self._lifecycle.is_halted = True
        self._effects.append(Halt(reason))

    @contextmanager
    def halting(self, what: str) -> Iterator[None]:
        """Halt after an exception inside, which is raised again."""
        try:
            yield
        except Exception as mistake:
            self.halt(f"{what}: {mistake!r}")
            raise

    def close(self, connection: Connection, reason: str) -> None:
        self._effects.append(Close(connection, reason))

    def let_proceed(self, connection: Connection) -> None:
        """The connection was full and is not any more: it is read from again."""
        self._effects.append(Proceed(connection))


class Due(Protocol):
    is_done: bool

    def expired(self, now: Now, /) -> None: ...


class Deadlines:
    """The node's one heap of deadlines, so that the driver needs one timer and no timer can leak.

    An entry is anything with `expired(now)`. Cancelling is lazy: a done entry stays in the heap until its
    time comes or until the dead outnumber the living, whichever is first.
    """

    __slots__ = ("_dead", "_heap", "_order")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Due]] = []
        self._order = count()  # equal instants fire in the order they were set
        self._dead = 0

    def add(self, at: Instant, entry: Due) -> None:
        heappush(self._heap, (at, next(self._order), entry))

    def cancelled(self) -> None:
        """An entry was marked done before its time."""
        self._dead += 1
        if self._dead > 64 and self._dead * 2 > len(self._heap):
            self._heap = [item for item in self._heap if not item[2].is_done]
            heapify(self._heap)
            self._dead = 0

    def clear(self) -> None:
        self._heap.clear()
        self._dead = 0

    def next(self) -> Instant | None:
        heap = self._heap
        while heap and heap[0][2].is_done:
            heappop(heap)
            self._dead = max(0, self._dead - 1)
        return Instant(heap[0][0]) if heap else None

    def fire(self, now: Now) -> None:
        while (at := self.next()) is not None and at <= now.mono:
            _, _, entry = heappop(self._heap)
            entry.expired(now)


class Once:
    """Something done one time, after a while."""

    __slots__ = ("_act", "is_done")

    def __init__(self, deadlines: Deadlines, at: Instant, act: "Act") -> None:
        self._act = act
        self.is_done = False
        deadlines.add(at, self)

    def expired(self, now: Now) -> None:
        self._act(now)


class Alarm:
    """Something to be done at a moment, unless it is cancelled before."""

    __slots__ = ("_act", "_deadlines", "at", "is_done")

    def __init__(self, deadlines: Deadlines, at: Instant, act: "Act") -> None:
        self._deadlines = deadlines
        self._act = act
        self.at = at
        self.is_done = False
        deadlines.add(at, self)

    def expired(self, now: Now) -> None:
        self.is_done = True
        self._act(now)

    def cancel(self) -> None:
        self.is_done = True
        self._deadlines.cancelled()


class Every:
    """Something done again and again, each time a while after it was last done."""

    __slots__ = ("_act", "_deadlines", "interval_ms", "is_done")

    def __init__(self, deadlines: Deadlines, interval_ms: int, act: "Act") -> None:
        self._deadlines = deadlines
        self._act = act
        self.interval_ms = interval_ms
        self.is_done = False

    def start(self, now: Now) -> None:
        self._deadlines.add(now.after_ms(self.interval_ms), self)

    def expired(self, now: Now) -> None:
        try:
            self._act(now)
        finally:  # what failed once is tried again
            self.start(now)


class Act(Protocol):
    def __call__(self, now: Now, /) -> None: ...


class Ports(NamedTuple):
    """All ports of a node, for the roles, and for a part that uses most of them. It keeps only those that
    it uses.
    """

    deadlines: Deadlines
    jobs: Jobs
    reports: Reports
    lifecycle: Lifecycle
    waiting: "Waiting"
    peers: "Peers"
