"""Logins with OAUTHBEARER: whose token is good gets in until it expires, and keys are fetched when needed."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from harness.tokens import Key, claims_at, key_set, token_of
from headrace.base.time import Now
from headrace.client.errors import AuthenticationFailed
from headrace.client.security.oauthbearer import OAuthBearer
from headrace.client.security.sasl import Login as ClientLogin
from headrace.client.security.sasl import Token
from headrace.machines.security.errors import LoginRefused
from headrace.machines.security.signing_keys import UnknownKey
from headrace.node.connection import Connection
from headrace.node.effects import Report
from headrace.node.key_source import CHECKED_AT_ONCE, DOCUMENT_BYTES_MAX, WAITING_BYTES_MAX, WAITING_MAX
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.metadata import MetadataRequest
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest
from headrace.simulator.manual_host import ManualHost

URL = "https://issuer.example/keys"
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,LOGIN://127.0.0.1:9093,OPEN://127.0.0.1:9094",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT,OPEN:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "listener.name.login.sasl.oauthbearer.jwks.endpoint.url": URL,
    "listener.name.open.headrace.oauthbearer.unsigned.tokens": "true",
}
KEY, NEW_KEY, STRANGER = Key("k1", "EdDSA"), Key("k2", "EdDSA"), Key("k1", "EdDSA")
NOW = 1_700_000_000  # where the host's clock begins
CLAIMS = claims_at(NOW)


def provider() -> None:
    raise AssertionError("the token is given")


class Cluster:
    def __init__(self, *, has_keys: bool = True, **settings: str) -> None:
        self.host = ManualHost(SETTINGS | {key.replace("_", "."): value for key, value in settings.items()})
        if has_keys:
            self.host.hand_in(key_set(KEY.public()))

    def now(self) -> Now:
        return self.host.clock.now()

    def connect(self, listener: str = "LOGIN") -> Connection:
        return self.host.connect(listener)

    def patiently(self, connection: Connection, request: Any) -> Any:
        self.host.send(connection, request, 1)
        if not self.host.answers[connection.id]:
            self.host.advance(0.1)
        return self.host.receive(connection)

    def log_in(self, connection: Connection, token: str, **extensions: str) -> ClientLogin:
        """AuthenticationFailed if it is refused."""
        client = ClientLogin(OAuthBearer(provider, extensions), Random(7), Token(token))
        step: Any = client.accepted(self.patiently(connection, client.begin()))
        while step is not None:
            step = client.continued(self.patiently(connection, step))
        return client

    def present(self, connection: Connection, token: str, header: str = "n,,") -> Any:
        """The broker's answer to the token; None: not yet."""
        self.patiently(connection, SaslHandshakeRequest(mechanism="OAUTHBEARER"))
        message = f"{header}\x01auth=Bearer {token}\x01\x01".encode()
        return self.patiently(connection, SaslAuthenticateRequest(auth_bytes=message))

    def acknowledge(self, connection: Connection) -> Any:
        return self.patiently(connection, SaslAuthenticateRequest(auth_bytes=b"\x01"))

    def is_in(self, connection: Connection) -> bool:
        return self.host.ask(MetadataRequest(topics=[]), 4, connection) is not None

    def reports(self, event: str) -> list[dict[str, Any]]:
        return [one.facts for one in self.host.effects if isinstance(one, Report) and one.event == event]


