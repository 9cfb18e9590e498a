"""A blocking connection to a broker for whole messages: requests out, their decoded answers in order."""

from __future__ import annotations

import socket
import struct
from collections import deque
from itertools import count
from typing import Any

from headrace.protocol.api import APIS, message_types
from headrace.protocol.compiler import codec
from headrace.protocol.framing import encode_request_header
from headrace.protocol.notation import Request

TIMEOUT_S = 30


class MessageSocket:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self.asked: deque[tuple[type[Request], int, int]] = deque()  # kind, version, correlation id
        self._correlation_ids = count(1)

    def close(self) -> None:
        self.socket.close()

    def ask(self, client_id: str, request: Request, version: int) -> Any:
        self.send(client_id, request, version)
        return self.receive()

    def send(self, client_id: str, request: Request, version: int) -> None:
        body = codec(type(request), version).encode(request)
        correlation_id = next(self._correlation_ids)
        header = encode_request_header(request.KEY, version, correlation_id, client_id, len(body))
        self.socket.sendall(header + body)
        self.asked.append((type(request), version, correlation_id))

    def receive(self) -> Any:
        kind, version, correlation_id = self.asked.popleft()
        (size,) = struct.unpack(">i", self._exactly(4))
        frame = self._exactly(size)
        assert struct.unpack_from(">i", frame) == (correlation_id,), "answers are out of order"
        response = codec(message_types(APIS[kind.KEY])[1], version)
        return response.decode(frame, 4 + response.header_version)

    def _exactly(self, size: int) -> bytes:
        chunks = bytearray()
        while len(chunks) < size:
            chunk = self.socket.recv(size - len(chunks))
            assert chunk, "closed by the broker"
            chunks += chunk
        return bytes(chunks)
