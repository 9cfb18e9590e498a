"""The sockets of one client: non-blocking, one for each address and lane, opened when first needed.

Nothing here waits: a shell (a thread with a selector, or an event loop) says which sockets are ready and
what time it is, and looks up host names (`Shell`). The decisions are elsewhere: `BrokerSelection` says where
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
from headrace.base.randomness import Randomness
from headrace.base.time import NEVER, Instant
from headrace.client.cluster import Address
from headrace.client.errors import ClientError, ConnectionLost, TokenUnavailable, Unreachable
from headrace.client.network.connection import Connection
from headrace.client.network.in_flight import InFlightRequests, Settled
from headrace.client.network.reachability import BrokerSelection, Reachability
from headrace.client.security.oauthbearer import Tokens
from headrace.client.session import Outgoing
from headrace.client.settings.network import NetworkSettings

PARTS_PER_WRITE_MAX = 256  # below every system's IOV_MAX
READS_PER_TURN_MAX = 16  # so that one fast broker does not starve the others
LONG_AGO = Instant(0.0)
_IN_PROGRESS = (0, errno.EINPROGRESS, errno.EWOULDBLOCK)

Resolved = list[Any]  # what getaddrinfo gives


log = logging.getLogger("headrace.connections")


class Shell(Protocol):
    """What a shell can do for the sockets."""

    tokens: Tokens | None  # for logins with OAUTHBEARER; when one comes later, `check_time` is called

    def look_up(self, peer: Peer) -> None:
        """Resolves the peer's host; calls `Sockets.found` with the addresses, now or later."""
        ...

    def watch(self, peer: Peer, events: int) -> None:
        """Calls `Sockets.serve` when its socket is ready for any of the events; in place of earlier ones."""
        ...

    def forget(self, peer: Peer) -> None:
        """Watches it no longer; its socket is about to be closed."""
        ...


class Peer:
    """A broker on one lane: its socket, and the requests in flight.

    held (`socket` None, `open_at` set) → looked up → connecting (`socket` set) → connected
    """

    __slots__ = (
        "candidates",
        "connect_by",
        "in_flight",
        "is_connected",
        "lane",
        "open_at",
        "opened_at",
        "ready_by",
        "report_at",
        "socket",
        "was_ready",
        "watched",
    )

    def __init__(self, in_flight: InFlightRequests, lane: str, open_at: Instant) -> None:
        self.in_flight = in_flight
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
        moment = min(self.in_flight.deadline(), self.open_at, self.report_at)
        if not self.is_connected:
            return min(moment, self.connect_by, self.ready_by)
        if idle_s is not None and not self.in_flight.is_busy:
            return min(moment, Instant(self.in_flight.used_at + idle_s))
        return moment


