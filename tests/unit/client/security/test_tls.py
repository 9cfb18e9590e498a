"""Connections inside TLS, against a server in memory: all that a broker and its certificate can get wrong."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.certificates import Authority, Certificate
from headrace.base.time import Instant
from headrace.client.errors import BadResponse, ClientError, ConnectionLost, TimedOut, TlsFailed
from headrace.client.network.connection import Connection
from headrace.client.settings.security import Security
from headrace.protocol.api import response_codec
from headrace.protocol.framing import response_bytes
from headrace.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from headrace.simulator.frames import joined

DEADLINE = Instant(10.0)
Secured = Callable[..., Security]


class Server:
    """The other end of a TLS stream, without a socket."""

    def __init__(self, certificate: Certificate, **options: Any) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.certificate, certificate.key)
        if trusted := options.get("trusts"):
            context.load_verify_locations(trusted)
            context.verify_mode = ssl.CERT_REQUIRED
        context.maximum_version = options.get("version_max", ssl.TLSVersion.TLSv1_3)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_open = False
        self.heard = b""
        self.has_been_told_goodbye = False

    def hear(self, data: bytes) -> None:
        self._incoming.write(data)
        try:
            if not self._is_open:
                self._tls.do_handshake()
                self._is_open = True
            while piece := self._tls.read(65536):
                self.heard += piece
            self.has_been_told_goodbye = True
        except ssl.SSLError:
            pass  # it wants more, or has put an alert into what it says

    def say(self, data: bytes) -> None:
        self._tls.write(data)

    def say_goodbye(self) -> None:
        with pytest.raises(ssl.SSLWantReadError):
            self._tls.unwrap()

    def words(self) -> bytes:
        return self._outgoing.read()


def run(connection: Connection, server: Server) -> list[Any]:
    """Carries bytes until nobody has more to say; the answers that came."""
    answers: list[Any] = []
    while True:
        said = joined(connection.take_output())
        if said:
            server.hear(said)
        replied = server.words()
        if not said and not replied:
            return answers
        answers += connection.receive(replied)


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Certificate:
    return authority.issue("broker")


@pytest.fixture
def connected(secured: Secured, authority: Authority) -> Callable[..., Connection]:
    """Makes a connection that has begun; trusts the authority unless told otherwise."""

    def make(host: str = "localhost", **given: Any) -> Connection:
        trusted = {"ssl_ca_location": str(authority.certificate)} if "ssl_ca_location" not in given else {}
        security = secured(security_protocol="SSL", **trusted, **given)
        connection = Connection(client_id="test", software_version="1.0", security=security, host=host)
        connection.begin(DEADLINE)
        return connection

    return make


class TestTalk:
    @pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
    @pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
    def test_questions_and_answers(
        self, connected: Any, broker: Certificate, script: Any, host: str, version: ssl.TLSVersion
    ) -> None:
        connection, server = connected(host), Server(broker, version_max=version)
        assert run(connection, server) == []
        assert not connection.is_ready
        server.say(script.versions())
        run(connection, server)
        assert connection.is_ready
        asked = connection.send(MetadataRequest(), DEADLINE)
        heard = len(server.heard)
        run(connection, server)
        assert len(server.heard) > heard
        server.say(script.answer(asked, MetadataResponse(cluster_id="c"), 13))
        (answer,) = run(connection, server)
        assert answer.response.cluster_id == "c"

    @settings(max_examples=25, deadline=None)
    @given(st.data())
    def test_any_cut_of_the_stream_gives_the_same_answers(
        self, secured: Secured, authority: Authority, broker: Certificate, data: st.DataObject
    ) -> None:
        """Records of TLS and frames of Kafka, both cut anywhere."""
        security = secured(security_protocol="SSL", ssl_cafile=str(authority.certificate))
        connection = Connection(client_id="t", software_version="1", security=security, host="localhost")
        connection.begin(DEADLINE)
        server = Server(broker)
        run(connection, server)
        connection.is_ready, connection.versions = True, {3: (0, 13)}
        connection._unanswered.clear()
        sizes = data.draw(st.lists(st.sampled_from([0, 1, 80, 320, 700]), min_size=1, max_size=4))
        codec = response_codec(3, 13)
        for count in sizes:
            number = connection.send(MetadataRequest(), DEADLINE)
            brokers = [MetadataResponseBroker(node_id=i, host="h" * 200, port=1) for i in range(count)]
            body = codec.encode(MetadataResponse(brokers=brokers))
            server.say(response_bytes(number, codec.header_version, body))
        stream = server.words()
        cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
        found = []
        for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            found += connection.receive(stream[start:stop])
        assert [len(answer.response.brokers) for answer in found] == sizes

    def test_what_is_sent_is_not_readable(self, connected: Any, broker: Certificate, script: Any) -> None:
        connection, server = connected(), Server(broker)
        run(connection, server)
        server.say(script.versions())
        run(connection, server)
        connection.send(MetadataRequest(), DEADLINE)
        assert b"test" not in joined(connection.take_output())


class TestCertificates:
    def failure(self, connection: Connection, server: Server) -> TlsFailed:
        with pytest.raises(TlsFailed) as raised:
            run(connection, server)
        assert not raised.value.is_retriable
        return raised.value

    def test_an_authority_that_we_do_not_know(
        self, connected: Any, broker: Certificate, other_authority: Authority
    ) -> None:
        error = self.failure(connected(ssl_ca_location=str(other_authority.certificate)), Server(broker))
        assert "is not trusted" in str(error)
        assert "ssl.ca.location" in error.advice

    @pytest.mark.parametrize("host", ["broker.example", "127.0.0.2"])
    def test_another_host(self, connected: Any, broker: Certificate, host: str) -> None:
        error = self.failure(connected(host), Server(broker))
        assert f"the certificate of {host} was issued for another name" in str(error)
        assert "ssl.endpoint.identification.algorithm" in error.advice

    def test_another_host_may_be_allowed(self, connected: Any, broker: Certificate) -> None:
        connection = connected("broker.example", ssl_endpoint_identification_algorithm="")
        server = Server(broker)
        run(connection, server)
        assert server.heard

    def test_an_expired_one(self, connected: Any, authority: Authority) -> None:
        error = self.failure(connected(), Server(authority.issue("late", days=-1)))
        assert "has expired" in str(error)

    def test_everybody_may_be_trusted(
        self, connected: Any, authority: Authority, other_authority: Authority
    ) -> None:
        connection = connected(
            ssl_ca_location=str(other_authority.certificate), enable_ssl_certificate_verification=False
        )
        server = Server(authority.issue("late-too", days=-1))
        run(connection, server)
        assert server.heard

    @pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
    def test_the_broker_wants_one_of_ours(
        self, connected: Any, broker: Certificate, authority: Authority, version: ssl.TLSVersion
    ) -> None:
        """With TLS 1.3 the refusal comes when we believe to be through."""
        server = Server(broker, trusts=authority.certificate, version_max=version)
        error = self.failure(connected(), server)
        assert "client certificate" in str(error) + error.advice

    def test_the_broker_does_not_trust_ours(
        self, connected: Any, broker: Certificate, authority: Authority, other_authority: Authority
    ) -> None:
        ours = other_authority.issue("alice")
        server = Server(broker, trusts=authority.certificate)
        error = self.failure(connected(ssl_keystore_location=str(ours.both)), server)
        assert "does not trust the authority that issued our certificate" in str(error)

    def test_both_sides_show_one(self, connected: Any, broker: Certificate, authority: Authority) -> None:
        server = Server(broker, trusts=authority.certificate)
        run(connected(ssl_keystore_location=str(authority.issue("erin").both)), server)
        assert server.heard

    def test_no_version_in_common(self, connected: Any, broker: Certificate) -> None:
        connection = connected(ssl_enabled_protocols="TLSv1.3")
        error = self.failure(connection, Server(broker, version_max=ssl.TLSVersion.TLSv1_2))
        assert "none of our versions of TLS" in str(error)


class TestStrangers:
    @pytest.mark.parametrize(
        ("said", "named"),
        [
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP"),
            (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
            (b"\0\0\0\x0a\0\0\0\0\0\x23\0\0\0\0", "something else"),
        ],
    )
    def test_who_answers_without_tls_is_named(self, connected: Any, said: bytes, named: str) -> None:
        with pytest.raises(TlsFailed, match=f"answered with {named}, not with TLS") as raised:
            connected().receive(said)
        assert "security.protocol" in raised.value.advice

    def test_who_hangs_up_may_be_a_plaintext_listener(self, connected: Any) -> None:
        with pytest.raises(ConnectionLost, match="plaintext listener"):
            connected().received(0)

    def test_silence(self, connected: Any) -> None:
        with pytest.raises(TimedOut, match="TLS handshake"):
            connected().check_time(DEADLINE)

    @settings(max_examples=100, deadline=None)
    @given(rubbish=st.binary(min_size=1, max_size=300), is_record=st.booleans())
    def test_rubbish_is_never_more_than_a_client_error(
        self, secured: Secured, authority: Authority, rubbish: bytes, is_record: bool
    ) -> None:
        security = secured(security_protocol="SSL", ssl_cafile=str(authority.certificate))
        connection = Connection(client_id="t", software_version="1", security=security, host="localhost")
        connection.begin(DEADLINE)
        header = b"\x16\x03\x03" + len(rubbish).to_bytes(2, "big") if is_record else b""
        with contextlib.suppress(ClientError):
            assert connection.receive(header + rubbish) == []
        assert not connection.is_ready

    def test_a_record_that_was_tampered_with(self, connected: Any, broker: Certificate, script: Any) -> None:
        connection, server = connected(), Server(broker)
        run(connection, server)
        server.say(script.versions())
        words = bytearray(server.words())
        words[-1] ^= 1
        with pytest.raises(TlsFailed):
            connection.receive(bytes(words))

    def test_huge_answers_are_refused_before_the_broker_is_known(
        self, connected: Any, broker: Certificate
    ) -> None:
        connection, server = connected(), Server(broker)
        run(connection, server)
        server.say((1024 * 1024).to_bytes(4, "big"))
        with pytest.raises(BadResponse, match="reads at most 524288"):
            run(connection, server)


class TestEndings:
    def ready(self, connected: Any, broker: Certificate, script: Any) -> tuple[Connection, Server]:
        connection, server = connected(), Server(broker)
        run(connection, server)
        server.say(script.versions())
        run(connection, server)
        assert connection.is_ready
        return connection, server

    def test_the_broker_says_goodbye(self, connected: Any, broker: Certificate, script: Any) -> None:
        """What came before it counts; the stream under it may stay open, so the connection asks to be looked
        at.
        """
        connection, server = self.ready(connected, broker, script)
        asked = connection.send(MetadataRequest(), DEADLINE)
        run(connection, server)
        server.say(script.answer(asked, MetadataResponse(), 13))
        server.say_goodbye()
        assert len(connection.receive(server.words())) == 1
        assert connection.deadline() == 0.0
        with pytest.raises(ConnectionLost, match="closed the connection"):
            connection.check_time(Instant(1.0))

    def test_we_say_goodbye(self, connected: Any, broker: Certificate, script: Any) -> None:
        connection, server = self.ready(connected, broker, script)
        connection.end()
        server.hear(joined(connection.take_output()))
        assert server.has_been_told_goodbye

    def test_the_stream_ends_without_a_goodbye(
        self, connected: Any, broker: Certificate, script: Any
    ) -> None:
        connection, _ = self.ready(connected, broker, script)
        with pytest.raises(ConnectionLost, match="closed the connection"):
            connection.received(0)

    def test_no_goodbye_before_the_handshake(self, connected: Any) -> None:
        connection = connected()
        connection.take_output()
        connection.end()
        assert connection.take_output() == []
