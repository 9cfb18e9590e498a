"""Settings: from a file's texts to what the node goes by."""

from __future__ import annotations

import re

import pytest

from headrace.machines.configs.values import InvalidConfig
from headrace.node.listener_security import sasl_settings, tls_settings
from headrace.node.listener_settings import Listener
from headrace.node.settings import Settings

LEAST = {"node.id": "3"}


def test_kafkas_defaults() -> None:
    settings = Settings.parse(LEAST)
    assert settings.node_id == 3
    assert settings.process_roles == ("broker", "controller")
    # not Kafka's, which are all addresses
    assert settings.listeners == (Listener("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),)
    assert settings.advertised_listeners == settings.listeners
    assert (settings.num_partitions, settings.default_replication_factor) == (1, 1)
    assert settings.auto_create_topics_enable
    assert settings.socket_request_max_bytes == 104_857_600
    assert settings.queued_max_request_bytes > 0
    assert settings.unknown == {}


def test_a_kafka_file_of_a_combined_node() -> None:
    settings = Settings.parse(
        {
            "node.id": "1",
            "process.roles": "broker,controller",
            "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://[::1]:9093",
            "advertised.listeners": "PLAINTEXT://kafka.example.org:19092",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@localhost:9093",
            "log.dirs": "/a, /b",
            "metadata.log.dir": "/m",
            "log.flush.interval.ms": "1000",
            "max.connections.per.ip.overrides": "10.0.0.1:5,::1:7",
        }
    )
    assert [listener.name for listener in settings.client_listeners] == ["PLAINTEXT"]
    assert settings.listeners[1] == Listener("CONTROLLER", "::1", 9093, "PLAINTEXT")
    assert settings.advertised("PLAINTEXT").host == "kafka.example.org"
    assert settings.inter_broker_listener_name == "PLAINTEXT"
    assert (settings.log_dirs, settings.metadata_log_dir) == (("/a", "/b"), "/m")
    assert settings.log_flush_interval_ms == 1000
    assert settings.max_connections_per_ip_overrides == {"10.0.0.1": 5, "::1": 7}
    assert settings.unknown == {}


def test_unknown_keys_are_kept_with_what_was_perhaps_meant() -> None:
    settings = Settings.parse(LEAST | {"num.partitons": "3", "config.providers.x.class": "Y"})
    assert settings.unknown == {"num.partitons": "num.partitions"}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("listener.name.out.side.ssl.client.auth", None),
        ("listener.name.out.side.plain.sasl.jaas.config", None),
        ("listener.name.out.side.scram-sha-512.connections.max.reauth.ms", None),
        ("listener.name.controller.ssl.keystore.location", None),
        ("listener.name.https.ssl.keystore.location", None),
        ("listener.name.Out.Side.ssl.client.auth", "listener.name.out.side.ssl.client.auth"),
        ("listener.name.outsde.ssl.client.auth", "listener.name.outside.ssl.client.auth"),
        ("listener.name.outside.ssl.client.ath", "listener.name.outside.ssl.client.auth"),
        ("listener.name.outside.plain.sasl.jaas.confg", "listener.name.outside.plain.sasl.jaas.config"),
        ("listener.name.somewhere.ssl.client.auth", ""),
        ("listener.name.outside.nothing.like.this", ""),
        ("listener.name.outside", ""),
        ("listener.name.", ""),
    ],
)
def test_settings_of_single_listeners_that_nobody_reads(name: str, meant: str | None) -> None:
    """Whoever wrote such a one would think that the listener asks for certificates."""
    listeners = "OUTSIDE://127.0.0.1:9093,OUT.SIDE://127.0.0.1:9094"
    protocols = "OUTSIDE:PLAINTEXT,OUT.SIDE:PLAINTEXT,CONTROLLER:SSL"
    texts = {"listeners": listeners, "listener.security.protocol.map": protocols, name: "x"}
    settings = Settings.parse(LEAST | texts)
    assert settings.unknown == ({} if meant is None else {name: meant or None})


