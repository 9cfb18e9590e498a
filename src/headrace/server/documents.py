"""Documents at a URL that the settings name: the key set of an identity provider.

Only this URL is asked: a redirect is an error, so that nobody else decides where the keys come from. `get`
blocks, and is called in a thread.
"""

import ssl
import time
import urllib.error
import urllib.request
from http.client import HTTPException, HTTPMessage
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


def get(url: str, bytes_max: int) -> bytes:
    """OSError or ValueError says why it cannot be had."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        with open(url2pathname(parts.path), "rb") as file:
            return _whole(file.read(bytes_max + 1), bytes_max)
    handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
    if parts.scheme == "https":
        handlers.append(urllib.request.HTTPSHandler(context=ssl.create_default_context()))
    else:  # of this machine: no proxy could reach it
        handlers.append(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, headers={"Accept": "application/json", "Connection": "close"})
    deadline = time.monotonic() + TIMEOUT_S
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=TIMEOUT_S) as answer:
            if answer.status != 200:
                raise ValueError(f"it answers {answer.status}")
            return _whole(_read(answer, bytes_max + 1, deadline), bytes_max)
    except urllib.error.HTTPError as error:
        with error:
            raise ValueError(f"it answers {error.code}") from None
    except urllib.error.URLError as error:
        raise OSError(str(error.reason)) from error
    except HTTPException as error:
        raise ValueError(f"it does not answer by HTTP: {type(error).__name__}") from error


def _read(answer: Any, bytes_max: int, deadline: float) -> bytes:
    """urllib's timeout is that of a single read: a server that sends a byte now and then would never meet
    it.
    """
    pieces: list[bytes] = []
    left = bytes_max
    while left > 0 and (piece := answer.read1(min(left, PIECE_BYTES))):
        pieces.append(piece)
        left -= len(piece)
        if time.monotonic() > deadline:
            raise TimeoutError(f"it was not complete after {TIMEOUT_S:.0f} s")
    return b"".join(pieces)


def _whole(data: bytes, bytes_max: int) -> bytes:
    if len(data) > bytes_max:
        raise ValueError(f"it is longer than {bytes_max} bytes")
    return data
