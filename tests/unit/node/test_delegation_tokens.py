"""Delegation tokens on one node: who may ask for them, logins with them, and their end."""

from __future__ import annotations

from base64 import b64encode
from random import Random
from typing import Any

import pytest

from harness.rules import Rules
from headrace.client.errors import AuthenticationFailed
from headrace.client.security.sasl import Login as ClientLogin
from headrace.client.security.sasl import Mechanism, Plain, Scram
from headrace.machines.security.acl_rules import Operation, ResourceType
from headrace.node.connection import Connection
from headrace.node.effects import Report, WriteAudit
from headrace.node.token_credentials import MakeCredential
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from headrace.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from headrace.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from headrace.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from headrace.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.protocol.messages.metadata import MetadataRequest
from headrace.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from headrace.records.builder import build_batch
from headrace.simulator.manual_host import ManualHost

BATCH = build_batch([(1_700_000_000_000, None, b"v", ())])
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USERS = ("ada", "bob", "eve")
DAY_S = 86_400.0
SECRET = "the secret key of tokens"
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,LOGIN://127.0.0.1:9093,TLS://127.0.0.1:9094",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT,TLS:SSL",
    "ssl.keystore.location": "server.pem",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.login.plain.sasl.jaas.config": (
        f"{MODULE} " + " ".join(f'user_{user}="{user}"' for user in USERS) + ";"
    ),
}


class Cluster:
    def __init__(self, *, has_key: bool = True, **settings: str) -> None:
        key = {"delegation.token.secret.key": SECRET} if has_key else {}
        others = {name.replace("_", "."): value for name, value in settings.items()}
        self.host = ManualHost(SETTINGS | key | others)
        self.now_ms = self.host.clock.now().wall_ms

    def patiently(self, connection: Connection, request: Any) -> Any:
        self.host.send(connection, request, 1)
        if not self.host.answers[connection.id]:
            self.host.advance(0.1)
        return self.host.receive(connection)

    def log_in(self, mechanism: Mechanism, connection: Connection | None = None) -> Connection:
        """AuthenticationFailed if it is refused."""
        connection = connection or self.host.connect("LOGIN")
        client = ClientLogin(mechanism, Random(7), None)
        step: Any = client.accepted(self.patiently(connection, client.begin()))
        while step is not None:
            step = client.continued(self.patiently(connection, step))
        self.session_ms = client.session_lifetime_ms
        return connection

    def user(self, name: str) -> Connection:
        return self.log_in(Plain(name, name))

    def with_token(self, token: Any, mechanism: str = "SCRAM-SHA-256", **changes: Any) -> Connection:
        return self.log_in(login_of(token, mechanism), **changes)

    def create(self, connection: Connection, **fields: Any) -> Any:
        owner = fields.pop("owner", None)
        kind, _, name = (owner or "").partition(":")
        renewers = [
            CreatableRenewers(principal_type=kind, principal_name=name)
            for kind, _, name in (one.partition(":") for one in fields.pop("renewers", ()))
        ]
        request = CreateDelegationTokenRequest(
            owner_principal_type=kind if owner else None,
            owner_principal_name=name if owner else None,
            renewers=renewers,
            max_lifetime_ms=fields.pop("lifetime_ms", -1),
        )
        return self.host.ask(request, 3, connection)

    def renew(self, connection: Connection, hmac: bytes, period_ms: int = -1) -> Any:
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
        return self.host.ask(request, 2, connection)

    def expire(self, connection: Connection, hmac: bytes, period_ms: int = -1) -> Any:
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
        return self.host.ask(request, 2, connection)

    def describe(self, connection: Connection, owners: list[str] | None = None) -> Any:
        asked = None
        if owners is not None:
            parts = [owner.partition(":") for owner in owners]
            asked = [
                DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
                for kind, _, name in parts
            ]
        return self.host.ask(DescribeDelegationTokenRequest(owners=asked), 3, connection)

    def is_in(self, connection: Connection) -> bool:
        return self.host.ask(MetadataRequest(topics=[]), 4, connection) is not None

    def every_request(self, connection: Connection) -> list[int]:
        """The errors of all four."""
        return [
            answer.error_code
            for answer in (
                self.create(connection),
                self.renew(connection, b"x"),
                self.expire(connection, b"x"),
                self.describe(connection),
            )
        ]


