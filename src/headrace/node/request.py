"""One request on its way through the node: who asks, what, and since when."""

from typing import TYPE_CHECKING, Any

from headrace.base.time import Now
from headrace.node.connection import Connection

if TYPE_CHECKING:
    from headrace.node.routes import Route


class Request:
    """`body` may hold views of the connection's buffer: whoever parks or stores, copies."""

    __slots__ = ("body", "client_id", "connection", "correlation_id", "now", "route", "version")

    def __init__(
        self,
        now: Now,
        connection: Connection,
        route: "Route",
        correlation_id: int,
        client_id: str | None,
        body: Any,
    ) -> None:
        self.now = now
        self.connection = connection
        self.route = route
        self.version = route.version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body = body
