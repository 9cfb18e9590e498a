"""TLS of a listener, with both ends in memory: handshakes, refusals, data, ends, and certificates."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from harness.certificates import Authority
from headrace.node.listener_security import TlsSettings, tls_settings
from headrace.server.listeners import CannotListen
from headrace.server.tls import (
    FED_BYTES,
    HANDSHAKE_BYTES,
    HANDSHAKE_S_MAX,
    RECORD_BYTES,
    TlsTransport,
)
from headrace.server.tls_context import dialling_context, load_certificates, outgoing_context
from headrace.server.tls_listener import HANDSHAKES_PER_TURN, UNFINISHED_MAX, TlsListener
from headrace.server.tls_refusals import HELLO_BYTES_MAX


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


@pytest.fixture(scope="module")
def keystore(authority: Authority) -> Path:
    return authority.issue("server").both


def given(keystore: Path | None, **more: object) -> TlsSettings:
    texts = {} if keystore is None else {"ssl.keystore.location": str(keystore)}
    texts |= {key.replace("_", "."): str(value) for key, value in more.items()}
    return tls_settings(texts, "SSL", is_outgoing=keystore is None and "ssl.keystore.key" not in texts)


# --- the two ends ------------------------------------------------------------------------------------------


class Timer:
    def __init__(self, delay_s: float, call: Callable[[], None]) -> None:
        self.delay_s, self.call, self.is_cancelled = delay_s, call, False

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    """Calls wait until the test lets a turn of the loop pass."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.timers: list[Timer] = []

    def call_soon(self, call: Callable[[], None]) -> None:
        self.soon.append(call)

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(delay_s, call))
        return self.timers[-1]

    def turn(self) -> None:
        due, self.soon = self.soon, []
        for call in due:
            call()


class Connections:
    handshakes_failed = 0


class Channel:
    """The connection above TLS."""

    def __init__(self, buffer_bytes: int = 1 << 16) -> None:
        self.transport: TlsTransport
        self.received = b""
        self.events: list[str] = []
        self.pauses_after: int | None = None  # so many bytes
        self._buffer = memoryview(bytearray(buffer_bytes))

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self.events.append("lost")

    def eof_received(self) -> bool:
        self.events.append("eof")
        return False

    def pause_writing(self) -> None:
        self.events.append("pause_writing")

    def resume_writing(self) -> None:
        self.events.append("resume_writing")

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        self.received += bytes(self._buffer[:count])
        if self.pauses_after is not None and len(self.received) >= self.pauses_after:
            self.transport.pause_reading()

    def shown_certificate(self, principal: str) -> None:
        self.events.append(principal)

    def refused_handshake(self, reason: str) -> None:
        self.events.append(f"refused: {reason}")

    def close(self, reason: str) -> None:
        self.events.append(reason)
        self.transport.close()


class SocketTransport:
    """The broker's end of a connection; the other end is a socket that the test reads."""

    def __init__(self) -> None:
        self.socket, self.peer = socket.socketpair()
        self.socket.setblocking(False)
        self.peer.setblocking(False)
        self.waiting = b""  # what the socket had no room for
        self.is_closed = self.is_paused = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.socket if name == "socket" else default

    def write(self, data: bytes) -> None:
        self.waiting += bytes(data)

    def get_write_buffer_size(self) -> int:
        return len(self.waiting)

    def set_write_buffer_limits(self, high: int | None, low: int | None) -> None:
        self.limits = high, low

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def sent(self) -> bytes:
        """All that has left since the last time, in its order."""
        found = b""
        try:
            while data := self.peer.recv(1 << 20):
                found += data
        except BlockingIOError:
            pass
        found, self.waiting = found + self.waiting, b""
        return found

    def end(self) -> None:
        self.socket.close()
        self.peer.close()


