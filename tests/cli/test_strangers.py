"""Peers that are not brokers: the message for a user who got the port wrong."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from headrace.cli.main import run

Serve = Callable[[Callable[[socket.socket], None]], str]


@pytest.fixture
def stranger() -> Iterator[Serve]:
    """Starts a listener whose every connection is handled by the function given; its address."""
    opened: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def serve(handle: Callable[[socket.socket], None]) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        opened.append(listener)

        def loop() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    handle(connection)

        threads.append(threading.Thread(target=loop))
        threads[-1].start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield serve
    for listener in opened:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
    for thread in threads:
        thread.join()


def told(capsys: pytest.CaptureFixture[str], address: str) -> str:
    assert run(["topic", "list", "-b", address, "--timeout", "0.5"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 2, "one sentence, and what to do"
    return captured.err


def test_a_tls_listener(stranger: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def handshake(connection: socket.socket) -> None:
        try:
            context.wrap_socket(connection, server_side=True).close()
        except OSError:
            return

    assert "TLS" in told(capsys, stranger(handshake))


def test_a_web_server(stranger: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

    assert "HTTP" in told(capsys, stranger(answer))


def test_one_that_announces_two_gigabytes(stranger: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    def answer(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(b"\x7f\xff\xff\xff\x00\x00")

    assert "sent an answer of 2147483647 bytes" in told(capsys, stranger(answer))


def test_one_that_says_nothing(stranger: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    hold = threading.Event()

    def listen(connection: socket.socket) -> None:
        hold.wait(20)

    address = stranger(listen)
    try:
        assert "time" in told(capsys, address)
    finally:
        hold.set()


def test_one_that_hangs_up(stranger: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    assert "closed the connection" in told(capsys, stranger(lambda connection: None))


def test_one_that_resets_the_connection(stranger: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    """What hanging up becomes when our question was on its way: the user is told the same."""

    def reset(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    assert "closed the connection" in told(capsys, stranger(reset))


def test_the_next_address_of_a_host_is_tried(
    stranger: Serve, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with localhost, which is ::1 first where the broker listens on 127.0.0.1 only."""
    address = stranger(lambda connection: None)
    port = int(address.rpartition(":")[2])
    resolved = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 1)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: list(resolved))
    assert "closed the connection" in told(capsys, f"some.host:{port}")
    resolved.reverse()
    assert "closed the connection" in told(capsys, f"some.host:{port}")