class Sockets:
    """All connections of one client; `settled` fills with the answers for its session."""

    def __init__(
        self, settings: NetworkSettings, rng: Randomness, shell: Shell, reachability: Reachability
    ) -> None:
        self.settled: list[Settled] = []
        self._settings = settings
        self._rng = rng
        self._broker_selection = BrokerSelection(settings, rng)
        self._shell = shell
        self._reachability = reachability
        self._sockets: dict[tuple[Address, str], Peer] = {}
        self._stirred: dict[Peer, None] = {}  # those with new requests

    def take_settled(self) -> list[Settled]:
        taken = self.settled.copy()
        self.settled.clear()  # the peers keep this very list
        return taken

    # Requests

    def submit(self, now: Instant, outgoing: Outgoing, brokers: Collection[Address]) -> None:
        """Takes a request; `flush` sends what was taken. `brokers` are known to live in the cluster."""
        to = outgoing.to
        self._reachability.named(brokers)
        if to is None:
            connected = {address for (address, _), peer in self._sockets.items() if peer.was_ready}
            to = self._broker_selection.choose(now, brokers, connected)
        peer = self._sockets.get((to, outgoing.lane))
        if peer is None:
            peer = Peer(
                InFlightRequests(to, self._connection(to), self.settled),
                outgoing.lane,
                self._broker_selection.connect_at(to),
            )
            self._sockets[to, outgoing.lane] = peer
        peer.in_flight.put(now, outgoing)
        self._stirred[peer] = None

    def _connection(self, to: Address) -> Connection:
        settings = self._settings
        return Connection(
            client_id=settings.client_id,
            software_version=__version__,
            response_bytes_max=settings.response_bytes_max,
            security=settings.security,
            host=to.host,
            rng=self._rng,
        )

    def flush(self, now: Instant) -> None:
        """Sends what was submitted, or as much as the sockets take."""
        if not self._stirred:
            return
        stirred, self._stirred = self._stirred, {}
        for peer in stirred:
            if peer.was_ready:
                self._attempt(now, peer, self._push)
            elif peer.open_at <= now:
                self._attempt(now, peer, self._open)

    # Opening

    def _open(self, now: Instant, peer: Peer) -> None:
        peer.open_at = NEVER
        peer.opened_at = now
        peer.report_at = Instant(now + self._reachability.SLOW_S)
        peer.ready_by = Instant(now + self._broker_selection.setup_s(peer.in_flight.address))
        self._shell.look_up(peer)

    def found(self, now: Instant, peer: Peer, found: Resolved | Exception) -> None:
        """The addresses of a peer's host, or why there are none."""
        if not self._is_living(peer):
            return  # it took too long

        def connect(now: Instant, peer: Peer) -> None:
            if isinstance(found, Exception):
                host = peer.in_flight.address.host
                raise Unreachable(f"cannot find the host {host!r}: {found}") from found
            peer.candidates = deque(found)
            self._connect(now, peer, "it has no address")

        self._attempt(now, peer, connect)

    def _connect(self, now: Instant, peer: Peer, why: str) -> None:
        """Starts to connect to the next of the host's addresses; each gets its share of the time."""
        if peer.socket is not None:
            self._shell.forget(peer)
            peer.socket.close()
            peer.socket, peer.watched = None, 0
        while peer.candidates:
            family, kind, protocol, _, where = peer.candidates.popleft()
            try:
                fresh = socket.socket(family, kind, protocol)
            except OSError as error:  # such as IPv6 without support for it
                why = _system_error_text(error.errno) if error.errno else str(error)
                continue
            try:
                self._prepare(fresh)
                code = fresh.connect_ex(where)
            except BaseException:  # such as a socket option that the system refuses
                fresh.close()
                raise
            if code in _IN_PROGRESS:
                peer.socket = fresh
                peer.connect_by = Instant(now + (peer.ready_by - now) / (1 + len(peer.candidates)))
                self._watch(peer, EVENT_WRITE)
                return
            fresh.close()
            why = _system_error_text(code)
        raise Unreachable(f"cannot connect to {peer.in_flight.address}: {why}")

    def _prepare(self, fresh: socket.socket) -> None:
        fresh.setblocking(False)
        fresh.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        fresh.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._settings.send_buffer_bytes is not None:
            fresh.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._settings.send_buffer_bytes)
        if self._settings.receive_buffer_bytes is not None:
            fresh.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._settings.receive_buffer_bytes)

    def _finish_connecting(self, now: Instant, peer: Peer) -> None:
        """After the socket became writable."""
        assert peer.socket is not None
        code = peer.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code == 0 and peer.socket.getsockname() == peer.socket.getpeername():
            # nobody listens on a port that the system gives to outgoing connections, and so we met ourselves
            code = errno.ECONNREFUSED
        if code != 0:
            self._connect(now, peer, _system_error_text(code))
            return
        peer.is_connected = True
        peer.in_flight.begin(peer.ready_by)
        self._push(now, peer)

    # Bytes

    def serve(self, now: Instant, peer: Peer, events: int) -> None:
        """Its socket is ready for these events."""
        if not self._is_living(peer):
            return  # an event of the same turn ended it
        if not peer.is_connected:
            self._attempt(now, peer, self._finish_connecting)
        elif events & EVENT_READ:
            self._attempt(now, peer, self._read)
        else:
            self._attempt(now, peer, self._push)

    def _read(self, now: Instant, peer: Peer) -> None:
        assert peer.socket is not None
        for _ in range(READS_PER_TURN_MAX):
            room = peer.in_flight.connection.room()
            try:
                count = peer.socket.recv_into(room)
            except BlockingIOError:
                break
            peer.in_flight.received(now, count)
            if count < len(room):
                break
        self._push(now, peer)

    def _push(self, now: Instant, peer: Peer) -> None:
        """Writes what there is to say; what the socket does not take now, waits until it is writable."""
        in_flight = peer.in_flight
        if in_flight.connection.wants_token:
            assert self._shell.tokens is not None
            token = self._shell.tokens.take(now)
            if token is not None:
                in_flight.connection.give_token(now, token)
        in_flight.gather()
        if not peer.was_ready and in_flight.connection.is_ready:
            peer.was_ready = True
            peer.report_at = NEVER
            self._broker_selection.connected(in_flight.address)
            news = self._reachability.reached(now, in_flight.address)
            if news is not None:
                log.info("%s", news)
        while in_flight.output:
            views = _views(in_flight)
            try:
                assert peer.socket is not None
                in_flight.left(peer.socket.sendmsg(views) if views else 0)
            except BlockingIOError:
                break
        self._watch(peer, EVENT_READ | EVENT_WRITE if in_flight.output else EVENT_READ)

    def _watch(self, peer: Peer, events: int) -> None:
        if peer.watched != events:
            peer.watched = events
            self._shell.watch(peer, events)

    # Time

    def deadline(self) -> Instant:
        """When `check_time` wants to be called at the latest."""
        idle_s = self._settings.idle_s
        return min((peer.deadline(idle_s) for peer in self._sockets.values()), default=NEVER)

    def check_time(self, now: Instant) -> None:
        idle_s = self._settings.idle_s
        for peer in [peer for peer in self._sockets.values() if peer.deadline(idle_s) <= now]:
            self._attempt(now, peer, self._check_socket)
        if self._shell.tokens is not None:
            for peer in [peer for peer in self._sockets.values() if peer.in_flight.connection.wants_token]:
                self._attempt(now, peer, self._push)

    def _check_socket(self, now: Instant, peer: Peer) -> None:
        in_flight = peer.in_flight
        if peer.report_at <= now:
            self._report_slow(now, peer)
        in_flight.check_time(now, self._broker_selection.last_error(in_flight.address))
        idle_s = self._settings.idle_s
        if peer.open_at <= now and in_flight.is_busy:
            self._open(now, peer)
        elif not peer.is_connected:
            if peer.open_at != NEVER and not in_flight.is_busy:
                self._remove(now, peer)  # nobody waits for it any more
            elif now >= peer.connect_by:
                self._connect(now, peer, "no answer in time")
            elif now >= peer.ready_by:
                raise Unreachable(f"cannot connect to {in_flight.address}: its name was not found in time")
        elif idle_s is not None and not in_flight.is_busy and now >= in_flight.used_at + idle_s:
            self._part(now, peer)
        else:
            self._push(now, peer)

    def _report_slow(self, now: Instant, peer: Peer) -> None:
        """It may still be ready in time."""
        peer.report_at = NEVER
        address = peer.in_flight.address
        slow = Unreachable(f"{address} does not answer yet")
        if peer.is_connected:
            slow = Unreachable(f"{address} accepts connections, but does not answer yet")
        elif peer.socket is None:
            slow = Unreachable(f"cannot look up the host of {address}: the name server does not answer yet")
        if peer.in_flight.connection.wants_token:
            slow = Unreachable(f"the login at {address} waits for an OAuth token")
            slow.advice = TokenUnavailable.advice
        self._report_failure(now, address, slow, since=peer.opened_at)

    def _report_failure(self, now: Instant, address: Address, error: ClientError, *, since: Instant) -> None:
        warning = self._reachability.failed(now, address, error, since=since)
        if warning is not None:
            log.warning("%s", warning)

    # Endings

    def _is_living(self, peer: Peer) -> bool:
        return self._sockets.get((peer.in_flight.address, peer.lane)) is peer

    def _attempt(self, now: Instant, peer: Peer, act: Callable[[Instant, Peer], None]) -> None:
        """Does something with a peer; a failure ends its connection and its requests, not the caller."""
        try:
            act(now, peer)
        except ClientError as error:
            self._drop(now, peer, error)
        except (ConnectionResetError, BrokenPipeError):
            # a peer that hangs up on what it has not read resets the connection: the same to the user
            self._drop(
                now,
                peer,
                peer.in_flight.connection.lost("the broker closed the connection"),
            )
        except OSError as error:
            reason = f"the connection to {peer.in_flight.address} broke ({error.strerror or error})"
            self._drop(now, peer, peer.in_flight.connection.lost(reason))

    def _drop(self, now: Instant, peer: Peer, error: ClientError) -> None:
        if not peer.was_ready or peer.in_flight.is_busy:  # else the broker closed a connection that was idle
            self._broker_selection.failed(now, peer.in_flight.address, error)
        if not peer.was_ready:
            since = min(now, peer.opened_at)
            self._report_failure(now, peer.in_flight.address, error, since=Instant(since))
        self._remove(now, peer)
        peer.in_flight.end(error)

    def _remove(self, now: Instant, peer: Peer) -> None:
        del self._sockets[peer.in_flight.address, peer.lane]
        if peer.was_ready:
            self._reachability.left(now, peer.in_flight.address)
        if peer.socket is not None:
            self._shell.forget(peer)
            peer.socket.close()

    def _part(self, now: Instant, peer: Peer) -> None:
        """Ends a connection in good order."""
        if peer.socket is not None and peer.is_connected and not peer.in_flight.output:
            peer.in_flight.take_leave()
            with suppress(OSError):  # nobody needs to hear a goodbye
                peer.socket.sendmsg(_views(peer.in_flight))
        self._remove(now, peer)

    def close(self) -> None:
        """Closes every socket; requests that are not answered yet fail."""
        for peer in list(self._sockets.values()):
            self._part(LONG_AGO, peer)  # nobody asks since when
            peer.in_flight.end(ConnectionLost("this client was closed"))
        self._stirred.clear()

    def abandon(self) -> None:
        """Closes this process's copies of sockets that another process still uses (after a fork)."""
        for peer in self._sockets.values():
            if peer.socket is not None:
                peer.socket.close()
        self._sockets.clear()
        self._stirred.clear()


def _system_error_text(code: int) -> str:
    """What the system says of an error, as the end of a sentence."""
    said = os.strerror(code)
    return said[:1].lower() + said[1:]


def _views(in_flight: InFlightRequests) -> list[memoryview]:
    """The bytes that can be written next."""
    views: list[memoryview] = []
    for part in islice(in_flight.output, PARTS_PER_WRITE_MAX):
        if isinstance(part, int):
            break
        views.append(part)
    return views