class Client:
    """A client with OpenSSL, connected to a listener."""

    def __init__(
        self, listener: TlsListener, context: ssl.SSLContext, channel: Channel | None = None
    ) -> None:
        self.channel = channel or Channel()
        self.socket = SocketTransport()
        self.server = listener.transport(cast(Any, self.channel))
        self.server.connection_made(cast(Any, self.socket))
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    def give(self, data: bytes) -> None:
        """As from the socket."""
        while data:
            buffer = self.server.get_buffer(-1)
            count = min(len(buffer), len(data))
            buffer[:count] = data[:count]
            data = data[count:]
            self.server.buffer_updated(count)

    def exchange(self) -> None:
        self.give(self._outgoing.read())
        self._incoming.write(self.socket.sent())

    def shake_hands(self) -> None:
        for _ in range(4):
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                pass
            else:
                self.exchange()
                return
            self.exchange()

    def send(self, data: bytes) -> None:
        self.tls.write(data)
        self.exchange()

    def said(self) -> bytes:
        """What the server has sent since the last time; b"" also at the end."""
        self._incoming.write(self.socket.sent())
        found = b""
        try:
            while data := self.tls.read(1 << 20):
                found += data
        except ssl.SSLWantReadError:
            pass
        return found


@pytest.fixture
def loop() -> Loop:
    return Loop()


Connect = Callable[..., Client]


@pytest.fixture
def connect(loop: Loop, keystore: Path, authority: Authority) -> Iterator[Connect]:
    """A client of a new listener, or of the same one if it is given."""
    made: list[Client] = []

    def connected(
        listener: TlsListener | None = None,
        context: ssl.SSLContext | None = None,
        channel: Channel | None = None,
        **settings: object,
    ) -> Client:
        listener = listener or TlsListener(
            cast(Any, loop), given(keystore, **settings), cast(Any, Connections())
        )
        made.append(Client(listener, context or trusting(authority), channel))
        return made[-1]

    yield connected
    for client in made:
        client.socket.end()


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.certificate))


def listener_of(client: Client) -> TlsListener:
    return client.server._listener


# --- data ---------------------------------------------------------------------------------------------------


def test_requests_and_answers(connect: Connect, loop: Loop) -> None:
    client = connect()
    client.shake_hands()
    client.send(b"request")
    assert client.channel.received == b"request"
    client.server.writelines([b"ans", b"wer"])
    assert client.said() == b"answer"
    assert loop.timers[0].delay_s == HANDSHAKE_S_MAX
    assert loop.timers[0].is_cancelled
    assert client.server.get_extra_info("sslcontext") is not None
    assert client.server.get_extra_info("sockname", "x") == "x"
    client.server.set_write_buffer_limits(5, 1)
    assert client.socket.limits == (5, 1)
    assert client.server.can_write_eof() is False


def test_what_is_longer_than_a_record_arrives_whole(connect: Connect) -> None:
    client = connect()
    client.shake_hands()
    long = bytes(range(256)) * 1000
    client.send(long)
    assert client.channel.received == long
    client.server.write(long)
    assert client.said() == long


class Spy:
    """A buffer of OpenSSL's that notes how much passes it at once."""

    def __init__(self, buffer: ssl.MemoryBIO) -> None:
        self._buffer = buffer
        self.most = 0

    @property
    def pending(self) -> int:
        return self._buffer.pending

    def write(self, data: memoryview) -> int:
        self.most = max(self.most, self._buffer.pending + len(data))
        return self._buffer.write(data)

    def read(self) -> bytes:
        self.most = max(self.most, self._buffer.pending)
        return self._buffer.read()


def test_a_connection_keeps_no_more_memory_than_for_a_few_records(connect: Connect, loop: Loop) -> None:
    """OpenSSL's buffers never shrink: one large request would be paid for as long as its connection lives."""
    client = connect(channel=Channel(buffer_bytes=1 << 18))
    client.shake_hands()
    incoming, outgoing = Spy(client.server._incoming), Spy(client.server._outgoing)
    client.server._incoming, client.server._outgoing = cast(Any, incoming), cast(Any, outgoing)
    long = bytes(range(256)) * 4000
    client.send(long)
    assert client.channel.received == long
    client.server.write(long)
    assert client.said() == long
    assert FED_BYTES / 2 < incoming.most <= FED_BYTES
    assert RECORD_BYTES < outgoing.most < RECORD_BYTES + 256


