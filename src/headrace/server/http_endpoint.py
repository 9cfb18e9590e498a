"""The HTTP endpoint of a node: the metrics, and the schema registry beside them."""

import asyncio
import socket
from typing import TYPE_CHECKING, Final

from headrace.base.time import Now
from headrace.machines.http.browsers import HostRules
from headrace.machines.http.messages import (
    METRICS,
    NOT_ALLOWED,
    NOT_FOUND,
    HttpHead,
    HttpRequest,
    HttpResponse,
    text,
)
from headrace.node.connection import Connection
from headrace.node.http_settings import HttpListener
from headrace.server.http import HttpServer
from headrace.server.metrics import CONTENT_TYPE, MetricsPage

if TYPE_CHECKING:
    from headrace.node.http_clients import HttpClients
    from headrace.node.http_logins import HttpClient
    from headrace.server.process import Process
    from headrace.server.registry import RegistryService
    from headrace.server.tls_listener import TlsListener

# Whose first word in a path is one of these, speaks to the registry.
REGISTRY_ROOTS: Final = frozenset(
    ("", "subjects", "schemas", "config", "mode", "compatibility", "contexts", "v1")
)

# A page of metrics takes some milliseconds of the loop: for so many times as long there is no other one.
PAUSE_BETWEEN_PAGES = 4.0


class HttpEndpoint:
    def __init__(self, process: "Process") -> None:
        self._process = process
        self._server = HttpServer(self)
        self._registry: RegistryService | None = None
        self._page = MetricsPage(process)
        self._page_lock = asyncio.Lock()
        self._page.start()
        self.ports: list[int] = []  # of its listeners, as in the settings

    async def listen(
        self, listener: HttpListener, bound: socket.socket, tls: "TlsListener | None" = None
    ) -> None:
        rules = HostRules(listener.scheme, listener.is_loopback, self._process.settings.http.hosts)
        port = await self._server.listen(bound, listener.name, rules, tls)
        self.ports.append(port)
        real = listener._replace(host=bound.getsockname()[0], port=port)
        self._process.log.info("metrics", address=f"{real.address}{METRICS}")

    async def stop(self) -> None:
        self._page.stop()
        await self._server.stop()
        if self._registry is not None:
            self._registry.stop()

    # --- what the server asks ------------------------------------------------------------------------------

    def load(self) -> None:
        import headrace.node.http_clients  # noqa: F401

    def meet(self, connection: Connection) -> "HttpClient":
        return self._clients.meet(connection)

    async def admit(self, client: "HttpClient", head: HttpHead) -> HttpResponse | None:
        """Who the client is and whether it may do this, before the body is read."""
        judged: asyncio.Future[HttpResponse | None] = asyncio.get_running_loop().create_future()

        def tell(now: Now, refused: HttpResponse | None) -> None:
            if not judged.done():
                judged.set_result(refused)

        self._clients.judge(self._process.clock.now(), client, head, tell)
        self._process.driver.settle()
        try:
            return await judged
        except BaseException:  # it has gone, or waits for too long
            self._clients.forget(client)
            raise

    async def answer(self, client: "HttpClient", request: HttpRequest) -> HttpResponse:
        if request.path == METRICS:
            return await self._metrics(request)
        if "broker" not in self._process.settings.process_roles:
            return text(NOT_FOUND, "see /metrics\n")
        if request.path.strip("/").partition("/")[0] not in REGISTRY_ROOTS:
            return text(NOT_FOUND, "see /metrics and /subjects\n")
        refused = self._clients.body_refusal(self._process.clock.now(), client, request)
        if refused is not None:
            self._process.driver.settle()
            return refused
        answer = await self.registry.answer(request, self._clients.sees(client))
        return HttpResponse(answer.status, answer.body, answer.content_type)

    def failed(self, call: str, error: Exception) -> None:
        self._process.driver.failed(call, error)

    # --- inside --------------------------------------------------------------------------------------------

    async def _metrics(self, request: HttpRequest) -> HttpResponse:
        if request.method not in ("GET", "HEAD"):
            return text(NOT_ALLOWED, "only GET\n")
        loop = asyncio.get_running_loop()
        await self._page_lock.acquire()
        began = loop.time()
        try:
            return HttpResponse(200, self._page.text().encode(), CONTENT_TYPE)
        finally:
            loop.call_later((loop.time() - began) * PAUSE_BETWEEN_PAGES, self._page_lock.release)

    @property
    def _clients(self) -> "HttpClients":
        return self._process.node.http_clients

    @property
    def registry(self) -> "RegistryService":
        """Created at the first request: a broker without schemas does not load it."""
        if self._registry is None:
            from headrace.server.registry import RegistryService

            # other brokers are reached at it, and their addresses come with the topic's leader
            listener = self._process.settings.inter_broker_listener_name
            peers = getattr(self._process.node, "peers", None)
            self._registry = RegistryService(self._process.driver, listener, peers)
        return self._registry
