"""TLS and SASL of our client, with Kafka 4.3.1 as the judge: every mechanism, what is refused and how that is
told, and sessions that are renewed while requests go on.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from types import TracebackType
from typing import Any, Self

import pytest

import headrace
import headrace.aio
from cli.shell import Shell
from harness.certificates import Authority
from harness.secure_kafka import LISTENERS, MECHANISMS, PASSWORD, SESSION_MS, USER, SecureKafka, scram_users
from harness.wait import eventually
from headrace.base.time import Instant
from headrace.client.errors import AuthenticationFailed, BadResponse, ClientError, ConnectionLost, TlsFailed
from headrace.client.network.connection import Answer, Connection
from headrace.client.security.oauthbearer import token_from
from headrace.client.settings.configuration import Configuration
from headrace.client.settings.keys import admin_keys
from headrace.client.settings.security import security_settings
from headrace.protocol.messages.metadata import MetadataRequest
from headrace.protocol.notation import Request
from headrace.simulator.frames import joined

TIMEOUT_S = 30.0


def now() -> Instant:
    return Instant(time.monotonic())


class Line:
    """A connection on a blocking socket: the smallest shell there is."""

    def __init__(self, port: int, *, host: str = "localhost", **given: Any) -> None:
        settings = {"bootstrap.servers": f"{host}:{port}", **given}
        self.security = security_settings(Configuration(admin_keys(), settings))
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self.selector = DefaultSelector()
        self.selector.register(self.socket, EVENT_READ)
        self.connection = Connection(
            client_id="interop",
            software_version="1.0",
            security=self.security,
            host=host,
            rng=random.SystemRandom(),
        )
        self.answers: list[Answer] = []
        self.renewals = 0
        self.connection.begin(Instant(now() + TIMEOUT_S))

    def turn(self) -> None:
        connection = self.connection
        was_ready = connection.is_ready
        if connection.wants_token:
            assert self.security is not None
            assert self.security.token_provider is not None
            connection.give_token(now(), token_from(self.security.token_provider()))
        if connection.deadline() <= now():
            connection.check_time(now())
        self.renewals += was_ready and not connection.is_ready
        self.socket.sendall(joined(connection.take_output()))
        if self.selector.select(max(0.0, min(connection.deadline(), now() + 1) - now())):
            self.answers += connection.received(self.socket.recv_into(connection.room()))

    def until(self, is_done: Callable[[], bool]) -> None:
        give_up = now() + TIMEOUT_S
        while not is_done():
            assert now() < give_up
            self.turn()

    def ask(self, request: Request) -> Any:
        self.until(lambda: self.connection.is_ready)
        number = self.connection.send(request, Instant(now() + TIMEOUT_S))
        self.until(lambda: any(answer.correlation_id == number for answer in self.answers))
        (answer,) = self.answers
        self.answers.clear()
        return answer.response

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.selector.close()
        self.socket.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[SecureKafka]:
    with SecureKafka(tmp_path_factory.mktemp("secure"), authority) as running:
        with Line(running.port) as line:
            for request in scram_users():
                (result,) = line.ask(request).results
                assert result.error_code == 0
        eventually(lambda: knows_alice(running), True)
        yield running


def knows_alice(kafka: SecureKafka) -> bool:
    """What the controller has written, the broker replays a moment later."""
    try:
        with Line(kafka.ports["SASL"], **protocol("SASL"), **login("SCRAM-SHA-512")) as line:
            line.ask(MetadataRequest())
    except AuthenticationFailed:
        return False
    return True


def protocol(listener: str) -> dict[str, str]:
    return {"security.protocol": LISTENERS.get(listener, "PLAINTEXT")}


def login(mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    if mechanism == "OAUTHBEARER":
        return {"sasl.mechanism": mechanism, "oauth_token_provider": unsecured_token}
    return {"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": password}


def unsecured_token(lifetime_s: float = 300) -> str:
    """What Kafka's development mode takes: a token that nobody signed (RFC 7515 §A.5)."""
    issued = time.time()
    claims = {"sub": USER, "iat": issued, "exp": issued + lifetime_s}
    parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims))
    return ".".join(urlsafe_b64encode(part).decode().rstrip("=") for part in parts) + "."


