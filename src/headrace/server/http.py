"""HTTP server for metrics and the schema registry, with limits on everything.

The protocol itself is in machines/http/connection.py. Here are sockets and time: a channel per connection, a
task that takes its requests one after the other, and how many connections there may be.

    accepted --a request has REQUEST_S_MAX--> answered --the client takes it in SEND_S_MAX--> idle, or closed

When there are too many connections, those that wait for a next request give way to new ones.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from headrace.machines.http.browsers import HostRules, check_content_type, check_origin
from headrace.machines.http.messages import Ended, Fault, HttpHead, HttpRequest, HttpResponse
from headrace.node.connection import Connection

if TYPE_CHECKING:
    from headrace.machines.http.connection import HttpConnection
    from headrace.node.http_logins import HttpClient
    from headrace.server.tls_listener import TlsListener

# How long head and body of a request may take, each. A client that is slower is not a scraper or a client of
# the registry.
REQUEST_S_MAX = 10.0
# How long an answer may take: schemas are compared one request after the other, perhaps on a busy host.
ANSWER_S_MAX = 40.0
SEND_S_MAX = 30.0
# How long a connection is kept for the next request. Clients give up idle ones earlier, which is better: a
# request that meets a close is lost.
IDLE_S_MAX = 60.0
# After an answer to a request that was not read completely: closed at once, the answer could get lost.
LINGER_S_MAX = 1.0

# The tasks of a big job all ask the registry at once when they start.
CONNECTIONS_MAX = 128
# One machine must not keep all others out. The programs of this machine have one address together.
CONNECTIONS_PER_ADDRESS_MAX = 64

# Answers that clients do not take, all together: a list of all schemas has some megabytes.
UNSENT_BYTES_MAX = 64 * 1024 * 1024

# What is read at once, into one buffer for all connections.
RECEIVE_BYTES = 64 * 1024

R = TypeVar("R")


class HttpService(Protocol):
    """What a server serves."""

    def load(self) -> None:
        """Loads what only requests need: called once, in a thread, when the first client has come."""
        ...

    def meet(self, connection: Connection, /) -> "HttpClient": ...

    async def admit(self, client: "HttpClient", head: HttpHead, /) -> HttpResponse | None:
        """Why the request is refused before its body is read; None: it is not."""
        ...

    async def answer(self, client: "HttpClient", request: HttpRequest, /) -> HttpResponse:
        """ConnectionError closes the connection without an answer."""
        ...

    def failed(self, call: str, error: Exception, /) -> None:
        """A bug of ours."""
        ...


class HttpServer:
    """Of all HTTP listeners of a process."""

    def __init__(self, service: HttpService) -> None:
        self.service = service
        self.channels: dict[HttpChannel, str] = {}  # with the address of each
        self.idle: dict[HttpChannel, None] = {}  # those that wait for a next request, the longest first
        self.unsent_bytes = 0
        self.receive_buffer = memoryview(bytearray(RECEIVE_BYTES))
        self.is_stopping = False
        self._servers: list[asyncio.Server] = []
        self._parser: asyncio.Future[type[HttpConnection]] | None = None

    async def listen(
        self, bound: socket.socket, name: str, rules: HostRules, tls: "TlsListener | None" = None
    ) -> int:
        """Listens on a bound socket; returns its port."""
        loop = asyncio.get_running_loop()

        def make() -> asyncio.BaseProtocol:
            channel = HttpChannel(self, loop, name, rules)
            return channel if tls is None else tls.transport(channel)

        self._servers.append(await loop.create_server(make, sock=bound))
        return int(bound.getsockname()[1])

    async def stop(self) -> None:
        self.is_stopping = True
        for server in self._servers:
            server.close()
        tasks = [channel.task for channel in self.channels if channel.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def admit(self, channel: "HttpChannel") -> bool:
        """Counts a connection, unless there are too many."""
        address = channel.connection.address
        from_address = sum(1 for one in self.channels.values() if one == address)
        is_too_many = not is_local(address) and from_address >= CONNECTIONS_PER_ADDRESS_MAX
        if is_too_many or len(self.channels) >= CONNECTIONS_MAX:
            found = (one for one in self.idle if not is_too_many or self.channels[one] == address)
            oldest = next(found, None)
            if oldest is None:
                return False
            oldest.abort()
        self.channels[channel] = address
        return True

    def leave(self, channel: "HttpChannel") -> None:
        self.channels.pop(channel, None)
        self.idle.pop(channel, None)

    async def new_connection(self) -> "HttpConnection":
        """The parser is loaded for the first connection, in a thread: it takes 50 ms. If that fails, for lack
        of descriptors perhaps, it is loaded again for the next one.
        """
        if self._parser is None or _has_failed(self._parser):
            self._parser = asyncio.get_running_loop().run_in_executor(None, self._load)
        return (await asyncio.shield(self._parser))()

    def _load(self) -> "type[HttpConnection]":
        from headrace.machines.http.connection import HttpConnection

        self.service.load()
        return HttpConnection


def _has_failed(loaded: "asyncio.Future[Any]") -> bool:
    return loaded.done() and (loaded.cancelled() or loaded.exception() is not None)


def is_local(address: str) -> bool:
    return address == "::1" or address.startswith("127.")


class HttpChannel(asyncio.BufferedProtocol):
    """One connection. To the TLS layer it is what a channel of Kafka's protocol is."""

    def __init__(
        self, server: HttpServer, loop: asyncio.AbstractEventLoop, listener: str, rules: HostRules
    ) -> None:
        self._server = server
        self._loop = loop
        self._listener = listener
        self._rules = rules
        self._http: HttpConnection | None = None
        self._early = bytearray()  # what came before the parser was there
        self._has_ended = False
        self._is_paused = False  # we do not read
        self._is_full = False  # the client does not
        self._waiter: asyncio.Future[None] | None = None
        self.transport: asyncio.Transport
        self.connection: Connection
        self.task: asyncio.Task[None] | None = None

    # --- what the transport calls --------------------------------------------------------------------------

    def shown_certificate(self, principal: str) -> None:
        self.connection.principal = principal

    def refused_handshake(self, reason: str) -> None:
        """The connection is closed with the same reason."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        # the TLS layer says whose certificate it has
        self.connection = Connection(0, listener=self._listener, address=str(peer[0]) if peer else "")
        if not self._server.admit(self):
            self.transport.abort()
            return
        self.transport.set_write_buffer_limits(high=RECEIVE_BYTES)
        self.task = self._loop.create_task(self._serve())

    def connection_lost(self, error: Exception | None) -> None:
        self._server.leave(self)
        if self.task is not None:
            self.task.cancel()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._server.receive_buffer

    def buffer_updated(self, count: int) -> None:
        data = self._server.receive_buffer[:count]
        http = self._http
        if http is None:
            self._early += data
            is_enough = len(self._early) >= RECEIVE_BYTES
        elif http.is_over:
            return  # what follows a request that was refused
        else:
            http.receive(data)
            is_enough = not http.wants_data
        if is_enough and not self._is_paused:
            self._is_paused = True
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        self._has_ended = True
        if self._http is not None:
            self._http.receive_end()
        self._wake()
        return True  # it may still wait for its answer

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._wake()

    def close(self, reason: str) -> None:
        """The TLS layer wants no more of it."""
        self.transport.close()

    def abort(self) -> None:
        """At once, and it is not counted any more."""
        self._server.leave(self)
        self.transport.abort()

    # --- requests ------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        try:
            http = await self._server.new_connection()
            http.receive(bytes(self._early))
            self._early.clear()
            if self._has_ended:
                http.receive_end()
            self._http = http
            client = self._server.service.meet(self.connection)
            while not http.is_over:
                await self._serve_one(http, client)
                await asyncio.sleep(0)  # who sends many requests at once must not keep the others waiting
        except (TimeoutError, ConnectionError):
            pass  # slow, or gone: not worth a line in the log
        except Exception as error:
            self._server.service.failed("http", error)
        finally:
            self.transport.close()
            if self.transport.get_write_buffer_size():  # a client that does not read keeps it open
                self._loop.call_later(SEND_S_MAX, self.transport.abort)

    async def _serve_one(self, http: "HttpConnection", client: "HttpClient") -> None:
        self._server.idle[self] = None
        await self._until(lambda: http.has_begun or self._has_ended, IDLE_S_MAX)
        self._server.idle.pop(self, None)
        head = await self._next(http)
        if isinstance(head, Ended):
            return
        if isinstance(head, Fault):
            await self._refuse(http, head.response)
            return
        assert isinstance(head, HttpHead)
        refused = check_origin(head, self._rules) or check_content_type(head)
        if refused is None:
            async with asyncio.timeout(ANSWER_S_MAX):
                refused = await self._server.service.admit(client, head)
        if refused is not None:
            await self._refuse(http, refused)
            return
        if go_on := http.go_on():
            self.transport.write(go_on)
        request = await self._next(http)
        if isinstance(request, Fault):
            await self._refuse(http, request.response)
        elif isinstance(request, HttpRequest):
            async with asyncio.timeout(ANSWER_S_MAX):
                response = await self._server.service.answer(client, request)
            await self._send(http.respond(response, is_last=self._server.is_stopping))

    async def _next(self, http: "HttpConnection") -> HttpHead | HttpRequest | Fault | Ended:
        """The next event of the connection, which has to come in time."""
        found: list[HttpHead | HttpRequest | Fault | Ended] = []

        def has_come() -> bool:
            event = http.next_event()
            if event is not None:
                found.append(event)
            return event is not None

        await self._until(has_come, REQUEST_S_MAX)
        return found[0]

    async def _refuse(self, http: "HttpConnection", response: HttpResponse) -> None:
        await self._send(http.respond(response))
        if http.is_over and not self._has_ended:
            if self.transport.can_write_eof():
                self.transport.write_eof()
            await self._until(lambda: self._has_ended, LINGER_S_MAX)

    async def _send(self, data: bytes) -> None:
        server = self._server
        if server.unsent_bytes + len(data) > UNSENT_BYTES_MAX:
            raise ConnectionAbortedError("clients do not take their answers")
        self.transport.write(data)
        if self._is_full:
            server.unsent_bytes += len(data)
            try:
                await self._until(lambda: not self._is_full, SEND_S_MAX)
            except BaseException:
                self.transport.abort()  # a close would wait for the client
                raise
            finally:
                server.unsent_bytes -= len(data)

    async def _until(self, condition: Callable[[], bool], limit_s: float) -> None:
        """Waits until something from the transport has made it true."""
        if condition():
            return
        self._read_on()
        async with asyncio.timeout(limit_s):
            while True:
                self._waiter = self._loop.create_future()
                try:
                    await self._waiter
                finally:
                    self._waiter = None
                if condition():
                    return

    def _read_on(self) -> None:
        if self._is_paused and (self._http is None or self._http.wants_data):
            self._is_paused = False
            self.transport.resume_reading()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