class TestWhoGetsIn:
    def test_the_principal_is_the_subject(self) -> None:
        cluster = Cluster()
        connection = cluster.connect()
        client = cluster.log_in(connection, KEY.sign(CLAIMS), logicalCluster="lkc-1", traceId="x")
        assert connection.principal == "User:alice"
        assert client.session_lifetime_ms == 3_600_000, "the session ends with the token"
        assert cluster.is_in(connection)
        assert cluster.host.node.metrics.logins == 1

    def test_unsigned_tokens_where_the_settings_allow_them(self) -> None:
        cluster = Cluster()
        connection = cluster.connect("OPEN")
        cluster.log_in(connection, token_of({"alg": "none"}, CLAIMS))
        assert connection.principal == "User:alice"
        with pytest.raises(AuthenticationFailed):
            cluster.log_in(cluster.connect("LOGIN"), token_of({"alg": "none"}, CLAIMS))

    @pytest.mark.parametrize(
        ("claims", "configured", "told"),
        [
            ({}, "0", 3_600_000),
            ({}, "60000", 60_000),
            ({"exp": NOW + 5}, "60000", 5_000),
            ({"exp": NOW + 5}, "0", 5_000),
            ({"exp": NOW - 5, "iat": NOW - 9}, "0", 0),  # within the clock skew: it has ended
            ({"exp": NOW - 5, "iat": NOW - 9}, "60000", 0),
        ],
    )
    def test_the_earlier_end_counts(self, claims: dict[str, int], configured: str, told: int) -> None:
        cluster = Cluster(connections_max_reauth_ms=configured)
        connection = cluster.connect()
        client = cluster.log_in(connection, KEY.sign(CLAIMS | claims))
        assert client.session_lifetime_ms == told
        cluster.host.advance(told / 1000 + 0.01)
        assert not cluster.is_in(connection)
        assert "the session has ended" in cluster.host.closed[connection.id]

    def test_a_login_again_with_a_newer_token(self) -> None:
        cluster = Cluster()
        connection = cluster.connect()
        cluster.log_in(connection, KEY.sign(CLAIMS | {"exp": NOW + 5}))
        cluster.host.advance(4.0)
        cluster.log_in(connection, KEY.sign(CLAIMS | {"exp": NOW + 20}))
        cluster.host.advance(10.0)
        assert cluster.is_in(connection)

    def test_a_login_again_as_somebody_else_is_refused(self) -> None:
        cluster = Cluster()
        connection = cluster.connect()
        cluster.log_in(connection, KEY.sign(CLAIMS))
        with pytest.raises(AuthenticationFailed):
            cluster.log_in(connection, KEY.sign(CLAIMS | {"sub": "bob"}))
        assert connection.principal == "User:alice"
        assert connection.id in cluster.host.closed


