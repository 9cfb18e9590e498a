"""The driver of an asyncio client: it sends the session's requests on a running event loop.

    new --start--> running --close--> closed
                   running --the session or `after_turn` raised--> broken

Everything happens on the loop, so there is no lock: the loop watches the sockets, one timer is armed for the
earliest deadline, and a turn is scheduled at most once per iteration of the loop. The loop refers to the
driver only weakly, so that a driver to which nothing else refers is closed.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import socket
import weakref
from collections.abc import Callable
from math import ceil
from selectors import EVENT_READ, EVENT_WRITE
from typing import Any, TypeVar, cast

from headrace.base.time import NEVER, Instant
from headrace.client.clock import clock
from headrace.client.errors import ClientBroken, ClientError, Closed
from headrace.client.network.reachability import Reachability
from headrace.client.network.sockets import Peer, Resolved, Sockets
from headrace.client.security.oauthbearer import TokenProvider, Tokens
from headrace.client.session import Session
from headrace.client.settings.network import NetworkSettings
from headrace.client.steps import Call, Steps, Tell, Wait

T = TypeVar("T")

SLEEP_MAX_S = 3600.0  # loops refuse timers of many weeks


class Driver:
    """The session belongs to the loop: a caller that gives it work calls `wake`."""

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
        self.error: ClientError | None = None  # why it does not run any more; waiting calls raise it
        # Called when it cannot run any more, though nobody closed it.
        self.failed: Callable[[ClientError], object] | None = None
        self._session = session
        self._settings = settings
        self._after_turn = after_turn
        self._is_scheduled = False
        self._waiters: dict[asyncio.Future[bool], Callable[[], bool]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = NEVER
        self._watcher: SocketWatcher | None = None

    def start_once(self) -> None:
        """Starts on the running loop, unless it was started before."""
        if self._watcher is None and self.error is None:
            self.start()

    def start(self) -> None:
        """Starts on the running loop."""
        watcher = SocketWatcher(asyncio.get_running_loop(), self, self._settings, self._session.reachability)
        self._finalizer = weakref.finalize(self, watcher.abandon)
        self._finalizer.atexit = False
        self._watcher = watcher
        self.wake()

    def wake(self) -> None:
        """Schedules a turn; cheap if there is one already."""
        if not self._is_scheduled and self._watcher is not None:
            self._is_scheduled = True
            self._watcher.loop.call_soon(_turn, weakref.ref(self))

    @property
    def is_started(self) -> bool:
        return self._watcher is not None

    def notify(self) -> None:
        """Waiting calls look again whether their wait is over."""
        self.wake()

    def check(self) -> None:
        """Raises why the driver does not run any more, if so."""
        if self.error is not None:
            raise self.error.with_traceback(None)  # it is raised more than once, and would collect tracebacks

    async def wait_until(self, done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Waits until `done()`, which is called after every turn; returns whether it came true in time."""
        if done():
            return True
        self.check()
        assert self._watcher is not None, "it was not started"
        if timeout_s is not None and timeout_s <= 0:
            return False
        loop = self._watcher.loop
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

    async def run(self, steps: Steps[T], client: object, wake: Callable[[], None]) -> T:
        """Takes the steps of a call in a task, and returns what the call returns.

        Functions of the application may be coroutine functions. `client` is the argument of a `Tell`; `wake`
        is called before a wait, and schedules a turn if there is work.
        """
        value: Any = None
        error: BaseException | None = None
        while True:
            try:
                step = steps.send(value) if error is None else steps.throw(error)
            except StopIteration as end:
                return cast("T", end.value)
            value = error = None
            try:
                match step:
                    case Wait(is_over, until):
                        wake()
                        timeout_s = None if until == NEVER else max(0.0, until - clock())
                        value = await self.wait_until(is_over, timeout_s)
                    case Call(function, arguments):
                        value = await _awaited(function(*arguments))
                    case Tell(function, arguments):
                        value = await _awaited(function(client, *arguments))
            except BaseException as raised:  # a cancellation, too: the call cleans up behind itself
                error = raised

    async def close(self) -> None:
        """Ends all connections; requests that are not answered fail. May be called again."""
        if self.error is not None:
            return
        self.error = Closed("this client was closed")
        watcher = self._take_down()
        if watcher is None:
            return
        try:
            now = clock()
            for ticket, answer in watcher.sockets.take_settled():
                self._session.answered(now, ticket, answer)
            if self._after_turn is not None:
                self._after_turn()
        except Exception as error:
            self.broke(error)
        else:
            self._notify_waiters()

    def _take_down(self) -> SocketWatcher | None:
        watcher = self._watcher
        if watcher is not None:
            self._finalizer.detach()
            watcher.close()
        if self._timer is not None:
            self._timer.cancel()
        return watcher

    # On the loop

    def on_timer(self) -> None:
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
            self._notify_waiters()

    def _work(self) -> None:
        assert self._watcher is not None
        session, sockets = self._session, self._watcher.sockets
        now = clock()
        sockets.check_time(now)
        for ticket, answer in sockets.take_settled():
            session.answered(now, ticket, answer)
        requests = session.requests(now)
        brokers = tuple(session.cluster.brokers.values()) if requests else ()
        for outgoing in requests:
            sockets.submit(now, outgoing, brokers)
        sockets.flush(now)
        if self._after_turn is not None:
            self._after_turn()
        if sockets.settled:
            self.wake()
        self._arm(min(session.deadline(), sockets.deadline()))

    def _arm(self, until: Instant) -> None:
        """A timer that is due earlier is kept: deadlines move away with every response."""
        now = clock()
        if self._timer is not None:
            if self._timer_at <= until:
                return
            self._timer.cancel()
            self._timer = None
        if until != NEVER:
            assert self._watcher is not None
            # whole milliseconds, as loops count them: if rounded down, the timer would be too early
            delay_s = ceil(min(max(0.0, until - now), SLEEP_MAX_S) * 1000) / 1000
            self._timer_at = Instant(now + delay_s)
            self._timer = self._watcher.loop.call_later(delay_s, _on_timer, weakref.ref(self))

    def broke(self, cause: Exception) -> None:
        """After an unexpected error: waiting calls raise it."""
        self._take_down()
        self.error = ClientBroken(f"the client stopped after an unexpected error: {cause!r}")
        self.error.__cause__ = cause
        if self.failed is not None:
            self.failed(self.error)
        self._notify_waiters()

    def _notify_waiters(self) -> None:
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