def test_free_ports_and_names_are_filled_in_once_bound() -> None:
    settings = Settings.parse(LEAST | {"listeners": "PLAINTEXT://:0"})
    bound = settings.bound({"PLAINTEXT": 5555}, "here.example.org")
    assert bound.listeners == (Listener("PLAINTEXT", "", 5555, "PLAINTEXT"),)
    assert bound.advertised_listeners == (Listener("PLAINTEXT", "here.example.org", 5555, "PLAINTEXT"),)


def test_dynamic_settings_lie_over_the_files_and_listeners_stay() -> None:
    settings = Settings.parse(LEAST | {"listeners": "PLAINTEXT://:0", "max.connections": "10"})
    bound = settings.bound({"PLAINTEXT": 5555}, "here")
    over = bound.overlaid({}, {"max.connections": "77"})
    assert over.max_connections == 77
    assert over.advertised_listeners == bound.advertised_listeners
    assert bound.overlaid({"max.connections": "5"}, {"max.connections": "77"}).max_connections == 5
    assert bound.overlaid({}, {}).max_connections == 10


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ({}, "node.id"),
        (LEAST | {"num.partitions": "0"}, "num.partitions"),
        (LEAST | {"num.io.threads": "many"}, "num.io.threads"),
        (LEAST | {"listeners": "9092"}, "expected NAME://host:port"),
        (LEAST | {"listeners": "PLAINTEXT://:99999"}, "expected NAME://host:port"),
        (LEAST | {"listeners": "FOO://:9092"}, "listener.security.protocol.map"),
        (LEAST | {"listeners": "PLAINTEXT://:1,PLAINTEXT://:2"}, "twice"),
        (LEAST | {"listener.security.protocol.map": "A:NOPE"}, "NAME:PROTOCOL"),
        (LEAST | {"advertised.listeners": "SSL://x:1"}, "not one of the listeners"),
        (LEAST | {"max.connections.per.ip.overrides": "x"}, "address:count"),
        (LEAST | {"log.dirs": ""}, "log.dirs must name at least one directory"),
        (LEAST | {"log.dir": " "}, "log.dir must name at least one directory"),
        (
            LEAST | {"listeners": "CONTROLLER://:1", "controller.listener.names": "CONTROLLER"},
            "at least one listener",
        ),
        (
            LEAST
            | {
                "listeners": "PLAINTEXT://:1,CONTROLLER://:2",
                "controller.listener.names": "CONTROLLER",
                "advertised.listeners": "CONTROLLER://here:2",
            },
            "at least one listener",
        ),
    ],
)
def test_refused(texts: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        Settings.parse(texts)
    assert says in str(raised.value)


# --- what is promised and not served -----------------------------------------------------------------------

COMBINED = LEAST | {
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
}
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("authorizer.class.name", "kafka.security.authorizer.AclAuthorizer", "loads no Java classes"),
        ("super.users", "User:admin", "without an authorizer everybody may do everything"),
        ("allow.everyone.if.no.acl.found", "false", "without an authorizer everybody may do everything"),
        ("listener.name.external.principal.builder.class", "com.example.P", "loads no Java classes"),
        ("principal.builder.class", "com.example.Principals", "loads no Java classes"),
        ("create.topic.policy.class.name", "com.example.Names", "loads no Java classes"),
        ("alter.config.policy.class.name", "com.example.Limits", "loads no Java classes"),
        ("client.quota.callback.class", "com.example.Quotas", "loads no Java classes"),
        ("listeners", "SSL://:9093", "SSL needs a certificate"),
        ("process.roles", "broker", "needs controller.quorum.voters"),
        ("process.roles", "controller", "controller.listener.names"),
        ("controller.quorum.voters", "4@localhost:9093,5@other:9093", "does not name this node, 3"),
        ("controller.quorum.voters", "3@localhost:9093,3@other:9093", "names a node twice"),
        ("controller.quorum.voters", "localhost:9093", "expected id@host:port"),
        ("controller.quorum.voters", "3@localhost:9093,4@other:0", "expected id@host:port"),
        ("controller.quorum.voters", "3@localhost:9093,4@other:99999", "expected id@host:port"),
        ("controller.quorum.bootstrap.servers", "localhost:9093,other:9093", "=other:9093 is not"),
        ("controller.quorum.bootstrap.servers", "localhost:19093", "=localhost:19093 is not"),
        ("controller.quorum.bootstrap.servers", "localhost", "expected host:port"),
    ],
)
def test_what_is_promised_and_not_served_is_refused(name: str, value: str, says: str) -> None:
    """Whoever sets such a key relies on it; a broker that ignores it would be open, or alone."""
    with pytest.raises(InvalidConfig) as raised:
        Settings.parse(COMBINED | {name: value})
    assert says in str(raised.value)
    assert name in str(raised.value)


