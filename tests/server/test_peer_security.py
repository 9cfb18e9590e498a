"""Logins of nodes at other nodes: in front of requests, again before a session ends, and refused ones."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.certificates import Authority
from headrace.base.time import ManualClock
from headrace.client.errors import AuthenticationFailed
from headrace.client.security.sasl import Mechanism, Plain, Scram
from headrace.machines.security.scram import MECHANISMS, credential_from_password
from headrace.node.listener_security import tls_settings
from headrace.node.node_security import OwnLogin
from headrace.node.peers import BROKERS, CONTROLLERS, DIALLED, DIALLED_BY_TLS, Peer, Unanswered
from headrace.protocol.api import request_codec, response_codec
from headrace.protocol.framing import answer_frame, decode_request_header
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from headrace.protocol.messages.sasl_handshake import SaslHandshakeResponse
from headrace.server.connection_limits import Connections
from headrace.server.listeners import CannotListen
from headrace.server.logs import Log
from headrace.server.peer_login import PeerLogin
from headrace.server.peer_security import HOLD_S_MAX, HOLD_S_MIN, PeerSecurity, Way
from headrace.server.peers import LOGIN_BYTES_MAX, PeerConnections
from headrace.simulator.manual_host import ManualHost

HANDSHAKE, AUTHENTICATE = 17, 36
LOGIN = OwnLogin("PLAIN", "node", "secret")
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class Stage:
    """A peer that answers logins as it is told to, and requests by their correlation id."""

    def __init__(self) -> None:
        self.received: list[int] = []  # API keys, of all connections
        self.refuses = False
        self.lifetime_ms = 0
        self.held: list[bytes] | None = None  # answers that wait, while there is such a list
        self.writer: asyncio.StreamWriter | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        try:
            while head := await reader.readexactly(4):
                frame = await reader.readexactly(int.from_bytes(head))
                key, version, correlation_id, *_ = decode_request_header(memoryview(frame))
                self.received.append(key)
                answer = self.answer(key, version, correlation_id)
                if self.held is not None and key not in (HANDSHAKE, AUTHENTICATE):
                    self.held.append(answer)
                else:
                    assert not self.held, "a login behind requests that were not answered"
                    writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def answer(self, key: int, version: int, correlation_id: int) -> bytes:
        if key == HANDSHAKE:
            said: Any = SaslHandshakeResponse(mechanisms=["PLAIN"])
        elif key == AUTHENTICATE:
            code = 58 if self.refuses else 0
            said = SaslAuthenticateResponse(error_code=code, session_lifetime_ms=self.lifetime_ms)
        else:
            return struct.pack(">ii", 4, correlation_id)
        return b"".join(answer_frame(response_codec(key, version), correlation_id, said))

    def release(self) -> None:
        held, self.held = self.held or [], None
        assert self.writer is not None
        self.writer.write(b"".join(held))


def security_of(ways: dict[str, Way], clock: ManualClock, lines: list[str]) -> PeerSecurity:
    surroundings = SimpleNamespace(clock=clock, log=Log("debug", write=lines.append), peer_logins_failed=0)
    return PeerSecurity(1, ways, Random(7), cast("Connections", surroundings))


class Story:
    def __init__(self, stage: Stage, port: int, lines: list[str]) -> None:
        self.stage = stage
        self.answers: list[tuple[int, bool | Unanswered]] = []
        self.clock = ManualClock()
        self.lines = lines
        loop = asyncio.get_running_loop()
        self.connections = PeerConnections(loop, self._answered)
        self.security = security_of({BROKERS: Way(None, LOGIN)}, self.clock, lines)
        self.connections.security = self.security
        self.peer = Peer(2, "127.0.0.1", port)

    def _answered(self, ticket: int, answer: memoryview | Unanswered) -> bool:
        self.answers.append((ticket, answer if isinstance(answer, Unanswered) else True))
        return False

    def send(self, ticket: int, peer: Peer | None = None) -> None:
        self.connections.send(ticket, peer or self.peer, "lane", struct.pack(">ihhih", 10, 18, 0, ticket, -1))

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(0.001)


@asynccontextmanager
async def told(stage: Stage) -> AsyncIterator[Story]:
    server = await asyncio.start_server(stage.serve, "127.0.0.1", 0)
    story = Story(stage, server.sockets[0].getsockname()[1], [])
    try:
        yield story
    finally:
        story.connections.close()
        server.close()
        if stage.writer is not None:
            stage.writer.close()
        await asyncio.sleep(0.01)


def play(act: Callable[[Story], Coroutine[Any, Any, None]], stage: Stage | None = None) -> None:
    async def run() -> None:
        async with told(stage or Stage()) as story:
            await asyncio.wait_for(act(story), 30)

    asyncio.run(run())


def test_requests_wait_for_the_login() -> None:
    async def act(story: Story) -> None:
        for ticket in (1, 2):
            story.send(ticket)
        await story.until(lambda: len(story.answers) == 2)
        story.send(3)
        await story.until(lambda: len(story.answers) == 3)
        assert story.answers == [(1, True), (2, True), (3, True)]
        assert story.stage.received == [HANDSHAKE, AUTHENTICATE, 18, 18, 18]
        assert story.lines == []

    play(act)


def test_a_dial_needs_no_login() -> None:
    async def act(story: Story) -> None:
        story.send(1, story.peer._replace(listener=DIALLED))
        await story.until(lambda: bool(story.answers))
        assert story.stage.received == [18]

    play(act)


def test_a_session_is_renewed_behind_what_was_asked_before() -> None:
    async def act(story: Story) -> None:
        stage = story.stage
        story.send(1)
        await story.until(lambda: bool(story.answers))
        stage.held = []
        story.send(2)
        await story.until(lambda: len(stage.held or ()) == 1)
        (connection,) = story.connections._connections.values()
        connection._renew()
        story.send(3)  # must not overtake the login
        stage.release()
        await story.until(lambda: len(story.answers) == 3)
        assert story.answers == [(1, True), (2, True), (3, True)]
        assert stage.received == [HANDSHAKE, AUTHENTICATE, 18, 18, HANDSHAKE, AUTHENTICATE, 18]

    stage = Stage()
    stage.lifetime_ms = 3_600_000
    play(act, stage)


def test_a_session_that_is_about_to_end_is_renewed_by_itself() -> None:
    async def act(story: Story) -> None:
        story.send(1)
        await story.until(lambda: story.stage.received.count(AUTHENTICATE) >= 3)

    stage = Stage()
    stage.lifetime_ms = 20
    play(act, stage)


def test_who_is_refused_is_told_so_and_waits() -> None:
    async def act(story: Story) -> None:
        story.stage.refuses = True
        for ticket in (1, 2):
            story.send(ticket)
        await story.until(lambda: len(story.answers) == 2)
        assert story.answers == [(1, Unanswered.LOST), (2, Unanswered.LOST)]
        (line,) = story.lines
        assert "peer_login_failed" in line
        assert "node=2" in line
        assert "refused user node with PLAIN" in line
        assert "secret" not in line
        assert story.security.delay_s(story.peer) == pytest.approx(HOLD_S_MIN)
        story.stage.refuses = False
        story.clock.advance(1.0)
        story.send(3)
        await story.until(lambda: len(story.answers) == 3)
        assert story.answers[2] == (3, True)
        assert story.security.delay_s(story.peer) == 0

    play(act)


def test_without_a_login_the_first_answer_says_that_we_are_in() -> None:
    """Our side of a TLS handshake is over before the peer has looked at our certificate."""

    async def act(story: Story) -> None:
        story.security.ways = {BROKERS: Way(None, None)}
        story.security.was_refused(story.peer, "no")
        story.clock.advance(1.0)
        story.stage.held = []
        story.send(1)
        await story.until(lambda: story.stage.received == [18])
        story.security.was_refused(story.peer, "no")
        assert story.security.delay_s(story.peer) > HOLD_S_MIN + 0.01
        story.stage.release()
        await story.until(lambda: bool(story.answers))
        assert story.security.delay_s(story.peer) == 0

    play(act)


def test_a_peer_that_nobody_listens_at_is_gone_whatever_its_listener() -> None:
    """So that a broker whose process has ended is fenced at once."""

    async def act(story: Story) -> None:
        story.send(1, Peer(3, "127.0.0.1", 1))
        await story.until(lambda: bool(story.answers))
        assert story.answers == [(1, Unanswered.REFUSED)]
        assert story.security.delay_s(Peer(3, "127.0.0.1", 1)) == 0
        assert story.lines == []

    play(act)


def test_a_peer_that_ends_during_the_login_is_lost_and_not_waited_for() -> None:
    async def act(story: Story) -> None:
        def end(key: int, version: int, correlation_id: int) -> bytes:
            assert story.stage.writer is not None
            story.stage.writer.transport.abort()
            return b""

        story.stage.answer = end  # type: ignore[method-assign]
        story.send(1)
        await story.until(lambda: bool(story.answers))
        assert story.answers == [(1, Unanswered.LOST)]
        assert story.security.delay_s(story.peer) == 0
        assert "was closed during the login" in story.lines[0]

    play(act)


def test_a_long_answer_to_a_login_is_not_read() -> None:
    async def act(story: Story) -> None:
        story.stage.answer = lambda *_: struct.pack(">ii", LOGIN_BYTES_MAX + 1, 0)  # type: ignore[method-assign]
        story.send(1)
        await story.until(lambda: bool(story.answers))
        assert story.answers == [(1, Unanswered.LOST)]

    play(act)


def test_answers_to_a_login_that_nobody_began_end_the_connection() -> None:
    async def act(story: Story) -> None:
        story.send(1)
        await story.until(lambda: bool(story.answers))
        assert story.stage.writer is not None
        story.stage.writer.write(struct.pack(">ii", 4, 0))
        story.send(2)
        await story.until(lambda: len(story.answers) == 2)
        assert story.answers[1] == (2, Unanswered.LOST)

    play(act)


def test_the_wait_after_refusals_grows_and_is_that_of_one_listener() -> None:
    clock = ManualClock()
    security = security_of({}, clock, [])
    peer = Peer(2, "two", 9093)
    waits = []
    for _ in range(7):
        security.was_refused(peer, "no")
        waits.append(security.delay_s(peer))
        clock.advance(5.0)
        assert security.delay_s(peer) == 0
    assert waits == sorted(waits)
    assert [waits[0], waits[-1]] == pytest.approx([HOLD_S_MIN, HOLD_S_MAX])
    security.was_refused(peer, "no")
    assert security.delay_s(peer._replace(listener=CONTROLLERS)) == 0
    dialled = peer._replace(listener=DIALLED_BY_TLS)
    security.was_refused(dialled, "no")
    assert security.delay_s(dialled) == 0
    security.was_let_in(peer)
    assert security.delay_s(peer) == 0
    assert security._connections.peer_logins_failed == 8


def test_new_certificates_count_for_connections_from_then_on(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    file = tmp_path / "node.pem"
    file.write_bytes(authority.issue("node").both.read_bytes())
    texts = {"ssl.keystore.location": str(file), "ssl.truststore.location": str(authority.certificate)}
    way = Way(tls_settings(texts, "NODES", is_outgoing=True), None)
    context = way._context
    assert context is not None
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    file.write_bytes(b"-----BEGIN CERTIFICATE-----")
    with pytest.raises(CannotListen, match=r"ssl\.keystore\.location"):
        way.load()
    assert way._context is context
    file.write_bytes(authority.issue("again").both.read_bytes())
    way.load()
    assert way._context is not context


# --- the exchange with a node's own logins ----------------------------------------------------------------

SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,LOGIN://127.0.0.1:9093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.login.plain.sasl.jaas.config": f'{PLAIN_MODULE} user_node="secret";',
    "connections.max.reauth.ms": "60000",
}


def log_in(mechanism: Mechanism) -> tuple[str, PeerLogin]:
    """The principal that a node gets at another one."""
    host = ManualHost(SETTINGS)
    users = host.node.controller.metadata.image.security.credentials
    for one in MECHANISMS.values():
        users["node", one.id] = credential_from_password(one, "secret", b"salt" * 6)
    connection = host.connect("LOGIN")
    login = PeerLogin(mechanism, Random(7), "node-1")
    frame: bytes | None = login.begin()
    while frame is not None:
        parts = host.node.handle(host.clock.now(), connection, memoryview(frame)[4:])
        if parts is None:  # a refusal takes its time
            host.advance(0.2)
            whole = host.answers[connection.id].popleft()
        else:
            whole = b"".join(parts)  # type: ignore[arg-type]
        frame = login.answered(memoryview(whole)[4:])
    return connection.principal, login


@pytest.mark.parametrize("name", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_nodes_let_each_other_in(name: str) -> None:
    mechanism = Plain("node", "secret") if name == "PLAIN" else Scram(name, "node", "secret")
    principal, login = log_in(mechanism)
    assert principal == "User:node"
    renewal = login.renew_after_s()
    assert renewal is not None
    assert 51 <= renewal < 57


@pytest.mark.parametrize("name", ["PLAIN", "SCRAM-SHA-512"])
def test_nodes_refuse_a_wrong_password(name: str) -> None:
    mechanism = Plain("node", "wrong") if name == "PLAIN" else Scram(name, "node", "wrong")
    with pytest.raises(AuthenticationFailed):
        log_in(mechanism)


def test_an_answer_that_cannot_be_read_is_a_refusal() -> None:
    login = PeerLogin(Plain("node", "secret"), Random(7), "node-1")
    frame = login.begin()
    assert request_codec(HANDSHAKE, 1).decode(frame, decode_request_header(memoryview(frame)[4:])[4] + 4)
    with pytest.raises(AuthenticationFailed, match="cannot be read"):
        login.answered(memoryview(b"\0\0\0\0\0"))
