"""Brokers with security for the benchmarks: Headrace and Kafka with the same users, rules and quotas.

Each has three listeners: PLAINTEXT, whose clients are super users and which the benchmarks use to prepare
things, LOGIN (SASL_PLAINTEXT) and SECURE (SASL_SSL), both by SCRAM. The clients that are measured are alice.
Her rights are rules among a thousand, and her quotas are more than she can use.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.generators import Login
from harness.broker import Broker
from harness.certificates import Authority
from harness.kafka import Kafka, free_ports
from harness.message_socket import MessageSocket
from harness.secure_kafka import PASSWORD, USER, scram_users
from headrace import Admin, QuotaEntity
from headrace.client.security.sasl import Plain, Scram
from headrace.machines.security.acl_rules import Operation, PatternType, Permission, ResourceType
from headrace.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest

RULES = 1000
QUOTAS: dict[str, float | None] = {
    "producer_byte_rate": 1e12,
    "consumer_byte_rate": 1e12,
    "request_percentage": 1e6,
    "controller_mutation_rate": 1e6,
}
PATIENCE_S = 30

LISTENERS = {"LOGIN": "SASL_PLAINTEXT", "SECURE": "SASL_SSL", "PLAINTEXT": "PLAINTEXT"}
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


class Secured:
    """Where a secured broker is reached, and by whom."""

    def __init__(self, broker: Broker, ports: dict[str, int], authority: Authority) -> None:
        self.broker = broker
        self.ports = ports
        self.without_tls = Login(USER, PASSWORD)
        self.with_tls = Login(USER, PASSWORD, authority.certificate)


def make(kind: type[Broker], directory: Path, more: dict[str, str] | None = None) -> Secured:
    """A broker of that kind, which is not started yet. `more`: other settings."""
    authority = Authority(directory / "certificates")
    broker = kind(directory)
    *found, controller = free_ports(len(LISTENERS) + 1)
    # the plaintext one is the last: it is the one that tells whether Headrace serves
    ports = dict(zip(LISTENERS, found, strict=True))
    listeners, protocols = dict(ports), dict(LISTENERS)
    if isinstance(broker, Kafka):
        broker.port, broker.controller_port = ports["PLAINTEXT"], controller
        listeners["CONTROLLER"], protocols["CONTROLLER"] = controller, "PLAINTEXT"
    advertised = {name: port for name, port in listeners.items() if name != "CONTROLLER"}
    broker.settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items()),
        "advertised.listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in advertised.items()),
        "listener.security.protocol.map": ",".join(f"{name}:{one}" for name, one in protocols.items()),
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue(broker.name).both),
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.login.scram-sha-256.sasl.jaas.config": _SCRAM,
        "listener.name.secure.scram-sha-256.sasl.jaas.config": _SCRAM,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",  # Kafka's broker and controller come to each other as such, too
        **(more or {}),
    }
    return Secured(broker, ports, authority)


def prepare(secured: Secured, topics: list[str], groups: str) -> None:
    """The user, her rights on these topics and on groups with this prefix, and her quotas."""
    client = MessageSocket(secured.ports["PLAINTEXT"])
    try:
        altered = client.ask("bench", scram_users()[0], 0)  # of SCRAM-SHA-256
        assert not any(one.error_code for one in altered.results), altered
        created = client.ask("bench", CreateAclsRequest(creations=rules(topics, groups)), 3)
        assert not any(one.error_code for one in created.results), created
    finally:
        client.close()
    with Admin({"bootstrap.servers": secured.broker.bootstrap}) as admin:
        admin.alter_quotas({QuotaEntity(user=USER): QUOTAS})


def rules(topics: list[str], groups: str) -> list[AclCreation]:
    """Alice's few, and others up to a thousand: for others on her topics, on other topics, and on prefixes
    of names.
    """
    hers = [
        _rule(ResourceType.TOPIC, topic, operation)
        for topic in topics
        for operation in (Operation.READ, Operation.WRITE)
    ]
    hers.append(_rule(ResourceType.GROUP, groups, Operation.READ, pattern=PatternType.PREFIXED))
    hers.append(_rule(ResourceType.GROUP, "perf", Operation.READ))
    others = []
    for number in range(RULES - len(hers)):
        match number % 3:
            case 0 if topics:
                topic = topics[number % len(topics)]
                others.append(_rule(ResourceType.TOPIC, topic, Operation.READ, user=f"user-{number}"))
            case 1:
                others.append(_rule(ResourceType.TOPIC, f"topic-{number}", Operation.WRITE))
            case _:
                prefixed = PatternType.PREFIXED
                others.append(_rule(ResourceType.TOPIC, f"team-{number}-", Operation.WRITE, pattern=prefixed))
    return hers + others


def _rule(
    kind: ResourceType,
    name: str,
    operation: Operation,
    *,
    user: str = USER,
    pattern: PatternType = PatternType.LITERAL,
) -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=f"User:{user}",
        host="*",
        operation=operation,
        permission_type=Permission.ALLOW,
    )


def log_in(client: MessageSocket, mechanism: Plain | Scram) -> None:
    handshake = client.ask("bench", SaslHandshakeRequest(mechanism=mechanism.name), 1)
    assert not handshake.error_code, handshake
    exchange = mechanism.exchange(random.SystemRandom(), None)
    message: bytes | None = exchange.first()
    while message is not None:
        answer = client.ask("bench", SaslAuthenticateRequest(auth_bytes=message), 1)
        assert not answer.error_code, answer
        message = exchange.answer(bytes(answer.auth_bytes))


def wait_until_allowed(attempt: Callable[[], object]) -> None:
    """Kafka's broker learns of users and rules a while after its controller has answered."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            attempt()
        except RuntimeError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)
        else:
            return