def refused(port: int, **given: Any) -> ClientError:
    """The error of who comes so."""
    with Line(port, **given) as line, pytest.raises(ClientError) as raised:
        line.ask(MetadataRequest())
    return raised.value


class TestWelcome:
    def test_tls(self, kafka: SecureKafka, authority: Authority) -> None:
        port = kafka.ports["TLS"]
        with Line(port, **protocol("TLS"), ssl_ca_location=str(authority.certificate)) as line:
            (broker,) = line.ask(MetadataRequest()).brokers
            assert (broker.host, broker.port) == ("localhost", port)

    def test_tls_by_address(self, kafka: SecureKafka, authority: Authority) -> None:
        trusted = {"ssl.truststore.certificates": authority.certificate.read_text()}
        with Line(kafka.ports["TLS"], host="127.0.0.1", **protocol("TLS"), **trusted) as line:
            assert len(line.ask(MetadataRequest()).brokers) == 1

    def test_a_certificate_of_our_own(self, kafka: SecureKafka, authority: Authority) -> None:
        ours = authority.issue("client")
        given = {"ssl.ca.location": str(authority.certificate), "ssl.keystore.location": str(ours.both)}
        with Line(kafka.ports["MUTUAL"], **protocol("MUTUAL"), **given) as line:
            assert len(line.ask(MetadataRequest()).brokers) == 1

    @pytest.mark.parametrize("mechanism", MECHANISMS)
    @pytest.mark.parametrize("listener", ["SASL", "SASLTLS"])
    def test_every_mechanism(
        self, kafka: SecureKafka, authority: Authority, listener: str, mechanism: str
    ) -> None:
        trusted = {"ssl.ca.location": str(authority.certificate)}
        with Line(kafka.ports[listener], **protocol(listener), **login(mechanism), **trusted) as line:
            (broker,) = line.ask(MetadataRequest()).brokers
            assert broker.port == kafka.ports[listener]

    def test_a_user_as_java_has_it(self, kafka: SecureKafka) -> None:
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        jaas = f'{module} required username="{USER}" password="{PASSWORD}";'
        given = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas}
        with Line(kafka.ports["SASL"], **protocol("SASL"), **given) as line:
            assert len(line.ask(MetadataRequest()).brokers) == 1


class TestRefusal:
    @pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
    def test_a_wrong_password(self, kafka: SecureKafka, mechanism: str) -> None:
        error = refused(kafka.ports["SASL"], **protocol("SASL"), **login(mechanism, "guessed"))
        assert isinstance(error, AuthenticationFailed)
        assert (error.name, error.is_retriable) == ("SASL_AUTHENTICATION_FAILED", False)
        assert f"refused user {USER} with {mechanism}" in str(error)

    def test_an_expired_token(self, kafka: SecureKafka) -> None:
        given = {"sasl.mechanism": "OAUTHBEARER", "oauth_token_provider": lambda: unsecured_token(-60)}
        error = refused(kafka.ports["SASL"], **protocol("SASL"), **given)
        assert isinstance(error, AuthenticationFailed)
        assert "invalid_token" in str(error)

    def test_a_mechanism_that_is_not_enabled(self, kafka: SecureKafka) -> None:
        error = refused(kafka.ports["SHORT"], **protocol("SHORT"), **login("SCRAM-SHA-256"))
        assert isinstance(error, AuthenticationFailed)
        assert error.name == "UNSUPPORTED_SASL_MECHANISM"
        assert "SCRAM-SHA-512" in str(error)

    def test_an_authority_that_we_do_not_know(self, kafka: SecureKafka, stranger: Authority) -> None:
        given = {"ssl.ca.location": str(stranger.certificate)}
        error = refused(kafka.ports["TLS"], **protocol("TLS"), **given)
        assert isinstance(error, TlsFailed)
        assert "is not trusted" in str(error)

    def test_another_host(self, kafka: SecureKafka, authority: Authority) -> None:
        given = {"ssl.ca.location": str(authority.certificate)}
        error = refused(kafka.ports["TLS"], host="kafka.example", **protocol("TLS"), **given)
        assert isinstance(error, TlsFailed)
        assert "issued for another name" in str(error)

    def test_no_certificate_of_ours(self, kafka: SecureKafka, authority: Authority) -> None:
        given = {"ssl.ca.location": str(authority.certificate)}
        error = refused(kafka.ports["MUTUAL"], **protocol("MUTUAL"), **given)
        assert isinstance(error, TlsFailed)
        assert "ssl.keystore.location" in error.advice

    def test_a_certificate_of_ours_that_kafka_does_not_trust(
        self, kafka: SecureKafka, authority: Authority, stranger: Authority
    ) -> None:
        ours = stranger.issue("client")
        given = {"ssl.ca.location": str(authority.certificate), "ssl.keystore.location": str(ours.both)}
        error = refused(kafka.ports["MUTUAL"], **protocol("MUTUAL"), **given)
        assert isinstance(error, TlsFailed)
        assert "our certificate" in str(error)


