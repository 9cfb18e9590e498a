"""HTTP clients: whether they may do what they ask for.

Who they are is found out by http_logins.py, with the same delays and decoys as on SASL listeners. All but one
right is decided by the head of a request, before its body is read, and once more if the rules have changed
when the body is here: a client may take its time for that.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headrace.base.time import Now
from headrace.machines.http.messages import (
    FORBIDDEN,
    METRICS,
    UNAUTHORIZED,
    HttpHead,
    HttpRequest,
    HttpResponse,
    refusal,
)
from headrace.machines.schema_registry.routes import To, begins_import, find_route, topic_of
from headrace.node.authorization import CLUSTER_NAME, Access, Operation, Resource
from headrace.node.connection import ANONYMOUS, Connection
from headrace.node.http_logins import HttpClient, HttpLogins, Identity
from headrace.node.listener_texts import ListenerTexts
from headrace.node.metrics import Metrics
from headrace.node.ports import Once, Ports
from headrace.node.routes import WebRequest

if TYPE_CHECKING:
    from headrace.node.bearer_checks import BearerChecks
    from headrace.node.scram_users import ScramUsers
    from headrace.node.settings import Settings

# Confluent's codes.
NO_LOGIN: Final = 40101
NO_RIGHT: Final = 40301

_PASSWORD_WANTED: Final = ("WWW-Authenticate", 'Basic realm="headrace", charset="UTF-8"')
_TOKEN_WANTED: Final = ("WWW-Authenticate", 'Bearer realm="headrace"')

# Takes why a request is refused; None: it is not.
Judged = Callable[[Now, HttpResponse | None], None]


class HttpClients:
    """Of one node."""

    def __init__(
        self,
        settings: "Settings",
        access: Access,
        users: "ScramUsers",
        bearer_checks: "BearerChecks",
        ports: Ports,
        metrics: Metrics,
    ) -> None:
        self._settings = settings.http
        self._access = access
        self._logins = HttpLogins(settings, users, bearer_checks, ports.jobs)
        self._deadlines = ports.deadlines
        self._reports = ports.reports
        self._metrics = metrics
        self._open = {one.name for one in settings.http.listeners if one.is_open}
        self._delays_ms = {
            one.name: ListenerTexts(settings.texts, one.name).value(
                "connection.failed.authentication.delay.ms"
            )
            for one in settings.http.listeners
        }

    def meet(self, connection: Connection) -> HttpClient:
        return HttpClient(connection, is_open=connection.listener in self._open)

    def forget(self, client: HttpClient) -> None:
        """It has gone before it was judged."""
        self._logins.forget(client)

    def sees(self, client: HttpClient) -> Callable[[str], bool] | None:
        """Says whether the client may know of a subject; None: it may know of all."""
        authorizer = self._access.authorizer
        if authorizer is None:
            return None
        connection = client.connection

        def may_describe(subject: str) -> bool:
            return authorizer.allows(connection, Operation.DESCRIBE, Resource.TOPIC, topic_of(subject))

        return may_describe

    def judge(self, now: Now, client: HttpClient, head: HttpHead, then: Judged) -> None:
        """Who the client is, and whether it may do this. `then` is called now or later, once."""
        connection = client.connection
        if client.certificate is None:
            client.certificate = connection.principal
        connection.principal = client.certificate
        if head.path == METRICS and self._settings.metrics_anonymous:
            then(now, None)
            return
        if not self._settings.login_required and self._access.authorizer is None:
            then(now, None)  # it makes no difference who it is
            return
        header = head.header("authorization")
        if header is None:
            if self._settings.login_required and connection.principal == ANONYMOUS:
                then(now, self._wanted(connection))
            else:
                then(now, self._right(now, client, head))
            return
        if client.is_open:
            why = "This address has no TLS, and takes no passwords and tokens: use https"
            then(now, refusal(FORBIDDEN, why, code=NO_RIGHT))
            return

        def identified(now: Now, identity: Identity) -> None:
            if identity.refused is not None:
                self._refuse(now, client, identity, identity.refused, then)
                return
            self._enter(now, client, identity)
            then(now, self._right(now, client, head))

        self._logins.identify(now, client, header, identified)

    # --- logins --------------------------------------------------------------------------------------------

    def _enter(self, now: Now, client: HttpClient, identity: Identity) -> None:
        client.connection.principal = f"User:{identity.user}"
        if client.user != identity.user:
            client.user = identity.user
            self._metrics.logins += 1
            if self._access.audit is not None:
                self._access.audit.login(now, client.connection, identity.mechanism)

    def _refuse(self, now: Now, client: HttpClient, identity: Identity, reason: str, then: Judged) -> None:
        """The client is told so after a delay, so that guessing takes long, and loses its connection."""
        connection = client.connection
        self._metrics.logins_refused += 1
        self._reports.report(
            "warning",
            "login_refused",
            address=connection.address,
            listener=connection.listener,
            mechanism=identity.mechanism,
            reason=reason,
        )
        if self._access.audit is not None:
            self._access.audit.login_refused(now, connection, identity.mechanism, identity.user, reason)
        answer = self._wanted(connection)
        answer = answer._replace(headers=(*answer.headers, ("Connection", "close")))
        delay_ms = self._delays_ms.get(connection.listener, 0)
        Once(self._deadlines, now.after_ms(delay_ms), lambda at: then(at, answer))

    def _wanted(self, connection: Connection) -> HttpResponse:
        ways = [_PASSWORD_WANTED]
        if self._logins.takes_tokens(connection.listener):
            ways.append(_TOKEN_WANTED)
        return refusal(UNAUTHORIZED, "Unauthorized", code=NO_LOGIN)._replace(headers=tuple(ways))

    # --- rights --------------------------------------------------------------------------------------------

    def _right(self, now: Now, client: HttpClient, head: HttpHead) -> HttpResponse | None:
        """Why the client may not do this; None: it may, or there is no such thing."""
        client.rights = self._access.rights
        if self._access.authorizer is None:
            return None
        asked = WebRequest(now, client.connection, f"{head.method} {head.path}")
        if head.path == METRICS:
            return self._ask(asked, Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME, "the metrics")
        route = find_route(head.method, head.target)
        right = None if route is None else route.right
        if route is None or right is None or right.to in (To.NOTHING, To.SHOWN):
            return None
        if right.to is To.CLUSTER:
            return self._ask(asked, right.operation, Resource.CLUSTER, CLUSTER_NAME, "all subjects")
        subject = route.arguments[0]
        return self._ask(asked, right.operation, Resource.TOPIC, topic_of(subject), f"Subject: {subject}")

    def body_refusal(self, now: Now, client: HttpClient, request: HttpRequest) -> HttpResponse | None:
        """Why the client may not do what only the body tells, or what it still might when its head came."""
        if self._access.authorizer is None:
            return None
        if client.rights is not self._access.rights:
            refused = self._right(now, client, HttpHead(request.method, request.target))
            if refused is not None:
                return refused
        route = find_route(request.method, request.target)
        if route is None or not begins_import(route, request.body):
            return None
        asked = WebRequest(now, client.connection, f"{request.method} {request.path}")
        return self._ask(asked, Operation.ALTER, Resource.CLUSTER, CLUSTER_NAME, "all subjects")

    def _ask(
        self, asked: WebRequest, operation: Operation, resource: Resource, name: str, shown: str
    ) -> HttpResponse | None:
        if self._access.allows(asked, operation, resource, name):
            return None
        needed = f"{operation.name} on {resource.name.lower()} {name}"
        return refusal(
            FORBIDDEN,
            f"User is denied operation {operation.name.title()} on {shown} (it needs {needed})",
            code=NO_RIGHT,
        )
