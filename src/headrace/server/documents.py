"""Documents at a URL that the settings name: the key set of an identity provider.

Only this URL is asked: a redirect is an error, so that nobody else decides where the keys come from. `get`
blocks, and is called in a thread. It ends in time whatever the other side does: timeouts of sockets are those
of a single read, and somebody who sends a byte now and then would never meet them.
"""

import socket
import ssl
import urllib.error
import urllib.request
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPResponse, HTTPSConnection
from threading import Timer
from typing import IO, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

# For the whole document: logins wait for it.
TIMEOUT_S = 10.0

PIECE_BYTES = 64 * 1024


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        fp.close()
        place = urlsplit(newurl)
        raise ValueError(f"it redirects to {place.scheme}://{place.netloc.rpartition('@')[2]}{place.path}")


class _Deadline:
    """Cuts the connections of one request when its time is over."""

    def __init__(self, seconds: float) -> None:
        self.is_over = False
        self._connections: list[socket.socket] = []
        self._timer = Timer(seconds, self._cut)
        self._timer.daemon = True

    def __enter__(self) -> "_Deadline":
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._timer.join()
        for connection in self._connections:
            connection.close()

    def connect(self, *args: Any, **more: Any) -> socket.socket:
        """As `socket.create_connection`."""
        made = socket.create_connection(*args, **more)
        self._connections.append(made.dup())  # TLS takes the other one over
        if self.is_over:
            self._cut()
        return made

    def _cut(self) -> None:
        self.is_over = True
        for connection in self._connections:
            with suppress(OSError):  # it is gone already
                connection.shutdown(socket.SHUT_RDWR)


class _Http(urllib.request.HTTPHandler):
    def __init__(self, deadline: _Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_connections(HTTPConnection, self._deadline), req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, deadline: _Deadline) -> None:
        self._checked = ssl.create_default_context()
        super().__init__(context=self._checked)
        self._deadline = deadline

    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_connections(HTTPSConnection, self._deadline), req, context=self._checked)


def _connections(kind: type[HTTPConnection], deadline: _Deadline) -> Any:
    def make(*args: Any, **more: Any) -> HTTPConnection:
        made = kind(*args, **more)
        made._create_connection = deadline.connect  # type: ignore[attr-defined]
        return made

    return make


def get(url: str, bytes_max: int) -> bytes:
    """OSError or ValueError says why it cannot be had."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        with open(url2pathname(parts.path), "rb") as file:
            return _whole(file.read(bytes_max + 1), bytes_max)
    with _Deadline(TIMEOUT_S) as deadline:
        try:
            data = _fetched(url, bytes_max, deadline)
        except (OSError, ValueError):
            if not deadline.is_over:
                raise
        if deadline.is_over:
            raise TimeoutError(f"it was not complete after {TIMEOUT_S:.0f} s")
    return _whole(data, bytes_max)


def _fetched(url: str, bytes_max: int, deadline: _Deadline) -> bytes:
    handlers: list[urllib.request.BaseHandler] = [_NoRedirects(), _Https(deadline), _Http(deadline)]
    if urlsplit(url).scheme == "http":  # of this machine: no proxy could reach it
        handlers.append(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, headers={"Accept": "application/json", "Connection": "close"})
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=TIMEOUT_S) as answer:
            if answer.status != 200:
                raise ValueError(f"it answers {answer.status}")
            return _read(answer, bytes_max + 1)
    except urllib.error.HTTPError as error:
        with error:
            raise ValueError(f"it answers {error.code}") from None
    except urllib.error.URLError as error:
        raise OSError(str(error.reason)) from error
    except HTTPException as error:
        raise ValueError(f"it does not answer by HTTP: {type(error).__name__}") from error


def _read(answer: Any, bytes_max: int) -> bytes:
    pieces: list[bytes] = []
    left = bytes_max
    while left > 0 and (piece := answer.read1(min(left, PIECE_BYTES))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _whole(data: bytes, bytes_max: int) -> bytes:
    if len(data) > bytes_max:
        raise ValueError(f"it is longer than {bytes_max} bytes")
    return data
