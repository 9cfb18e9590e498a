"""As much HTTP as a broker's side door needs: one request per connection, everything bounded.

A body needs a Content-Length: who sends chunks of unknown number is told so.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, NamedTuple

# A scraper sends a few hundred bytes and a registry's client little more; who sends more is neither.
HEAD_BYTES_MAX = 8 * 1024

# A schema this long would hardly fit into a record; 128 connections with such a body are 64 MB.
BODY_BYTES_MAX = 512 * 1024

# Who has not sent its request and taken its answer by then is neither a scraper nor a registry's client.
REQUEST_S_MAX = 5.0
# How long an answer may take: schemas are compared one request after the other, perhaps on a busy machine.
ANSWER_S_MAX = 40.0
# The tasks of a big job all ask the registry at once when they start.
CONNECTIONS_MAX = 128

END_OF_HEAD = b"\r\n\r\n"


class HttpRequest(NamedTuple):
    method: str
    target: str  # path and query, as sent
    body: bytes = b""

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]


class Refused(Exception):
    """A request that is not even looked at."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


class HttpPort:
    """A tiny HTTP server: one request per connection, with limits on everything.

    `answer` gives the whole response, or raises ConnectionError if there shall be none.
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
        """What is asked, or what to say to somebody whose request is not even looked at."""
        try:
            return await read_request(reader, writer, body_bytes_max=BODY_BYTES_MAX)
        except Refused as refused:
            return response(refused.status, "text/plain", f"{refused}\n".encode())


async def read_request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, body_bytes_max: int
) -> HttpRequest:
    """Refused, or what asyncio raises for streams that end or run over."""
    head = (await reader.readuntil(END_OF_HEAD)).decode("latin-1")
    first, *lines = head.split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise Refused(HTTPStatus.BAD_REQUEST, "this is not HTTP/1.1")
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
    }
    if "transfer-encoding" in headers:
        raise Refused(HTTPStatus.LENGTH_REQUIRED, "send a Content-Length instead of chunks")
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdecimal()):
        raise Refused(HTTPStatus.BAD_REQUEST, "Content-Length is not a number")
    if len(length) > 12 or int(length) > body_bytes_max:
        raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has at most {body_bytes_max} bytes")
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = await reader.readexactly(int(length))
    return HttpRequest(words[0], words[1], body)


def response(status: int, content_type: str, body: bytes, *, with_body: bool = True) -> bytes:
    """The whole answer; without the body for HEAD."""
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
