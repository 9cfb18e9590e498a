"""The shell around connections: sockets, a selector and the clock, all on the caller's thread.

Nothing here decides: bytes go between sockets and `Connection`s, and a `Call` is settled when its answer,
an error or its deadline comes. A connection is opened when the first call to an address is made; when it
breaks, all its calls fail with the same error, and the next call opens a new one.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any

from headrace import __version__
from headrace.base.time import Instant
from headrace.client.clock import clock as clock
from headrace.client.cluster import Address
from headrace.client.connection import Connection, Question
from headrace.client.errors import ClientError, ConnectionLost, TimedOut, Unreachable
from headrace.protocol.parts import Part

CONNECT_TIMEOUT_S = 5.0
PARTS_PER_WRITE_MAX = 256  # below every system's IOV_MAX
_IN_PROGRESS = (errno.EINPROGRESS, errno.EWOULDBLOCK)
READS_PER_TURN_MAX = 16  # so that one fast broker does not starve the others


class Call:
    """One request on its way: `result` or `error` is set when it is done.

    `then` is called in the middle of a poll: it notes what happened and neither raises nor calls.
    """

    __slots__ = ("deadline", "error", "expects_answer", "is_done", "request", "result", "then", "version_max")

    def __init__(
        self,
        request: Question,
        deadline: Instant,
        version_max: int | None,
        expects_answer: bool,
        then: Callable[[Call], None] | None,
    ) -> None:
        self.request = request
        self.deadline = deadline
        self.version_max = version_max
        self.expects_answer = expects_answer
        self.then = then
        self.result: Any = None
        self.error: ClientError | None = None
        self.is_done = False

    def settle(self, result: Any = None, error: ClientError | None = None) -> None:
        self.result, self.error, self.is_done = result, error, True
        if self.then is not None:
            self.then(self)


class Link:
    """A socket, the connection that runs over it, and the calls that wait for it."""

    def __init__(self, address: Address, lane: str, client_id: str) -> None:
        self.address = address
        self.lane = lane
        self.connection = Connection(client_id=client_id, software_version=__version__)
        self.is_connected = False
        self.connect_deadline = Instant(clock() + CONNECT_TIMEOUT_S)
        self.queued: deque[Call] = deque()  # until the connection is ready
        self.unanswered: dict[int, Call] = {}
        # bytes, and behind the last of a call without an answer the call itself: gone is all it can be
        self.outgoing: deque[memoryview | Call] = deque()
        self.candidates = self._resolve()
        self.socket = self._connect_next(None)

    def _resolve(self) -> deque[Any]:
        try:
            found = socket.getaddrinfo(self.address.host, self.address.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise Unreachable(f"cannot find the host {self.address.host!r}: {error}") from error
        return deque(found)

    def _connect_next(self, why: OSError | None) -> socket.socket:
        """Starts to connect to the next of the host's addresses."""
        while self.candidates:
            family, kind, protocol, _, where = self.candidates.popleft()
            try:
                fresh = socket.socket(family, kind, protocol)
            except OSError as error:  # such as IPv6 without support for it
                why = error
                continue
            fresh.setblocking(False)
            code = fresh.connect_ex(where)
            if code in (0, *_IN_PROGRESS):
                fresh.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return fresh
            fresh.close()
            why = OSError(code, _reason(code))
        raise Unreachable(f"cannot connect to {self.address}: {why.strerror if why else 'no address'}")

    def finish_connecting(self) -> bool:
        """After the socket became writable: whether it is connected now, or a next address is being tried."""
        code = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code == 0:
            self.is_connected = True
            self.connection.begin(Instant(clock() + CONNECT_TIMEOUT_S))
            self.gather()
            return True
        self.socket.close()
        self.socket = self._connect_next(OSError(code, _reason(code)))
        return False

    def gather(self) -> None:
        """Moves what the connection wants to say into the outgoing queue."""
        while self.queued and self.connection.is_ready:
            call = self.queued.popleft()
            try:
                number = self.connection.send(
                    call.request,
                    call.deadline,
                    version_max=call.version_max,
                    expects_answer=call.expects_answer,
                )
            except ClientError as error:
                call.settle(error=error)
                continue
            self.outgoing += map(_view, self.connection.take_output())
            if call.expects_answer:
                self.unanswered[number] = call
            else:
                self.outgoing.append(call)
        self.outgoing += map(_view, self.connection.take_output())

    def write(self) -> None:
        while self.outgoing:
            head = self.outgoing[0]
            if isinstance(head, Call):
                self.outgoing.popleft()
                head.settle()
                continue
            views: list[memoryview] = []
            for part in islice(self.outgoing, PARTS_PER_WRITE_MAX):
                if isinstance(part, Call):
                    break
                views.append(part)
            try:
                self._forget(self.socket.sendmsg(views))
            except BlockingIOError:
                return

    def _forget(self, sent: int) -> None:
        """Takes bytes that have left out of the queue."""
        while sent:
            head = self.outgoing[0]
            assert isinstance(head, memoryview)
            if sent < len(head):
                self.outgoing[0] = head[sent:]
                return
            sent -= len(head)
            self.outgoing.popleft()

    def read(self) -> None:
        for _ in range(READS_PER_TURN_MAX):
            room = self.connection.room()
            try:
                count = self.socket.recv_into(room)
            except BlockingIOError:
                return
            for answer in self.connection.received(count):
                self.unanswered.pop(answer.correlation_id).settle(answer.response)
            if count < len(room):
                return

    def deadline(self) -> Instant:
        moments = [call.deadline for call in self.queued]
        moments.append(self.connection.deadline() if self.is_connected else self.connect_deadline)
        return min(moments)

    def check_time(self, now: Instant) -> None:
        if not self.is_connected and now >= self.connect_deadline:
            raise Unreachable(
                f"cannot connect to {self.address}: no answer for {CONNECT_TIMEOUT_S:.0f} seconds"
            )
        self.connection.check_time(now)
        for call in [call for call in self.queued if call.deadline <= now]:
            self.queued.remove(call)
            call.settle(error=TimedOut(f"the connection to {self.address} was not ready in time"))

    def fail(self, error: ClientError) -> None:
        """Closes the socket and fails every call."""
        self.socket.close()
        unsent = [part for part in self.outgoing if isinstance(part, Call)]
        doomed = [*self.unanswered.values(), *unsent, *self.queued]
        self.unanswered.clear()
        self.outgoing.clear()
        self.queued.clear()
        for call in doomed:
            call.settle(error=error)


