"""The registry's client beside registries that are down, old or guarded."""

from __future__ import annotations

import base64
import copy
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from headrace.schemas import Registry, RegistryRefused, RegistryUnreachable, Schema


class Old(BaseHTTPRequestHandler):
    """Answers a registration with the id alone, wants a password, and notes what it was asked."""

    asked: list[tuple[str, str]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(("POST", self.path))
        found: dict[str, Any] = {"id": 5}
        if not self.path.endswith("/versions"):
            found |= {"subject": "s", "version": 3, **body}
        self._reply(found)

    def do_GET(self) -> None:
        self.asked.append(("GET", self.path))
        if self.path == "/schemas/ids/9":
            self._send(503, b"{}")
        else:
            self._reply({"schema": '"int"'})

    def _reply(self, found: Any) -> None:
        expected = "Basic " + base64.b64encode(b"ada:l:ve").decode()
        if self.headers["Authorization"] != expected:
            self._send(401, b"who are you?")
        else:
            self._send(200, json.dumps(found).encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    Old.asked = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Old) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_a_password_by_argument_or_in_the_address(port: int) -> None:
    with pytest.raises(RegistryRefused, match="401"):
        Registry(f"http://127.0.0.1:{port}").schema(1)
    assert Registry(f"http://127.0.0.1:{port}", user="ada", password="l:ve").schema(1) == Schema('"int"')
    assert Registry(f"http://ada:l:ve@127.0.0.1:{port}").schema(1) == Schema('"int"')


def test_the_next_address_is_asked_when_one_does_not_answer(port: int) -> None:
    registry = Registry(
        f"http://127.0.0.1:9,http://127.0.0.1:{port}/", user="ada", password="l:ve", timeout_s=2
    )
    assert registry.schema(1) == Schema('"int"')
    assert registry.schema(1) == Schema('"int"')
    assert Old.asked == [("GET", "/schemas/ids/1")]  # what an id means is asked for once
    with pytest.raises(RegistryUnreachable, match="503"):
        registry.schema(9)
    again = copy.copy(registry)  # as a task of Spark takes it along
    assert again.schema(1) == Schema('"int"')


def test_an_old_registry_tells_the_id_alone(port: int) -> None:
    registry = Registry(f"http://127.0.0.1:{port}", user="ada", password="l:ve")
    found = registry.registered("s/1", Schema('"int"'))
    assert (found.id, found.version, found.guid) == (5, 3, None)
    assert registry.register("s/1", Schema('"int"')) == 5
    assert Old.asked == [("POST", "/subjects/s%2F1/versions"), ("POST", "/subjects/s%2F1")]
