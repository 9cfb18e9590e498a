"""HTTP server for metrics and the schema registry: one request per connection, with limits on everything.

A body needs a Content-Length; chunked bodies get an error that says so.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

# A scraper sends a few hundred bytes and a registry's client little more; who sends more is neither.
HEAD_BYTES_MAX = 8 * 1024

# A schema this long would hardly fit into a record; 128 connections with such a body are 64 MB.
BODY_BYTES_MAX = 512 * 1024

# Who has not sent its request and taken its answer by then is neither a scraper nor a registry's client.
REQUEST_S_MAX = 5.0
# How long an answer may take: schemas are compared one request after the other, perhaps on a busy host.
ANSWER_S_MAX = 40.0
# The tasks of a big job all ask the registry at once when they start.
CONNECTIONS_MAX = 128

BAD_REQUEST, LENGTH_REQUIRED, CONTENT_TOO_LARGE = 400, 411, 413

END_OF_HEAD = b"\r\n\r\n"


class HttpRequest(NamedTuple):
    method: str
    target: str  # path and query, as sent
    body: bytes = b""

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]


class HttpError(Exception):
    """A request is refused before it is read completely."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class HttpPort:
    """A small HTTP server: one request per connection, with limits on everything.

    `answer` returns the whole response, or raises ConnectionError to close the connection without one.
    """

    def __init__(self, answer: Callable[[HttpRequest], Awaitable[bytes]]) -> None:
        self._answer = answer
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[Any]] = set()
        self.port = 0

    async def start(self, bound: socket.socket) -> None:
        self._server = await asyncio.start_server(self._serve, sock=bound, limit=HEAD_BYTES_MAX)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._serving) >= CONNECTIONS_MAX:
            writer.close()
            return
        self._serving.add(task)
        try:
            async with asyncio.timeout(REQUEST_S_MAX):
                request = await self._request(reader, writer)
            if isinstance(request, HttpRequest):
                async with asyncio.timeout(ANSWER_S_MAX):
                    answered = await self._answer(request)
            else:
                answered = request
            async with asyncio.timeout(REQUEST_S_MAX):
                writer.write(answered)
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass  # slow, gone or no HTTP at all: not worth a line in the log
        finally:
            writer.close()
            self._serving.discard(task)

    async def _request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> HttpRequest | bytes:
        """The request, or the response to one that is refused before it is read completely."""
        try:
            return await read_request(reader, writer, body_bytes_max=BODY_BYTES_MAX)
        except HttpError as refused:
            return response(refused.status, "text/plain", f"{refused}\n".encode())


async def read_request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, body_bytes_max: int
) -> HttpRequest:
    """HttpError, or what asyncio raises for streams that end or run over."""
    head = (await reader.readuntil(END_OF_HEAD)).decode("latin-1")
    first, *lines = head.split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise HttpError(BAD_REQUEST, "the request is not HTTP/1.1")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    if "transfer-encoding" in headers:
        raise HttpError(LENGTH_REQUIRED, "send a Content-Length instead of chunks")
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdecimal()):
        raise HttpError(BAD_REQUEST, "Content-Length is not a number")
    if len(length) > 12 or int(length) > body_bytes_max:
        raise HttpError(CONTENT_TOO_LARGE, f"the body has more than {body_bytes_max} bytes")
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = await reader.readexactly(int(length))
    return HttpRequest(words[0], words[1], body)


def response(status: int, content_type: str, body: bytes, *, with_body: bool = True) -> bytes:
    """The whole answer; without the body for HEAD."""
    from http import HTTPStatus  # no start waits for it

    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unknown"
    lines = [
        f"HTTP/1.1 {status} {phrase}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    return "\r\n".join(lines).encode() + END_OF_HEAD + (body if with_body else b"")
