"""Settings of connections between nodes: what is used, and what a node refuses to start with."""

from __future__ import annotations

import pytest

from headrace.machines.configs.values import InvalidConfig
from headrace.machines.security.login_tokens import RefreshRules
from headrace.node.node_security import OwnLogin, check_between_nodes, to_brokers, to_controllers
from headrace.node.settings import Settings
from headrace.node.token_logins import TokenLogin

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
CLUSTER = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "INTERNAL://:9092,CONTROLLER://:9093",
    "listener.security.protocol.map": "INTERNAL:SASL_SSL,CONTROLLER:SASL_SSL",
    "inter.broker.listener.name": "INTERNAL",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@one:9093,2@two:9093,3@three:9093",
    "ssl.keystore.location": "node.pem",
    "ssl.truststore.location": "ca.pem",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.internal.scram-sha-512.sasl.jaas.config": f'{SCRAM} username="b" password="secret-b";',
    "listener.name.controller.plain.sasl.jaas.config": f'{PLAIN} username="c" password="secret-c" '
    'user_c="secret-c";',
}
BROKER = CLUSTER | {
    "node.id": "4",
    "process.roles": "broker",
    "listeners": "INTERNAL://:9092",
    "listener.name.controller.plain.sasl.jaas.config": f'{PLAIN} username="c" password="secret-c";',
}
TOKENS = CLUSTER | {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
    "sasl.mechanism.controller.protocol": "OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": "https://issuer.example/keys",
    "sasl.oauthbearer.token.endpoint.url": "https://issuer.example/token",
    "sasl.oauthbearer.client.credentials.client.id": "node-1",
    "sasl.oauthbearer.client.credentials.client.secret": "secret-t",
}
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
OPEN = {"listener.security.protocol.map": "INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"}


def test_each_listener_has_its_own_login_and_certificates() -> None:
    settings = Settings.parse(CLUSTER | {"listener.name.controller.ssl.truststore.location": "quorum-ca.pem"})
    brokers, controllers = to_brokers(settings), to_controllers(settings)
    assert brokers is not None
    assert controllers is not None
    assert brokers.login == OwnLogin("SCRAM-SHA-512", "b", "secret-b")
    assert controllers.login == OwnLogin("PLAIN", "c", "secret-c")
    assert brokers.tls is not None
    assert controllers.tls is not None
    assert (brokers.tls.keystore, brokers.tls.truststore) == ("node.pem", "ca.pem")
    assert controllers.tls.truststore == "quorum-ca.pem"
    assert brokers.tls.checks_names
    assert "secret" not in repr((brokers, controllers))


def test_tokens_from_an_identity_provider() -> None:
    texts = TOKENS | {"sasl.oauthbearer.scope": "cluster", "sasl.login.refresh.window.factor": "0.6"}
    settings = Settings.parse(texts)
    brokers, controllers = to_brokers(settings), to_controllers(settings)
    assert brokers is not None
    assert controllers is not None
    refresh = RefreshRules(0.6, 0.05, 60, 300, 100, 10_000)
    expected = TokenLogin("https://issuer.example/token", "node-1", "secret-t", "cluster", refresh)
    assert brokers.login == controllers.login == expected
    assert "secret-t" not in repr(brokers)