def login_of(token: Any, mechanism: str = "SCRAM-SHA-256") -> Scram:
    password = b64encode(bytes(token.hmac)).decode()
    return Scram(mechanism, token.token_id, password, {"tokenauth": "true"})


class TestRequests:
    def test_the_life_of_a_token(self) -> None:
        cluster = Cluster()
        ada, bob, eve = (cluster.user(name) for name in USERS)
        token = cluster.create(ada, renewers=["User:bob"])
        assert token.error_code == 0
        assert (token.principal_type, token.principal_name) == ("User", "ada")
        assert (token.token_requester_principal_type, token.token_requester_principal_name) == ("User", "ada")
        day, week = int(DAY_S * 1000), int(7 * DAY_S * 1000)
        assert token.issue_timestamp_ms == cluster.now_ms
        assert token.expiry_timestamp_ms - token.issue_timestamp_ms == day
        assert token.max_timestamp_ms - token.issue_timestamp_ms == week
        (seen,) = cluster.describe(bob).tokens
        assert (seen.token_id, seen.hmac, seen.principal_name) == (token.token_id, token.hmac, "ada")
        assert [one.principal_name for one in seen.renewers] == ["bob"]
        cluster.host.advance(10.0)
        renewed = cluster.renew(bob, token.hmac)
        assert renewed.error_code == 0
        assert renewed.expiry_timestamp_ms == cluster.host.clock.now().wall_ms + day
        for refused in (cluster.renew(eve, token.hmac), cluster.expire(eve, token.hmac)):
            assert refused.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert cluster.renew(ada, b"wrong").error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        ended = cluster.expire(ada, token.hmac)
        now_ms = cluster.host.clock.now().wall_ms
        assert (ended.error_code, ended.expiry_timestamp_ms) == (0, now_ms)
        assert cluster.describe(ada).tokens == []
        assert cluster.renew(ada, token.hmac).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND

    def test_tokens_survive_a_restart(self) -> None:
        cluster = Cluster()
        token = cluster.create(cluster.user("ada"))
        cluster.host.restart()
        assert cluster.with_token(token).principal == "User:ada"
        (seen,) = cluster.describe(cluster.user("ada")).tokens
        assert seen.hmac == token.hmac

    def test_without_a_login_nobody_asks_for_tokens(self) -> None:
        cluster = Cluster()
        not_allowed = [ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED] * 4
        assert cluster.every_request(cluster.host.connect("PLAINTEXT")) == not_allowed
        one_way = cluster.host.connect("TLS")
        assert cluster.every_request(one_way) == not_allowed
        one_way.principal = "User:CN=ada"  # with a certificate
        assert cluster.create(one_way).error_code == 0

    def test_nobody_asks_for_tokens_with_a_token(self) -> None:
        """Or a stolen one would live on in others."""
        cluster = Cluster()
        token = cluster.create(cluster.user("ada"))
        thief = cluster.with_token(token)
        assert cluster.every_request(thief) == [ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED] * 4
        assert len(cluster.describe(cluster.user("ada")).tokens) == 1

    def test_without_a_secret_key_there_are_none(self) -> None:
        cluster = Cluster(has_key=False)
        disabled = [ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED] * 4
        assert cluster.every_request(cluster.user("ada")) == disabled

    @pytest.mark.parametrize("renewer", ["Group:x", ":x", "user:x"])
    def test_renewers_are_users(self, renewer: str) -> None:
        cluster = Cluster()
        refused = cluster.create(cluster.user("ada"), renewers=["User:bob", renewer])
        assert refused.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE

    def test_the_secret_key_is_hidden(self) -> None:
        cluster = Cluster()
        asked = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
        answer = cluster.host.ask(DescribeConfigsRequest(resources=[asked]), 4)
        assert SECRET not in str(answer)
        (key,) = (one for one in answer.results[0].configs if one.name == "delegation.token.secret.key")
        assert (key.value, key.is_sensitive) == (None, True)


