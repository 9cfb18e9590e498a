"""Clients on listeners with TLS and SASL: confluent-kafka and our own, who gets in and who does not.

Each runs with asyncio's transports, and with the compiled network core.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest

import headrace
from harness.certificates import Authority
from harness.secure_headrace import MECHANISMS, SecureHeadrace
from harness.secure_kafka import LISTENERS, PASSWORD, SESSION_MS, USER
from harness.wait import eventually
from headrace.client.errors import AuthenticationFailed, ClientError, TlsFailed

TIMEOUT_S = 30.0
VALUES = [b"%d" % number * 1000 for number in range(300)]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


@pytest.fixture(scope="module", params=["asyncio", "core"])
def secure(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, authority: Authority
) -> Iterator[SecureHeadrace]:
    made = SecureHeadrace(tmp_path_factory.mktemp("secure"), authority)
    made.uses_core = request.param == "core"
    with made as running:
        with headrace.Admin(f"localhost:{running.ports['PLAINTEXT']}") as admin:
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                admin.set_password(USER, PASSWORD, mechanism=mechanism)
        yield running
        assert running.is_running, running.output()[-4000:]
        assert PASSWORD not in running.output()
        assert "internal_error" not in running.output()


def given(
    secure: SecureHeadrace, authority: Authority, listener: str, mechanism: str = "", password: str = PASSWORD
) -> dict[str, Any]:
    """Settings that both clients take."""
    settings: dict[str, Any] = {
        "bootstrap.servers": f"localhost:{secure.ports[listener]}",
        "security.protocol": LISTENERS.get(listener, "PLAINTEXT"),
    }
    if settings["security.protocol"].endswith("SSL"):
        settings["ssl.ca.location"] = str(authority.certificate)
    if mechanism:
        settings |= {"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": password}
    return settings


def with_certificate(settings: dict[str, Any], authority: Authority) -> dict[str, Any]:
    ours = authority.issue("client")
    return settings | {
        "ssl.certificate.location": str(ours.certificate),
        "ssl.key.location": str(ours.key),
    }


def copy_with_headrace(settings: dict[str, Any], topic: str) -> list[bytes]:
    with headrace.Producer(settings) as producer:
        for value in VALUES:
            producer.send(topic, value)
        producer.flush(TIMEOUT_S)
    with headrace.Consumer(settings, auto_offset_reset="earliest") as consumer:
        consumer.assign([headrace.TopicPartition(topic, 0)])
        read: list[bytes] = []
        while len(read) < len(VALUES):
            read += [message.value for message in consumer.poll(TIMEOUT_S) if message.value is not None]
    return read


def copy_with_confluent(settings: dict[str, Any], topic: str) -> list[bytes]:
    producer = confluent_kafka.Producer(settings)
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = confluent_kafka.Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    read: list[bytes] = []
    give_up = time.monotonic() + TIMEOUT_S
    while len(read) < len(VALUES):
        assert time.monotonic() < give_up
        for message in consumer.consume(100, 1.0):
            assert message.error() is None, message.error()
            content = message.value()
            assert isinstance(content, bytes)
            read.append(content)
    consumer.close()
    return read


COPIES = [copy_with_headrace, copy_with_confluent]
DOORS = [
    ("TLS", ""),
    ("MUTUAL", ""),
    *(("SASL", mechanism) for mechanism in MECHANISMS),
    *(("SASLTLS", mechanism) for mechanism in MECHANISMS),
]


@pytest.mark.parametrize("copy", COPIES, ids=["headrace", "confluent"])
@pytest.mark.parametrize(("listener", "mechanism"), DOORS)
def test_records_come_and_go(
    secure: SecureHeadrace,
    authority: Authority,
    name: str,
    listener: str,
    mechanism: str,
    copy: Callable[[dict[str, Any], str], list[bytes]],
) -> None:
    settings = given(secure, authority, listener, mechanism)
    if listener == "MUTUAL":
        settings = with_certificate(settings, authority)
    assert copy(settings, name) == VALUES


def refused_by_headrace(settings: dict[str, Any]) -> ClientError:
    with headrace.Admin(settings) as admin, pytest.raises(ClientError) as raised:
        admin.list_topics()
    return raised.value


def refused_by_confluent(settings: dict[str, Any]) -> confluent_kafka.KafkaError:
    """The first error that librdkafka reports."""
    errors: list[confluent_kafka.KafkaError] = []
    producer = confluent_kafka.Producer({**settings, "error_cb": errors.append, "log_level": 0})
    eventually(lambda: producer.poll(0.05) is not None and bool(errors), True)
    return errors[0]


class TestRefusals:
    @pytest.mark.parametrize("listener", ["SASL", "SASLTLS"])
    @pytest.mark.parametrize("mechanism", MECHANISMS)
    def test_a_wrong_password(
        self, secure: SecureHeadrace, authority: Authority, listener: str, mechanism: str
    ) -> None:
        settings = given(secure, authority, listener, mechanism, "guessed")
        error = refused_by_headrace(settings)
        assert isinstance(error, AuthenticationFailed)
        assert error.name == "SASL_AUTHENTICATION_FAILED"
        told = refused_by_confluent(settings)
        assert told.code() == confluent_kafka.KafkaError._AUTHENTICATION
        reason = "Invalid username or password" if mechanism == "PLAIN" else "invalid credentials"
        assert reason in told.str()
        eventually(lambda: "login_refused" in secure.output(), True)

    def test_a_mechanism_that_is_not_enabled(self, secure: SecureHeadrace, authority: Authority) -> None:
        settings = given(secure, authority, "SHORT", "SCRAM-SHA-256")
        error = refused_by_headrace(settings)
        assert isinstance(error, AuthenticationFailed)
        assert error.name == "UNSUPPORTED_SASL_MECHANISM"
        assert "PLAIN, SCRAM-SHA-512" in str(error)
        assert refused_by_confluent(settings).code() == confluent_kafka.KafkaError._AUTHENTICATION

    def test_an_authority_that_the_client_does_not_know(
        self, secure: SecureHeadrace, authority: Authority, stranger: Authority
    ) -> None:
        settings = given(secure, stranger, "TLS")
        assert isinstance(refused_by_headrace(settings), TlsFailed)
        # librdkafka calls it an SSL error, or a broken connection
        assert "certificate verify failed" in refused_by_confluent(settings).str()

    @pytest.mark.parametrize("issuer", [None, "stranger"])
    def test_a_client_without_a_good_certificate(
        self, secure: SecureHeadrace, authority: Authority, stranger: Authority, issuer: str | None
    ) -> None:
        settings = given(secure, authority, "MUTUAL")
        if issuer is not None:
            settings = with_certificate(settings, stranger)
        assert isinstance(refused_by_headrace(settings), TlsFailed)
        assert refused_by_confluent(settings).code() < 0

    @pytest.mark.parametrize(
        ("listener", "protocol"),
        [("PLAINTEXT", "SSL"), ("TLS", "PLAINTEXT"), ("SASL", "PLAINTEXT"), ("SASLTLS", "SSL")],
    )
    def test_the_wrong_protocol(
        self, secure: SecureHeadrace, authority: Authority, listener: str, protocol: str
    ) -> None:
        settings = given(secure, authority, listener) | {"security.protocol": protocol}
        settings["ssl.ca.location"] = str(authority.certificate)
        assert refused_by_confluent(settings).code() < 0

    def test_a_login_where_there_is_none(self, secure: SecureHeadrace, authority: Authority) -> None:
        settings = given(secure, authority, "PLAINTEXT", "PLAIN") | {"security.protocol": "SASL_PLAINTEXT"}
        error = refused_by_headrace(settings)
        assert isinstance(error, AuthenticationFailed)
        assert "does not use SASL" in str(error)

    @pytest.mark.parametrize("size", [600_000, 90_000_000])
    def test_a_huge_frame_before_the_login(self, secure: SecureHeadrace, size: int) -> None:
        """Of which only the beginning has come."""
        with socket.create_connection(("127.0.0.1", secure.ports["SASL"]), TIMEOUT_S) as raw:
            raw.sendall(struct.pack(">ihhi", size, 36, 1, 1))
            assert raw.recv(1) == b""


def test_a_signal_loads_the_certificates_again(secure: SecureHeadrace, authority: Authority) -> None:
    os.kill(secure.pid, signal.SIGHUP)
    eventually(lambda: secure.output().count("certificates_loaded"), 3)  # one for each listener with TLS
    with headrace.Admin(given(secure, authority, "TLS")) as admin:
        admin.list_topics()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_sessions_end_while_records_are_sent(
    secure: SecureHeadrace, authority: Authority, name: str, mechanism: str
) -> None:
    """Nothing is tried again, so that a request which the broker hangs up on would be an error."""
    settings = given(secure, authority, "SHORT", mechanism)
    with headrace.Admin(settings) as admin:
        admin.create_topic(name, partitions=1)
    until = time.monotonic() + 2.5 * SESSION_MS / 1000
    with headrace.Producer(settings, retries=0, enable_idempotence=False) as producer:
        offsets = []
        while time.monotonic() < until:
            offsets.append(producer.send(name, b"value").get(TIMEOUT_S).offset)
    assert offsets == list(range(len(offsets)))
