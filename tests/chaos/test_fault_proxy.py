"""The proxy does to connections what its script says, to the byte."""

from __future__ import annotations

import gc
import socket
import threading
from collections.abc import Iterator

import pytest

from harness.fault_proxy import Direction, Fault, FaultProxy, Harm, stormy

PATIENCE_S = 10.0
MOMENT_S = 0.1  # what passes at all has passed by then


class Echo:
    """A server that says everything back."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._echo, args=(connection,), daemon=True).start()

    def _echo(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(1000):
                    connection.sendall(data)
            except ConnectionError:
                return

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def proxy() -> Iterator[FaultProxy]:
    echo = Echo()
    with FaultProxy() as proxy:
        proxy.target_port = echo.port
        yield proxy
    echo.close()


def connect(proxy: FaultProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S)


def read(client: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (some := client.recv(count - len(data))):
        data += some
    return data


def is_reset(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_fair_weather_changes_nothing(proxy: FaultProxy) -> None:
    with connect(proxy) as client:
        client.sendall(b"x" * 5000)
        assert read(client, 5000) == b"x" * 5000


def test_a_cut_after_some_bytes(proxy: FaultProxy) -> None:
    proxy.script(Fault(Harm.CUT, Direction.TO_CLIENT, after_bytes=3))
    with connect(proxy) as client, connect(proxy) as other:
        client.sendall(b"abcdef")
        assert read(client, 3) == b"abc"
        assert is_reset(client)
        other.sendall(b"the next one is well")
        assert read(other, 20) == b"the next one is well"


@pytest.mark.parametrize("harm", [Harm.SILENCE, Harm.HALF_OPEN])
def test_a_silence(proxy: FaultProxy, harm: Harm) -> None:
    proxy.script(Fault(harm, Direction.TO_BROKER, after_bytes=2))
    with connect(proxy) as client:
        client.sendall(b"abcdef")
        if harm is Harm.SILENCE:  # the other direction still works
            assert read(client, 2) == b"ab"
        client.settimeout(MOMENT_S)
        with pytest.raises(TimeoutError):
            client.recv(1)
    assert [fault.harm for fault in proxy.struck] == [harm]


def test_a_delay_keeps_all_and_its_order(proxy: FaultProxy) -> None:
    proxy.script(Fault(Harm.DELAY, Direction.TO_CLIENT, after_bytes=1, delay_s=0.01))
    with connect(proxy) as client:
        for number in range(10):
            client.sendall(b"%d" % number)
        assert read(client, 10) == b"0123456789"


def test_all_are_cut(proxy: FaultProxy) -> None:
    with connect(proxy) as client:
        client.sendall(b"a")
        assert read(client, 1) == b"a"
        proxy.cut_all()
        assert is_reset(client)


def test_nobody_behind_it(proxy: FaultProxy) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        proxy.target_port = closed.getsockname()[1]
    with connect(proxy) as client:
        assert is_reset(client)


def test_a_stop_while_connections_begin_and_end_leaves_no_socket_open() -> None:
    echo = Echo()
    for _ in range(50):
        with FaultProxy() as proxy:
            proxy.target_port = echo.port
            for _ in range(3):
                connect(proxy).close()
    echo.close()
    gc.collect()  # a socket that was left open warns, and a warning is an error


def test_the_same_seed_brings_the_same_weather() -> None:
    once, again, other = stormy(1), stormy(1), stormy(2)
    first = [once() for _ in range(50)]
    assert first == [again() for _ in range(50)]
    assert first != [other() for _ in range(50)]
    assert {fault.harm for fault in first if fault} == set(Harm)
