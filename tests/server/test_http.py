"""The HTTP server on real sockets: order, limits, and clients that do not behave."""

from __future__ import annotations

import asyncio
import errno
import gc
import socket
from collections.abc import Callable, Coroutine
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.machines.http.connection import BODY_BYTES_MAX, HEAD_BYTES_MAX
from headrace.machines.http.messages import HttpRequest, HttpResponse
from headrace.server import http as module
from headrace.server.http import HttpServer
from server.fake_node import RunningServer, running_server

Run = Callable[[Coroutine[Any, Any, None]], None]
GET = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Visitor:
    """A raw connection to the HTTP port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def come(cls, server: RunningServer) -> Visitor:
        assert server.process.http is not None
        return cls(*await asyncio.open_connection("127.0.0.1", server.process.http.ports[0]))

    def send(self, *parts: bytes) -> None:
        self.writer.write(b"".join(parts))

    async def answer(self, *, is_head: bool = False) -> tuple[int, dict[str, str], bytes]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        size = 0 if is_head else int(headers.get("content-length", 0))
        return int(first.split()[1]), headers, await self.reader.readexactly(size)

    async def is_closed(self) -> bool:
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True

    def leave(self) -> None:
        self.writer.close()


def post(target: str, body: bytes, *headers: str) -> bytes:
    lines = (f"POST {target} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers, "", "")
    return "\r\n".join(lines).encode() + body


def visited(run: Run, tmp_path: Path, story: Callable[[RunningServer], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async with running_server(tmp_path, headrace_metrics_port=0) as server:
            await story(server)

    run(whole())


def http_of(server: RunningServer) -> HttpServer:
    assert server.process.http is not None
    return server.process.http._server


def test_many_requests_on_one_connection(run: Run, tmp_path: Path) -> None:
    async def story(server: RunningServer) -> None:
        visitor = await Visitor.come(server)
        for _ in range(3):
            visitor.send(GET)
            status, headers, body = await visitor.answer()
            assert (status, "connection" in headers) == (200, False)
            assert b"headrace_connections" in body
        visitor.send(GET.replace(b"GET", b"HEAD"))
        status, headers, body = await visitor.answer(is_head=True)
        assert (status, int(headers["content-length"]) > 1000, body) == (200, True, b"")
        visitor.send(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert (await visitor.answer())[1]["connection"] == "close"
        assert await visitor.is_closed()
        visitor.leave()

    visited(run, tmp_path, story)


def test_pipelined_requests_are_answered_in_order(run: Run, tmp_path: Path) -> None:
    async def story(server: RunningServer) -> None:
        visitor = await Visitor.come(server)
        visitor.send(GET, post("/metrics", b"x" * 1000), GET.replace(b"metrics", b"elsewhere"), GET)
        assert [(await visitor.answer())[0] for _ in range(4)] == [200, 405, 404, 200]
        visitor.send(GET.replace(b"metrics", b"no") * 3000)  # more than is read at once
        assert {(await visitor.answer())[0] for _ in range(3000)} == {404}
        visitor.leave()

    visited(run, tmp_path, story)


def test_a_client_that_waits_before_it_sends_the_body(run: Run, tmp_path: Path) -> None:
    async def story(server: RunningServer) -> None:
        visitor = await Visitor.come(server)
        whole = post("/metrics", b"abc", "Expect: 100-continue")
        visitor.send(whole[:-3])
        assert (await visitor.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        visitor.send(b"abc")
        assert (await visitor.answer())[0] == 405
        visitor.leave()

    visited(run, tmp_path, story)


def test_a_client_that_sends_no_more_and_waits_for_its_answer(run: Run, tmp_path: Path) -> None:
    async def story(server: RunningServer) -> None:
        visitor = await Visitor.come(server)
        visitor.send(GET)
        visitor.writer.write_eof()
        assert (await visitor.answer())[0] == 200
        assert await visitor.is_closed()
        visitor.leave()

    visited(run, tmp_path, story)


def test_the_answer_to_a_body_that_is_too_long_arrives(run: Run, tmp_path: Path) -> None:
    """Closed at once, with the body unread, the socket would be reset before the client has read why."""

    async def story(server: RunningServer) -> None:
        visitor = await Visitor.come(server)
        visitor.send(post("/metrics", b"x" * (BODY_BYTES_MAX + 1)))
        status, headers, _ = await visitor.answer()
        assert (status, headers["connection"]) == (413, "close")
        visitor.writer.write_eof()
        assert await visitor.is_closed()
        visitor.leave()

    visited(run, tmp_path, story)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\nHost: localhost\n\n", 400),
        (post("/metrics", b"", "Content-Length: 3"), 400),
        (post("/metrics", b"", "Transfer-Encoding: chunked"), 400),
        (GET.replace(b"localhost", b"evil.example"), 403),
        (post("/metrics", b"{}", "Origin: http://evil.example"), 403),
        (post("/metrics", b"{}", "Sec-Fetch-Site: cross-site"), 403),
        (post("/metrics", b"{}", "Content-Type: text/plain"), 415),
        (GET.replace(b"/metrics", b"/metrics/../../etc/passwd"), 404),
        (GET.replace(b"/metrics", b"/%2e%2e/%00"), 404),
        (GET.replace(b"\r\n\r\n", b"\r\nX: " + b"x" * HEAD_BYTES_MAX + b"\r\n\r\n"), 431),
        (b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03", 400),
    ],
)
def test_refused(run: Run, tmp_path: Path, sent: bytes, status: int) -> None:
    async def story(server: RunningServer) -> None:
        visitor = await Visitor.come(server)
        visitor.send(sent)
        answered, _, body = await visitor.answer()
        assert answered == status, body
        visitor.leave()
        other = await Visitor.come(server)
        other.send(GET)
        assert (await other.answer())[0] == 200
        other.leave()

    visited(run, tmp_path, story)


@pytest.mark.parametrize(
    ("limit", "sent"),
    [
        ("REQUEST_S_MAX", GET[:-1]),
        ("REQUEST_S_MAX", post("/metrics", b"x" * 10)[:-1]),
        ("IDLE_S_MAX", b""),
        ("IDLE_S_MAX", GET),
    ],
)
def test_slow_clients_are_cut_off(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, sent: bytes
) -> None:
    monkeypatch.setattr(module, limit, 0.05)

    async def story(server: RunningServer) -> None:
        visitor = await Visitor.come(server)
        visitor.send(sent)
        if sent == GET:
            await visitor.answer()
        assert await visitor.is_closed()
        visitor.leave()
        await server.until(lambda: not http_of(server).channels)

    visited(run, tmp_path, story)


def test_a_byte_now_and_then_does_not_extend_the_time(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slowloris."""
    monkeypatch.setattr(module, "REQUEST_S_MAX", 0.2)

    async def story(server: RunningServer) -> None:
        visitor = await Visitor.come(server)
        visitor.send(GET[:-4])
        while http_of(server).channels or not (visitor.reader.at_eof() or visitor.writer.is_closing()):
            if not visitor.writer.is_closing():  # its end may come as a reset
                visitor.send(b"x")
            await asyncio.sleep(0.01)
        visitor.leave()

    visited(run, tmp_path, story)