class TestRights:
    def test_tokens_for_another_owner(self) -> None:
        cluster = Cluster()
        rules = Rules(cluster.host)
        ada = cluster.user("ada")
        refused = cluster.create(ada, owner="User:bob")
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert cluster.create(ada, owner="User:ada").error_code == 0, "her own needs no rule"
        rules.allow(Operation.CREATE_TOKENS, ResourceType.USER, "User:bob", "User:ada")
        token = cluster.create(ada, owner="User:bob")
        assert (token.error_code, token.principal_name, token.token_requester_principal_name) == (
            0,
            "bob",
            "ada",
        )
        assert cluster.with_token(token).principal == "User:bob"
        # she sees what she has asked for, and does not rule over it
        assert token.token_id in [one.token_id for one in cluster.describe(ada).tokens]
        assert cluster.expire(ada, token.hmac).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert cluster.expire(cluster.user("bob"), token.hmac).error_code == 0

    def test_who_sees_tokens_of_others(self) -> None:
        cluster = Cluster()
        rules = Rules(cluster.host)
        first, second = (cluster.create(cluster.user("ada")) for _ in range(2))
        eve = cluster.user("eve")
        assert cluster.describe(eve).tokens == []
        rules.allow(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, first.token_id, "User:eve")
        assert [one.token_id for one in cluster.describe(eve).tokens] == [first.token_id]
        rules.allow(Operation.DESCRIBE_TOKENS, ResourceType.USER, "User:ada", "User:eve")
        both = sorted((first.token_id, second.token_id))
        assert [one.token_id for one in cluster.describe(eve).tokens] == both
        assert [one.token_id for one in cluster.describe(eve, ["User:ada"]).tokens] == both
        assert cluster.describe(eve, ["User:bob"]).tokens == []
        assert cluster.describe(eve, []).tokens == []

    def test_a_token_that_is_left_out_is_no_refusal_in_the_audit_log(self) -> None:
        cluster = Cluster()
        Rules(cluster.host)
        cluster.create(cluster.user("ada"))
        eve = cluster.user("eve")
        cluster.host.effects.clear()
        assert cluster.describe(eve).tokens == []
        assert not [one for one in cluster.host.effects if isinstance(one, WriteAudit)]