class TestWrongDoor:
    """The listener's protocol is not what security.protocol says."""

    def test_tls_at_a_plaintext_listener(self, kafka: SecureKafka) -> None:
        error = refused(kafka.port, **protocol("TLS"))
        assert isinstance(error, ConnectionLost)
        assert "plaintext listener?" in str(error)

    def test_plaintext_at_a_tls_listener(self, kafka: SecureKafka) -> None:
        error = refused(kafka.ports["TLS"])
        assert isinstance(error, BadResponse | ConnectionLost)
        assert "TLS" in str(error)

    def test_a_login_at_a_listener_that_has_none(self, kafka: SecureKafka) -> None:
        error = refused(kafka.port, **protocol("SASL"), **login("PLAIN"))
        assert isinstance(error, AuthenticationFailed)
        assert "does not use SASL" in str(error)

    def test_no_login_at_a_listener_that_wants_one(self, kafka: SecureKafka) -> None:
        error = refused(kafka.ports["SASL"])
        assert isinstance(error, ConnectionLost)
        assert "SASL listener?" in str(error)


class TestSessions:
    @pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
    def test_they_are_renewed_while_requests_go_on(self, kafka: SecureKafka, mechanism: str) -> None:
        """Kafka hangs up on whoever sends a request behind the session's end; here none is lost."""
        with Line(kafka.ports["SHORT"], **protocol("SHORT"), **login(mechanism)) as line:
            began, asked = now(), 0
            while line.renewals < 2:
                assert len(line.ask(MetadataRequest()).brokers) == 1
                asked += 1
            assert len(line.ask(MetadataRequest()).brokers) == 1
            assert now() - began > 2 * 0.85 * SESSION_MS / 1000
            assert asked > 2

    def test_requests_on_their_way_are_answered_around_a_renewal(self, kafka: SecureKafka) -> None:
        with Line(kafka.ports["SHORT"], **protocol("SHORT"), **login("PLAIN")) as line:
            connection = line.connection
            line.until(lambda: connection.is_ready)
            asked: list[int] = []

            def fill() -> bool:
                while connection.is_ready and len(asked) - len(line.answers) < 5:
                    asked.append(connection.send(MetadataRequest(), Instant(now() + TIMEOUT_S)))
                return line.renewals == 1 and connection.is_ready

            line.until(fill)
            line.until(lambda: len(line.answers) == len(asked))
            assert [answer.correlation_id for answer in line.answers] == asked

    def test_who_does_not_renew_is_thrown_out(self, kafka: SecureKafka) -> None:
        """Without this the tests above would say nothing."""
        with Line(kafka.ports["SHORT"], **protocol("SHORT"), **login("PLAIN")) as line:
            line.ask(MetadataRequest())
            line.connection._renew_at = Instant(now() + TIMEOUT_S)
            with pytest.raises((ConnectionLost, ConnectionResetError)):
                line.until(lambda: line.ask(MetadataRequest()) is None)


def settings(kafka: SecureKafka, authority: Authority, listener: str, **given: Any) -> dict[str, Any]:
    servers = f"localhost:{kafka.ports[listener]}"
    trusted = str(authority.certificate)
    return {"bootstrap.servers": servers, "ssl.ca.location": trusted, **protocol(listener), **given}


