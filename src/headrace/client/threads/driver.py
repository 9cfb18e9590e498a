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
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar, cast

from headrace.base.time import NEVER, Instant
from headrace.client.clock import clock
from headrace.client.errors import ClientBroken, ClientError, Closed, InvalidInput
from headrace.client.session import Session
from headrace.client.settings.network import NetworkSettings
from headrace.client.steps import Call, Steps, Tell, Wait
from headrace.client.threads.selector import SocketSelector

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
            self.error = ClientBroken(f"the client stopped after an unexpected error: {cause!r}")
            self.error.__cause__ = cause
            self.lock.notify_all()


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
        driver.error = ClientBroken(
            "this client belongs to the parent process; create another one after the fork"
        )
        driver._finalizer.detach()
    _living.clear()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