def test_a_paused_channel_that_has_much_to_come_gets_it_when_it_resumes(connect: Connect, loop: Loop) -> None:
    """What OpenSSL has not got yet was in a buffer that other connections use meanwhile."""
    channel = Channel(buffer_bytes=1000)
    channel.pauses_after = 100_000
    client = connect(channel=channel)
    client.shake_hands()
    long = os.urandom(200_000)
    client.send(long)
    assert channel.received == long[:100_000]
    listener_of(client).ciphertext[:] = bytes(len(listener_of(client).ciphertext))
    client.send(b"more")  # the socket's transport may have received it before it was paused
    channel.pauses_after = None
    client.server.resume_reading()
    loop.turn()
    assert channel.received == long + b"more"


def test_a_goodbye_behind_much_data(connect: Connect, loop: Loop) -> None:
    client = connect()
    client.shake_hands()
    long = os.urandom(150_000)
    client.tls.write(long)
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.unwrap()
    client.exchange()
    loop.turn()
    loop.turn()
    assert (client.channel.received, client.channel.events) == (long, ["eof"])


def test_what_the_socket_does_not_take_is_left_to_the_loop(connect: Connect) -> None:
    """And all that is sent after it, in its order."""
    client = connect()
    client.shake_hands()
    sizes = [400_000, 10, 400_000]
    for number, size in enumerate(sizes):
        client.server.write(bytes([number]) * size)
    assert client.server.get_write_buffer_size() > 0
    assert client.said() == b"".join(bytes([number]) * size for number, size in enumerate(sizes))


def test_small_buffers_are_filled_again_and_again(connect: Connect) -> None:
    client = connect(channel=Channel(buffer_bytes=100))
    client.shake_hands()
    for number in range(5):
        client.tls.write(bytes([number]) * 70)
    client.exchange()
    assert client.channel.received == b"".join(bytes([number]) * 70 for number in range(5))


def test_a_paused_channel_gets_the_rest_when_it_resumes(connect: Connect, loop: Loop) -> None:
    channel = Channel(buffer_bytes=100)
    channel.pauses_after = 100
    client = connect(channel=channel)
    client.shake_hands()
    client.send(b"x" * 250)
    assert len(channel.received) == 100
    assert client.socket.is_paused
    channel.pauses_after = None
    client.server.resume_reading()
    assert len(channel.received) == 100, "not inside the call"
    loop.turn()
    assert len(channel.received) == 250
    assert not client.socket.is_paused


def test_writing_is_paused_and_resumed_by_the_socket(connect: Connect) -> None:
    client = connect()
    client.server.pause_writing()
    client.server.resume_writing()
    assert client.channel.events == ["pause_writing", "resume_writing"]


# --- ends ---------------------------------------------------------------------------------------------------


def test_a_client_that_says_goodbye_is_answered_first(connect: Connect, loop: Loop) -> None:
    client = connect()
    client.shake_hands()
    client.tls.write(b"last")
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.unwrap()
    client.exchange()
    assert (client.channel.received, client.channel.events) == (b"last", [])
    loop.turn()
    loop.turn()
    assert client.channel.events == ["eof"]
    assert client.socket.is_closed
    client.exchange()
    client.tls.unwrap()  # the server has said goodbye, too


def test_a_client_that_hangs_up(connect: Connect) -> None:
    client = connect()
    client.shake_hands()
    assert client.server.eof_received() is False
    client.server.connection_lost(None)
    assert client.channel.events == ["eof", "lost"]
    assert client.server.is_closing()


@pytest.mark.parametrize("ending", ["close", "abort"])
def test_the_server_says_goodbye_once(connect: Connect, ending: str) -> None:
    client = connect()
    client.shake_hands()
    client.said()
    getattr(client.server, ending)()
    client.exchange()
    assert client.tls.read(10) == b"", "close_notify, and not a cut"
    client.server.close()
    client.server.write(b"too late")
    assert client.socket.sent() == b""
    client.give(b"anything")
    assert client.channel.received == b""


def test_garbage_after_the_handshake_ends_the_connection(connect: Connect) -> None:
    client = connect()
    client.shake_hands()
    client.give(b"\x17\x03\x03\x00\x20" + b"g" * 32)
    (event,) = client.channel.events
    assert event.startswith("TLS failed: ")
    assert client.socket.is_closed
    assert listener_of(client).connections.handshakes_failed == 0


