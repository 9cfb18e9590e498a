"""Documents at a URL: files, and servers that misbehave."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from headrace.server import documents
from headrace.server.documents import get


class Site:
    """Answers with what a test sets, and counts."""

    def __init__(self) -> None:
        self.answer: Callable[[BaseHTTPRequestHandler], None] = lambda handler: None
        self.paths: list[str] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.paths.append(self.path)
                site.answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/keys"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.server.shutdown()
    made.server.server_close()


def says(status: int, body: bytes = b"", **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def test_a_document(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # for an address of this machine it is not asked
    site.answer = says(200, b"keys")
    assert get(site.url, 4) == b"keys"


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "the keys.json"
    path.write_bytes(b"keys")
    assert get(path.as_uri(), 4) == b"keys"
    with pytest.raises(ValueError, match="longer than 3 bytes"):
        get(path.as_uri(), 3)
    with pytest.raises(FileNotFoundError):
        get((tmp_path / "missing").as_uri(), 4)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(site: Site, status: int) -> None:
    site.answer = says(status, Location=f"{site.url}/elsewhere?code=hidden")
    with pytest.raises(ValueError, match=r"it redirects to http://127.0.0.1:\d+/keys/elsewhere$"):
        get(site.url, 100)
    assert site.paths == ["/keys"]


@pytest.mark.parametrize("status", [201, 204, 404, 500])
def test_another_status(site: Site, status: int) -> None:
    site.answer = says(status, b"sorry" if status != 204 else b"")
    with pytest.raises(ValueError, match=f"it answers {status}"):
        get(site.url, 100)


def test_a_document_without_end(site: Site) -> None:
    def flood(handler: BaseHTTPRequestHandler) -> None:
        says(200)(handler)
        try:
            while True:
                handler.wfile.write(b"x" * 65_536)
        except OSError:
            pass  # the reader has had enough

    site.answer = flood
    with pytest.raises(ValueError, match="longer than 1000000 bytes"):
        get(site.url, 1_000_000)


def test_a_document_that_never_comes(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "TIMEOUT_S", 0.05)
    released = threading.Event()

    def wait(handler: BaseHTTPRequestHandler) -> None:
        says(200)(handler)
        released.wait(20)

    site.answer = wait
    with pytest.raises(OSError):
        get(site.url, 100)
    released.set()


def test_one_that_comes_byte_by_byte(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "TIMEOUT_S", 0.2)
    is_over = threading.Event()

    def drip(handler: BaseHTTPRequestHandler) -> None:
        says(200)(handler)
        while not is_over.wait(0.01):
            try:
                handler.wfile.write(b"x")
            except OSError:
                return

    site.answer = drip
    with pytest.raises(OSError):
        get(site.url, 1_000_000)
    is_over.set()


@pytest.mark.parametrize(
    ("scheme", "first"),
    [
        ("http", b"HTTP/1.1 200 "),
        ("https", b"\x16\x03\x03\x3f\xff\x02\x00\x3f\xf0"),  # a record of 16 KiB
    ],
)
def test_one_whose_answer_never_begins(monkeypatch: pytest.MonkeyPatch, scheme: str, first: bytes) -> None:
    """Bytes of a header, or of a TLS handshake, come one by one: no single read takes long."""
    monkeypatch.setattr(documents, "TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            with suppress(OSError), server.accept()[0] as client:
                client.sendall(first)
                for _ in range(300):
                    time.sleep(0.01)
                    client.sendall(b"x")

        dripping = threading.Thread(target=drip, daemon=True)
        dripping.start()
        with pytest.raises(TimeoutError, match="not complete"):
            get(f"{scheme}://127.0.0.1:{server.getsockname()[1]}/keys", 100)
        dripping.join()


def test_somebody_who_does_not_speak_http(site: Site) -> None:
    def talk(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"\x00\xff" * 100)

    site.answer = talk
    with pytest.raises((OSError, ValueError)):
        get(site.url, 100)


def test_nobody() -> None:
    with pytest.raises(OSError):
        get("http://127.0.0.1:1/keys", 100)
