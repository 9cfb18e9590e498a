"""The loopback client: a client of the node inside its own process, which needs no socket.

A part of the broker's process that stores its state in a topic uses the broker as a client, so that it will
work when another broker leads the topic. It sends one request at a time.
"""

import asyncio
from itertools import count
from typing import TYPE_CHECKING, TypeVar

from headrace.node.connection import NODE_ITSELF, Connection
from headrace.node.effects import Parts
from headrace.protocol.compiler import codec
from headrace.protocol.framing import decode_response_header, request_frame
from headrace.protocol.notation import Request, Response
from headrace.storage.disk import Span

if TYPE_CHECKING:
    from headrace.server.driver import Driver

SIZE_BYTES = 4  # before each frame
R = TypeVar("R", bound=Response)


class Cut(ConnectionError):
    """The node ended the connection."""


class LoopbackClient:
    __slots__ = ("_answer", "_asked", "_correlation_ids", "_driver", "_name", "connection")

    def __init__(self, driver: "Driver", *, listener: str, name: str) -> None:
        self._driver = driver
        self._name = name
        self._correlation_ids = count(1)
        self._asked = 0  # the correlation id of the request that is waited for
        self._answer: asyncio.Future[bytes] | None = None
        self.connection = Connection(
            driver.next_connection_id(),
            listener=listener,
            address="127.0.0.1",
            principal=NODE_ITSELF,
            is_own=True,
        )
        driver.loopback_clients[self.connection.id] = self
        driver.connected(driver.connections.clock.now(), self.connection)

    async def ask(self, request: Request, version: int, expected: type[R]) -> R:
        assert self._answer is None, "one request at a time"
        parts = codec(type(request), version).encode_parts(request)
        self._asked = next(self._correlation_ids)
        frame = request_frame(request.KEY, version, self._asked, self._name, parts)
        # the log writes offsets into the batch where it lies
        whole = memoryview(
            bytearray(b"".join(part for part in frame if isinstance(part, bytes | bytearray | memoryview)))
        )
        self._answer = asyncio.get_running_loop().create_future()
        try:
            driver = self._driver
            try:
                answered = driver.handle(driver.connections.clock.now(), self.connection, whole[SIZE_BYTES:])
                if answered is not None:
                    self.answer(answered)
            finally:  # also after a mistake of ours: what the call had begun is owed to others
                driver.settle()
            received = await self._answer
        finally:
            self._answer = None
        response = codec(expected, version)
        _, position = decode_response_header(received, response.header_version)
        return response.decode(received, position)

    def close(self, reason: str) -> None:
        """The node wants no more of us."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Cut(reason))

    def answer(self, parts: Parts) -> None:
        # files are read on the spot: what such a client reads is small, and was written a moment ago
        whole = b"".join(part.read() if isinstance(part, Span) else part for part in parts)
        # an answer to somebody who did not wait for it any longer must not be taken for the next one's
        is_asked = int.from_bytes(whole[SIZE_BYTES : SIZE_BYTES + 4], "big") == self._asked
        if is_asked and self._answer is not None and not self._answer.done():
            self._answer.set_result(whole[SIZE_BYTES:])

    def leave(self) -> None:
        if self._driver.loopback_clients.pop(self.connection.id, None) is not None:
            self.close("the process stops")
            self._driver.disconnected(self._driver.connections.clock.now(), self.connection)