class TestLogins:
    @pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
    def test_whoever_has_the_token_is_its_owner(self, mechanism: str) -> None:
        cluster = Cluster()
        token = cluster.create(cluster.user("ada"))
        for _ in range(2):  # the second time the credential is known
            connection = cluster.with_token(token, mechanism)
            assert (connection.principal, connection.with_token) == ("User:ada", True)
            assert cluster.session_ms == int(DAY_S * 1000)

    def test_the_credential_is_made_in_a_thread_once(self) -> None:
        cluster = Cluster()
        token = cluster.create(cluster.user("ada"))
        cluster.host.runs_jobs = False
        connection = cluster.host.connect("LOGIN")
        client = ClientLogin(login_of(token), Random(7), None)
        step = client.accepted(cluster.patiently(connection, client.begin()))
        assert cluster.patiently(connection, step) is None
        (job,) = cluster.host.jobs
        assert isinstance(job.job, MakeCredential)
        assert b64encode(bytes(token.hmac)).decode() not in repr(job)
        cluster.host.run_jobs()
        final = client.continued(cluster.host.receive(connection))
        assert client.continued(cluster.patiently(connection, final)) is None
        assert connection.principal == "User:ada"
        cluster.with_token(token)
        assert not cluster.host.jobs

    def test_it_is_made_once_for_all_that_come_together(self) -> None:
        """As the tasks of a big job do."""
        cluster = Cluster()
        token = cluster.create(cluster.user("ada"))
        cluster.host.runs_jobs = False
        clients = []
        for _ in range(20):
            connection = cluster.host.connect("LOGIN")
            client = ClientLogin(login_of(token), Random(7), None)
            first: Any = client.accepted(cluster.host.ask(client.begin(), 1, connection))
            cluster.host.send(connection, first, 1)
            clients.append((connection, client))
        gone, _ = clients.pop(0)
        cluster.host.node.disconnected(cluster.host.clock.now(), gone)
        assert len(cluster.host.jobs) == 1
        cluster.host.run_jobs()
        for connection, client in clients:
            last: Any = client.continued(cluster.host.receive(connection))
            assert client.continued(cluster.host.ask(last, 1, connection)) is None
            assert connection.principal == "User:ada"

    def test_a_wrong_secret_and_an_unknown_token(self) -> None:
        cluster = Cluster()
        token = cluster.create(cluster.user("ada"))
        for user, password, extensions in (
            (token.token_id, "guessed", {"tokenauth": "true"}),
            ("AAAAAAAAAAAAAAAAAAAAAA", "guessed", {"tokenauth": "true"}),
            (token.token_id, b64encode(bytes(token.hmac)).decode(), {}),  # a user with that name
            (token.token_id, b64encode(bytes(token.hmac)).decode(), {"tokenauth": "false"}),
        ):
            with pytest.raises(AuthenticationFailed):
                cluster.log_in(Scram("SCRAM-SHA-256", user, password, extensions))

    def test_without_a_key_old_tokens_log_nobody_in(self) -> None:
        cluster = Cluster()
        token = cluster.create(cluster.user("ada"))
        texts = {name: text for name, text in cluster.host.texts.items() if "secret.key" not in name}
        host = cluster.host = ManualHost(texts, disks=cluster.host.disks, clock=cluster.host.clock)
        assert host.node.controller.metadata.image.security.tokens
        with pytest.raises(AuthenticationFailed):
            cluster.with_token(token)

    def test_the_session_ends_with_the_token(self) -> None:
        cluster = Cluster(connections_max_reauth_ms="3600000")
        token = cluster.create(cluster.user("ada"), lifetime_ms=5_000)
        connection = cluster.with_token(token)
        assert cluster.session_ms == 5_000
        cluster.host.advance(4.9)
        assert cluster.is_in(connection)
        cluster.host.advance(0.2)
        assert not cluster.is_in(connection)
        with pytest.raises(AuthenticationFailed):
            cluster.with_token(token)

    @pytest.mark.parametrize(("period_ms", "waits_s"), [(-1, 0.0), (0, 0.01), (5_000, 5.01)])
    def test_a_token_that_is_ended_ends_its_sessions(self, period_ms: int, waits_s: float) -> None:
        """Those of other tokens, and of the user, go on."""
        cluster = Cluster()
        ada = cluster.user("ada")
        token, other = cluster.create(ada), cluster.create(ada)
        ends, goes_on = cluster.with_token(token), cluster.with_token(other)
        assert cluster.expire(ada, token.hmac, period_ms).error_code == 0
        if waits_s > 1:
            cluster.host.advance(waits_s - 0.1)
            assert cluster.is_in(ends)
            waits_s = 0.2
        cluster.host.advance(waits_s)
        assert not cluster.is_in(ends)
        assert cluster.is_in(goes_on)
        assert cluster.is_in(ada)

    def test_a_fetch_that_waits_gets_nothing_after_the_end_of_its_token(self) -> None:
        """It may wait for minutes, and would be answered with what is written after the end."""
        cluster = Cluster()
        host = cluster.host
        host.create_topic("t")
        ada = cluster.user("ada")
        token, other = cluster.create(ada), cluster.create(ada)
        ends, goes_on = cluster.with_token(token), cluster.with_token(other)
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        request = FetchRequest(
            max_wait_ms=60_000,
            min_bytes=1,
            max_bytes=1000,
            session_epoch=-1,
            topics=[FetchTopic(topic="t", partitions=[wanted])],
        )
        for connection in (ends, goes_on):
            host.send(connection, request, 12)
            assert host.receive(connection) is None
        assert cluster.expire(ada, token.hmac).error_code == 0
        host.ask(host.produce_request("t", bytearray(BATCH)), 9, host.connect())
        assert host.receive(ends) is None
        assert "has ended" in host.closed[ends.id]
        (data,) = host.receive(goes_on).responses[0].partitions
        assert data.records

    def test_a_renewed_token_counts_for_the_next_login(self) -> None:
        cluster = Cluster()
        ada = cluster.user("ada")
        token = cluster.create(ada)
        cluster.expire(ada, token.hmac, 5_000)
        connection = cluster.with_token(token)
        cluster.renew(ada, token.hmac)
        cluster.host.advance(4.0)
        cluster.with_token(token, connection=connection)
        cluster.host.advance(10.0)
        assert cluster.is_in(connection)

    def test_a_token_that_goes_between_the_two_steps(self) -> None:
        cluster = Cluster()
        ada = cluster.user("ada")
        token = cluster.create(ada)
        connection = cluster.host.connect("LOGIN")
        client = ClientLogin(login_of(token), Random(7), None)
        step = client.accepted(cluster.patiently(connection, client.begin()))
        final = client.continued(cluster.patiently(connection, step))
        cluster.expire(ada, token.hmac)
        with pytest.raises(AuthenticationFailed):
            client.continued(cluster.patiently(connection, final))
        assert connection.principal == "User:ANONYMOUS"

    def test_nothing_is_kept_of_clients_that_have_gone(self) -> None:
        cluster = Cluster()
        ada = cluster.user("ada")
        token = cluster.create(ada)
        connection = cluster.with_token(token)
        assert cluster.host.node.logins is not None
        cluster.host.node.disconnected(cluster.host.clock.now(), connection)
        assert cluster.host.node.logins._with_tokens == {}
        cluster.expire(ada, token.hmac)

    def test_secrets_are_not_reported(self) -> None:
        cluster = Cluster()
        ada = cluster.user("ada")
        token = cluster.create(ada)
        cluster.with_token(token)
        cluster.expire(ada, token.hmac)
        reports = str([effect for effect in cluster.host.effects if isinstance(effect, Report)])
        for secret in (SECRET, str(bytes(token.hmac)), b64encode(bytes(token.hmac)).decode()):
            assert secret not in reports


