"""The sockets of one client: non-blocking, one for each address and lane, opened when first needed.

Nothing here waits: a shell (a thread with a selector, or an event loop) says which sockets are ready and
what time it is, and looks up host names (`World`). The decisions are elsewhere: `BrokerSelection` says where
to connect and when, `InFlightRequests` and `Connection` what to send. When a connection breaks, all its
requests fail with the same error, and the next request opens a new connection.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from itertools import islice
from selectors import EVENT_READ, EVENT_WRITE
from typing import Any, Protocol

from headrace import __version__
from headrace.base.dice import Dice
from headrace.base.time import NEVER, Instant
from headrace.client.cluster import Address
from headrace.client.errors import ClientError, ConnectionLost, TokenUnavailable, Unreachable
from headrace.client.network.broker_selection import BrokerSelection
from headrace.client.network.connection import Connection
from headrace.client.network.in_flight import InFlightRequests, Settled
from headrace.client.network.reachability import Reachability
from headrace.client.request_queue import Outgoing
from headrace.client.security.oauthbearer import Tokens
from headrace.client.settings.network import NetworkSettings

PARTS_PER_WRITE_MAX = 256  # below every system's IOV_MAX
READS_PER_TURN_MAX = 16  # so that one fast broker does not starve the others
LONG_AGO = Instant(0.0)
_IN_PROGRESS = (0, errno.EINPROGRESS, errno.EWOULDBLOCK)

Found = list[Any]  # what getaddrinfo gives


log = logging.getLogger("headrace.connections")


class World(Protocol):
    """What a shell can do for the sockets."""

    tokens: Tokens | None  # for logins with OAUTHBEARER; when one comes later, `check_time` is called

    def look_up(self, wire: Wire) -> None:
        """Finds the addresses of the wire's host; `Wires.found` is told of them, now or later."""
        ...

    def watch(self, wire: Wire, events: int) -> None:
        """Calls `Wires.serve` when its socket is ready for any of the events; in place of earlier ones."""
        ...

    def forget(self, wire: Wire) -> None:
        """Watches it no longer; its socket is about to be closed."""
        ...


class Wire:
    """A link and the socket under it.

    held (`socket` None, `open_at` set) → looked up → connecting (`socket` set) → connected
    """

    __slots__ = (
        "candidates",
        "connect_by",
        "is_connected",
        "lane",
        "link",
        "open_at",
        "opened_at",
        "ready_by",
        "report_at",
        "socket",
        "was_ready",
        "watched",
    )

    def __init__(self, link: InFlightRequests, lane: str, open_at: Instant) -> None:
        self.link = link
        self.lane = lane
        self.open_at = open_at  # NEVER once it has been opened
        self.opened_at = NEVER
        self.ready_by = NEVER
        self.report_at = NEVER  # that it takes long
        self.connect_by = NEVER  # for the address that is being tried
        self.candidates: deque[Any] = deque()  # addresses of the host that were not tried yet
        self.socket: socket.socket | None = None
        self.is_connected = False
        self.was_ready = False
        self.watched = 0  # events

    def deadline(self, idle_s: float | None) -> Instant:
        moment = min(self.link.deadline(), self.open_at, self.report_at)
        if not self.is_connected:
            return min(moment, self.connect_by, self.ready_by)
        if idle_s is not None and not self.link.is_busy:
            return min(moment, Instant(self.link.used_at + idle_s))
        return moment


