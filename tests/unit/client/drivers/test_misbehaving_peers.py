"""What a client says of peers that break the rules, die or fall silent: always an error, never a hang."""

from __future__ import annotations

import socket
import struct
from typing import Any

import pytest

from harness.carriers import Carrier
from harness.scripted_peer import Peer, Script, ScriptedServer, answer_bytes, closed_port
from headrace.client.cluster import Address
from headrace.client.errors import BadResponse, ClientError, ConnectionLost, TimedOut, Unreachable
from headrace.client.session import Answer
from headrace.protocol.messages.metadata import MetadataResponse

SHORT_S = 0.1
TLS_ALERT = bytes.fromhex("15030300020228")
METADATA = MetadataResponse(cluster_id="c")


def serve(peer: Peer) -> None:
    """A broker as it should be."""
    peer.negotiate()
    while True:
        peer.answer(peer.read(), METADATA)


def only(*parts: bytes) -> Script:
    def script(peer: Peer) -> None:
        peer.read()
        for part in parts:
            peer.send(part)
        peer.wait_for_end()

    return script


def after_negotiation(make: Any) -> Script:
    """Says what `make` makes of the first request, and waits."""

    def script(peer: Peer) -> None:
        peer.negotiate()
        peer.send(make(peer.read()))
        peer.wait_for_end()

    return script


def error_of(answer: Answer, kind: type[ClientError]) -> str:
    assert isinstance(answer, kind), answer
    return str(answer)


def test_nobody_listens(connect: Any) -> None:
    address = closed_port()
    answer = connect(address).ask()
    assert error_of(answer, Unreachable) == f"cannot connect to {address}: connection refused"


def test_a_host_that_does_not_exist(connect: Any) -> None:
    answer = connect(Address("no.such.host.invalid", 9092)).ask()
    assert "cannot find the host 'no.such.host.invalid'" in error_of(answer, Unreachable)


def test_a_host_name_that_cannot_be_one(connect: Any) -> None:
    answer = connect(Address("a" * 70, 9092)).ask()
    assert "cannot find the host" in error_of(answer, Unreachable)


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "answered with HTTP"),
        (TLS_ALERT, "answered with TLS"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "answered with SSH"),
        (b"\xff" * 40, "sent an answer of -1 bytes"),
        (struct.pack(">i", 2**31 - 1) + bytes(40), "sent an answer of 2147483647 bytes"),
        (struct.pack(">ii", 8, 77) + bytes(4), "answered request 77 instead of request 0"),
    ],
)
def test_garbage_instead_of_kafka(connect: Any, said: bytes, heard: str) -> None:
    with ScriptedServer(only(said)) as server:
        assert heard in error_of(connect(server.address).ask(), BadResponse)


def test_a_tls_listener_hangs_up_on_plaintext(connect: Any) -> None:
    """What a broker does that finds no TLS handshake in our first bytes."""
    with ScriptedServer(lambda peer: peer.read() and None) as server:
        assert "is it a TLS listener?" in error_of(connect(server.address).ask(), ConnectionLost)


def test_an_answer_that_goes_on_behind_its_announced_end(connect: Any) -> None:
    def longer(asked: Any) -> bytes:
        return answer_bytes(asked, METADATA) + struct.pack(">ii", 4, 9)

    with ScriptedServer(after_negotiation(longer)) as server:
        assert "an answer without a request" in error_of(connect(server.address).ask(), BadResponse)


def test_an_answer_with_more_in_it_than_its_fields(connect: Any) -> None:
    def fatter(asked: Any) -> bytes:
        whole = answer_bytes(asked, METADATA)
        return struct.pack(">i", len(whole) - 4 + 3) + whole[4:] + b"abc"

    with ScriptedServer(after_negotiation(fatter)) as server:
        assert "cannot be read" in error_of(connect(server.address).ask(), BadResponse)


def test_an_answer_longer_than_the_cap(connect: Any) -> None:
    with ScriptedServer(after_negotiation(lambda _: struct.pack(">i", 70_000) + bytes(8))) as server:
        answer = connect(server.address, response_bytes_max=65_536).ask()
        assert "sent an answer of 70000 bytes; this client reads at most 65536" in error_of(
            answer, BadResponse
        )