class TestExpiry:
    def test_the_active_controller_removes_what_has_expired(self) -> None:
        cluster = Cluster(delegation_token_expiry_check_interval_ms="1000")
        ada = cluster.user("ada")
        cluster.create(ada, lifetime_ms=500)
        lasting = cluster.create(ada, lifetime_ms=5_000)
        tokens = cluster.host.node.controller.metadata.image.security.tokens
        assert len(tokens) == 2
        cluster.host.advance(1.1)
        assert list(tokens) == [lasting.token_id]
        cluster.host.advance(5.0)
        assert not tokens
        end_offset = cluster.host.node.controller.metadata.end_offset
        cluster.host.advance(5.0)
        assert cluster.host.node.controller.metadata.end_offset == end_offset, "nothing to remove"

    def test_an_expired_token_that_is_still_there(self) -> None:
        cluster = Cluster()
        ada = cluster.user("ada")
        token = cluster.create(ada, lifetime_ms=500)
        cluster.host.advance(0.6)
        for refused in (cluster.renew(ada, token.hmac), cluster.expire(ada, token.hmac)):
            assert refused.error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
        with pytest.raises(AuthenticationFailed):
            cluster.with_token(token)


def test_the_audit_log_tells_of_every_change() -> None:
    """Which token, who asked, and the result, but never its secret."""
    cluster = Cluster(headrace_audit_log="on")
    host, ada, bob = cluster.host, cluster.user("ada"), cluster.user("bob")
    host.effects.clear()
    token = cluster.create(ada, renewers=["User:bob"])
    renewed = cluster.renew(bob, token.hmac)
    cluster.renew(bob, b"guessed")
    ended = cluster.expire(ada, token.hmac)
    told = [one for effect in host.effects if isinstance(effect, WriteAudit) for one in effect.entries]
    common = ("event", "address", "listener", "client_id", "api")
    assert [{key: value for key, value in one.items() if key not in common} for one in told] == [
        {
            "principal": "User:ada",
            "change": "token created",
            "token_id": token.token_id,
            "owner": "User:ada",
            "result": "NONE",
        },
        {
            "principal": "User:bob",
            "change": "token renewed",
            "expires_ms": renewed.expiry_timestamp_ms,
            "result": "NONE",
            "token_id": token.token_id,
        },
        {
            "principal": "User:bob",
            "change": "token renewed",
            "expires_ms": 0,
            "result": "DELEGATION_TOKEN_NOT_FOUND",
        },
        {
            "principal": "User:ada",
            "change": "token expired",
            "expires_ms": ended.expiry_timestamp_ms,
            "result": "NONE",
            "token_id": token.token_id,
        },
    ]
    assert {one["event"] for one in told} == {"changed"}
    assert b64encode(token.hmac).decode() not in str(told)
    assert str(token.hmac) not in str(told)
