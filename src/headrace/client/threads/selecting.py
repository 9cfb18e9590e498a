"""The world of a thread: it sleeps until a socket is ready, a moment comes, or another thread wakes it.

All methods but `wake` belong to one thread.
"""

from __future__ import annotations

import selectors
import socket
import threading
from collections import deque

from headrace.base.dice import Dice
from headrace.base.time import Instant
from headrace.client.clock import clock
from headrace.client.network.reachability import Reachability
from headrace.client.network.sockets import Found, Wire, Wires
from headrace.client.settings.network import NetworkSettings
from headrace.client.threads.tokens import tokens_of

SLEEP_MAX_S = 3600.0  # system calls refuse to sleep for longer than some weeks


class Selecting:
    """The sockets of one client with a selector under them."""

    def __init__(self, settings: NetworkSettings, dice: Dice, reachability: Reachability) -> None:
        provider = None if settings.security is None else settings.security.token_provider
        self.tokens = None if provider is None else tokens_of(provider, self.wake)
        self.wires = Wires(settings, dice, self, reachability)
        self._selector = selectors.DefaultSelector()
        self._bell, self._rope = socket.socketpair()
        self._bell.setblocking(False)
        self._rope.setblocking(False)
        self._selector.register(self._bell, selectors.EVENT_READ)
        self._found: deque[tuple[Wire, Found | Exception]] = deque()
        # Set before sleeping and looked at before ringing: whoever comes while the thread is awake need not
        # ring, which costs a system call and makes the two threads change places.
        self._is_asleep = False
        self._is_wanted = False

    def wake(self) -> None:
        """From any thread: what it does next is begun at once."""
        self._is_wanted = True
        if self._is_asleep:
            self._is_asleep = False
            self._ring()

    def _ring(self) -> None:
        try:
            self._rope.send(b"\0")
        except BlockingIOError:
            pass  # it has rung often enough
        except OSError:
            if self._rope.fileno() >= 0:  # else it was closed meanwhile: nobody is asleep any more
                raise

    def poll(self, until: Instant) -> bool:
        """Sleeps until `until` or until there is something to do, and does it; whether anybody but the
        sockets has to know: answers are there, it was woken, or the moment has come.
        """
        self._is_asleep = True
        wait_s = 0.0
        if not (self._is_wanted or self.wires.settled):
            wait_s = min(max(0.0, min(until, self.wires.deadline()) - clock()), SLEEP_MAX_S)
        ready = self._selector.select(wait_s)
        self._is_asleep = False
        was_wanted = self._is_wanted
        if was_wanted:  # else it is left alone: somebody may set it in this very moment
            self._is_wanted = False
        now = clock()
        for key, events in ready:
            if key.data is None:
                self._hush()
            else:
                self.wires.serve(now, key.data, events)
        while self._found:
            self.wires.found(now, *self._found.popleft())
        self.wires.check_time(now)
        return was_wanted or now >= until or bool(self.wires.settled)

    def _hush(self) -> None:
        try:
            self._bell.recv(4096)
        except BlockingIOError:
            pass  # rung once, heard once

    def close(self) -> None:
        self.wires.close()
        self._selector.close()
        self._rope.close()
        self._bell.close()

    def abandon(self) -> None:
        """In a forked child: lets go of what the parent goes on using, without a word to anybody."""
        self._is_asleep = False
        self.wires.abandon()
        # not emptied first: the kernel's list of watched sockets is the parent's, too
        self._selector.close()
        self._rope.close()
        self._bell.close()

    # World

    def watch(self, wire: Wire, events: int) -> None:
        assert wire.socket is not None
        try:
            self._selector.modify(wire.socket, events, wire)
        except KeyError:
            self._selector.register(wire.socket, events, wire)

    def forget(self, wire: Wire) -> None:
        assert wire.socket is not None
        self._selector.unregister(wire.socket)

    def look_up(self, wire: Wire) -> None:
        """What is an address already is found at once; a name by a thread, since it may take seconds."""
        host, port = wire.link.address
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
            self._found.append((wire, found))
            self._is_wanted = True
        except (OSError, UnicodeError):
            threading.Thread(target=self._ask, args=(wire,), name="headrace-names", daemon=True).start()

    def _ask(self, wire: Wire) -> None:
        host, port = wire.link.address
        found: Found | Exception
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            found = error
        self._found.append((wire, found))
        self.wake()
