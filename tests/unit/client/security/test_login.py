"""SASL inside a connection, against a scripted broker: the login, refusals, hostile brokers, and sessions
that are renewed without losing a request.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from headrace.base.time import NEVER, Instant
from headrace.client.errors import AuthenticationFailed, BadResponse, ConnectionLost, TimedOut
from headrace.client.network.connection import RENEWAL_S, Connection
from headrace.client.security.sasl import Token
from headrace.client.settings.security import Security
from headrace.protocol.api import request_codec
from headrace.protocol.errors import ErrorCode
from headrace.protocol.framing import decode_request_header
from headrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from headrace.protocol.messages.sasl_handshake import SaslHandshakeResponse
from headrace.simulator.frames import joined

DEADLINE = Instant(10.0)
OFFERED = {"api_17": (0, 1), "api_36": (0, 2)}
PLAIN = {"sasl_mechanism": "PLAIN", "sasl_username": "alice", "sasl_password": "secret"}
BEARER = {"sasl_mechanism": "OAUTHBEARER", "oauth_token_provider": str}
Secured = Callable[..., Security]


class Line:
    """A connection and what its broker says next, by correlation id."""

    def __init__(self, secured: Secured, script: Any, given: dict[str, Any]) -> None:
        self.script = script
        security = secured(security_protocol="SASL_PLAINTEXT", **given)
        self.connection = Connection(
            client_id="test", software_version="1.0", security=security, rng=random.Random(3)
        )
        self.connection.begin(DEADLINE)
        self.next_answer = 0

    def asked(self) -> list[tuple[int, int, Any]]:
        """(api key, version, body) of what the connection says."""
        data = joined(self.connection.take_output())
        found = []
        while data:
            size = int.from_bytes(data[:4], "big")
            frame, data = data[4 : 4 + size], data[4 + size :]
            key, version, _, _, at = decode_request_header(frame)
            found.append((key, version, request_codec(key, version).decode(frame, at)))
        return found

    def answer(self, message: Any, version: int) -> list[Any]:
        number, self.next_answer = self.next_answer, self.next_answer + 1
        return self.connection.receive(self.script.answer(number, message, version))

    def negotiate(self, **offered: tuple[int, int]) -> None:
        self.connection.receive(self.script.versions(**(offered or OFFERED)))
        self.next_answer = 1

    def accept(self) -> None:
        assert self.answer(SaslHandshakeResponse(mechanisms=["PLAIN"]), 1) == []

    def reply(self, data: bytes = b"", lifetime_ms: int = 0) -> None:
        answer = SaslAuthenticateResponse(auth_bytes=data, session_lifetime_ms=lifetime_ms)
        assert self.answer(answer, 2) == []

    def insist(self, data: bytes, times: int) -> None:
        for _ in range(times):
            self.reply(data)

    def refuse(self, code: int, message: str | None = None) -> AuthenticationFailed:
        with pytest.raises(AuthenticationFailed) as raised:
            self.answer(SaslAuthenticateResponse(error_code=code, error_message=message, auth_bytes=b""), 2)
        return raised.value


@pytest.fixture
def line(secured: Secured, script: Any) -> Callable[..., Line]:
    def make(**given: Any) -> Line:
        made = Line(secured, script, given or PLAIN)
        made.asked()
        return made

    return make


class TestLogin:
    def test_plain(self, line: Any) -> None:
        one = line()
        one.negotiate()
        ((key, version, handshake),) = one.asked()
        assert (key, version, handshake.mechanism) == (17, 1, "PLAIN")
        one.accept()
        ((key, version, step),) = one.asked()
        assert (key, version, bytes(step.auth_bytes)) == (36, 2, b"\0alice\0secret")
        assert not one.connection.is_ready
        one.reply()
        assert one.connection.is_ready
        assert one.connection.deadline() == NEVER
        one.connection.send(MetadataRequest(), DEADLINE)
        assert [key for key, _, _ in one.asked()] == [3]

    def test_an_older_broker_is_spoken_to_in_its_version(self, line: Any) -> None:
        one = line()
        one.negotiate(api_17=(0, 1), api_36=(0, 0))
        one.accept()
        assert [version for key, version, _ in one.asked() if key == 36] == [0]
        assert one.answer(SaslAuthenticateResponse(auth_bytes=b""), 0) == []
        assert one.connection.is_ready

    def test_a_token_is_waited_for(self, line: Any) -> None:
        one = line(**BEARER)
        assert not one.connection.wants_token
        one.negotiate()
        assert one.connection.wants_token
        assert one.asked() == []
        assert one.connection.deadline() == DEADLINE
        one.connection.give_token(Instant(1.0), Token("abc"))
        assert not one.connection.wants_token
        one.accept()
        assert bytes(one.asked()[-1][2].auth_bytes) == b"n,,\x01auth=Bearer abc\x01\x01"
        one.reply()
        assert one.connection.is_ready

    def test_a_token_that_does_not_come(self, line: Any) -> None:
        one = line(**BEARER)
        one.negotiate()
        with pytest.raises(TimedOut, match="token"):
            one.connection.check_time(DEADLINE)


class TestRefusals:
    def test_a_wrong_password(self, line: Any) -> None:
        one = line()
        one.negotiate()
        one.accept()
        error = one.refuse(58, "Authentication failed: Invalid username or password")
        assert "user alice with PLAIN: Authentication failed: Invalid username" in str(error)
        assert (error.code, error.name, error.is_retriable) == (58, "SASL_AUTHENTICATION_FAILED", False)
        assert "password" in error.advice
        assert "secret" not in str(error)

    def test_a_token_is_refused(self, line: Any) -> None:
        """The reason comes first and is acknowledged; the error follows."""
        one = line(**BEARER)
        one.negotiate()
        one.connection.give_token(Instant(1.0), Token("abc"))
        one.accept()
        one.asked()
        one.reply(b'{"status":"invalid_token"}')
        assert bytes(one.asked()[0][2].auth_bytes) == b"\x01"
        error = one.refuse(58, '{"status":"invalid_token"}')
        assert "refused the token with OAUTHBEARER" in str(error)
        assert "invalid_token" in str(error)

    def test_a_mechanism_that_the_broker_does_not_take(self, line: Any) -> None:
        one = line()
        one.negotiate()
        with pytest.raises(AuthenticationFailed, match="it supports SCRAM-SHA-512, OAUTHBEARER") as raised:
            one.answer(SaslHandshakeResponse(error_code=33, mechanisms=["SCRAM-SHA-512", "OAUTHBEARER"]), 1)
        assert raised.value.name == "UNSUPPORTED_SASL_MECHANISM"
        assert "sasl.mechanism" in raised.value.advice

    def test_a_listener_that_logs_nobody_in(self, line: Any) -> None:
        one = line()
        one.negotiate()
        with pytest.raises(AuthenticationFailed, match="does not use SASL") as raised:
            one.answer(SaslHandshakeResponse(error_code=34), 1)
        assert "security.protocol" in raised.value.advice

    @pytest.mark.parametrize("offered", [{"api_3": (0, 13)}, {"api_17": (0, 0), "api_36": (0, 0)}])
    def test_a_broker_without_sasl(self, line: Any, offered: dict[str, tuple[int, int]]) -> None:
        with pytest.raises(AuthenticationFailed, match="does not use SASL"):
            line().negotiate(**offered)

    def test_who_does_not_log_in_at_a_sasl_listener_is_told_so(self, ready: Any) -> None:
        """Kafka answers ApiVersions, and hangs up at the next request."""
        connection = ready()
        connection.send(MetadataRequest(), DEADLINE)
        with pytest.raises(ConnectionLost, match="SASL listener"):
            connection.received(0)


class TestHostileBrokers:
    def test_endless_challenges(self, line: Any) -> None:
        for given, token in ((PLAIN, None), (BEARER, Token("abc"))):
            one = line(**given)
            one.negotiate()
            if token is not None:
                one.connection.give_token(Instant(1.0), token)
            one.accept()
            with pytest.raises(AuthenticationFailed):
                one.insist(b"more", times=3)

    def test_scram_without_the_broker_showing_that_it_knows_the_password(self, line: Any) -> None:
        one = line(sasl_mechanism="SCRAM-SHA-256", sasl_username="alice", sasl_password="secret")
        one.negotiate()
        one.accept()
        with pytest.raises(AuthenticationFailed):
            one.reply(b"")
        assert not one.connection.is_ready

    def test_requests_are_not_sent_before_the_login(self, line: Any) -> None:
        one = line()
        one.negotiate()
        with pytest.raises(AssertionError):
            one.connection.send(MetadataRequest(), DEADLINE)

    def test_a_login_that_is_never_answered(self, line: Any) -> None:
        one = line()
        one.negotiate()
        assert one.connection.deadline() == DEADLINE
        with pytest.raises(TimedOut, match="SaslHandshake"):
            one.connection.check_time(DEADLINE)

    def test_an_answer_to_what_was_not_asked(self, line: Any) -> None:
        one = line()
        one.negotiate()
        one.accept()
        one.reply()
        with pytest.raises(BadResponse, match="an answer without a request"):
            one.reply()

    def test_a_negative_lifetime_is_none(self, line: Any) -> None:
        one = line()
        one.negotiate()
        one.accept()
        one.reply(lifetime_ms=-1)
        assert one.connection.deadline() == NEVER


class TestSessions:
    def logged_in(self, one: Line, now: Instant, lifetime_ms: int = 60_000) -> Instant:
        """Logs in; when the session will be renewed."""
        one.accept()
        one.reply(lifetime_ms=lifetime_ms)
        assert one.connection.deadline() == 0.0  # it has to be told what time it is
        one.connection.check_time(now)
        return one.connection.deadline()

    def test_a_session_is_renewed_before_it_ends(self, line: Any) -> None:
        one = line()
        one.negotiate()
        renew_at = self.logged_in(one, Instant(100.0))
        assert 151.0 <= renew_at < 157.0
        one.asked()
        one.connection.check_time(Instant(renew_at - 0.1))
        assert one.asked() == []
        assert one.connection.is_ready
        one.connection.check_time(renew_at)
        assert [key for key, _, _ in one.asked()] == [17]
        assert not one.connection.is_ready
        later = self.logged_in(one, Instant(renew_at + 1))
        assert one.connection.is_ready
        assert later > renew_at + 50

    def test_answers_to_earlier_questions_come_through_meanwhile(self, line: Any) -> None:
        one = line()
        one.negotiate()
        renew_at = self.logged_in(one, Instant(100.0))
        asked = [one.connection.send(MetadataRequest(), Instant(500.0)) for _ in range(2)]
        one.connection.check_time(renew_at)
        for number in asked:
            (answer,) = one.answer(MetadataResponse(), 13)
            assert answer.correlation_id == number
        assert not one.connection.is_ready
        self.logged_in(one, renew_at)
        assert one.connection.is_ready

    def test_a_renewal_waits_for_what_the_broker_is_busy_with(self, line: Any) -> None:
        """A member may wait minutes for its group; the broker looks at the login only behind that."""
        one = line()
        one.negotiate()
        renew_at = self.logged_in(one, Instant(100.0))
        one.connection.send(MetadataRequest(), Instant(500.0))
        one.connection.check_time(renew_at)
        one.connection.check_time(Instant(499.0))
        one.answer(MetadataResponse(), 13)
        assert one.connection.deadline() == 500.0 + RENEWAL_S
        with pytest.raises(TimedOut, match="SaslHandshake"):
            one.connection.check_time(Instant(500.0 + RENEWAL_S))

    def test_requests_go_on_until_a_new_token_is_there(self, line: Any) -> None:
        one = line(**BEARER)
        one.negotiate()
        one.connection.give_token(Instant(90.0), Token("one"))
        renew_at = self.logged_in(one, Instant(100.0))
        one.asked()
        one.connection.check_time(renew_at)
        assert one.connection.wants_token
        assert one.connection.is_ready
        one.connection.send(MetadataRequest(), Instant(500.0))
        one.connection.give_token(renew_at, Token("two"))
        assert not one.connection.is_ready
        assert [key for key, _, _ in one.asked()] == [3, 17]
        assert len(one.answer(MetadataResponse(), 13)) == 1
        self.logged_in(one, renew_at)
        assert b"Bearer two" in bytes(one.asked()[-1][2].auth_bytes)
        assert one.connection.is_ready

    def test_a_renewal_that_comes_too_soon_wants_a_new_connection(self, line: Any) -> None:
        """Sessions end with their token. When it is about to expire, they become shorter than the second that
        brokers want between renewals, and that is not a listener without SASL.
        """
        one = line()
        one.negotiate()
        renew_at = self.logged_in(one, Instant(100.0))
        one.connection.check_time(renew_at)
        with pytest.raises(ConnectionLost, match="so soon") as raised:
            one.answer(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE), 1)
        assert raised.value.is_retriable

    def test_a_renewal_that_is_refused_ends_the_connection(self, line: Any) -> None:
        one = line()
        one.negotiate()
        renew_at = self.logged_in(one, Instant(100.0))
        one.connection.check_time(renew_at)
        one.accept()
        assert "Session" in str(one.refuse(58, "Session expired"))