def test_a_broker_that_dies_in_the_middle_of_an_answer(connect: Any) -> None:
    def dying(peer: Peer) -> None:
        peer.negotiate()
        whole = answer_bytes(peer.read(), METADATA)
        peer.send(whole[: len(whole) // 2])

    with ScriptedServer(dying, serve) as server:
        client: Carrier = connect(server.address)
        assert "closed the connection" in error_of(client.ask(), ConnectionLost)
        # and the next question opens a new connection
        assert isinstance(client.ask(), MetadataResponse)
        assert server.connection_count == 2


def test_a_broker_that_resets_the_connection(connect: Any) -> None:
    def resetting(peer: Peer) -> None:
        peer.negotiate()
        peer.read()
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with ScriptedServer(resetting) as server:
        assert "the broker closed the connection" in error_of(connect(server.address).ask(), ConnectionLost)


def test_all_requests_of_a_connection_share_its_fate(connect: Any) -> None:
    def dying(peer: Peer) -> None:
        peer.negotiate()
        for _ in range(3):
            peer.read()

    with ScriptedServer(dying) as server:
        client: Carrier = connect(server.address)
        numbers = [client.begin() for _ in range(3)]
        for number in numbers:
            error_of(client.answer(number), ConnectionLost)


def test_a_peer_that_never_says_a_word(connect: Any) -> None:
    """As a broker that was stopped, or a half-open connection: the system accepts, nobody answers."""
    with ScriptedServer(Peer.wait_for_end) as server:
        answer = connect(server.address, setup_first_s=SHORT_S, setup_last_s=SHORT_S).ask()
        assert error_of(answer, TimedOut) == "no answer to ApiVersions in time"


def test_a_broker_that_falls_silent(connect: Any) -> None:
    def silent(peer: Peer) -> None:
        peer.negotiate()
        peer.answer(peer.read(), METADATA)
        peer.wait_for_end()

    with ScriptedServer(silent, serve) as server:
        client: Carrier = connect(server.address)
        assert isinstance(client.ask(), MetadataResponse)
        patient = client.begin()
        assert error_of(client.ask(timeout_s=SHORT_S), TimedOut) == "no answer to Metadata in time"
        # what was asked before it will not be answered either: the connection is given up
        error_of(client.answer(patient), TimedOut)
        server.wait_until_ended()
        assert isinstance(client.ask(), MetadataResponse)


def test_a_connection_that_is_not_ready_before_the_request_is_late(connect: Any) -> None:
    with ScriptedServer(Peer.wait_for_end) as server:
        answer = connect(server.address).ask(timeout_s=SHORT_S)
        assert "was not ready in time" in error_of(answer, TimedOut)


def test_an_answer_that_comes_byte_by_byte(connect: Any) -> None:
    def slowly(peer: Peer) -> None:
        peer.negotiate()
        peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in answer_bytes(peer.read(), METADATA):
            peer.send(bytes([byte]))
        peer.wait_for_end()

    with ScriptedServer(slowly) as server:
        answer = connect(server.address).ask()
        assert isinstance(answer, MetadataResponse)
        assert answer.cluster_id == "c"


def test_what_no_retry_mends_is_told_every_time(connect: Any) -> None:
    """And each time by a new connection: the peer may have been exchanged meanwhile."""
    with ScriptedServer(only(TLS_ALERT), only(TLS_ALERT), serve) as server:
        client: Carrier = connect(server.address)
        for _ in range(2):
            error_of(client.ask(), BadResponse)
        assert isinstance(client.ask(), MetadataResponse)


def test_a_broker_that_comes_back(connect: Any) -> None:
    address = closed_port()
    client: Carrier = connect(address)
    for _ in range(3):
        error_of(client.ask(to=address), Unreachable)
    with ScriptedServer(serve, at=address):
        assert isinstance(client.ask(to=address), MetadataResponse)
