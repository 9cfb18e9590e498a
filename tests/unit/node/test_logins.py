"""Logins on SASL listeners: who gets in, who is refused and how, and how sessions end."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from headrace.client.errors import AuthenticationFailed
from headrace.client.security.sasl import Login as ClientLogin
from headrace.client.security.sasl import Mechanism, Plain, Scram
from headrace.machines.security.scram import (
    MECHANISMS,
    SHA_512,
    Credential,
    credential_from_password,
    salt_password,
)
from headrace.node import password_queue
from headrace.node.connection import Connection
from headrace.node.effects import Report, WriteAudit
from headrace.node.password_check import PasswordCheck
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from headrace.protocol.messages.api_versions import ApiVersionsRequest
from headrace.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from headrace.protocol.messages.metadata import MetadataRequest
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest
from headrace.records.builder import build_batch
from headrace.simulator.manual_host import ManualHost

PASSWORD = "alice's secret"
BATCH = build_batch([(1_700_000_000_000, None, b"v", ())])
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="broker" password="b" user_alice="{PASSWORD}" user_bob="bobs";'
)
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,LOGIN://127.0.0.1:9093,OTHER://127.0.0.1:9094",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT,OTHER:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.other.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.login.plain.sasl.jaas.config": JAAS,
    "sasl.server.max.receive.size": "10000",
}


def credential(mechanism: str, password: str = PASSWORD) -> Credential:
    return credential_from_password(MECHANISMS[mechanism], password, b"salt" * 6)


class Cluster:
    """A host whose users are alice and, for one mechanism, carol; and the logins of clients there."""

    def __init__(self, **settings: str) -> None:
        self.host = ManualHost(SETTINGS | {key.replace("_", "."): value for key, value in settings.items()})
        self.users = self.host.node.controller.metadata.image.security.credentials
        self.users.update(
            {
                ("alice", 1): credential("SCRAM-SHA-256"),
                ("alice", 2): credential("SCRAM-SHA-512"),
                ("carol", 2): credential("SCRAM-SHA-512", "carols"),
            }
        )

    def connect(self, listener: str = "LOGIN") -> Connection:
        return self.host.connect(listener)

    def ask(self, connection: Connection, request: Any, version: int = 1) -> Any:
        return self.host.ask(request, version, connection)

    def log_in(self, connection: Connection, mechanism: Mechanism) -> ClientLogin:
        """AuthenticationFailed if it is refused."""
        client = ClientLogin(mechanism, Random(7), None)
        step: Any = client.accepted(self.patiently(connection, client.begin()))
        while step is not None:
            step = client.continued(self.patiently(connection, step))
        return client

    def patiently(self, connection: Connection, request: Any) -> Any:
        self.host.send(connection, request, 1)
        if not self.host.answers[connection.id]:
            self.host.advance(0.1)
        return self.host.receive(connection)

    def is_in(self, connection: Connection) -> bool:
        return self.ask(connection, MetadataRequest(topics=[]), 4) is not None

    @property
    def reasons(self) -> list[str]:
        return [
            effect.facts["reason"]
            for effect in self.host.effects
            if isinstance(effect, Report) and effect.event == "login_refused"
        ]


MECHANISMS_OF_ALICE: list[Mechanism] = [
    Plain("alice", PASSWORD),
    Scram("SCRAM-SHA-256", "alice", PASSWORD),
    Scram("SCRAM-SHA-512", "alice", PASSWORD),
]


class TestWhoGetsIn:
    @pytest.mark.parametrize("mechanism", MECHANISMS_OF_ALICE, ids=lambda one: one.name)
    def test_the_principal_is_the_user(self, mechanism: Mechanism) -> None:
        cluster = Cluster()
        connection = cluster.connect()
        assert connection.principal == "User:ANONYMOUS"
        assert cluster.ask(connection, ApiVersionsRequest(), 0).error_code == 0
        client = cluster.log_in(connection, mechanism)
        assert client.session_lifetime_ms == 0
        assert connection.principal == "User:alice"
        assert cluster.is_in(connection)
        assert cluster.host.node.metrics.logins == 1

    def test_a_client_that_is_in_has_the_fast_paths_of_others(self) -> None:
        cluster = Cluster()
        cluster.host.create_topic("t")
        connection = cluster.connect()
        cluster.log_in(connection, MECHANISMS_OF_ALICE[0])
        assert connection.fast_path is None
        for _ in range(2):
            cluster.ask(connection, cluster.host.produce_request("t", BATCH, acks=1), 9)
        assert connection.fast_path is not None
        assert cluster.host.partitions("t")[0].high_watermark == 2

    @pytest.mark.parametrize(("user", "password"), [("alice", PASSWORD), ("carol", "carols")])
    def test_passwords_by_scram_credentials_are_checked_in_a_thread(self, user: str, password: str) -> None:
        cluster = Cluster()
        connection = cluster.connect("OTHER")  # without a JAAS entry
        cluster.host.runs_jobs = False
        client = ClientLogin(Plain(user, password), Random(7), None)
        step = client.accepted(cluster.ask(connection, client.begin()))
        assert cluster.ask(connection, step) is None
        (job,) = cluster.host.jobs
        assert isinstance(job.job, PasswordCheck)
        assert password not in repr(job)
        cluster.host.run_jobs()
        assert client.continued(cluster.host.receive(connection)) is None
        assert connection.principal == f"User:{user}"

    def test_users_of_the_metadata(self) -> None:
        """From the answer to the change on."""
        host = ManualHost(SETTINGS)
        cluster = Cluster.__new__(Cluster)
        cluster.host = host
        dora = Scram("SCRAM-SHA-512", "dora", "doras")
        salted = salt_password(SHA_512, "doras", b"salt", 4096)
        given = ScramCredentialUpsertion(
            name="dora", mechanism=SHA_512.id, iterations=4096, salt=b"salt", salted_password=salted
        )
        host.ask(AlterUserScramCredentialsRequest(upsertions=[given]), 0)
        ways: list[tuple[str, Mechanism]] = [("LOGIN", dora), ("OTHER", Plain("dora", "doras"))]
        for listener, mechanism in ways:
            connection = cluster.connect(listener)
            cluster.log_in(connection, mechanism)
            assert connection.principal == "User:dora"
        gone = ScramCredentialDeletion(name="dora", mechanism=SHA_512.id)
        host.ask(AlterUserScramCredentialsRequest(deletions=[gone]), 0)
        with pytest.raises(AuthenticationFailed):
            cluster.log_in(cluster.connect(), dora)

    def test_a_client_inside_the_process_needs_no_login(self) -> None:
        cluster = Cluster()
        connection = Connection(99, listener="LOGIN", address="127.0.0.1", is_own=True)
        cluster.host.node.connected(cluster.host.clock.now(), connection)
        assert (connection.login, connection.fast_path) == (None, None)

    def test_on_a_plaintext_listener_there_is_none(self) -> None:
        cluster = Cluster()
        connection = cluster.connect("PLAINTEXT")
        shaken = cluster.ask(connection, SaslHandshakeRequest(mechanism="PLAIN"))
        assert shaken.error_code == ErrorCode.ILLEGAL_SASL_STATE
        answer = cluster.ask(connection, SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"))
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert cluster.is_in(connection)
        assert ManualHost().node.logins is None


class TestRefusals:
    @pytest.mark.parametrize(
        ("listener", "mechanism", "reason"),
        [
            ("LOGIN", Plain("alice", "guessed"), "the password is wrong"),
            ("LOGIN", Plain("nobody", "guessed"), "no such user"),
            ("LOGIN", Plain("broker", "b"), "no such user"),
            ("OTHER", Plain("alice", "guessed"), "the password is wrong"),
            ("OTHER", Plain("nobody", "guessed"), "no such user"),
            ("LOGIN", Scram("SCRAM-SHA-256", "alice", "guessed"), "the password is wrong"),
            ("LOGIN", Scram("SCRAM-SHA-256", "carol", "carols"), "no such user for this mechanism"),
            ("LOGIN", Scram("SCRAM-SHA-512", "nobody", "guessed"), "no such user for this mechanism"),
            ("LOGIN", Scram("SCRAM-SHA-512", "alice", PASSWORD, {"tokenauth": "true"}), "no such user"),
        ],
    )
    def test_the_client_is_told_later_and_not_why(
        self, listener: str, mechanism: Mechanism, reason: str
    ) -> None:
        cluster = Cluster()
        connection = cluster.connect(listener)
        with pytest.raises(AuthenticationFailed) as raised:
            cluster.log_in(connection, mechanism)
        assert raised.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED
        told = "Authentication failed during authentication due to invalid credentials with SASL mechanism"
        plain = isinstance(mechanism, Plain)
        told = "Authentication failed: Invalid username or password" if plain else f"{told} {mechanism.name}"
        assert told in str(raised.value)
        assert reason in cluster.reasons[0]
        assert "guessed" not in str(cluster.host.effects)
        assert cluster.host.closed[connection.id] == "the login was refused"
        assert (connection.principal, connection.login) == ("User:ANONYMOUS", None)
        assert cluster.host.node.metrics.logins_refused == 1

    def test_the_answer_takes_the_delay(self) -> None:
        cluster = Cluster(connection_failed_authentication_delay_ms="2000")
        connection = cluster.connect()
        cluster.ask(connection, SaslHandshakeRequest(mechanism="PLAIN"))
        wrong = SaslAuthenticateRequest(auth_bytes=b"\0alice\0guessed")
        assert cluster.ask(connection, wrong) is None
        # meanwhile nothing is served, not even the right password
        assert cluster.ask(connection, SaslAuthenticateRequest(auth_bytes=b"\0bob\0bobs")) is None
        cluster.host.advance(1.9)
        assert not cluster.host.answers[connection.id]
        cluster.host.advance(0.2)
        assert cluster.host.receive(connection).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert not cluster.host.answers[connection.id]
        assert connection.id in cluster.host.closed

    @pytest.mark.parametrize("mechanism", ["GSSAPI", "SCRAM-SHA-512", "OAUTHBEARER", "plain", ""])
    def test_a_mechanism_that_is_not_enabled(self, mechanism: str) -> None:
        cluster = Cluster()
        connection = cluster.connect("OTHER")
        answer = cluster.patiently(connection, SaslHandshakeRequest(mechanism=mechanism))
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == ["PLAIN"]
        assert connection.id in cluster.host.closed

    def test_a_request_before_the_login(self) -> None:
        cluster = Cluster()
        connection = cluster.connect()
        assert cluster.ask(connection, MetadataRequest(topics=[]), 4) is None
        assert cluster.host.closed[connection.id].startswith("API 3 before the login")

    def test_a_request_between_the_steps_of_a_login(self) -> None:
        cluster = Cluster()
        cluster.host.create_topic("t")
        connection = cluster.connect()
        cluster.ask(connection, SaslHandshakeRequest(mechanism="PLAIN"))
        assert cluster.ask(connection, cluster.host.produce_request("t", BATCH), 9) is None
        assert connection.id in cluster.host.closed
        assert cluster.host.partitions("t")[0].high_watermark == 0

    def test_a_huge_frame_before_the_login(self) -> None:
        cluster = Cluster()
        connection = cluster.connect()
        assert connection.frame_bytes_max == 10_000
        cluster.ask(connection, SaslHandshakeRequest(mechanism="PLAIN"))
        assert cluster.ask(connection, SaslAuthenticateRequest(auth_bytes=bytes(10_000))) is None
        assert "sasl.server.max.receive.size" in cluster.host.closed[connection.id]

    @pytest.mark.parametrize(
        "requests",
        [
            [SaslAuthenticateRequest(auth_bytes=b"\0bob\0bobs")],
            [SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeRequest(mechanism="PLAIN")],
        ],
    )
    def test_what_comes_out_of_turn(self, requests: list[Any]) -> None:
        cluster = Cluster()
        connection = cluster.connect()
        answers = [cluster.patiently(connection, request) for request in requests]
        assert answers[-1].error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert connection.id in cluster.host.closed

    def test_the_first_version_has_no_frames(self) -> None:
        cluster = Cluster()
        connection = cluster.connect()
        cluster.host.send(connection, SaslHandshakeRequest(mechanism="PLAIN"), 0)
        cluster.host.advance(0.1)
        assert cluster.host.receive(connection).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert connection.id in cluster.host.closed

    def test_a_client_that_leaves_while_its_password_is_checked(self) -> None:
        cluster = Cluster()
        connection = cluster.connect("OTHER")
        cluster.host.runs_jobs = False
        cluster.ask(connection, SaslHandshakeRequest(mechanism="PLAIN"))
        cluster.ask(connection, SaslAuthenticateRequest(auth_bytes=f"\0alice\0{PASSWORD}".encode()))
        cluster.host.node.disconnected(cluster.host.clock.now(), connection)
        cluster.host.run_jobs()
        assert connection.principal == "User:ANONYMOUS"

    def test_a_client_that_does_not_wait_for_the_check_of_its_password(self) -> None:
        """It is refused, though the password is right."""
        cluster = Cluster()
        connection = cluster.connect("OTHER")
        cluster.host.runs_jobs = False
        cluster.ask(connection, SaslHandshakeRequest(mechanism="PLAIN"))
        right = SaslAuthenticateRequest(auth_bytes=f"\0alice\0{PASSWORD}".encode())
        for _ in range(2):
            assert cluster.ask(connection, right) is None
        cluster.host.run_jobs()
        assert connection.principal == "User:ANONYMOUS"
        assert not cluster.is_in(connection)
        cluster.host.advance(0.2)
        assert connection.id in cluster.host.closed

    @pytest.mark.parametrize("is_gone", [True, False])
    def test_a_password_that_is_changed_while_a_client_logs_in(self, is_gone: bool) -> None:
        """Who knows the old one could begin in time, and go on whenever it likes."""
        for listener, mechanism in (
            ("LOGIN", Scram("SCRAM-SHA-256", "alice", PASSWORD)),
            ("OTHER", Plain("alice", PASSWORD)),
        ):
            cluster = Cluster()
            connection = cluster.connect(listener)
            cluster.host.runs_jobs = False
            client = ClientLogin(mechanism, Random(7), None)
            step: Any = client.accepted(cluster.ask(connection, client.begin()))
            challenge = cluster.ask(connection, step)
            if challenge is not None:
                step = client.continued(challenge)
            del cluster.users["alice", 1], cluster.users["alice", 2]
            if not is_gone:
                cluster.users["alice", 1] = credential("SCRAM-SHA-256", "another")
                cluster.users["alice", 2] = credential("SCRAM-SHA-512", "another")
            if challenge is not None:
                cluster.host.send(connection, step, 1)
            cluster.host.run_jobs()
            cluster.host.advance(0.1)
            assert cluster.reasons == ["the password was changed meanwhile"]
            assert cluster.host.receive(connection).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert connection.principal == "User:ANONYMOUS"

    def guess(self, cluster: Cluster) -> Connection:
        connection = cluster.connect("OTHER")
        cluster.ask(connection, SaslHandshakeRequest(mechanism="PLAIN"))
        cluster.ask(connection, SaslAuthenticateRequest(auth_bytes=b"\0alice\0guessed"))
        return connection

    def checks(self, cluster: Cluster) -> int:
        """How many run until no one waits."""
        ran = 0
        while cluster.host.jobs:
            ran += isinstance(cluster.host.jobs[0].job, PasswordCheck)
            cluster.host.run_job()
            cluster.host.settle()
        return ran

    def test_passwords_that_wait_for_their_check_are_limited(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(password_queue, "WAITING_MAX", 5)
        cluster = Cluster()
        cluster.host.runs_jobs = False
        for _ in range(10):
            self.guess(cluster)
        assert len(cluster.host.jobs) == 1  # the others do not run yet
        assert cluster.reasons == ["5 other passwords have to be checked first"] * 4
        assert self.checks(cluster) == 6
        cluster.host.runs_jobs = True
        cluster.log_in(cluster.connect("OTHER"), Plain("alice", PASSWORD))

    def test_a_client_that_hangs_up_takes_its_check_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It comes again, and no limit of connections counts: others would wait for checks that nobody
        needs.
        """
        monkeypatch.setattr(password_queue, "WAITING_MAX", 5)
        cluster = Cluster()
        cluster.host.runs_jobs = False
        for _ in range(20):
            connection = self.guess(cluster)
            cluster.host.node.disconnected(cluster.host.clock.now(), connection)
        assert cluster.reasons == []
        waiting = self.guess(cluster)
        assert self.checks(cluster) == 2  # one that had begun, and the one that somebody waits for
        cluster.host.advance(0.2)
        assert waiting.id in cluster.host.closed

    def test_a_client_that_does_not_wait_takes_its_check_back(self) -> None:
        """It is refused for that, whatever its password is."""
        cluster = Cluster()
        cluster.host.runs_jobs = False
        self.guess(cluster)
        impatient = self.guess(cluster)
        cluster.ask(impatient, SaslAuthenticateRequest(auth_bytes=f"\0alice\0{PASSWORD}".encode()))
        assert self.checks(cluster) == 1
        assert impatient.principal == "User:ANONYMOUS"

    def test_users_that_do_not_exist_have_the_same_salt_after_a_restart(self) -> None:
        """By a secret of the metadata: it is not made from what anybody can ask for."""
        salts = []
        for seed in (1, 2):
            host = ManualHost(SETTINGS | {"headrace.cluster.id": "5L6g3nShT-eMCtK--X86sw"}, seed=seed)
            self.create(host, "dora")
            for _ in range(2):
                salts.append(self.salt(host, "nobody"))
                host.restart()  # with other random numbers
        assert salts[0] == salts[1]
        assert salts[2] == salts[3]
        assert salts[0] != salts[2]

    def test_the_secret_is_in_no_answer(self) -> None:
        host = ManualHost(SETTINGS)
        self.create(host, "dora")
        nobody = host.node.controller.metadata.image.security.nobody
        assert nobody is not None
        for request in (
            DescribeUserScramCredentialsRequest(users=None),
            DescribeUserScramCredentialsRequest(users=[UserName(name="")]),
        ):
            answer = host.ask(request, 0)
            known = [result.user for result in answer.results if not result.error_code]
            assert known == ([] if request.users else ["dora"])
            assert nobody.server_key not in repr(answer).encode()

    def create(self, host: ManualHost, user: str) -> None:
        salted = salt_password(SHA_512, "password", b"salt", 4096)
        given = ScramCredentialUpsertion(
            name=user, mechanism=SHA_512.id, iterations=4096, salt=b"salt" * 6, salted_password=salted
        )
        host.ask(AlterUserScramCredentialsRequest(upsertions=[given]), 0)

    def salt(self, host: ManualHost, user: str) -> str:
        connection = host.connect("LOGIN")
        host.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1, connection)
        first = SaslAuthenticateRequest(auth_bytes=f"n,,n={user},r=nonce".encode())
        challenge = bytes(host.ask(first, 1, connection).auth_bytes).decode()
        return challenge.split(",")[1]