def test_tokens_as_kafkas_older_settings_have_it() -> None:
    prefix = "listener.name.controller.oauthbearer"
    texts = TOKENS | {
        "sasl.oauthbearer.client.credentials.client.id": "",
        "sasl.oauthbearer.client.credentials.client.secret": "",
        "listener.name.internal.oauthbearer.sasl.jaas.config": f'{BEARER} clientId="b" clientSecret="s";',
        "listener.name.internal.oauthbearer.sasl.login.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
        ),
        f"{prefix}.sasl.oauthbearer.token.endpoint.url": "file:///run/token.jwt",
    }
    settings = Settings.parse(texts)
    brokers, controllers = to_brokers(settings), to_controllers(settings)
    assert brokers is not None
    assert controllers is not None
    assert isinstance(brokers.login, TokenLogin)
    assert isinstance(controllers.login, TokenLogin)
    assert (brokers.login.client_id, brokers.login.client_secret) == ("b", "s")
    assert (controllers.login.url, controllers.login.client_id) == ("file:///run/token.jwt", "")


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ({"sasl.oauthbearer.token.endpoint.url": ""}, "token.endpoint.url is missing"),
        ({"sasl.oauthbearer.token.endpoint.url": "http://issuer.example/t"}, "must be https://"),
        ({"sasl.oauthbearer.token.endpoint.url": "https://a:b@issuer.example/t"}, "must not have a user"),
        ({"sasl.oauthbearer.client.credentials.client.secret": ""}, "client.secret are missing"),
        ({"listener.name.internal.oauthbearer.sasl.jaas.config": f'{PLAIN} a="b";'}, "PlainLoginModule"),
        ({"sasl.login.callback.handler.class": "com.example.Handler"}, "loads no Java classes"),
        ({"sasl.oauthbearer.jwt.retriever.class": "com.example.Retriever"}, "loads no Java classes"),
        (
            {"listener.security.protocol.map": "INTERNAL:SASL_SSL,CONTROLLER:SASL_PLAINTEXT"},
            "OAUTHBEARER",
        ),
    ],
)
def test_tokens_that_could_not_be_had(texts: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        check_between_nodes(Settings.parse(TOKENS | texts))
    assert says in str(raised.value)
    assert "secret-t" not in str(raised.value)


def test_without_encryption_nothing_is_needed() -> None:
    settings = Settings.parse(CLUSTER | OPEN)
    assert to_brokers(settings) is None
    assert to_controllers(settings) is None


def test_a_broker_alone_needs_no_certificate_for_the_controllers() -> None:
    texts = BROKER | {
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT,CONTROLLER:SSL",
        "ssl.keystore.location": "",
    }
    controllers = to_controllers(Settings.parse(texts))
    assert controllers is not None
    assert controllers.login is None
    assert controllers.tls is not None
    assert controllers.tls.keystore is None


@pytest.mark.parametrize("text", ["", "none"])
def test_the_check_of_names_can_be_turned_off(text: str) -> None:
    for key in (
        "ssl.endpoint.identification.algorithm",
        "listener.name.internal.ssl.endpoint.identification.algorithm",
    ):
        brokers = to_brokers(Settings.parse(CLUSTER | {key: text}))
        assert brokers is not None
        assert brokers.tls is not None
        assert not brokers.tls.checks_names


def test_the_protocol_alone_names_the_listener() -> None:
    texts = {key: text for key, text in CLUSTER.items() if key != "inter.broker.listener.name"} | {
        "listeners": "PLAINTEXT://:9092,SSL://:9094,CONTROLLER://:9093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:SASL_SSL",
        "security.inter.broker.protocol": "SSL",
    }
    settings = Settings.parse(texts)
    assert (settings.inter_broker_listener_name, settings.inter_broker_protocol) == ("SSL", "SSL")
    assert Settings.parse(texts | {"security.inter.broker.protocol": "PLAINTEXT"}).inter_broker_protocol == (
        "PLAINTEXT"
    )


AUTHORIZER = {"authorizer.class.name": "standard", "super.users": "User:c"}


def test_a_node_that_is_a_super_user_may_start() -> None:
    assert Settings.parse(CLUSTER | AUTHORIZER).authorizer is not None


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ({"security.inter.broker.protocol": "SSL"}, "both say how brokers reach each other"),
        ({"inter.broker.listener.name": "OTHER"}, "advertises no listener OTHER"),
        ({"inter.broker.listener.name": "CONTROLLER"}, "advertises no listener CONTROLLER"),
        ({"sasl.mechanism.inter.broker.protocol": "GSSAPI"}, "sasl.mechanism.inter.broker.protocol=GSSAPI"),
        ({"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"}, "scram-sha-256.sasl.jaas.config"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "is not in sasl.enabled.mechanisms=PLAIN"),
        (
            {"listener.name.internal.sasl.enabled.mechanisms": "PLAIN"},
            "could not log in at listener INTERNAL",
        ),
        (
            {"sasl.mechanism.controller.protocol": "SCRAM-SHA-512"},
            "scram-sha-512.sasl.jaas.config is missing",
        ),
        (
            {
                "sasl.mechanism.controller.protocol": "SCRAM-SHA-512",
                "listener.name.controller.scram-sha-512.sasl.jaas.config": f'{SCRAM} username="b" '
                'password="x";',
            },
            "before they know any user",
        ),
        (
            {"listener.name.controller.plain.sasl.jaas.config": f'{PLAIN} username="c" password="secret-c";'},
            'needs user_c="…"',
        ),
        ({"listener.name.controller.plain.sasl.jaas.config": f'{PLAIN} user_c="x";'}, "needs username="),
        ({"listener.name.controller.plain.sasl.jaas.config": "x"}, "cannot be read"),
        ({"listener.name.controller.plain.sasl.jaas.config": f"{SCRAM};"}, "must be a PlainLoginModule"),
        ({"ssl.endpoint.identification.algorithm": "ldap"}, "must be https"),
        (AUTHORIZER | {"super.users": "User:b"}, "Add User:c"),
    ],
)
def test_refused(texts: dict[str, str], says: str) -> None:
    with pytest.raises(InvalidConfig) as raised:
        Settings.parse(CLUSTER | texts)
    assert says in str(raised.value)
    assert "secret" not in str(raised.value)


