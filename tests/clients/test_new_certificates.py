"""Certificates that change while clients write, read and connect: no request fails, and no connection."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import headrace
from harness.certificates import Authority
from harness.headrace import Headrace
from harness.kafka import free_ports
from harness.wait import eventually
from headrace.client.errors import ClientError

TIMEOUT_S = 30.0
TOPIC = "records"


class Load:
    """Clients on threads of their own, which try nothing again."""

    def __init__(self, port: int, authority: Authority) -> None:
        self._port = port
        self._trusting = ssl.create_default_context(cafile=str(authority.certificate))
        self._settings = {
            "bootstrap.servers": f"localhost:{port}",
            "security.protocol": "SSL",
            "ssl.ca.location": str(authority.certificate),
        }
        self._is_over = threading.Event()
        self.failures: list[str] = []
        self.sent = 0
        self.read = 0
        self.connections = 0
        self._threads = [
            threading.Thread(target=self._noting_failures, args=(act,))
            for act in (self._produce, self._consume, self._connect)
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def shown(self) -> str:
        """The serial number of the certificate that a new connection gets."""
        with (
            socket.create_connection(("localhost", self._port), TIMEOUT_S) as raw,
            self._trusting.wrap_socket(raw, server_hostname="localhost") as secured,
        ):
            certificate = secured.getpeercert()
            assert certificate is not None
            return str(certificate["serialNumber"])

    def _noting_failures(self, act: Callable[[], None]) -> None:
        try:
            act()
        except (ClientError, OSError, AssertionError) as error:
            self.failures.append(f"{act.__name__}: {error!r}")

    def _produce(self) -> None:
        with headrace.Producer(self._settings, retries=0, enable_idempotence=False) as producer:
            while not self._is_over.is_set():
                assert producer.send(TOPIC, b"value" * 1000).get(TIMEOUT_S).offset == self.sent
                self.sent += 1

    def _consume(self) -> None:
        with headrace.Consumer(self._settings, auto_offset_reset="earliest") as consumer:
            consumer.assign([headrace.TopicPartition(TOPIC, 0)])
            while not self._is_over.is_set():
                self.read += len(consumer.poll(0.5))

    def _connect(self) -> None:
        while not self._is_over.is_set():
            self.shown()
            self.connections += 1


@pytest.mark.parametrize("way", ["renamed", "written in pieces", "signal", "other settings"])
def test_no_request_fails(tmp_path: Path, way: str) -> None:
    authority = Authority(tmp_path / "authority")
    (port, plain) = free_ports(2)
    keystore, other = tmp_path / "broker.pem", tmp_path / "other.pem"
    keystore.write_text(fresh(authority))
    settings = {
        "listeners": f"SSL://127.0.0.1:{port},PLAINTEXT://127.0.0.1:{plain}",
        "advertised.listeners": f"SSL://localhost:{port},PLAINTEXT://localhost:{plain}",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.location": str(keystore),
    }
    with Headrace(tmp_path / "broker", settings) as broker:
        with headrace.Admin(f"localhost:{plain}") as admin:
            admin.create_topic(TOPIC, partitions=1)
        load = Load(port, authority)
        try:
            eventually(lambda: min(load.sent, load.read, load.connections) > 10 or bool(load.failures), True)
            before = load.shown()
            text = fresh(authority)
            if way == "renamed":
                other.write_text(text)
                other.rename(keystore)
            elif way == "written in pieces":
                write_in_pieces(keystore, text, load)
            elif way == "signal":
                keystore.write_text(text)
                os.kill(broker.pid, signal.SIGHUP)
            else:
                other.write_text(text)
                with headrace.Admin(f"localhost:{plain}") as admin:
                    admin.alter_config(headrace.Resource.broker(1), {"ssl.keystore.location": str(other)})
            eventually(lambda: load.shown() != before, True)
            sent, read, connections = load.sent, load.read, load.connections
            eventually(
                lambda: (
                    (load.sent > sent and load.read > read and load.connections > connections + 10)
                    or bool(load.failures)
                ),
                True,
            )
        finally:
            load.end()
        assert load.failures == []
        assert "certificates_not_loaded" not in broker.output() or way == "written in pieces"


def fresh(authority: Authority) -> str:
    """Key and certificate of the broker, other ones each time."""
    return authority.issue("broker", "DNS:localhost").both.read_text()


def write_in_pieces(path: Path, text: str, load: Load) -> None:
    """Clients connect between any two of them."""
    with path.open("w") as file:
        for piece in (text[start : start + 500] for start in range(0, len(text), 500)):
            file.write(piece)
            file.flush()
            one_more(load)


def one_more(load: Load) -> None:
    connections = load.connections
    eventually(lambda: load.connections > connections or bool(load.failures), True)