def _on_timer(reference: weakref.ref[Driver]) -> None:
    driver = reference()
    if driver is not None:
        driver.on_timer()


def _give_up(waiter: asyncio.Future[bool]) -> None:
    if not waiter.done():
        waiter.set_result(False)


class SocketWatcher:
    """The sockets of an asyncio client, watched by the event loop."""

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
        self.sockets = Sockets(settings, random.SystemRandom(), self, reachability)
        self._driver = weakref.ref(driver)
        self._lookups: set[asyncio.Task[None]] = set()

    def watch(self, peer: Peer, events: int) -> None:
        assert peer.socket is not None
        number = peer.socket.fileno()
        if events & EVENT_READ:
            self.loop.add_reader(number, self._serve, peer, EVENT_READ)
        else:
            self.loop.remove_reader(number)
        if events & EVENT_WRITE:
            self.loop.add_writer(number, self._serve, peer, EVENT_WRITE)
        else:
            self.loop.remove_writer(number)

    def forget(self, peer: Peer) -> None:
        assert peer.socket is not None
        if not self.loop.is_closed():
            self.loop.remove_reader(peer.socket.fileno())
            self.loop.remove_writer(peer.socket.fileno())

    def look_up(self, peer: Peer) -> None:
        task = self.loop.create_task(self._look_up(peer))
        self._lookups.add(task)
        task.add_done_callback(self._lookups.discard)

    async def _look_up(self, peer: Peer) -> None:
        host, port = peer.in_flight.address
        found: Resolved | Exception
        try:
            found = await self.loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            found = error
        self._and_wake(lambda: self.sockets.found(clock(), peer, found))

    def _serve(self, peer: Peer, events: int) -> None:
        self._and_wake(lambda: self.sockets.serve(clock(), peer, events))

    def _and_wake(self, act: Callable[[], None]) -> None:
        """Calls `act`, then schedules a turn: there may be responses, or other deadlines."""
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
        self.sockets.close()

    def abandon(self) -> None:
        """The driver was collected as garbage, perhaps on another thread than the loop's."""
        if self.loop.is_closed():
            self.sockets.abandon()
        else:
            self.loop.call_soon_threadsafe(self.close)


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def tokens_of(provider: TokenProvider, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> Tokens:
    """OAuth tokens: a provider that is a coroutine function is awaited; a plain function may block, and is
    called on a thread of the loop's pool. `wake` is called on the loop afterwards.
    """
    tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps only weak references

    def fetch() -> None:
        task = loop.create_task(ask())
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def ask() -> None:
        try:
            is_coroutine = inspect.iscoroutinefunction(provider)
            given = provider() if is_coroutine else await loop.run_in_executor(None, provider)
            tokens.came(await given if inspect.isawaitable(given) else given)
        except Exception as error:
            tokens.failed(error)
        wake()

    tokens = Tokens(fetch)
    return tokens