def test_idle_connections_give_way(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECTIONS_MAX", 4)

    async def story(server: RunningServer) -> None:
        served = [await Visitor.come(server) for _ in range(4)]
        for visitor in served:
            visitor.send(GET)
            assert (await visitor.answer())[0] == 200
        served[0].send(GET[:-2])  # is not idle any more
        await server.until(lambda: len(http_of(server).idle) == 3)
        fifth = await Visitor.come(server)
        fifth.send(GET)
        assert (await fifth.answer())[0] == 200
        assert await served[1].is_closed()  # the one that was idle for the longest time
        served[0].send(GET[-2:])
        assert (await served[0].answer())[0] == 200
        for visitor in (*served, fifth):
            visitor.leave()

    visited(run, tmp_path, story)


def test_busy_connections_do_not(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECTIONS_MAX", 2)

    async def story(server: RunningServer) -> None:
        busy = [await Visitor.come(server) for _ in range(2)]
        for visitor in busy:
            visitor.send(GET[:-1])
        await server.until(lambda: len(http_of(server).channels) == 2 and not http_of(server).idle)
        third = await Visitor.come(server)
        assert await third.is_closed()
        for visitor in (*busy, third):
            visitor.leave()

    visited(run, tmp_path, story)


def test_one_address_does_not_keep_the_others_out(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CONNECTIONS_PER_ADDRESS_MAX", 2)
    monkeypatch.setattr(module, "is_local", lambda address: False)

    async def story(server: RunningServer) -> None:
        busy = [await Visitor.come(server) for _ in range(2)]
        for visitor in busy:
            visitor.send(GET[:-1])
        await server.until(lambda: len(http_of(server).channels) == 2 and not http_of(server).idle)
        third = await Visitor.come(server)
        assert await third.is_closed()
        for visitor in (*busy, third):
            visitor.leave()

    visited(run, tmp_path, story)


@contextmanager
def long_page(server: RunningServer, size: int) -> Any:
    """Instead of the metrics."""
    assert server.process.http is not None
    endpoint: Any = server.process.http

    async def answer(client: Any, request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, b"x" * size)

    endpoint.answer = answer
    yield


@pytest.mark.parametrize("size", [60_000, 20_000_000])
def test_a_client_that_does_not_read_is_cut_off(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(module, "SEND_S_MAX", 0.1)
    monkeypatch.setattr(module, "IDLE_S_MAX", 0.1)

    async def story(server: RunningServer) -> None:
        with long_page(server, size):
            assert server.process.http is not None
            raw = socket.socket()
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            raw.connect(("127.0.0.1", server.process.http.ports[0]))
            raw.sendall(GET * 100)
            await server.until(lambda: bool(http_of(server).channels))
            while http_of(server).channels:
                await asyncio.sleep(0.01)
            assert http_of(server).unsent_bytes == 0
            raw.close()

    visited(run, tmp_path, story)


def test_answers_that_nobody_takes_have_a_limit(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNSENT_BYTES_MAX", 30_000_000)

    async def story(server: RunningServer) -> None:
        with long_page(server, 20_000_000):
            first, second = await Visitor.come(server), await Visitor.come(server)
            first.send(GET)
            await server.until(lambda: http_of(server).unsent_bytes > 0)
            second.send(GET)
            assert await second.is_closed()
            assert (await first.answer())[0] == 200
            first.leave()
            second.leave()

    visited(run, tmp_path, story)


def test_a_client_that_leaves_ends_its_request(run: Run, tmp_path: Path) -> None:
    async def story(server: RunningServer) -> None:
        ended = asyncio.Event()
        begun = asyncio.Event()
        assert server.process.http is not None
        endpoint: Any = server.process.http

        async def answer(client: Any, request: HttpRequest) -> HttpResponse:
            begun.set()
            try:
                await asyncio.sleep(1000)
            finally:
                ended.set()
            raise AssertionError

        endpoint.answer = answer
        visitor = await Visitor.come(server)
        visitor.send(GET)
        await begun.wait()
        visitor.writer.transport.abort()
        await ended.wait()
        await server.until(lambda: not http_of(server).channels)

    visited(run, tmp_path, story)


def test_a_bug_of_ours_ends_one_connection(run: Run, tmp_path: Path) -> None:
    async def story(server: RunningServer) -> None:
        assert server.process.http is not None
        endpoint: Any = server.process.http
        asked = []

        async def answer(client: Any, request: HttpRequest) -> HttpResponse:
            asked.append(request)
            if len(asked) == 1:
                raise RuntimeError("planted")
            return HttpResponse(200, b"")

        endpoint.answer = answer
        visitor = await Visitor.come(server)
        visitor.send(GET)
        assert await visitor.is_closed()
        visitor.leave()
        assert server.logged("internal_error")
        other = await Visitor.come(server)
        other.send(GET)
        assert (await other.answer())[0] == 200
        other.leave()

    visited(run, tmp_path, story)


def test_closed_connections_leave_nothing_behind(run: Run, tmp_path: Path) -> None:
    async def story(server: RunningServer) -> None:
        for _ in range(20):
            visitor = await Visitor.come(server)
            visitor.send(GET)
            await visitor.answer()
            visitor.leave()
        await server.until(lambda: not http_of(server).channels)
        await asyncio.sleep(0)
        gc.collect()
        left = [one for one in gc.get_objects() if isinstance(one, module.HttpChannel)]
        assert len(left) <= 1

    visited(run, tmp_path, story)


def test_a_flood_of_pages_leaves_the_loop_to_others(run: Run, tmp_path: Path) -> None:
    """A page of metrics takes milliseconds of the loop; between two of them there is a pause."""

    async def story(server: RunningServer) -> None:
        visitors = [await Visitor.come(server) for _ in range(5)]
        for visitor in visitors:
            visitor.send(GET * 3)
        for visitor in visitors:
            assert [(await visitor.answer())[0] for _ in range(3)] == [200] * 3
            visitor.leave()

    visited(run, tmp_path, story)


def test_what_could_not_be_loaded_is_loaded_for_the_next_client(run: Run, tmp_path: Path) -> None:
    """All descriptors may be in use when the first client comes."""

    async def story(server: RunningServer) -> None:
        endpoint: Any = server.process.http
        load = endpoint.load

        def fail() -> None:
            endpoint.load = load
            raise OSError(errno.EMFILE, "Too many open files")

        endpoint.load = fail
        first = await Visitor.come(server)
        first.send(GET)
        assert await first.is_closed()
        first.leave()
        second = await Visitor.come(server)
        second.send(GET)
        assert (await second.answer())[0] == 200
        second.leave()

    visited(run, tmp_path, story)