class TestClients:
    """The same through producers, consumers and admins."""

    @pytest.mark.parametrize("mechanism", MECHANISMS)
    def test_records_come_and_go(
        self, kafka: SecureKafka, authority: Authority, topic: str, mechanism: str
    ) -> None:
        given = settings(kafka, authority, "SASLTLS", **login(mechanism))
        values = [b"%d" % number * 1000 for number in range(300)]
        with headrace.Producer(given) as producer:
            for value in values:
                producer.send(topic, value)
            producer.flush(TIMEOUT_S)
        with headrace.Consumer(given, auto_offset_reset="earliest") as consumer:
            consumer.assign([headrace.TopicPartition(topic, 0)])
            read: list[bytes] = []
            while len(read) < len(values):
                read += [message.value for message in consumer.poll(TIMEOUT_S)]
        assert read == values

    def test_on_a_loop_with_tokens_that_come_later(
        self, kafka: SecureKafka, authority: Authority, topic: str
    ) -> None:
        async def token() -> str:
            await asyncio.sleep(0)
            return unsecured_token()

        async def story() -> list[bytes]:
            given = settings(kafka, authority, "SASLTLS", sasl_mechanism="OAUTHBEARER")
            given["oauth_token_provider"] = token
            async with headrace.aio.Producer(given) as producer:
                await (await producer.send(topic, b"one"))
            async with headrace.aio.Consumer(given, auto_offset_reset="earliest") as consumer:
                consumer.assign([headrace.TopicPartition(topic, 0)])
                read: list[bytes] = []
                while not read:
                    read += [message.value for message in await consumer.poll(TIMEOUT_S)]
                return read

        assert asyncio.run(story()) == [b"one"]

    def test_sessions_end_while_records_are_sent(
        self, kafka: SecureKafka, authority: Authority, topic: str
    ) -> None:
        """Nothing is tried again, so that a request which Kafka hangs up on would be an error."""
        given = settings(kafka, authority, "SHORT", **login("SCRAM-SHA-512"))
        until = now() + 3 * SESSION_MS / 1000
        with headrace.Producer(given, retries=0, enable_idempotence=False) as producer:
            offsets = []
            while now() < until:
                offsets.append(producer.send(topic, b"value").get(TIMEOUT_S).offset)
        assert offsets == list(range(len(offsets)))

    @pytest.mark.parametrize("wrong", ["password", "authority"])
    def test_what_is_final_is_told_and_not_tried_for_ever(
        self, kafka: SecureKafka, authority: Authority, stranger: Authority, wrong: str
    ) -> None:
        trusted = stranger if wrong == "authority" else authority
        password = "guessed" if wrong == "password" else PASSWORD
        expected = TlsFailed if wrong == "authority" else AuthenticationFailed
        given = settings(kafka, trusted, "SASLTLS", **login("SCRAM-SHA-512", password))
        with headrace.Producer(given) as producer, pytest.raises(expected):
            producer.send("nowhere", b"value").get(TIMEOUT_S)
        with headrace.Consumer(given) as consumer:
            consumer.assign([headrace.TopicPartition("nowhere", 0)])
            with pytest.raises(expected):
                consumer.poll(TIMEOUT_S)
        with headrace.Admin(given) as admin, pytest.raises(expected):
            admin.list_topics()


def test_the_command_line_logs_in(kafka: SecureKafka, authority: Authority, tmp_path: Path) -> None:
    settings = tmp_path / "client.properties"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    settings.write_text(
        f"bootstrap.servers=localhost:{kafka.ports['SASLTLS']}\n"
        "security.protocol=SASL_SSL\n"
        f"ssl.truststore.location={authority.certificate}\n"
        "ssl.truststore.type=PEM\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={module} required username="{USER}" password="{PASSWORD}";\n'
    )
    shell = Shell("")
    del shell.environment["HEADRACE_BOOTSTRAP"]
    shell.environment["HEADRACE_CLIENT_CONFIG"] = str(settings)
    shell("topic", "create", "by-alice")
    shell("produce", "by-alice", stdin=b"hello\n")
    assert shell("consume", "by-alice", "--from", "earliest", "-n", "1").lines == ["hello"]
    wrong = f'sasl.jaas.config={module} required username="{USER}" password="no";'
    refused = shell.attempt("topic", "list", "-X", wrong)
    assert refused.code == 1
    assert "uthentication failed" in refused.err