class Network:
    """All connections of one client."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self._links: dict[tuple[Address, str], Link] = {}
        self._selector = selectors.DefaultSelector()

    def submit(
        self,
        address: Address,
        request: Question,
        *,
        timeout_s: float,
        lane: str = "",
        version_max: int | None = None,
        expects_answer: bool = True,
        then: Callable[[Call], None] | None = None,
    ) -> Call:
        """Starts a call; it moves on only while somebody polls.

        Each lane has connections of its own: a broker takes up one request of a connection at a time, so
        what must not wait behind a long poll goes another way.
        """
        call = Call(request, Instant(clock() + timeout_s), version_max, expects_answer, then)
        link = self._links.get((address, lane))
        if link is None:
            try:
                link = Link(address, lane, self.client_id)
            except ClientError as error:
                call.settle(error=error)
                return call
            self._links[address, lane] = link
            self._selector.register(link.socket, selectors.EVENT_WRITE, link)
        link.queued.append(call)
        if link.connection.is_ready:
            self._attempt(link, self._push)
        return call

    def poll(self, wake_at: Instant) -> None:
        """Moves bytes; returns after the first activity, at `wake_at`, or when a call runs out of time."""
        now = clock()
        until = min([wake_at, *(link.deadline() for link in self._links.values())])
        for key, events in self._selector.select(max(0.0, until - now)):
            link: Link = key.data
            self._attempt(link, partial(self._serve, events=events))
        now = clock()
        for link in list(self._links.values()):
            if link.deadline() <= now:
                self._attempt(link, partial(Link.check_time, now=now))

    def run(self, call: Call) -> Any:
        """Polls until the call is done; its result, or its error raised."""
        while not call.is_done:
            self.poll(call.deadline)
        if call.error is not None:
            raise call.error
        return call.result

    def _serve(self, link: Link, events: int) -> None:
        if not link.is_connected:
            before = link.socket
            if not link.finish_connecting():
                self._selector.unregister(before)
                self._selector.register(link.socket, selectors.EVENT_WRITE, link)
                return
        elif events & selectors.EVENT_READ:
            link.read()
        self._push(link)

    def _push(self, link: Link) -> None:
        link.gather()
        link.write()
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if link.outgoing else 0)
        if self._selector.get_key(link.socket).events != wanted:
            self._selector.modify(link.socket, wanted, link)

    def _attempt(self, link: Link, act: Callable[[Link], None]) -> None:
        """Does something with a link; a failure ends the link and its calls, not the caller."""
        try:
            act(link)
        except ClientError as error:
            self._drop(link, error)
        except (ConnectionResetError, BrokenPipeError):
            # a peer that hangs up on what it has not read resets the connection: the same to the user
            self._drop(link, link.connection.lost("the broker closed the connection"))
        except OSError as error:
            reason = f"the connection to {link.address} broke ({error.strerror or error})"
            self._drop(link, link.connection.lost(reason))

    def _drop(self, link: Link, error: ClientError) -> None:
        for key in list(self._selector.get_map().values()):
            if key.data is link:
                self._selector.unregister(key.fileobj)
        if self._links.get((link.address, link.lane)) is link:
            del self._links[link.address, link.lane]
        link.fail(error)

    def close(self) -> None:
        for link in list(self._links.values()):
            self._drop(link, ConnectionLost("this client was closed"))
        self._selector.close()


def _view(part: Part) -> memoryview:
    assert isinstance(part, bytes | bytearray | memoryview), "clients send bytes"
    return memoryview(part)


def _reason(code: int) -> str:
    return os.strerror(code)