class TestSessions:
    def cluster(self) -> Cluster:
        return Cluster(
            connections_max_reauth_ms="60000",
            **{"listener.name.login.plain.connections.max.reauth.ms": "5000"},
        )

    def test_the_client_is_told_how_long_its_login_counts(self) -> None:
        cluster = self.cluster()
        assert cluster.log_in(cluster.connect(), MECHANISMS_OF_ALICE[0]).session_lifetime_ms == 5_000
        assert cluster.log_in(cluster.connect(), MECHANISMS_OF_ALICE[1]).session_lifetime_ms == 60_000

    def test_who_does_not_log_in_again_is_disconnected(self) -> None:
        """At its next request, though a fast path knew the one before."""
        cluster = self.cluster()
        cluster.host.create_topic("t")
        connection = cluster.connect()
        cluster.log_in(connection, MECHANISMS_OF_ALICE[0])
        for _ in range(2):
            cluster.ask(connection, cluster.host.produce_request("t", BATCH, acks=1), 9)
        cluster.host.advance(4.9)
        assert cluster.is_in(connection)
        cluster.host.advance(0.2)
        assert connection.id not in cluster.host.closed
        assert cluster.ask(connection, cluster.host.produce_request("t", BATCH, acks=1), 9) is None
        assert "the session has ended" in cluster.host.closed[connection.id]
        assert cluster.host.partitions("t")[0].high_watermark == 2

    @pytest.mark.parametrize("waits_s", [4.0, 6.0])
    def test_a_login_again(self, waits_s: float) -> None:
        """Before the end of the session, or at the next request behind it."""
        cluster = self.cluster()
        connection = cluster.connect()
        cluster.log_in(connection, MECHANISMS_OF_ALICE[0])
        for _ in range(3):
            cluster.host.advance(waits_s)
            cluster.log_in(connection, MECHANISMS_OF_ALICE[0])
            assert cluster.is_in(connection)
        cluster.host.advance(4.9)
        assert cluster.is_in(connection)

    @pytest.mark.parametrize(
        ("mechanism", "reason"),
        [(Plain("bob", "bobs"), "another user"), (MECHANISMS_OF_ALICE[1], "another mechanism")],
    )
    def test_a_login_as_another_is_refused(self, mechanism: Mechanism, reason: str) -> None:
        cluster = self.cluster()
        connection = cluster.connect()
        cluster.log_in(connection, MECHANISMS_OF_ALICE[0])
        with pytest.raises(AuthenticationFailed):
            cluster.log_in(connection, mechanism)
        assert reason in cluster.reasons[0]
        assert connection.principal == "User:alice"
        assert connection.id in cluster.host.closed

    def test_nothing_else_is_served_while_the_client_logs_in_again(self) -> None:
        cluster = self.cluster()
        connection = cluster.connect()
        cluster.log_in(connection, MECHANISMS_OF_ALICE[0])
        cluster.ask(connection, SaslHandshakeRequest(mechanism="PLAIN"))
        assert not cluster.is_in(connection)
        assert connection.id in cluster.host.closed

    def test_logging_in_again_and_again_is_not_served(self) -> None:
        cluster = self.cluster()
        connection = cluster.connect()
        for _ in range(2):
            cluster.log_in(connection, MECHANISMS_OF_ALICE[0])
        again = cluster.ask(connection, SaslHandshakeRequest(mechanism="PLAIN"))
        assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert cluster.is_in(connection)

    def test_the_end_of_a_session_of_a_client_that_has_gone(self) -> None:
        cluster = self.cluster()
        connection = cluster.connect()
        cluster.log_in(connection, MECHANISMS_OF_ALICE[0])
        cluster.host.node.disconnected(cluster.host.clock.now(), connection)
        cluster.host.advance(10.0)
        assert connection.fast_path is None