class TestRefusals:
    def test_the_client_is_told_and_acknowledges(self) -> None:
        """As Kafka does: an answer in JSON without an error, and the error behind the acknowledgement."""
        cluster = Cluster(connection_failed_authentication_delay_ms="100")
        connection = cluster.connect()
        answer = cluster.present(connection, STRANGER.sign(CLAIMS))
        assert (answer.error_code, bytes(answer.auth_bytes)) == (0, b'{"status":"invalid_token"}')
        assert connection.principal == "User:ANONYMOUS"
        assert not cluster.reports("login_refused")
        cluster.host.send(connection, SaslAuthenticateRequest(auth_bytes=b"\x01"), 1)
        assert cluster.host.receive(connection) is None, "the error takes its delay"
        cluster.host.advance(0.1)
        failed = cluster.host.receive(connection)
        assert failed.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert failed.error_message == '{"status":"invalid_token"}'
        (refusal,) = cluster.reports("login_refused")
        assert refusal["reason"] == "the token's signature is wrong"
        assert connection.id in cluster.host.closed

    @pytest.mark.parametrize(
        "second", [b"", b"\x01\x01", f"n,,\x01auth=Bearer {KEY.sign(CLAIMS)}\x01\x01".encode()]
    )
    def test_nobody_gets_in_behind_a_refusal(self, second: bytes) -> None:
        """Not even with a good token: there is one per login."""
        cluster = Cluster()
        connection = cluster.connect()
        cluster.present(connection, STRANGER.sign(CLAIMS))
        failed = cluster.patiently(connection, SaslAuthenticateRequest(auth_bytes=second))
        assert failed.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert connection.principal == "User:ANONYMOUS"
        assert connection.id in cluster.host.closed

    @pytest.mark.parametrize("message", [b"", b"\x01", b"n,,\x01auth=Basic x\x01\x01", b"\xff" * 100])
    def test_what_is_not_a_message_fails_at_once(self, message: bytes) -> None:
        cluster = Cluster()
        connection = cluster.connect()
        cluster.patiently(connection, SaslHandshakeRequest(mechanism="OAUTHBEARER"))
        failed = cluster.patiently(connection, SaslAuthenticateRequest(auth_bytes=message))
        assert failed.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "invalid credentials" in failed.error_message

    @pytest.mark.parametrize(
        ("header", "gets_in"), [("n,a=alice,", True), ("n,a=admin,", False), ("n,a=Alice,", False)]
    )
    def test_nobody_acts_for_somebody_else(self, header: str, gets_in: bool) -> None:
        cluster = Cluster()
        connection = cluster.connect()
        answer = cluster.present(connection, KEY.sign(CLAIMS), header)
        assert (answer.error_code == 0) is gets_in
        assert connection.principal == ("User:alice" if gets_in else "User:ANONYMOUS")

    def test_nobody_acts_for_somebody_else_with_a_key_that_came_late(self) -> None:
        cluster = Cluster(has_keys=False)
        connection = cluster.connect()
        assert cluster.present(connection, KEY.sign(CLAIMS), "n,a=admin,") is None
        cluster.host.hand_in(key_set(KEY.public()))
        cluster.host.advance(0.2)
        assert cluster.host.receive(connection).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert connection.principal == "User:ANONYMOUS"

    def test_tokens_are_not_reported(self) -> None:
        cluster = Cluster()
        token = STRANGER.sign(CLAIMS)
        connection = cluster.connect()
        cluster.present(connection, token)
        cluster.acknowledge(connection)
        for part in token.split("."):
            assert part not in str(cluster.host.effects)