# --- handshakes that fail -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (b"GET / HTTP/1.1\r\n", "an HTTP client on a TLS listener"),
        (b"\0\0\0\x20\0\x12", "a client without TLS on a TLS listener: check security.protocol"),
        (b"\x16\x03\x01\x00\x05hello", "unexpected message"),
    ],
)
def test_clients_that_do_not_speak_tls(connect: Connect, first: bytes, reason: str) -> None:
    client = connect()
    client.give(first)
    (event,) = client.channel.events
    assert event.startswith("TLS handshake failed: ")
    if reason != "unexpected message":  # OpenSSL's own words differ between its versions
        assert event == f"TLS handshake failed: {reason}"
    assert client.socket.is_closed
    assert listener_of(client).connections.handshakes_failed == 1


def hello(announced: int, *, piece: int = 40) -> bytes:
    """The beginning of a hello of so many bytes, in a record of `piece` bytes."""
    message = b"\x01" + announced.to_bytes(3, "big") + b"\x03\x03" + bytes(100)
    return b"\x16\x03\x01" + piece.to_bytes(2, "big") + message[:piece]


@pytest.mark.parametrize("at_once", [1, 3, 100])
@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (hello(HELLO_BYTES_MAX + 1), f"a hello of {HELLO_BYTES_MAX + 1} bytes"),
        (hello(0xFFFFFF), "a hello of 16777215 bytes"),
        (hello(500, piece=3) + hello(131_000), "its hello comes in pieces of a few bytes"),
        (hello(HELLO_BYTES_MAX), ""),
        (hello(500, piece=4), ""),
        (hello(500)[:8], ""),
    ],
)
def test_a_hello_that_announces_too_much(connect: Connect, first: bytes, at_once: int, reason: str) -> None:
    """OpenSSL would take memory for all of it at once."""
    client = connect()
    for start in range(0, len(first), at_once):
        client.give(first[start : start + at_once])
    assert client.channel.events == ([f"TLS handshake failed: {reason}"] if reason else [])
    assert client.socket.is_closed is bool(reason)


def test_who_has_sent_half_a_header_gives_way_too(connect: Connect) -> None:
    first = connect()
    first.give(b"\x16")
    listener = listener_of(first)
    others = [connect(listener) for _ in range(UNFINISHED_MAX)]
    for other in others:
        other.give(b"\x16\x03")
    assert first.channel.events == ["TLS handshake failed: 250 later ones are not finished either"]
    assert not any(other.channel.events for other in others)


def test_little_is_received_before_the_handshake_is_over(connect: Connect) -> None:
    client = connect()
    assert len(client.server.get_buffer(-1)) == HANDSHAKE_BYTES
    client.shake_hands()
    assert len(client.server.get_buffer(-1)) > HANDSHAKE_BYTES


def test_a_handshake_byte_by_byte(connect: Connect) -> None:
    client = connect()
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.do_handshake()
    for byte in client._outgoing.read():
        client.give(bytes([byte]))
        while client.server._is_queued:
            cast(Any, listener_of(client).loop).turn()
    client._incoming.write(client.socket.sent())
    client.shake_hands()
    client.send(b"hello")
    assert client.channel.received == b"hello"


def test_a_client_that_hangs_up_before_or_never_begins(connect: Connect, loop: Loop) -> None:
    gone, silent = connect(), connect()
    gone.server.eof_received()
    assert gone.channel.events == ["TLS handshake failed: the client hung up"]
    loop.timers[-1].call()
    assert silent.channel.events == ["TLS handshake failed: not finished after 10 seconds"]


def test_nothing_is_written_before_the_handshake(connect: Connect) -> None:
    client = connect()
    client.server.write(b"secret")
    assert client.socket.sent() == b""


def test_a_client_that_does_not_trust_us(connect: Connect, stranger: Authority) -> None:
    client = connect(context=trusting(stranger))
    with pytest.raises(ssl.SSLCertVerificationError):
        client.shake_hands()
    client.exchange()
    assert client.channel.events == [
        "TLS handshake failed: the client does not trust the authority that issued our certificate"
    ]