@pytest.mark.parametrize("name", [AUTHORIZER, "standard", " standard "])
def test_an_authorizer(name: str) -> None:
    texts = LEAST | {"authorizer.class.name": name}
    assert Settings.parse(texts).authorizer == (frozenset(), False)
    users = {"super.users": " User:a;User:CN=b,O=c ;; ", "allow.everyone.if.no.acl.found": "TRUE"}
    settings = Settings.parse(texts | users)
    assert settings.authorizer == (frozenset(("User:a", "User:CN=b,O=c")), True)
    assert settings.unknown == {}
    assert Settings.parse(LEAST).authorizer is None


@pytest.mark.parametrize("users", ["admin", "User:a,b;c", ":x"])
def test_super_users_that_are_no_principals(users: str) -> None:
    texts = {"authorizer.class.name": "standard", "super.users": users}
    with pytest.raises(InvalidConfig, match=r"super\.users: expected principals as User:name"):
        Settings.parse(LEAST | texts)


def test_other_nodes_without_a_login_must_be_super_users() -> None:
    """Otherwise they would be refused before any rule can be read."""
    texts = COMBINED | {"authorizer.class.name": "standard"}
    several = {"controller.quorum.voters": "3@localhost:9093,4@other:9093"}
    assert Settings.parse(texts).authorizer is not None  # there is no other node
    with pytest.raises(InvalidConfig, match=r"come to listener CONTROLLER without a login"):
        Settings.parse(texts | several)
    alone = {"process.roles": "controller", "listeners": "CONTROLLER://:9093"}
    with pytest.raises(InvalidConfig, match=r"come to listener CONTROLLER without a login"):
        Settings.parse(texts | alone)
    users = {"super.users": "User:admin;User:ANONYMOUS"}
    assert Settings.parse(texts | several | users).authorizer is not None
    assert Settings.parse(texts | alone | users).authorizer is not None


def test_the_voters_of_a_quorum() -> None:
    voters = {"controller.quorum.voters": "4@other:9094,3@localhost:9093,5@[::1]:9095"}
    settings = Settings.parse(COMBINED | voters)
    assert settings.quorum_voters == ((3, "localhost", 9093), (4, "other", 9094), (5, "::1", 9095))
    assert {one.name for one in settings.served_listeners} == {"PLAINTEXT", "CONTROLLER"}
    alone = Settings.parse(COMBINED | {"controller.quorum.voters": "3@localhost:9093"})
    assert alone.quorum_voters == ()
    assert {one.name for one in alone.served_listeners} == {"PLAINTEXT"}
    with pytest.raises(InvalidConfig, match="no listener for the others"):
        Settings.parse(LEAST | voters)
    broker = Settings.parse(LEAST | voters | {"node.id": "9", "process.roles": "broker"})
    assert len(broker.quorum_voters) == 3
    with pytest.raises(InvalidConfig, match="names this node, 4"):
        Settings.parse(LEAST | voters | {"node.id": "4", "process.roles": "broker"})


