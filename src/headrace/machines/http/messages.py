"""HTTP messages as values: the head of a request, a whole request, and a response."""

from typing import Final, NamedTuple

METRICS: Final = "/metrics"  # the path of the metrics; all others are the registry's

JSON: Final = "application/json"
TEXT: Final = "text/plain; charset=utf-8"

BAD_REQUEST, UNAUTHORIZED, FORBIDDEN, NOT_FOUND, NOT_ALLOWED = 400, 401, 403, 404, 405
CONTENT_TOO_LARGE, URI_TOO_LONG, UNSUPPORTED_TYPE, HEAD_TOO_LARGE = 413, 414, 415, 431
VERSION_NOT_SUPPORTED = 505


class HttpHead(NamedTuple):
    """What comes before the body: enough to decide whether the body is wanted."""

    method: str
    target: str  # path and query, as sent
    headers: tuple[tuple[str, str], ...] = ()  # names in lower case
    has_body: bool = False

    def header(self, name: str) -> str | None:
        """Those that decide something are there once at the most."""
        return next((value for known, value in self.headers if known == name), None)

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def is_read(self) -> bool:
        """Whether it only asks for something: a page of another site may make a browser send it."""
        return self.method in ("GET", "HEAD")


class HttpRequest(NamedTuple):
    method: str
    target: str  # path and query, as sent
    body: bytes = b""

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]


class HttpResponse(NamedTuple):
    status: int
    body: bytes
    content_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()


class Ended(NamedTuple):
    """The client sends nothing more, and has nothing to wait for."""


class Fault(NamedTuple):
    """What came is not a request that is served; the connection ends with this answer."""

    response: HttpResponse


def refusal(status: int, message: str, *, code: int | None = None) -> HttpResponse:
    """An error as Confluent's registry writes it."""
    import json  # no start waits for it

    said = {"error_code": status if code is None else code, "message": message}
    return HttpResponse(status, json.dumps(said, separators=(",", ":")).encode())


def text(status: int, message: str) -> HttpResponse:
    return HttpResponse(status, message.encode(), TEXT)
