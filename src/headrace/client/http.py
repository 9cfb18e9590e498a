"""HTTP requests that stay with the origin they were made for: scheme, host and port.

urllib follows a redirect to any host and takes the Authorization header along, and it turns a POST into a GET
on the way. Here a redirect to another origin, and any redirect of a request that is not a GET, is refused:
`RedirectRefused` says where it led.
"""

import os
import time
import urllib.request
from http.client import HTTPMessage
from typing import IO, Any
from urllib.parse import urlsplit

PIECE_BYTES = 64 * 1024
_PORTS = {"http": 80, "https": 443}


class RedirectRefused(Exception):
    """A server redirects to another origin, or redirects a request that is not a GET."""

    def __init__(self, code: int, target: str) -> None:
        super().__init__(f"it redirects to {target} ({code})")
        self.code = code
        self.target = target  # without query and fragment, which may hold secrets


class _KeepOrigin(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if req.get_method() != "GET" or _origin(newurl) != _origin(req.full_url):
            fp.close()  # nobody reads on
            parts = urlsplit(newurl)
            place = parts.netloc.rpartition("@")[2]
            raise RedirectRefused(code, f"{parts.scheme}://{place}{parts.path}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


def read_until(answer: Any, bytes_max: int, deadline: float) -> bytes:
    """The body, or as much of it as is allowed; TimeoutError when `time.monotonic()` has passed the deadline.

    urllib's timeout is that of a single read: a server that sends a byte now and then would never meet it.
    """
    pieces: list[bytes] = []
    left = bytes_max
    while left > 0 and (piece := answer.read1(min(left, PIECE_BYTES))):
        pieces.append(piece)
        left -= len(piece)
        if time.monotonic() > deadline:
            raise TimeoutError("the answer was not complete in time")
    return b"".join(pieces)


def open_url(request: urllib.request.Request, timeout_s: float, authorities: str | None = None) -> Any:
    """The response, as `urllib.request.urlopen` gives it. `authorities`: a PEM file or a directory of
    certificates to trust in place of the system's; OSError if it cannot be read.
    """
    handlers: list[Any] = [_KeepOrigin]
    if authorities is not None:
        handlers.append(urllib.request.HTTPSHandler(context=_trusting(authorities)))
    return urllib.request.build_opener(*handlers).open(request, timeout=timeout_s)


def _trusting(authorities: str) -> Any:
    import ssl  # OpenSSL costs every start some milliseconds

    if os.path.isdir(authorities):
        return ssl.create_default_context(capath=authorities)
    return ssl.create_default_context(cafile=authorities)