class TestAudit:
    def told(self, cluster: Cluster) -> list[dict[str, Any]]:
        return [
            one for effect in cluster.host.effects if isinstance(effect, WriteAudit) for one in effect.entries
        ]

    def test_logins_and_refused_ones_with_who_and_why_but_no_password(self) -> None:
        cluster = Cluster()
        connection = cluster.connect()
        cluster.log_in(connection, Plain("alice", PASSWORD))
        with pytest.raises(AuthenticationFailed):
            cluster.log_in(cluster.connect(), Scram("SCRAM-SHA-512", "carol", "planted-secret"))
        with pytest.raises(AuthenticationFailed):
            cluster.log_in(cluster.connect(), Plain("mallory", "planted-secret"))
        entered, scram, plain = self.told(cluster)
        assert entered == {
            "event": "login",
            "principal": "User:alice",
            "address": connection.address,
            "listener": "LOGIN",
            "mechanism": "PLAIN",
        }
        assert (scram["event"], scram["user"], scram["mechanism"]) == (
            "login_refused",
            "carol",
            "SCRAM-SHA-512",
        )
        assert (plain["user"], plain["mechanism"]) == ("mallory", "PLAIN")
        assert PASSWORD not in str(self.told(cluster))
        assert "planted-secret" not in str(self.told(cluster))

    def test_guesses_are_counted(self) -> None:
        cluster = Cluster()
        for number in range(20):
            with pytest.raises(AuthenticationFailed):
                cluster.log_in(cluster.connect(), Plain(f"user{number}", "guess"))
        refused = [one for one in self.told(cluster) if one["event"] == "login_refused"]
        assert len(refused) < 20
        cluster.host.advance(10)
        counted = [one for one in self.told(cluster) if one["event"] == "repeated"]
        assert len(refused) + sum(one["count"] for one in counted) == 20
