"""The schema registry of a broker under test, by HTTP. Its port stays while the broker is started again."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from headrace.machines.http.browsers import HostRules
from headrace.machines.http.messages import HttpHead, HttpRequest, HttpResponse
from headrace.node.connection import Connection
from headrace.server.http import HttpServer
from headrace.server.listeners import bind_address

if TYPE_CHECKING:
    from headrace.node.http_logins import HttpClient
    from headrace.server.logs import Log
    from headrace.server.registry_rest import Answer

LOOPBACK = "127.0.0.1"
NAME = "HTTP"


class RegistryPort:
    def __init__(
        self, answer: "Callable[[HttpRequest], Awaitable[Answer]]", log: "Callable[[], Log]"
    ) -> None:
        """`answer` raises ConnectionError if no broker runs."""
        self._answer = answer
        self._log = log
        self._server = HttpServer(self)
        self._port = 0

    async def start(self) -> None:
        bound = bind_address(LOOPBACK, 0, LOOPBACK, "registry_url")
        self._port = await self._server.listen(bound, NAME, HostRules("http", is_loopback=True))

    async def stop(self) -> None:
        await self._server.stop()

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self._port}"

    # --- what the server asks ------------------------------------------------------------------------------

    def load(self) -> None:
        import headrace.node.http_clients  # noqa: F401

    def meet(self, connection: Connection) -> "HttpClient":
        from headrace.node.http_logins import HttpClient

        return HttpClient(connection, is_open=False)

    async def admit(self, client: "HttpClient", head: HttpHead) -> HttpResponse | None:
        return None

    async def answer(self, client: "HttpClient", request: HttpRequest) -> HttpResponse:
        answer = await self._answer(request)
        return HttpResponse(answer.status, answer.body, answer.content_type)

    def failed(self, call: str, error: Exception) -> None:
        self._log().error("internal_error", call=call, error=repr(error))