TLS = {
    "listeners": "PLAINTEXT://:9092,OUTSIDE://:9094",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:SSL",
    "ssl.keystore.location": "server.pem",
}


class TestTls:
    """Files are read only when the process starts."""

    def test_what_a_listener_sets_for_itself_counts(self) -> None:
        texts = TLS | {
            "listener.name.outside.ssl.keystore.location": "outside.pem",
            "listener.name.outside.ssl.enabled.protocols": "TLSv1.3",
            "listener.name.other.ssl.enabled.protocols": "TLSv1.2",
            "ssl.truststore.location": "ca.pem",
            "ssl.client.auth": "requested",
        }
        settings = Settings.parse(LEAST | texts)
        assert [one.uses_tls for one in settings.listeners] == [False, True]
        tls = tls_settings(settings.texts, "OUTSIDE")
        assert (tls.keystore, tls.truststore) == ("outside.pem", "ca.pem")
        assert (tls.client_auth, tls.versions) == ("requested", ("TLSv1.3",))
        assert tls.names["ssl.keystore.location"] == "listener.name.outside.ssl.keystore.location"
        assert tls.names["ssl.truststore.location"] == "ssl.truststore.location"

    @pytest.mark.parametrize(
        ("texts", "says"),
        [
            ({"ssl.keystore.location": ""}, "OUTSIDE needs a certificate"),
            ({"ssl.keystore.location": "", "ssl.keystore.key": "k"}, "OUTSIDE needs a certificate"),
            ({"ssl.keystore.certificate.chain": "c"}, "both set a certificate"),
            ({"ssl.client.auth": "required"}, "ssl.client.auth=required needs ssl.truststore.location"),
            ({"listener.name.outside.ssl.client.auth": "yes"}, "listener.name.outside.ssl.client.auth"),
            ({"ssl.enabled.protocols": "TLSv1.1"}, "ssl.enabled.protocols=TLSv1.1: must be"),
            ({"ssl.principal.mapping.rules": "RULE:(/x/"}, "ssl.principal.mapping.rules"),
        ],
    )
    def test_refused(self, texts: dict[str, str], says: str) -> None:
        with pytest.raises(InvalidConfig) as raised:
            Settings.parse(LEAST | TLS | texts)
        assert says in str(raised.value)

    def test_secrets_are_not_printed(self) -> None:
        texts = {"listeners": "SSL://:1", "ssl.keystore.certificate.chain": "c", "ssl.keystore.key": "hidden"}
        settings = Settings.parse(LEAST | texts | {"ssl.key.password": "hidden"})
        assert "hidden" not in repr(tls_settings(settings.texts, "SSL"))