class TestKeys:
    def test_they_are_fetched_when_the_node_starts_and_now_and_then(self) -> None:
        cluster = Cluster(has_keys=False, sasl_oauthbearer_jwks_endpoint_refresh_ms="60000")
        (fetch,) = cluster.host.fetches
        assert (fetch.url, fetch.bytes_max) == (URL, DOCUMENT_BYTES_MAX)
        cluster.host.advance(100.0)
        assert len(cluster.host.fetches) == 1, "it is under way"
        cluster.host.hand_in(key_set(KEY.public()))
        assert cluster.reports("signing_keys_fetched") == [{"url": URL, "keys": 1}]
        for _ in range(3):
            cluster.host.advance(59.0)
            assert not cluster.host.fetches
            cluster.host.advance(1.1)
            cluster.host.hand_in(key_set(KEY.public()))
        assert len(cluster.reports("signing_keys_fetched")) == 1, "they are the same"

    def test_listeners_share_the_keys_of_a_url(self) -> None:
        cluster = Cluster(has_keys=False, **{"listener.name.http.sasl.oauthbearer.jwks.endpoint.url": URL})
        cluster.host.node.client_logins.bearer_checks.of("http", cluster.now())
        assert len(cluster.host.fetches) == 1

    def test_a_login_waits_for_the_first_keys(self) -> None:
        cluster = Cluster(has_keys=False)
        connection = cluster.connect()
        assert cluster.present(connection, KEY.sign(CLAIMS)) is None
        cluster.host.hand_in(key_set(KEY.public()))
        assert cluster.host.receive(connection).error_code == 0
        assert connection.principal == "User:alice"
        assert cluster.is_in(connection)

    def test_an_unknown_key_has_them_fetched(self) -> None:
        cluster = Cluster()
        cluster.host.advance(10.0)
        connection = cluster.connect()
        assert cluster.present(connection, NEW_KEY.sign(CLAIMS)) is None
        cluster.host.hand_in(key_set(KEY.public(), NEW_KEY.public()))
        assert cluster.host.receive(connection).error_code == 0
        assert connection.principal == "User:alice"

    def test_unknown_keys_have_them_fetched_every_ten_seconds_at_the_most(self) -> None:
        """However many such tokens come: those in between are refused at once."""
        cluster = Cluster()
        began = cluster.now().mono
        fetches = 0
        for step in range(300):
            connection = cluster.connect()
            cluster.present(connection, KEY.sign(CLAIMS, kid=f"unknown-{step}"))
            while cluster.host.fetches:
                fetches += 1
                cluster.host.hand_in(key_set(KEY.public()))
            assert connection.principal == "User:ANONYMOUS"
            cluster.host.advance(0.1)
        seconds = cluster.now().mono - began
        assert 2 <= fetches <= seconds / 10

    def test_old_keys_stay_when_there_are_no_new_ones(self) -> None:
        cluster = Cluster(sasl_oauthbearer_jwks_endpoint_refresh_ms="60000")
        for failure in (OSError("no route"), b"<html>", key_set(), ValueError("it redirects to x")):
            cluster.host.advance(60.1)
            cluster.host.hand_in(failure)
            connection = cluster.connect()
            cluster.log_in(connection, KEY.sign(claims_at(int(cluster.now().wall_ms / 1000))))
            assert connection.principal == "User:alice"
        reasons = [facts["reason"] for facts in cluster.reports("signing_keys_not_fetched")]
        assert [reasons[0], reasons[-1]] == ["no route", "it redirects to x"]

    def test_a_key_that_was_taken_back_counts_no_more(self) -> None:
        cluster = Cluster(sasl_oauthbearer_jwks_endpoint_refresh_ms="60000")
        cluster.host.advance(60.1)
        cluster.host.hand_in(key_set(NEW_KEY.public()))
        with pytest.raises(AuthenticationFailed):
            cluster.log_in(cluster.connect(), KEY.sign(CLAIMS))

    def test_a_failure_is_tried_again_after_longer_and_longer(self) -> None:
        cluster = Cluster(has_keys=False, sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms="500")
        waits = []
        for _ in range(5):
            cluster.host.hand_in(OSError("no route"))
            began = cluster.now().mono
            while not cluster.host.fetches:
                cluster.host.advance(0.01)
            waits.append(round(cluster.now().mono - began, 1))
        assert waits == [0.1, 0.2, 0.4, 0.5, 0.5]

    def test_a_client_that_leaves_while_keys_are_fetched(self) -> None:
        cluster = Cluster(has_keys=False)
        connection = cluster.connect()
        cluster.present(connection, KEY.sign(CLAIMS))
        cluster.host.node.disconnected(cluster.now(), connection)
        cluster.host.hand_in(key_set(KEY.public()))
        assert connection.principal == "User:ANONYMOUS"

    def test_a_token_that_expires_while_keys_are_fetched(self) -> None:
        cluster = Cluster(has_keys=False)
        connection = cluster.connect()
        cluster.present(connection, KEY.sign(CLAIMS | {"exp": NOW + 1}))
        cluster.host.advance(60.0)
        cluster.host.hand_in(key_set(KEY.public()))
        assert bytes(cluster.host.receive(connection).auth_bytes) == b'{"status":"invalid_token"}'

    def test_only_so_many_wait(self) -> None:
        cluster = Cluster(has_keys=False)
        check = cluster.host.node.client_logins.bearer_checks.of("LOGIN", cluster.now())
        token = "x" * 65_536
        at_once = WAITING_BYTES_MAX // len(token)
        for _ in range(2):
            assert all(check.wait(cluster.now(), token, lambda now: None) for _ in range(at_once))
            assert not check.wait(cluster.now(), token, lambda now: None)
            cluster.host.settle()
            cluster.host.hand_in(key_set(KEY.public()))
            cluster.host.advance(10.0)

    def test_only_so_many_short_ones_wait(self) -> None:
        """Each is a client, and a check when the keys are here, however short its token is."""
        cluster = Cluster(has_keys=False)
        check = cluster.host.node.client_logins.bearer_checks.of("LOGIN", cluster.now())
        checked: list[Now] = []
        assert all(check.wait(cluster.now(), "x", checked.append) for _ in range(WAITING_MAX))
        assert not check.wait(cluster.now(), "x", checked.append)
        cluster.host.settle()
        cluster.host.hand_in(key_set(KEY.public()))
        assert len(checked) == CHECKED_AT_ONCE, "others are served before the next ones"
        cluster.host.advance(1.0)
        assert len(checked) == WAITING_MAX

    def test_clients_that_have_gone_wait_for_nothing(self) -> None:
        cluster = Cluster(has_keys=False)
        for _ in range(2 * WAITING_MAX):
            connection = cluster.connect()
            assert cluster.present(connection, KEY.sign(CLAIMS)) is None
            cluster.host.node.disconnected(cluster.now(), connection)
        connection = cluster.connect()
        assert cluster.present(connection, KEY.sign(CLAIMS)) is None, "there is room for it"
        cluster.host.hand_in(key_set(KEY.public()))
        assert cluster.host.receive(connection).error_code == 0, "and it is the first to be checked"

    def test_a_mistake_in_one_check_leaves_the_others_their_turn(self) -> None:
        cluster = Cluster(has_keys=False)
        check = cluster.host.node.client_logins.bearer_checks.of("LOGIN", cluster.now())
        checked: list[Now] = []

        def fail(now: Now) -> None:
            raise ZeroDivisionError

        check.wait(cluster.now(), "x", fail)
        check.wait(cluster.now(), "x", checked.append)
        cluster.host.settle()
        with pytest.raises(ZeroDivisionError):
            cluster.host.hand_in(key_set(KEY.public()))
        cluster.host.advance(0.1)
        assert len(checked) == 1


