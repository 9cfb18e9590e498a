"""Fetches that wait: for enough bytes, an error, or the end of their time.

Woken, a fetch looks only at the partitions that moved. One of a fast path that meets anything unusual is
answered the ordinary way.
"""

from collections.abc import Iterable
from struct import Struct
from typing import TYPE_CHECKING

from headrace.base.limits import FETCH_WAIT_MS_MAX
from headrace.base.time import Instant, Now
from headrace.node.fetch_sessions import FetchPlan, FetchSession, shrink
from headrace.node.routes import Request
from headrace.node.waiting import Parked, Waitable, Waiting
from headrace.protocol.messages.fetch import FetchResponse

if TYPE_CHECKING:
    from headrace.node.fetch_fast_path import FetchFastPath, RememberedFetch
    from headrace.node.handlers.fetch import Gathering

FEW_PARTITIONS = 4  # so many are looked at as quickly as added up

_CORRELATION_ID = Struct(">i")


class Tally:
    """What the partitions of a waiting fetch have, added up. At an append only the one that moved is measured
    again: five polls of 2,000 partitions each took 86 ms of every append.
    """

    __slots__ = ("_gathering", "_min_bytes", "_sizes", "_total")

    def __init__(self, gathering: "Gathering") -> None:
        self._gathering = gathering
        self._min_bytes: int = gathering.min_bytes
        self._sizes: dict[Waitable, int] = dict(gathering.sizes.items())
        self._total = sum(self._sizes.values())

    @property
    def is_enough(self) -> bool:
        return self._total >= self._min_bytes

    def is_worth_a_look(self, moved: Iterable[Waitable]) -> bool:
        """Whether there are enough bytes now, or all partitions have to be checked."""
        must_look = False
        for partition in moved:
            size = self._gathering.measure(partition)  # type: ignore[arg-type]  # nothing else is waited for
            if size is None:
                must_look = True
            else:
                self._total += size - self._sizes.get(partition, 0)
                self._sizes[partition] = size
        return must_look or self.is_enough


class ParkedSessionFetch(Parked):
    """A fetch that names only what has changed; its session is woken when a partition has news."""

    __slots__ = ("_at", "_gathering", "_session")

    def __init__(
        self, waiting: Waiting, request: Request, gathering: "Gathering", session: FetchSession
    ) -> None:
        super().__init__(waiting, request)
        self._at = request.now.after_ms(min(request.body.max_wait_ms, FETCH_WAIT_MS_MAX))
        self._gathering = gathering
        self._session = session
        shrink(request.body)
        session.fetches[self] = None
        self._wait()

    def _wait(self) -> None:
        self._gathering.settle(waits=True)
        self._gathering.forget()

    def deadline(self) -> Instant:
        return self._at

    def reply(self, now: Now, *, is_expired: bool) -> FetchResponse | None:
        gathering = self._gathering
        gathering.look_again(now)
        if is_expired or gathering.is_enough:
            return gathering.response(now)
        self._wait()
        return None

    def forget(self) -> None:
        super().forget()
        self._session.fetch_ended(self)


class ParkedFetch(Parked):
    __slots__ = ("_at", "_gathering", "_tally")

    def __init__(self, waiting: Waiting, request: Request, gathering: "Gathering") -> None:
        super().__init__(waiting, request)
        self._gathering = gathering
        self._at = request.now.after_ms(min(request.body.max_wait_ms, FETCH_WAIT_MS_MAX))
        self._tally: Tally | None = None
        if len(gathering.wanted) > FEW_PARTITIONS:
            self._tally = Tally(gathering)
            self.moved = {}
        shrink(request.body)
        gathering.forget()
        for partition in gathering.wanted:
            self.wait_for(partition)

    def deadline(self) -> Instant:
        return self._at

    def reply(self, now: Now, *, is_expired: bool) -> FetchResponse | None:
        gathering, tally = self._gathering, self._tally
        if tally is not None and not is_expired:
            moved, self.moved = self.moved, {}
            if not tally.is_worth_a_look(moved or ()):
                return None
        gathering.gather(now)
        if is_expired or gathering.is_enough or (tally is not None and tally.is_enough):
            return gathering.response(now)
        gathering.forget()
        return None


class ParkedFastFetch(Parked):
    """A fetch that waits for records. If anything else happens meanwhile, the ordinary path answers it."""

    __slots__ = ("_at", "_correlation_id", "_fast_path", "_known", "_offset", "_session", "_started")

    def __init__(
        self,
        fast_path: "FetchFastPath",
        known: "RememberedFetch",
        session: FetchSession | None,
        offset: int,
        correlation_id: int,
        now: Now,
    ) -> None:
        # not the request of `Parked`: most of these fetches never need one
        self.waiting = fast_path.waiting
        self.waits_for = []
        self.is_done = False
        self.is_awake = False
        self.moved = None
        self._fast_path = fast_path
        self._known = known
        self._session = session
        self._offset = offset
        self._correlation_id = correlation_id
        self._started = now
        self._at = now.after_ms(known.max_wait_ms)
        self.wait_for(known.partition)

    def deadline(self) -> Instant:
        return self._at

    def woken(self, now: Now) -> None:
        known = self._known
        try:
            found = None
            if known.is_wanted_by(self._session) and self._fast_path.allows(known):
                found = self._fast_path.find(now, known, self._offset)
            if found is None:
                self._take_ordinary_path(now)
            elif found.span is not None and found.is_enough:
                known.route.metrics.observe(now.mono - self._started.mono)
                throttle_ms = self._fast_path.throttle_ms(now, known, found.span)
                if throttle_ms:
                    self.waiting.send(self, known.throttled(self._correlation_id, throttle_ms))
                else:
                    self.waiting.send(self, known.answer(_CORRELATION_ID.pack(self._correlation_id), found))
        except Exception:
            self.failed()
            raise

    def expired(self, now: Now) -> None:
        try:
            self._take_ordinary_path(now)
        except Exception:
            self.failed()
            raise

    def _take_ordinary_path(self, now: Now) -> None:
        """The answer of the ordinary path, whatever it is."""
        known, connection = self._known, self._fast_path.connection
        route = known.route
        self.request = Request(
            self._started,
            connection,
            route,
            route.version,
            self._correlation_id,
            known.client_id,
            known.body,
        )
        wanted = [(known.key[0], known.wanted_at(self._offset))]
        plan = FetchPlan(self._session, wanted, self._session is not None)
        gathering = self._fast_path.fetch.gathering(self.request, plan)
        gathering.gather(now)
        self.waiting.answer(now, self, gathering.response(now))

    def failed(self) -> None:
        self.waiting.give_up(self._fast_path.connection)
