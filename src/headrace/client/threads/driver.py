"""A thread that carries a session's requests.

    new --start--> running --close--> closed
                   running --the session or the shell raised--> broken

A turn: answers go to the session and its new requests come out, under the lock; then they are encoded and
sent, and the shell is called, without it. The thread refers to its driver only while it works, not while it
sleeps, so that a driver which nobody refers to any more ends its thread.
"""

from __future__ import annotations

import atexit
import os
import random
import threading
import weakref
from collections.abc import Callable

from headrace.base.time import NEVER, Instant
from headrace.client.clock import clock
from headrace.client.errors import ClientBroken, ClientError, Closed, InvalidInput
from headrace.client.session import Session
from headrace.client.settings.network import NetworkSettings
from headrace.client.threads.selecting import Selecting

# How long `close` waits for the thread. Only a callback of the user's own can make it late; it ends then.
CLOSE_S = 5.0
# The same at the interpreter's exit, when nobody is left to be told.
EXIT_S = 1.0


class Driver:
    """`lock` guards the session: whoever touches it holds the lock, and calls `wake` if there is work."""

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
        self.error: ClientError | None = None  # why it runs no more; waits raise it
        self.relocked: Callable[[threading.Condition], object] | None = None  # hears of another lock
        self._session = session
        self._after_turn = after_turn
        self._selecting = Selecting(settings, random.SystemRandom(), session.reachability)
        arguments = (weakref.ref(self), self._selecting)
        self._thread = threading.Thread(target=_run, args=arguments, name=name, daemon=True)
        self._finalizer = weakref.finalize(self, self._selecting.close)
        self.wake = self._selecting.wake  # cheap while the thread is awake; with the lock or without

    def start(self) -> None:
        _living.add(self)
        self._finalizer.detach()
        self._finalizer = weakref.finalize(self, self._selecting.wake)
        self._finalizer.atexit = False  # there `_close_all` does more
        self._thread.start()

    @property
    def is_on_thread(self) -> bool:
        """Whether the caller is the driver's own thread, as in callbacks, where waiting would never end."""
        return threading.current_thread() is self._thread

    def check(self) -> None:
        """Raises why the driver runs no more, if so."""
        if self.error is not None:
            raise self.error.with_traceback(None)  # raised again and again, it would collect traces

    def wait_until(self, done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """With the lock held: whether `done` came true in time; it is looked at after every turn."""
        until = NEVER if timeout_s is None else clock() + timeout_s
        while not done():
            self.check()
            if self.is_on_thread:
                raise InvalidInput("a callback cannot wait for what only its own thread brings")
            left_s = until - clock()
            if left_s <= 0:
                return False
            self.lock.wait(min(left_s, threading.TIMEOUT_MAX))
        return True

    def close(self) -> None:
        """Without the lock: ends the thread and all connections; requests that are not answered fail. May be
        called again.
        """
        self._stop(Closed("this client was closed"))
        if self._thread.ident is None:
            self._selecting.close()  # it was never started
        elif not self.is_on_thread:
            self._thread.join(CLOSE_S)

    def _stop(self, error: ClientError) -> None:
        if self.error is None:
            self.error = error
        self._finalizer.detach()
        self.wake()

    # On the thread

    def turn(self) -> Instant:
        """When to turn again at the latest."""
        session, wires = self._session, self._selecting.wires
        with self.lock:
            now = clock()
            settled = wires.take_settled()
            for ticket, answer in settled:
                session.answered(now, ticket, answer)
            requests = session.requests(now)
            until = session.deadline()
            brokers = tuple(session.cluster.brokers.values()) if requests else ()
            self.lock.notify_all()
        for outgoing in requests:
            wires.submit(now, outgoing, brokers)
        wires.flush(now)
        if self._after_turn is not None:
            self._after_turn()
        return until

    def end(self) -> None:
        """The last turn: what is still unanswered never will be."""
        self._selecting.close()
        with self.lock:
            now = clock()
            try:
                for ticket, answer in self._selecting.wires.take_settled():
                    self._session.answered(now, ticket, answer)
            finally:
                self.lock.notify_all()
        if self._after_turn is not None:
            self._after_turn()

    def broke(self, cause: BaseException) -> None:
        """Something raised that should not: nobody may wait for what will never come."""
        self._selecting.close()
        with self.lock:
            self.error = ClientBroken(f"this client failed: {cause!r}")
            self.error.__cause__ = cause
            self.lock.notify_all()


def _run(reference: weakref.ref[Driver], selecting: Selecting) -> None:
    until = clock()
    while True:
        failure: BaseException | None = None
        try:
            while not selecting.poll(until):
                pass  # bytes came and went, and no answer is complete: the session need not be locked
        except BaseException as error:
            failure = error
        driver = reference()
        if driver is None:
            selecting.close()
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
    """At exit: a daemon thread that is still at work while the interpreter is taken apart could crash it."""
    for driver in list(_living):
        driver._stop(Closed("this process is ending"))
        if not driver.is_on_thread:
            driver._thread.join(EXIT_S)


def _forked() -> None:
    """In the child of a fork there is no thread, and the sockets are the parent's."""
    for driver in list(_living):
        # another thread may have held the old lock, and will never let go of its copy here
        driver.lock = threading.Condition(threading.Lock())
        if driver.relocked is not None:
            driver.relocked(driver.lock)
        driver._selecting.abandon()
        driver.error = ClientBroken("this client belongs to the parent process; make a new one after a fork")
        driver._finalizer.detach()
    _living.clear()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
