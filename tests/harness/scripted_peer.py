"""A server that does what a test tells it to, well or badly: a script of its own for every connection."""

from __future__ import annotations

import queue
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, Self

from headrace.client.cluster import Address
from headrace.protocol.api import request_codec, response_codec
from headrace.protocol.framing import decode_request_header, response_bytes
from headrace.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

ANY_PORT = Address("127.0.0.1", 0)
PATIENCE_S = 120.0  # nothing takes as long; a test that waits so has failed


class Asked(NamedTuple):
    api_key: int
    version: int
    correlation_id: int
    request: Any


class Peer:
    """One connection, on the server's side."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        connection.settimeout(PATIENCE_S)

    def read(self) -> Asked:
        """The next request; EOFError when the client has closed."""
        frame = self._exactly(*struct.unpack(">i", self._exactly(4)))
        key, version, correlation_id, _, body_at = decode_request_header(frame)
        return Asked(key, version, correlation_id, request_codec(key, version).decode(frame, body_at))

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            chunk = self.socket.recv(count - len(data))
            if not chunk:
                raise EOFError
            data += chunk
        return bytes(data)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self, asked: Asked, response: Any) -> None:
        self.send(answer_bytes(asked, response))

    def negotiate(self, **offered: tuple[int, int]) -> None:
        """Answers ApiVersions: Metadata, Produce and FindCoordinator, unless told otherwise."""
        ranges = {3: (0, 13), 0: (0, 13), 10: (0, 6), 18: (0, 4)}
        ranges |= {int(name[4:]): versions for name, versions in offered.items()}
        asked = self.read()
        assert isinstance(asked.request, ApiVersionsRequest)
        keys = [
            ApiVersion(api_key=key, min_version=first, max_version=last)
            for key, (first, last) in ranges.items()
        ]
        self.answer(asked, ApiVersionsResponse(api_keys=keys))

    def wait_for_end(self) -> None:
        """Until the client closes."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionResetError:
            return  # it closed without having read all that was said


def answer_bytes(asked: Asked, response: Any) -> bytes:
    codec = response_codec(asked.api_key, asked.version)
    return response_bytes(asked.correlation_id, codec.header_version, codec.encode(response))


Script = Callable[[Peer], None]


class ScriptedServer:
    """Runs the script for every connection; scripts after the first are for the connections after it."""

    def __init__(self, *scripts: Script, at: Address = ANY_PORT) -> None:
        self._scripts = scripts
        self._listener = socket.create_server(at)
        self.address = Address(*self._listener.getsockname())
        self.ended: queue.Queue[BaseException | None] = queue.Queue()  # of each script: how
        self.connection_count = 0
        self._peers: list[Peer] = []
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # closed
            script = self._scripts[min(self.connection_count, len(self._scripts) - 1)]
            self.connection_count += 1
            peer = Peer(connection)
            self._peers.append(peer)
            thread = threading.Thread(target=self._run, args=(script, peer), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, script: Script, peer: Peer) -> None:
        try:
            script(peer)
        except (EOFError, OSError) as error:  # the client is gone, or the test is over
            self.ended.put(error)
        except BaseException as error:
            self.ended.put(error)
            raise
        else:
            self.ended.put(None)
        finally:
            peer.socket.close()

    def wait_until_ended(self) -> None:
        """Until one script more is over."""
        self.ended.get(timeout=PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join(PATIENCE_S)
        for peer in self._peers:
            try:
                peer.socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # closed already
        for thread in self._threads:
            thread.join(PATIENCE_S)


def closed_port() -> Address:
    """An address where nobody listens."""
    with socket.create_server(ANY_PORT) as listener:
        return Address(*listener.getsockname())
