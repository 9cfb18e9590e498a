"""The driver of a blocking client: a thread that sends the session's requests and hands it the responses.

    new --start--> running --close--> closed
                   running --the session or `after_turn` raised--> broken

A turn: under the lock, responses go to the session and its new requests come out; without the lock, these are
encoded and sent, and `after_turn` is called. The thread refers to its driver only while it works, not while
it sleeps: a driver to which nothing else refers ends its thread.
"""

from __future__ import annotations

import atexit
import os
import random
import selectors
import socket
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar, cast

from headrace.base.randomness import Randomness
from headrace.base.time import NEVER, Instant
from headrace.client.clock import clock
from headrace.client.errors import ClientBroken, ClientError, Closed, InvalidInput
from headrace.client.network.reachability import Reachability
from headrace.client.network.sockets import Peer, Resolved, Sockets
from headrace.client.security.oauthbearer import TokenProvider, Tokens
from headrace.client.session import Session
from headrace.client.settings.network import NetworkSettings
from headrace.client.steps import Call, Steps, Tell, Wait

SLEEP_MAX_S = 3600.0  # system calls refuse to sleep for longer than some weeks


class SocketSelector:
    """The sockets of the driver's thread, which sleeps until one is ready, a deadline comes, or it is woken.

    A socket pair beside the connections wakes the thread from `select`. All methods but `wake` belong to that
    thread.
    """

    def __init__(self, settings: NetworkSettings, rng: Randomness, reachability: Reachability) -> None:
        provider = None if settings.security is None else settings.security.token_provider
        self.tokens = None if provider is None else tokens_of(provider, self.wake)
        self.sockets = Sockets(settings, rng, self, reachability)
        self._selector = selectors.DefaultSelector()
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self._wake_sender.setblocking(False)
        self._selector.register(self._wake_receiver, selectors.EVENT_READ)
        self._found: deque[tuple[Peer, Resolved | Exception]] = deque()
        # Set before sleeping and read before waking: while the thread is awake, `wake` needs no system call,
        # which would make the two threads change places.
        self._is_asleep = False
        self._is_woken = False

    def wake(self) -> None:
        """From any thread: `poll` returns at once."""
        self._is_woken = True
        if self._is_asleep:
            self._is_asleep = False
            self._send_wakeup()

    def _send_wakeup(self) -> None:
        try:
            self._wake_sender.send(b"\0")
        except BlockingIOError:
            pass  # enough wake-ups wait to be read
        except OSError:
            if self._wake_sender.fileno() >= 0:  # else it was closed meanwhile: the thread is awake
                raise

    def poll(self, until: Instant) -> bool:
        """Sleeps until `until` or until there is something to do, and serves the sockets. Returns whether the
        driver has work: there are answers, it was woken, or it is `until`.
        """
        self._is_asleep = True
        wait_s = 0.0
        if not (self._is_woken or self.sockets.settled):
            wait_s = min(max(0.0, min(until, self.sockets.deadline()) - clock()), SLEEP_MAX_S)
        ready = self._selector.select(wait_s)
        self._is_asleep = False
        was_wanted = self._is_woken
        if was_wanted:  # else left alone: another thread may be setting it right now
            self._is_woken = False
        now = clock()
        for key, events in ready:
            if key.data is None:
                self._drain_wakeups()
            else:
                self.sockets.serve(now, key.data, events)
        while self._found:
            self.sockets.found(now, *self._found.popleft())
        self.sockets.check_time(now)
        return was_wanted or now >= until or bool(self.sockets.settled)

    def _drain_wakeups(self) -> None:
        try:
            self._wake_receiver.recv(4096)
        except BlockingIOError:
            pass  # read before

    def close(self) -> None:
        self.sockets.close()
        self._selector.close()
        self._wake_sender.close()
        self._wake_receiver.close()

    def abandon(self) -> None:
        """In a forked child: closes the copies of sockets that the parent still uses, and sends nothing."""
        self._is_asleep = False
        self.sockets.abandon()
        # not emptied first: the child shares the kernel's list of watched sockets with the parent
        self._selector.close()
        self._wake_sender.close()
        self._wake_receiver.close()

    # Called by the sockets

    def watch(self, peer: Peer, events: int) -> None:
        assert peer.socket is not None
        try:
            self._selector.modify(peer.socket, events, peer)
        except KeyError:
            self._selector.register(peer.socket, events, peer)

    def forget(self, peer: Peer) -> None:
        assert peer.socket is not None
        self._selector.unregister(peer.socket)

    def look_up(self, peer: Peer) -> None:
        """An address is known at once; a name is looked up on another thread, which may take seconds."""
        host, port = peer.in_flight.address
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
            self._found.append((peer, found))
            self._is_woken = True
        except (OSError, UnicodeError):
            threading.Thread(target=self._ask, args=(peer,), name="headrace-names", daemon=True).start()

    def _ask(self, peer: Peer) -> None:
        host, port = peer.in_flight.address
        found: Resolved | Exception
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            found = error
        self._found.append((peer, found))
        self.wake()