def test_versions_without_overlap(connect: Connect, authority: Authority) -> None:
    context = trusting(authority)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    client = connect(context=context, ssl_enabled_protocols="TLSv1.3")
    with pytest.raises(ssl.SSLError):
        client.shake_hands()
    assert client.channel.events == [
        "TLS handshake failed: the client has no version of TLS in ssl.enabled.protocols"
    ]


# --- certificates of clients --------------------------------------------------------------------------------


def required(authority: Authority) -> dict[str, object]:
    return {"ssl_client_auth": "required", "ssl_truststore_location": authority.certificate}


def test_the_certificate_of_a_client_is_its_name(connect: Connect, authority: Authority) -> None:
    context = trusting(authority)
    context.load_cert_chain(authority.issue("alice").both)
    client = connect(context=context, **required(authority))
    client.shake_hands()
    assert client.channel.events == ["User:CN=alice"]
    client.send(b"x")
    assert client.channel.received == b"x"


def test_a_client_without_a_certificate_is_refused(connect: Connect, authority: Authority) -> None:
    client = connect(**required(authority))
    client.shake_hands()
    reason = "the client has no certificate, and ssl.client.auth=required"
    assert client.channel.events == [f"refused: {reason}", f"TLS handshake failed: {reason}"]


def test_a_client_of_another_authority_is_refused(
    connect: Connect, authority: Authority, stranger: Authority
) -> None:
    context = trusting(authority)
    context.load_cert_chain(stranger.issue("mallory").both)
    client = connect(context=context, **required(authority))
    client.shake_hands()
    assert "the client's certificate is not accepted: " in client.channel.events[0]
    assert client.socket.is_closed


# --- bursts, and connections that have to wait --------------------------------------------------------------


def test_a_burst_of_handshakes_takes_several_turns(connect: Connect, loop: Loop) -> None:
    first = connect()
    listener = listener_of(first)
    clients = [first, *(connect(listener) for _ in range(HANDSHAKES_PER_TURN + 1))]
    for client in clients:
        with pytest.raises(ssl.SSLWantReadError):
            client.tls.do_handshake()
        client.exchange()
    queued = [client.socket.is_paused for client in clients]
    assert queued == [False] * HANDSHAKES_PER_TURN + [True, True]
    loop.turn()
    assert not any(client.socket.is_paused for client in clients)
    loop.turn()
    for client in clients:
        client.exchange()
        client.shake_hands()
        loop.turn()
        client.send(b"x")
        assert client.channel.received == b"x"


def test_a_connection_that_waits_has_all_its_time_afterwards(connect: Connect, loop: Loop) -> None:
    client = connect()
    client.server.pause_reading()
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.do_handshake()
    client.exchange()
    loop.timers[0].call()
    assert client.channel.events == [], "we have not let it begin"
    client.server.resume_reading()
    loop.turn()
    assert loop.timers[-1].delay_s == HANDSHAKE_S_MAX
    client.exchange()
    client.shake_hands()
    client.send(b"x")
    assert client.channel.received == b"x"


# --- files --------------------------------------------------------------------------------------------------


def test_new_certificates_are_for_later_connections(
    connect: Connect, loop: Loop, authority: Authority, tmp_path: Path
) -> None:
    path = tmp_path / "server.pem"
    path.write_bytes(authority.issue("server").both.read_bytes())
    client = connect(ssl_keystore_location=path)
    client.shake_hands()
    listener = listener_of(client)
    path.write_bytes(authority.issue("other", "DNS:localhost").both.read_bytes())
    with pytest.raises(CannotListen, match=r"ssl.keystore.location: "):
        listener.load()
    before = client.tls.getpeercert(binary_form=True)
    again = connect(listener)
    again.shake_hands()
    assert again.tls.getpeercert(binary_form=True) == before, "nothing has changed"
    changing = given(path, ssl_allow_dn_changes="true", ssl_allow_san_changes="true")
    listener.check(changing)
    listener.use(changing)
    loop.turn()
    newer = connect(listener)
    newer.shake_hands()
    assert newer.tls.getpeercert(binary_form=True) != before
    client.send(b"the old one goes on")
    assert client.channel.received == b"the old one goes on"