SASL = {"listeners": "SASL_PLAINTEXT://127.0.0.1:9092", "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512"}
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class TestSasl:
    def test_what_a_listener_sets_for_itself_counts(self) -> None:
        texts = SASL | {
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{MODULE} username="x" user_alice="a,=";',
            "listener.name.sasl_plaintext.connections.max.reauth.ms": "2000",
            "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "1000",
            "connections.max.reauth.ms": "3000",
            "sasl.jaas.config": "for clients",
        }
        settings = Settings.parse(LEAST | texts)
        assert [one.uses_sasl for one in settings.listeners] == [True]
        sasl = sasl_settings(settings.texts, "SASL_PLAINTEXT", is_encrypted=False, is_loopback=True)
        assert sasl.mechanisms == ("PLAIN", "SCRAM-SHA-512")
        assert (sasl.passwords, sasl.refusal_delay_ms, sasl.frame_bytes_max) == (
            {"alice": "a,="},
            100,
            524_288,
        )
        assert sasl.session_ms == {"PLAIN": 1_000, "SCRAM-SHA-512": 2_000}
        assert "a,=" not in repr(sasl)

    @pytest.mark.parametrize(
        ("texts", "says"),
        [
            ({"sasl.enabled.mechanisms": "PLAIN,GSSAPI"}, "GSSAPI is not served"),
            ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, "needs sasl.oauthbearer.jwks.endpoint.url"),
            ({"sasl.enabled.mechanisms": ""}, "sasl.enabled.mechanisms is empty"),
            ({"listeners": "SASL_PLAINTEXT://:9092"}, "PLAIN sends passwords as they are"),
            ({"listeners": "SASL_PLAINTEXT://10.0.0.1:9092"}, "PLAIN sends passwords as they are"),
            ({"listeners": "SASL_PLAINTEXT://127.example.org:9092"}, "PLAIN sends passwords as they are"),
            ({"listeners": "SASL_SSL://:9092"}, "SASL_SSL needs a certificate"),
            (
                {"listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{MODULE} user_alice="hidden"'},
                "listener.name.sasl_plaintext.plain.sasl.jaas.config cannot be read: it must end",
            ),
            ({"listener.name.sasl_plaintext.plain.sasl.jaas.config": "X required;"}, "has a X: must be a"),
        ],
    )
    def test_refused(self, texts: dict[str, str], says: str) -> None:
        with pytest.raises(InvalidConfig) as raised:
            Settings.parse(LEAST | SASL | texts)
        assert says in str(raised.value)
        assert "hidden" not in str(raised.value)

    URL = "sasl.oauthbearer.jwks.endpoint.url"

    @pytest.mark.parametrize(
        ("texts", "says"),
        [
            ({}, "needs sasl.oauthbearer.jwks.endpoint.url"),
            ({URL: ""}, "needs sasl.oauthbearer.jwks.endpoint.url"),
            ({URL: "http://issuer/keys"}, "must be https://"),
            ({URL: "ftp://issuer/keys"}, "must be https://"),
            ({URL: "http://127.example.org/keys"}, "must be https://"),
            ({URL: "http://localhost.example.org/keys"}, "must be https://"),
            ({URL: "http://[::2]/keys"}, "must be https://"),
            ({URL: "issuer/keys"}, "must be https://"),
            ({URL: "file:keys.json"}, "must be https://"),
            ({URL: "file://host/keys.json"}, "must be https://"),
            ({URL: "https:///keys"}, "must be https://"),
            ({URL: "https://[issuer/keys"}, "is not a URL"),
            ({URL: "https://issuer:port/keys"}, "is not a URL"),
            ({URL: "https://user:hidden@issuer/keys"}, "must not have a user or a password"),
            ({URL: "https://issuer/keys", "headrace.oauthbearer.unsigned.tokens": "true"}, "exclude"),
            (
                {
                    "headrace.oauthbearer.unsigned.tokens": "true",
                    "listeners": "SASL_SSL://:9092",
                    "ssl.keystore.location": "server.pem",
                },
                "can be reached from other machines",
            ),
            (
                {URL: "https://issuer/keys", "listeners": "SASL_PLAINTEXT://:9092"},
                "OAUTHBEARER sends tokens as they are",
            ),
            (
                {
                    "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": "a.B",
                    URL: "https://issuer/keys",
                },
                "loads no Java classes",
            ),
        ],
    )
    def test_refused_settings_of_oauth(self, texts: dict[str, str], says: str) -> None:
        with pytest.raises(InvalidConfig) as raised:
            Settings.parse(LEAST | SASL | {"sasl.enabled.mechanisms": "OAUTHBEARER"} | texts)
        assert says in str(raised.value)
        assert "hidden" not in str(raised.value)

    @pytest.mark.parametrize(
        "url",
        [
            "https://issuer/keys",
            "file:///etc/keys.json",
            "http://127.0.0.1:1/keys",
            "http://127.1.2.3/keys",
            "http://localhost/",
            "http://[::1]/",
        ],
    )
    def test_where_keys_may_be(self, url: str) -> None:
        package = "org.apache.kafka.common.security.oauthbearer"
        texts = {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            self.URL: "https://another/keys",
            f"listener.name.sasl_plaintext.oauthbearer.{self.URL}": url,
            "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": (
                f"{package}.OAuthBearerValidatorCallbackHandler"
            ),
            "sasl.oauthbearer.expected.audience": "a, b",
            "sasl.oauthbearer.expected.issuer": "https://issuer",
            "sasl.oauthbearer.sub.claim.name": "name",
        }
        settings = Settings.parse(LEAST | SASL | texts)
        sasl = sasl_settings(settings.texts, "SASL_PLAINTEXT", is_encrypted=False, is_loopback=True)
        assert sasl.oauth is not None
        assert sasl.oauth.keys is not None
        assert (sasl.oauth.keys.url, sasl.oauth.keys.refresh_ms) == (url, 3_600_000)
        rules = sasl.oauth.rules
        assert (rules.issuer, rules.audiences, rules.subject_claim, rules.clock_skew_s) == (
            "https://issuer",
            frozenset(("a", "b")),
            "name",
            30.0,
        )

    def test_oauth_without_its_packages(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("headrace.node.oauth_settings.is_installed", lambda: False)
        texts = SASL | {"sasl.enabled.mechanisms": "OAUTHBEARER", self.URL: "https://issuer/keys"}
        with pytest.raises(InvalidConfig, match=re.escape('pip install ".[oauth]"')):
            Settings.parse(LEAST | texts)

    def test_plain_on_every_address_is_for_tls(self) -> None:
        encrypted = {"listeners": "SASL_SSL://:9092", "ssl.keystore.location": "server.pem"}
        assert Settings.parse(LEAST | SASL | encrypted).listeners[0].uses_tls
        challenged = {"listeners": "SASL_PLAINTEXT://:9092", "sasl.enabled.mechanisms": "SCRAM-SHA-512"}
        assert Settings.parse(LEAST | challenged).listeners[0].uses_sasl


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("authorizer.class.name", ""),
        ("super.users", " "),
        ("allow.everyone.if.no.acl.found", "true"),
        ("ssl.client.auth", "required"),  # of listeners that are not there
        ("sasl.enabled.mechanisms", "PLAIN"),
        ("ssl.keystore.location", "server.p12"),
        ("security.inter.broker.protocol", "PLAINTEXT"),
        ("controller.quorum.voters", "3@other.example.org:9093"),
        ("controller.quorum.bootstrap.servers", ""),
        ("controller.quorum.bootstrap.servers", "localhost:9093,127.0.0.1:9093,[::1]:9093,HERE:9093"),
    ],
)
def test_what_promises_nothing_is_taken(name: str, value: str) -> None:
    assert Settings.parse(COMBINED | {name: value}, own_names=frozenset({"here"})).node_id == 3


@pytest.mark.parametrize("address", ["kafka-1.example.org:9093", "kafka-1.example.org:19093"])
def test_the_quorum_may_be_named_by_the_advertised_address(address: str) -> None:
    texts = COMBINED | {
        "advertised.listeners": f"PLAINTEXT://kafka-1.example.org:9092,CONTROLLER://{address}",
        "controller.quorum.bootstrap.servers": address,
    }
    settings = Settings.parse(texts)
    assert [one.name for one in settings.advertised_listeners] == ["PLAINTEXT"]
    assert [(one.host, one.port) for one in settings.advertised_controllers] == [
        ("kafka-1.example.org", int(address.rpartition(":")[2]))
    ]
    with pytest.raises(InvalidConfig, match="kafka-2"):
        Settings.parse(texts | {"controller.quorum.bootstrap.servers": "kafka-2.example.org:9093"})


def test_the_old_name_of_the_node_id() -> None:
    assert Settings.parse({"broker.id": "4"}).node_id == 4