def tokens_of(provider: TokenProvider, wake: Callable[[], None]) -> Tokens:
    """OAuth tokens: the provider may block, so another thread calls it, and then `wake`."""

    def fetch() -> None:
        threading.Thread(target=ask, name="headrace-token", daemon=True).start()

    def ask() -> None:
        try:
            tokens.came(provider())
        except Exception as error:
            tokens.failed(error)
        wake()

    tokens = Tokens(fetch)
    return tokens


T = TypeVar("T")

# How long `close` waits for the thread. Only a callback of the application can make it late.
CLOSE_S = 5.0
# The same at the interpreter's exit.
EXIT_S = 1.0


class Driver:
    """`lock` guards the session: a caller holds the lock while it uses the session, and calls `wake` if there
    is work.
    """

    def __init__(
        self,
        session: Session,
        settings: NetworkSettings,
        *,
        name: str,
        after_turn: Callable[[], object] | None = None,
    ) -> None:
        """`after_turn` is called on the thread, without the lock, after every turn."""
        self.lock = threading.Condition(threading.Lock())
        self.error: ClientError | None = None  # why it does not run any more; waiting calls raise it
        self.relocked: Callable[[threading.Condition], object] | None = None  # called when `lock` is replaced
        # Called with the lock held when it cannot run any more, though nobody closed it.
        self.failed: Callable[[ClientError], object] | None = None
        self._session = session
        self._after_turn = after_turn
        self._selector = SocketSelector(settings, random.SystemRandom(), session.reachability)
        arguments = (weakref.ref(self), self._selector)
        self._thread = threading.Thread(target=_run, args=arguments, name=name, daemon=True)
        self._finalizer = weakref.finalize(self, self._selector.close)
        self.wake = self._selector.wake  # cheap while the thread is awake; with the lock or without

    def start(self) -> None:
        _living.add(self)
        self._finalizer.detach()
        self._finalizer = weakref.finalize(self, self._selector.wake)
        self._finalizer.atexit = False  # at exit `_close_all` does more
        self._thread.start()

    @property
    def is_on_thread(self) -> bool:
        """Whether the caller runs on the driver's own thread, as callbacks do, where a wait never ends."""
        return threading.current_thread() is self._thread

    @property
    def is_started(self) -> bool:
        return self._thread.ident is not None

    def notify(self) -> None:
        """With the lock held: waiting calls look again whether their wait is over."""
        self.lock.notify_all()

    def check(self) -> None:
        """Raises why the driver does not run any more, if so."""
        if self.error is not None:
            raise self.error.with_traceback(None)  # it is raised more than once, and would collect tracebacks

    def wait_until(self, done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """With the lock held: waits until `done()`, which is called after every turn; returns whether it came
        true in time.
        """
        until = NEVER if timeout_s is None else clock() + timeout_s
        while not done():
            self.check()
            if self.is_on_thread:
                raise InvalidInput(
                    "a delivery callback cannot call a method that waits: it runs on the client's own thread"
                )
            left_s = until - clock()
            if left_s <= 0:
                return False
            self.lock.wait(min(left_s, threading.TIMEOUT_MAX))
        return True

    def run(self, steps: Steps[T], client: object, wake: Callable[[], None]) -> T:
        """Takes the steps of a call on the caller's thread, and returns what the call returns.

        The session is locked, except while the call waits or a function of the application runs. `client` is
        the argument of a `Tell`; `wake` is called before a wait, and wakes the thread if it has work.
        """
        value: Any = None
        error: BaseException | None = None
        self.lock.acquire()
        try:
            while True:
                step = steps.send(value) if error is None else steps.throw(error)
                value = error = None
                try:
                    match step:
                        case Wait(is_over, until):
                            wake()
                            value = self.wait_until(
                                is_over, None if until == NEVER else max(0.0, until - clock())
                            )
                        case Call(function, arguments):
                            value = self._call_unlocked(function, arguments)
                        case Tell(function, arguments):
                            value = self._call_unlocked(function, (client, *arguments))
                except BaseException as raised:
                    error = raised
        except StopIteration as end:
            return cast("T", end.value)
        finally:
            error = None  # it refers to this frame
            self.lock.release()

    def _call_unlocked(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        self.lock.release()
        try:
            return function(*arguments)
        finally:
            self.lock.acquire()

    def close(self) -> None:
        """Without the lock: ends the thread and all connections; unanswered requests fail."""
        self._stop(Closed("this client was closed"))
        if not self.is_started:
            self._selector.close()  # it was never started
        elif not self.is_on_thread:
            self._thread.join(CLOSE_S)

    def _stop(self, error: ClientError) -> None:
        if self.error is None:
            self.error = error
        self._finalizer.detach()
        self.wake()

    # On the thread

    def turn(self) -> Instant:
        """Does one turn; returns when the next one is due."""
        session, sockets = self._session, self._selector.sockets
        with self.lock:
            now = clock()
            settled = sockets.take_settled()
            for ticket, answer in settled:
                session.answered(now, ticket, answer)
            requests = session.requests(now)
            until = session.deadline()
            brokers = tuple(session.cluster.brokers.values()) if requests else ()
            self.lock.notify_all()
        for outgoing in requests:
            sockets.submit(now, outgoing, brokers)
        sockets.flush(now)
        if self._after_turn is not None:
            self._after_turn()
        return until

    def end(self) -> None:
        """The last turn: unanswered requests fail."""
        self._selector.close()
        with self.lock:
            now = clock()
            try:
                for ticket, answer in self._selector.sockets.take_settled():
                    self._session.answered(now, ticket, answer)
            finally:
                self.lock.notify_all()
        if self._after_turn is not None:
            self._after_turn()

    def broke(self, cause: BaseException) -> None:
        """After an unexpected error: waiting calls raise it."""
        self._selector.close()
        with self.lock:
            error = ClientBroken(f"the client stopped after an unexpected error: {cause!r}")
            error.__cause__ = cause
            self.fail(error)
            self.lock.notify_all()

    def fail(self, error: ClientError) -> None:
        """With the lock held: all calls that need the thread raise the error from now on."""
        self.error = error
        if self.failed is not None:
            self.failed(error)


def _run(reference: weakref.ref[Driver], selector: SocketSelector) -> None:
    until = clock()
    while True:
        failure: BaseException | None = None
        try:
            while not selector.poll(until):
                pass  # bytes came and went, and no answer is complete: the session need not be locked
        except BaseException as error:
            failure = error
        driver = reference()
        if driver is None:
            selector.close()
            return
        try:
            if failure is not None:
                raise failure
            if driver.error is not None:
                driver.end()
                return
            until = driver.turn()
        except BaseException as error:
            driver.broke(error)
            return
        del driver


_living: weakref.WeakSet[Driver] = weakref.WeakSet()


def _close_all() -> None:
    """At exit: a daemon thread that still runs while the interpreter is torn down could crash it."""
    for driver in list(_living):
        driver._stop(Closed("this process is ending"))
        if not driver.is_on_thread:
            driver._thread.join(EXIT_S)


def _forked() -> None:
    """In the child of a fork: the thread does not exist there, and the sockets are the parent's."""
    for driver in list(_living):
        # another thread of the parent may have held the old lock, whose copy is never released here
        driver.lock = threading.Condition(threading.Lock())
        if driver.relocked is not None:
            driver.relocked(driver.lock)
        driver._selector.abandon()
        driver.fail(
            ClientBroken("this client belongs to the parent process; create another one after the fork")
        )
        driver._finalizer.detach()
    _living.clear()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
