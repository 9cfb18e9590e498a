"""Carries a session's requests on a running event loop.

    new --start--> running --close--> closed
                   running --the session or the shell raised--> broken

Everything happens on the loop, so there is no lock: sockets are watched by the loop itself, one timer is
armed for the earliest deadline, and a turn is scheduled at most once per iteration of the loop. The loop
refers to the driver only weakly, so that one which nobody refers to any more is taken down.
"""

from __future__ import annotations

import asyncio
import random
import socket
import weakref
from collections.abc import Callable
from math import ceil
from selectors import EVENT_READ, EVENT_WRITE

from headrace.base.time import NEVER, Instant
from headrace.client.aio.tokens import tokens_of
from headrace.client.clock import clock
from headrace.client.errors import ClientBroken, ClientError, Closed
from headrace.client.network.reachability import Reachability
from headrace.client.network.sockets import Found, Wire, Wires
from headrace.client.session import Session
from headrace.client.settings.network import NetworkSettings

SLEEP_MAX_S = 3600.0  # loops refuse timers of many weeks


class Driver:
    """The session belongs to the loop: whoever touches it calls `wake` if there is work."""

    def __init__(
        self,
        session: Session,
        settings: NetworkSettings,
        *,
        name: str,
        after_turn: Callable[[], object] | None = None,
    ) -> None:
        """`after_turn` is called after every turn."""
        self.name = name
        self.error: ClientError | None = None  # why it runs no more; waits raise it
        self._session = session
        self._settings = settings
        self._after_turn = after_turn
        self._is_scheduled = False
        self._waiters: dict[asyncio.Future[bool], Callable[[], bool]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self._watching: Watching | None = None

    def start(self) -> None:
        """On the loop that it is to live on."""
        watching = Watching(asyncio.get_running_loop(), self, self._settings, self._session.reachability)
        self._finalizer = weakref.finalize(self, watching.abandon)
        self._finalizer.atexit = False
        self._watching = watching
        self.wake()

    def wake(self) -> None:
        """Schedules a turn; cheap if there is one already."""
        if not self._is_scheduled and self._watching is not None:
            self._is_scheduled = True
            self._watching.loop.call_soon(_turn, weakref.ref(self))

    def check(self) -> None:
        """Raises why the driver runs no more, if so."""
        if self.error is not None:
            raise self.error.with_traceback(None)  # raised again and again, it would collect traces

    async def wait_until(self, done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Whether `done` came true in time; it is looked at after every turn."""
        if done():
            return True
        self.check()
        assert self._watching is not None, "it was not started"
        if timeout_s is not None and timeout_s <= 0:
            return False
        loop = self._watching.loop
        waiter: asyncio.Future[bool] = loop.create_future()
        timer = None
        if timeout_s is not None and timeout_s < NEVER:
            timer = loop.call_later(timeout_s, _give_up, waiter)
        self._waiters[waiter] = done
        try:
            return await waiter
        finally:
            del self._waiters[waiter]
            if timer is not None:
                timer.cancel()

    async def close(self) -> None:
        """Ends all connections; requests that are not answered fail. May be called again."""
        if self.error is not None:
            return
        self.error = Closed("this client was closed")
        watching = self._take_down()
        if watching is None:
            return
        try:
            now = clock()
            for ticket, answer in watching.wires.take_settled():
                self._session.answered(now, ticket, answer)
            if self._after_turn is not None:
                self._after_turn()
        except Exception as error:
            self.broke(error)
        else:
            self._tell_waiters()

    def _take_down(self) -> Watching | None:
        watching = self._watching
        if watching is not None:
            self._finalizer.detach()
            watching.close()
        if self._timer is not None:
            self._timer.cancel()
        return watching

    # On the loop

    def ring(self) -> None:
        self._timer = None
        self.turn()

    def turn(self) -> None:
        self._is_scheduled = False
        if self.error is not None:
            return
        try:
            self._work()
        except Exception as error:
            self.broke(error)
        else:
            self._tell_waiters()

    def _work(self) -> None:
        assert self._watching is not None
        session, wires = self._session, self._watching.wires
        now = clock()
        wires.check_time(now)
        for ticket, answer in wires.take_settled():
            session.answered(now, ticket, answer)
        requests = session.requests(now)
        brokers = tuple(session.cluster.brokers.values()) if requests else ()
        for outgoing in requests:
            wires.submit(now, outgoing, brokers)
        wires.flush(now)
        if self._after_turn is not None:
            self._after_turn()
        if wires.settled:
            self.wake()
        self._arm(min(session.deadline(), wires.deadline()))

    def _arm(self, until: Instant) -> None:
        """One that rings too early is left alone: deadlines move away with every answer."""
        now = clock()
        if self._timer is not None:
            if self._timer_at <= until:
                return
            self._timer.cancel()
            self._timer = None
        if until != NEVER:
            assert self._watching is not None
            # whole milliseconds, as loops count them: one that is rounded down would ring in vain
            delay_s = ceil(min(max(0.0, until - now), SLEEP_MAX_S) * 1000) / 1000
            self._timer_at = Instant(now + delay_s)
            self._timer = self._watching.loop.call_later(delay_s, _ring, weakref.ref(self))

    def broke(self, cause: Exception) -> None:
        """Something raised that should not: nobody may wait for what will never come."""
        self._take_down()
        self.error = ClientBroken(f"this client failed: {cause!r}")
        self.error.__cause__ = cause
        self._tell_waiters()

    def _tell_waiters(self) -> None:
        for waiter, done in self._waiters.items():
            if waiter.done():
                continue
            try:
                if done():
                    waiter.set_result(True)
                else:
                    self.check()
            except Exception as error:
                waiter.set_exception(error)


def _turn(reference: weakref.ref[Driver]) -> None:
    driver = reference()
    if driver is not None:
        driver.turn()


def _ring(reference: weakref.ref[Driver]) -> None:
    driver = reference()
    if driver is not None:
        driver.ring()


def _give_up(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(False)


class Watching:
    """The world of an event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        driver: Driver,
        settings: NetworkSettings,
        reachability: Reachability,
    ) -> None:
        self.loop = loop
        provider = None if settings.security is None else settings.security.token_provider
        self.tokens = None if provider is None else tokens_of(provider, loop, self._wake)
        self.wires = Wires(settings, random.SystemRandom(), self, reachability)
        self._driver = weakref.ref(driver)
        self._lookups: set[asyncio.Task[None]] = set()

    def watch(self, wire: Wire, events: int) -> None:
        assert wire.socket is not None
        number = wire.socket.fileno()
        if events & EVENT_READ:
            self.loop.add_reader(number, self._serve, wire, EVENT_READ)
        else:
            self.loop.remove_reader(number)
        if events & EVENT_WRITE:
            self.loop.add_writer(number, self._serve, wire, EVENT_WRITE)
        else:
            self.loop.remove_writer(number)

    def forget(self, wire: Wire) -> None:
        assert wire.socket is not None
        if not self.loop.is_closed():
            self.loop.remove_reader(wire.socket.fileno())
            self.loop.remove_writer(wire.socket.fileno())

    def look_up(self, wire: Wire) -> None:
        task = self.loop.create_task(self._look_up(wire))
        self._lookups.add(task)
        task.add_done_callback(self._lookups.discard)

    async def _look_up(self, wire: Wire) -> None:
        host, port = wire.link.address
        found: Found | Exception
        try:
            found = await self.loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            found = error
        self._tell(lambda: self.wires.found(clock(), wire, found))

    def _serve(self, wire: Wire, events: int) -> None:
        self._tell(lambda: self.wires.serve(clock(), wire, events))

    def _tell(self, act: Callable[[], None]) -> None:
        """After it answers may be there, and deadlines are other ones."""
        try:
            act()
        except Exception as error:
            if (driver := self._driver()) is not None:
                driver.broke(error)
        else:
            self._wake()

    def _wake(self) -> None:
        if (driver := self._driver()) is not None:
            driver.wake()

    def close(self) -> None:
        for task in self._lookups:
            task.cancel()
        self.wires.close()

    def abandon(self) -> None:
        """The driver is gone; this may be another thread than the loop's, where garbage happened to be
        collected.
        """
        if self.loop.is_closed():
            self.wires.abandon()
        else:
            self.loop.call_soon_threadsafe(self.close)