def test_plain_does_not_leave_the_machine_without_tls() -> None:
    texts = BROKER | {"listener.security.protocol.map": "INTERNAL:SASL_SSL,CONTROLLER:SASL_PLAINTEXT"}
    with pytest.raises(InvalidConfig, match="would send the password to one as it is"):
        Settings.parse(texts)
    assert Settings.parse(texts | {"controller.quorum.voters": "1@localhost:9093,2@127.0.0.1:9094"})


def test_one_controller_may_know_users_of_scram() -> None:
    texts = BROKER | {
        "controller.quorum.voters": "1@one:9093",
        "sasl.mechanism.controller.protocol": "SCRAM-SHA-512",
        "listener.name.controller.scram-sha-512.sasl.jaas.config": f'{SCRAM} username="b" password="x";',
    }
    assert Settings.parse(texts).quorum_voters


def test_dynamic_settings_name_other_certificates() -> None:
    settings = Settings.parse(CLUSTER)
    dynamic = {
        "listener.name.internal.ssl.keystore.location": "new.pem",
        "ssl.truststore.location": "new-ca.pem",
        "log.retention.ms": "1",
    }
    changed = settings.overlaid(dynamic, {})
    brokers, controllers = to_brokers(changed), to_controllers(changed)
    assert brokers is not None
    assert controllers is not None
    assert brokers.tls is not None
    assert controllers.tls is not None
    assert (brokers.tls.keystore, brokers.tls.truststore) == ("new.pem", "new-ca.pem")
    assert (controllers.tls.keystore, controllers.tls.truststore) == ("node.pem", "new-ca.pem")
    assert changed.texts == settings.texts
    assert to_brokers(changed.overlaid({}, {})) == to_brokers(settings)


def test_certificates_without_names_of_clients_leave_nodes_anonymous() -> None:
    """TLS alone encrypts: nodes that show no certificate would have no rights."""
    texts = CLUSTER | AUTHORIZER | {"listener.security.protocol.map": "INTERNAL:SSL,CONTROLLER:SSL"}
    with pytest.raises(InvalidConfig, match="come to listener CONTROLLER without a login"):
        Settings.parse(texts)
    assert Settings.parse(texts | {"ssl.client.auth": "required"})
