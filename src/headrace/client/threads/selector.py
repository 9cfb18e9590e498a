"""The sockets of a blocking client: its thread sleeps until one is ready, a deadline comes, or it is woken.

All methods but `wake` belong to that thread.
"""

from __future__ import annotations

import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable

from headrace.base.dice import Dice
from headrace.base.time import Instant
from headrace.client.clock import clock
from headrace.client.network.reachability import Reachability
from headrace.client.network.sockets import Peer, Resolved, Sockets
from headrace.client.security.oauthbearer import TokenProvider, Tokens
from headrace.client.settings.network import NetworkSettings

SLEEP_MAX_S = 3600.0  # system calls refuse to sleep for longer than some weeks


class SocketSelector:
    """A socket pair beside the connections wakes the thread from `select`."""

    def __init__(self, settings: NetworkSettings, dice: Dice, reachability: Reachability) -> None:
        provider = None if settings.security is None else settings.security.token_provider
        self.tokens = None if provider is None else tokens_of(provider, self.wake)
        self.sockets = Sockets(settings, dice, self, reachability)
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