class TestTheCheckAlone:
    """As the registry's HTTP uses it."""

    def test_a_principal_and_an_end_or_a_refusal(self) -> None:
        cluster = Cluster()
        check = cluster.host.node.client_logins.bearer_checks.of("LOGIN", cluster.now())
        bearer = check.check(KEY.sign(CLAIMS), cluster.now())
        assert (bearer.name, bearer.expires_ms) == ("alice", (NOW + 3600) * 1000)
        with pytest.raises(LoginRefused):
            check.check(STRANGER.sign(CLAIMS), cluster.now())
        with pytest.raises(UnknownKey):
            check.check(NEW_KEY.sign(CLAIMS), cluster.now())


class TestMoreThanOneAtATime:
    def test_a_message_while_another_is_checked_ends_the_login(self) -> None:
        """What the check finds does not bring it back."""
        cluster = Cluster()
        cluster.host.advance(20.0)
        connection = cluster.connect()
        assert cluster.present(connection, NEW_KEY.sign(claims_at(NOW + 20))) is None, "keys are fetched"
        message = SaslAuthenticateRequest(auth_bytes=b"\x01")
        cluster.host.send(connection, message, 1)
        cluster.host.hand_in(key_set(KEY.public(), NEW_KEY.public()))
        assert connection.principal == "User:ANONYMOUS"
        cluster.host.send(connection, message, 1)
        cluster.host.advance(1.0)
        assert cluster.host.closed[connection.id] == "the login was refused"
        assert cluster.host.node.metrics.logins == 0

    def test_also_if_the_check_refuses(self) -> None:
        cluster = Cluster()
        cluster.host.advance(20.0)
        connection = cluster.connect()
        assert cluster.present(connection, NEW_KEY.sign(claims_at(NOW + 20))) is None
        message = SaslAuthenticateRequest(auth_bytes=b"\x01")
        cluster.host.send(connection, message, 1)
        cluster.host.hand_in(key_set(KEY.public()))
        cluster.host.send(connection, message, 1)
        cluster.host.advance(1.0)
        assert cluster.host.closed[connection.id] == "the login was refused"