def test_the_certificate_of_the_host_that_the_client_wants(
    connect: Connect, authority: Authority, tmp_path: Path
) -> None:
    both = tmp_path / "both.pem"
    names = ("first", "DNS:first.example"), ("second", "DNS:localhost")
    both.write_bytes(b"".join(authority.issue(*one).both.read_bytes() for one in names))
    client = connect(ssl_keystore_location=both)
    client.shake_hands()
    subject = dict(part[0] for part in cast(Any, client.tls.getpeercert())["subject"])
    assert subject["commonName"] == "second"
    assert len(listener_of(client).certificates) == 2


def test_texts_instead_of_files(authority: Authority) -> None:
    one = authority.issue("texts")
    texts = {
        "ssl.keystore.certificate.chain": one.certificate.read_text(),
        "ssl.keystore.key": one.encrypted_key("open sesame").read_text(),
        "ssl.truststore.certificates": authority.certificate.read_text(),
        "ssl.client.auth": "required",
        "ssl.key.password": "open sesame",
    }
    context, facts = load_certificates(tls_settings(texts, "SSL"))
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert len(facts) == 1
    with pytest.raises(CannotListen, match=r"cannot be read; ssl.key.password may be wrong"):
        load_certificates(tls_settings(texts | {"ssl.key.password": "wrong"}, "SSL"))
    del texts["ssl.key.password"]
    with pytest.raises(CannotListen, match=r"the private key is encrypted: set ssl.key.password"):
        load_certificates(tls_settings(texts, "SSL"))


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("keystore", None, "ssl.keystore.location: cannot read .*: No such file"),
        ("keystore", b"\x01\x02garbage", "is not in PEM format"),
        (
            "keystore",
            b"\xfe\xed\xfe\xed" + bytes(20),
            "is in JKS format; only PEM is read here. Convert it: ",
        ),
        ("keystore", "certificate", "must have a certificate and its private key, in PEM format"),
        ("keystore", "mixed", "the private key does not match the certificate"),
        ("truststore", b"-----BEGIN PRIVATE KEY-----\n", "ssl.truststore.location has no PEM certificate"),
        (
            "truststore",
            b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "has a certificate that cannot be read",
        ),
    ],
)
def test_files_that_cannot_be_used(
    authority: Authority, keystore: Path, tmp_path: Path, name: str, data: bytes | str | None, said: str
) -> None:
    path = tmp_path / "file.pem"
    one = authority.issue("one")
    if data == "certificate":
        data = one.certificate.read_bytes()
    elif data == "mixed":
        data = authority.issue("two").key.read_bytes() + one.certificate.read_bytes()
    if isinstance(data, bytes):
        path.write_bytes(data)
    texts = {"ssl.keystore.location": str(keystore), "ssl.truststore.location": str(path)}
    texts |= {"ssl.client.auth": "required"} if name == "truststore" else {"ssl.keystore.location": str(path)}
    with pytest.raises(CannotListen, match=said):
        load_certificates(tls_settings(texts, "SSL"))


def test_cipher_suites_that_nobody_knows(keystore: Path) -> None:
    with pytest.raises(CannotListen, match=r"ssl.cipher.suites has no suite of TLS 1.2 that OpenSSL knows"):
        load_certificates(given(keystore, ssl_cipher_suites="TLS_NOTHING"))


def test_connections_to_other_nodes(authority: Authority, keystore: Path) -> None:
    """They check names and certificates; a dial, which tells nothing, checks neither."""
    strict = outgoing_context(given(keystore, ssl_truststore_location=authority.certificate))
    assert (strict.check_hostname, strict.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert len(strict.get_ca_certs()) == 1
    lax = outgoing_context(
        given(
            None,
            ssl_truststore_certificates=authority.certificate.read_text(),
            ssl_endpoint_identification_algorithm="",
        )
    )
    assert (lax.check_hostname, lax.verify_mode) == (False, ssl.CERT_REQUIRED)
    assert outgoing_context(given(None)).check_hostname
    for settings in (None, given(keystore)):
        dial = dialling_context(settings)
        assert (dial.check_hostname, dial.verify_mode) == (False, ssl.CERT_NONE)
