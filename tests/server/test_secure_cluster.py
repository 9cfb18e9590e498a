"""Three processes that reach each other by TLS and SASL alone, with an authorizer: a broker dies and the rest
goes on, and a node that the others do not trust stays outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from harness.certificates import Authority
from harness.headrace import COMMAND
from harness.secure_cluster import (
    ADMIN,
    ADMIN_PASSWORD,
    NODE,
    NODE_PASSWORD,
    SCRAM_MODULE,
    SecureCluster,
    SecureNode,
    plain_jaas,
)
from harness.tokens import IdentityProvider
from harness.wait import eventually, run_to_end

WAIT_S = 60


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def cluster(tmp_path: Path, authority: Authority) -> Iterator[SecureCluster]:
    with SecureCluster(tmp_path, authority) as cluster:
        yield cluster


def partition(admin: AdminClient) -> Any:
    """Of the broker that is asked, which may hear of the topic a moment later than others."""
    found: dict[int, Any] = {}

    def is_known() -> bool:
        found.update(admin.list_topics("t", timeout=WAIT_S).topics["t"].partitions)
        return 0 in found

    eventually(is_known, True)
    return found[0]


def survives_a_killed_leader(cluster: SecureCluster, **more: str | int | float | bool) -> None:
    """Records are written with acks=all, and all are there after the leader was killed in between. `more`:
    settings of clients.
    """
    admin = AdminClient(cluster.client() | more)
    admin.create_topics([NewTopic("t", 1, 3)])["t"].result(WAIT_S)
    eventually(lambda: len(partition(admin).isrs), 3)
    rule = AclBinding(
        ResourceType.TOPIC,
        "t",
        ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.ALL,
        AclPermissionType.ALLOW,
    )
    admin.create_acls([rule])[rule].result(WAIT_S)
    alice = cluster.client("alice", "alice-secret") | more
    producer = Producer(alice | {"enable.idempotence": True})
    acknowledged: list[int] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        acknowledged.append(int(message.value() or b""))

    leader = partition(admin).leader
    for number in range(200):
        producer.produce("t", str(number), on_delivery=delivered)
        producer.poll(0.005)
        if number == 100:
            cluster.nodes[leader].kill()
    assert producer.flush(WAIT_S) == 0
    assert acknowledged == list(range(200))
    assert partition(admin).leader != leader
    consumer = Consumer(cluster.client() | more | {"group.id": "g"})
    consumer.assign([TopicPartition("t", 0, 0)])
    read: list[int] = []
    while len(read) < 200:
        message = consumer.poll(WAIT_S)
        assert message is not None
        assert message.error() is None
        read.append(int(message.value() or b""))
    consumer.close()
    assert read == list(range(200))
    cluster.nodes[leader].start()
    eventually(lambda: len(partition(admin).isrs), 3)


def test_a_broker_dies_and_the_others_go_on(cluster: SecureCluster) -> None:
    cluster.start()
    survives_a_killed_leader(cluster)
    fenced = [
        line
        for node in cluster.nodes.values()
        for line in node.output().splitlines()
        if "broker_fenced" in line
    ]
    assert any("its process has ended" in line for line in fenced)


MUTUAL = {
    "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:SSL,NODES:SSL",
    "inter.broker.listener.name": "NODES",
    "listener.name.nodes.ssl.client.auth": "required",
    "listener.name.controller.ssl.client.auth": "required",
    "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/,DEFAULT",
}


def test_nodes_with_certificates_alone(tmp_path: Path, authority: Authority) -> None:
    """Clients have passwords; the nodes' principal is that of their certificate."""
    with SecureCluster(tmp_path, authority, MUTUAL, listeners=("NODES",)) as cluster:
        cluster.start()
        survives_a_killed_leader(cluster)


SESSIONS = {"connections.max.reauth.ms": "1500", "headrace.http.metrics.anonymous": "true"}


def test_sessions_of_nodes_are_renewed(tmp_path: Path, authority: Authority) -> None:
    with SecureCluster(tmp_path, authority, SESSIONS) as cluster:
        cluster.start()
        admin = AdminClient(cluster.client())
        admin.create_topics([NewTopic("t", 1, 3)])["t"].result(WAIT_S)
        eventually(lambda: len(partition(admin).isrs), 3)
        logins = cluster.logins()
        eventually(lambda: cluster.logins() > logins + 20, expected=True)
        producer = Producer(cluster.client() | {"acks": "all"})
        producer.produce("t", b"after")
        assert producer.flush(WAIT_S) == 0
        assert len(partition(admin).isrs) == 3
        for node in cluster.nodes.values():
            assert "the session has ended" not in node.output()
            assert "broker_fenced" not in node.output()


TOKENS = {
    "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
    "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
    "sasl.mechanism.controller.protocol": "OAUTHBEARER",
    "sasl.oauthbearer.expected.audience": "headrace",
    "sasl.oauthbearer.client.credentials.client.id": NODE,
    "sasl.oauthbearer.client.credentials.client.secret": "secret",
    "headrace.http.metrics.anonymous": "true",
}