class Wires:
    """All connections of one client; `settled` fills with the answers that its session has to be told of."""

    def __init__(
        self, settings: NetworkSettings, dice: Dice, world: World, reachability: Reachability
    ) -> None:
        self.settled: list[Settled] = []
        self._settings = settings
        self._dice = dice
        self._roster = BrokerSelection(settings, dice)
        self._world = world
        self._reachability = reachability
        self._wires: dict[tuple[Address, str], Wire] = {}
        self._stirred: dict[Wire, None] = {}  # those with new requests

    def take_settled(self) -> list[Settled]:
        taken = self.settled.copy()
        self.settled.clear()  # the links keep this very list
        return taken

    # Requests

    def submit(self, now: Instant, outgoing: Outgoing, brokers: Collection[Address]) -> None:
        """Takes a request; `flush` sends what was taken. `brokers` are known to live in the cluster."""
        to = outgoing.to
        self._reachability.named(brokers)
        if to is None:
            connected = {address for (address, _), wire in self._wires.items() if wire.was_ready}
            to = self._roster.choose(now, brokers, connected)
        wire = self._wires.get((to, outgoing.lane))
        if wire is None:
            wire = Wire(
                InFlightRequests(to, self._connection(to), self.settled),
                outgoing.lane,
                self._roster.connect_at(to),
            )
            self._wires[to, outgoing.lane] = wire
        wire.link.put(now, outgoing)
        self._stirred[wire] = None

    def _connection(self, to: Address) -> Connection:
        settings = self._settings
        return Connection(
            client_id=settings.client_id,
            software_version=__version__,
            response_bytes_max=settings.response_bytes_max,
            security=settings.security,
            host=to.host,
            dice=self._dice,
        )

    def flush(self, now: Instant) -> None:
        """Sends what was submitted, or as much as the sockets take."""
        if not self._stirred:
            return
        stirred, self._stirred = self._stirred, {}
        for wire in stirred:
            if wire.was_ready:
                self._attempt(now, wire, self._push)
            elif wire.open_at <= now:
                self._attempt(now, wire, self._open)

    # Opening

    def _open(self, now: Instant, wire: Wire) -> None:
        wire.open_at = NEVER
        wire.opened_at = now
        wire.report_at = Instant(now + self._reachability.SLOW_S)
        wire.ready_by = Instant(now + self._roster.setup_s(wire.link.address))
        self._world.look_up(wire)

    def found(self, now: Instant, wire: Wire, found: Found | Exception) -> None:
        """The addresses of a wire's host, or why there are none."""
        if not self._is_living(wire):
            return  # it took too long

        def connect(now: Instant, wire: Wire) -> None:
            if isinstance(found, Exception):
                host = wire.link.address.host
                raise Unreachable(f"cannot find the host {host!r}: {found}") from found
            wire.candidates = deque(found)
            self._connect(now, wire, "it has no address")

        self._attempt(now, wire, connect)

    def _connect(self, now: Instant, wire: Wire, why: str) -> None:
        """Starts to connect to the next of the host's addresses; each gets its share of the time."""
        if wire.socket is not None:
            self._world.forget(wire)
            wire.socket.close()
            wire.socket, wire.watched = None, 0
        while wire.candidates:
            family, kind, protocol, _, where = wire.candidates.popleft()
            try:
                fresh = socket.socket(family, kind, protocol)
            except OSError as error:  # such as IPv6 without support for it
                why = _system_error_text(error.errno) if error.errno else str(error)
                continue
            self._prepare(fresh)
            code = fresh.connect_ex(where)
            if code in _IN_PROGRESS:
                wire.socket = fresh
                wire.connect_by = Instant(now + (wire.ready_by - now) / (1 + len(wire.candidates)))
                self._watch(wire, EVENT_WRITE)
                return
            fresh.close()
            why = _system_error_text(code)
        raise Unreachable(f"cannot connect to {wire.link.address}: {why}")

    def _prepare(self, fresh: socket.socket) -> None:
        fresh.setblocking(False)
        fresh.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        fresh.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._settings.send_buffer_bytes is not None:
            fresh.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._settings.send_buffer_bytes)
        if self._settings.receive_buffer_bytes is not None:
            fresh.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._settings.receive_buffer_bytes)

    def _finish_connecting(self, now: Instant, wire: Wire) -> None:
        """After the socket became writable."""
        assert wire.socket is not None
        code = wire.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code == 0 and wire.socket.getsockname() == wire.socket.getpeername():
            # nobody listens on a port that the system gives to outgoing connections, and so we met ourselves
            code = errno.ECONNREFUSED
        if code != 0:
            self._connect(now, wire, _system_error_text(code))
            return
        wire.is_connected = True
        wire.link.begin(wire.ready_by)
        self._push(now, wire)

    # Bytes

    def serve(self, now: Instant, wire: Wire, events: int) -> None:
        """Its socket is ready for these events."""
        if not self._is_living(wire):
            return  # an event of the same turn ended it
        if not wire.is_connected:
            self._attempt(now, wire, self._finish_connecting)
        elif events & EVENT_READ:
            self._attempt(now, wire, self._read)
        else:
            self._attempt(now, wire, self._push)

    def _read(self, now: Instant, wire: Wire) -> None:
        assert wire.socket is not None
        for _ in range(READS_PER_TURN_MAX):
            room = wire.link.connection.room()
            try:
                count = wire.socket.recv_into(room)
            except BlockingIOError:
                break
            wire.link.received(now, count)
            if count < len(room):
                break
        self._push(now, wire)

    def _push(self, now: Instant, wire: Wire) -> None:
        """Writes what there is to say; what the socket does not take now, waits until it is writable."""
        link = wire.link
        if link.connection.wants_token:
            assert self._world.tokens is not None
            token = self._world.tokens.take(now)
            if token is not None:
                link.connection.give_token(now, token)
        link.gather()
        if not wire.was_ready and link.connection.is_ready:
            wire.was_ready = True
            wire.report_at = NEVER
            self._roster.connected(link.address)
            news = self._reachability.reached(now, link.address)
            if news is not None:
                log.info("%s", news)
        while link.output:
            views = _views(link)
            try:
                assert wire.socket is not None
                link.left(wire.socket.sendmsg(views) if views else 0)
            except BlockingIOError:
                break
        self._watch(wire, EVENT_READ | EVENT_WRITE if link.output else EVENT_READ)

    def _watch(self, wire: Wire, events: int) -> None:
        if wire.watched != events:
            wire.watched = events
            self._world.watch(wire, events)

    # Time

    def deadline(self) -> Instant:
        """When `check_time` wants to be called at the latest."""
        idle_s = self._settings.idle_s
        return min((wire.deadline(idle_s) for wire in self._wires.values()), default=NEVER)

    def check_time(self, now: Instant) -> None:
        idle_s = self._settings.idle_s
        for wire in [wire for wire in self._wires.values() if wire.deadline(idle_s) <= now]:
            self._attempt(now, wire, self._check_wire)
        if self._world.tokens is not None:
            for wire in [wire for wire in self._wires.values() if wire.link.connection.wants_token]:
                self._attempt(now, wire, self._push)

    def _check_wire(self, now: Instant, wire: Wire) -> None:
        link = wire.link
        if wire.report_at <= now:
            self._report_slow(now, wire)
        link.check_time(now, self._roster.last_error(link.address))
        idle_s = self._settings.idle_s
        if wire.open_at <= now and link.is_busy:
            self._open(now, wire)
        elif not wire.is_connected:
            if wire.open_at != NEVER and not link.is_busy:
                self._remove(now, wire)  # nobody waits for it any more
            elif now >= wire.connect_by:
                self._connect(now, wire, "no answer in time")
            elif now >= wire.ready_by:
                raise Unreachable(f"cannot connect to {link.address}: its name was not found in time")
        elif idle_s is not None and not link.is_busy and now >= link.used_at + idle_s:
            self._part(now, wire)
        else:
            self._push(now, wire)

    def _report_slow(self, now: Instant, wire: Wire) -> None:
        """It may still be ready in time."""
        wire.report_at = NEVER
        address = wire.link.address
        slow = Unreachable(f"{address} does not answer yet")
        if wire.is_connected:
            slow = Unreachable(f"{address} accepts connections, but does not answer yet")
        elif wire.socket is None:
            slow = Unreachable(f"cannot look up the host of {address}: the name server does not answer yet")
        if wire.link.connection.wants_token:
            slow = Unreachable(f"the login at {address} waits for an OAuth token")
            slow.advice = TokenUnavailable.advice
        self._report_failure(now, address, slow, since=wire.opened_at)

    def _report_failure(self, now: Instant, address: Address, error: ClientError, *, since: Instant) -> None:
        warning = self._reachability.failed(now, address, error, since=since)
        if warning is not None:
            log.warning("%s", warning)

    # Endings

    def _is_living(self, wire: Wire) -> bool:
        return self._wires.get((wire.link.address, wire.lane)) is wire

    def _attempt(self, now: Instant, wire: Wire, act: Callable[[Instant, Wire], None]) -> None:
        """Does something with a wire; a failure ends the wire and its requests, not the caller."""
        try:
            act(now, wire)
        except ClientError as error:
            self._drop(now, wire, error)
        except (ConnectionResetError, BrokenPipeError):
            # a peer that hangs up on what it has not read resets the connection: the same to the user
            self._drop(now, wire, wire.link.connection.lost("the broker closed the connection"))
        except OSError as error:
            reason = f"the connection to {wire.link.address} broke ({error.strerror or error})"
            self._drop(now, wire, wire.link.connection.lost(reason))

    def _drop(self, now: Instant, wire: Wire, error: ClientError) -> None:
        if not wire.was_ready or wire.link.is_busy:  # else the broker closed a connection that was idle
            self._roster.failed(now, wire.link.address, error)
        if not wire.was_ready:
            since = min(now, wire.opened_at)
            self._report_failure(now, wire.link.address, error, since=Instant(since))
        self._remove(now, wire)
        wire.link.end(error)

    def _remove(self, now: Instant, wire: Wire) -> None:
        del self._wires[wire.link.address, wire.lane]
        if wire.was_ready:
            self._reachability.left(now, wire.link.address)
        if wire.socket is not None:
            self._world.forget(wire)
            wire.socket.close()

    def _part(self, now: Instant, wire: Wire) -> None:
        """Ends a connection in good order."""
        if wire.socket is not None and wire.is_connected and not wire.link.output:
            wire.link.take_leave()
            with suppress(OSError):  # nobody needs to hear a goodbye
                wire.socket.sendmsg(_views(wire.link))
        self._remove(now, wire)

    def close(self) -> None:
        """Closes every socket; requests that are not answered yet fail."""
        for wire in list(self._wires.values()):
            self._part(LONG_AGO, wire)  # nobody asks since when
            wire.link.end(ConnectionLost("this client was closed"))
        self._stirred.clear()

    def abandon(self) -> None:
        """Closes copies of sockets that another process goes on using."""
        for wire in self._wires.values():
            if wire.socket is not None:
                wire.socket.close()
        self._wires.clear()
        self._stirred.clear()


def _system_error_text(code: int) -> str:
    """What the system says of an error, as the end of a sentence."""
    said = os.strerror(code)
    return said[:1].lower() + said[1:]


def _views(link: InFlightRequests) -> list[memoryview]:
    """The bytes that can be written next."""
    views: list[memoryview] = []
    for part in islice(link.output, PARTS_PER_WRITE_MAX):
        if isinstance(part, int):
            break
        views.append(part)
    return views