def test_nodes_with_tokens_that_are_renewed(tmp_path: Path, authority: Authority) -> None:
    """They live for seconds, and so do the sessions."""
    with IdentityProvider() as issuer:
        issuer.lifetime_s = 12.0
        endpoints = {
            "sasl.oauthbearer.jwks.endpoint.url": f"{issuer.url}/keys",
            "sasl.oauthbearer.token.endpoint.url": f"{issuer.url}/token",
        }
        with SecureCluster(tmp_path, authority, TOKENS | endpoints) as cluster:
            cluster.start()
            admin = AdminClient(cluster.client())
            admin.create_topics([NewTopic("t", 1, 3)])["t"].result(WAIT_S)
            eventually(lambda: len(partition(admin).isrs), 3)
            handed_out = issuer.tokens_given
            eventually(lambda: issuer.tokens_given >= handed_out + 6, expected=True, timeout_s=120)
            producer = Producer(cluster.client() | {"acks": "all"})
            producer.produce("t", b"after")
            assert producer.flush(WAIT_S) == 0
            assert len(partition(admin).isrs) == 3
            for node in cluster.nodes.values():
                assert "the session has ended" not in node.output()
                assert "login_token_not_fetched" not in node.output()
                assert "eyJ" not in node.output(), "a token was printed"


def start_again(cluster: SecureCluster, **changed: str) -> SecureNode:
    """The third node, which was a member before, with other settings; it does not get ready."""
    cluster.start()
    node = cluster.nodes[3]
    node.kill()
    node.settings |= {key.replace("_", "."): value for key, value in changed.items()}
    node.launch()
    return node


def test_a_node_with_a_wrong_password_is_not_let_in(cluster: SecureCluster) -> None:
    key = "listener.name.controller.plain.sasl.jaas.config"
    stranger = start_again(cluster, **{key: plain_jaas("mistyped")})
    eventually(lambda: told(cluster, 3, "peer_login_failed") != [], expected=True)
    (line, *_) = told(cluster, 3, "peer_login_failed")
    assert "listener=controllers" in line
    assert "refused user node with PLAIN" in line
    eventually(lambda: told(cluster, (1, 2), "login_refused") != [], expected=True)
    admin = AdminClient(cluster.client())
    admin.create_topics([NewTopic("t", 1, 2)])["t"].result(WAIT_S)
    assert not stranger.is_serving()
    # one whose process has ended stays listed for some seconds
    eventually(lambda: 3 in admin.list_topics(timeout=WAIT_S).brokers, expected=False)
    for node in cluster.nodes.values():
        assert "mistyped" not in node.output()
        assert NODE_PASSWORD not in node.output()


def test_a_node_whose_certificate_nobody_trusts_is_not_let_in(tmp_path: Path, authority: Authority) -> None:
    with SecureCluster(tmp_path, authority, MUTUAL, listeners=("NODES",)) as cluster:
        other = Authority(tmp_path / "other", "other").issue("node")
        stranger = start_again(cluster, ssl_keystore_location=str(other.both))
        eventually(lambda: "does not trust the authority" in str(told(cluster, 3, "peer_login_failed")), True)
        refusal = "client's certificate is not accepted"
        eventually(
            lambda: any(refusal in line for line in told(cluster, (1, 2), "connection_closed")), expected=True
        )
        admin = AdminClient(cluster.client())
        admin.create_topics([NewTopic("t", 1, 2)])["t"].result(WAIT_S)
        assert not stranger.is_serving()
        eventually(lambda: 3 in admin.list_topics(timeout=WAIT_S).brokers, expected=False)


def test_a_certificate_for_another_name_is_refused(cluster: SecureCluster, authority: Authority) -> None:
    """By the brokers that would have to fetch from this one."""
    other = authority.issue("elsewhere", "DNS:elsewhere.example.org")
    start_again(cluster, ssl_keystore_location=str(other.both)).wait_until_ready()
    admin = AdminClient(cluster.client())
    admin.create_topics([NewTopic("t", 6, 3)])["t"].result(WAIT_S)  # it leads some of them
    eventually(lambda: reasons(cluster, 3) != set(), expected=True)
    assert all("was issued for another name" in reason for reason in reasons(cluster, 3))


def told(cluster: SecureCluster, nodes: int | tuple[int, ...], event: str) -> list[str]:
    """The lines of an event in the logs of some nodes."""
    ids = (nodes,) if isinstance(nodes, int) else nodes
    lines = [line for id in ids for line in cluster.nodes[id].output().splitlines()]
    return [line for line in lines if f" {event} " in line]


def reasons(cluster: SecureCluster, peer: int) -> set[str]:
    """Why the other nodes could not log in at this one."""
    lines = told(cluster, (1, 2), "peer_login_failed")
    found = {line.partition("reason=")[2] for line in lines if f"node={peer} " in line}
    return {reason for reason in found if "was closed" not in reason}  # when it was killed


SCRAM = {
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f'{SCRAM_MODULE} username="{NODE}" '
    f'password="{NODE_PASSWORD}";',
}


def test_brokers_with_scram_whose_users_were_there_before_the_first_start(
    tmp_path: Path, authority: Authority
) -> None:
    """Controllers have passwords in their files: they know no user before one of them is elected."""
    with SecureCluster(tmp_path, authority, SCRAM) as cluster:
        for node in cluster.nodes.values():
            for user, password in ((NODE, NODE_PASSWORD), (ADMIN, ADMIN_PASSWORD), ("alice", "alice-secret")):
                command = [*COMMAND, "user", "add", user, "--data", str(node.data), "--password-stdin"]
                done = run_to_end(command, input=f"{password}\n")
                assert done.returncode == 0, done.stderr
        cluster.start()
        survives_a_killed_leader(cluster, **{"sasl.mechanism": "SCRAM-SHA-512"})
