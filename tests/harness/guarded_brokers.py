"""Two brokers with an authorizer and the same users, Kafka and Headrace, and what a test does to both:
logins, rules, requests. The users log in with PLAIN on a listener of this machine; `admin` is a super user.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from harness.broker import Broker
from harness.headrace import Headrace
from harness.kafka import Kafka, free_ports
from harness.message_socket import MessageSocket
from harness.quick_coordinators import QUICK_COORDINATORS
from headrace.machines.security.acl_rules import Operation, PatternType, Permission, ResourceType
from headrace.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from headrace.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from headrace.protocol.messages.describe_acls import DescribeAclsRequest
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest

USERS = ("ada", "eve", "admin")
PASSWORD = "secret"
PROPAGATED_S = 20
ANSWER_S = 4

Rule = tuple[Operation, ResourceType, str, str, Permission]  # of a principal, on a resource with this name


def settings(port: int) -> dict[str, str]:
    users = " ".join(f'user_{user}="{PASSWORD}"' for user in USERS)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {
        "listener.security.protocol.map": "LOGIN:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": f"{module} required {users};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # Kafka's broker and controller come to each other without a login
        "super.users": "User:admin;User:ANONYMOUS",
        **QUICK_COORDINATORS,
    }


def guarded_kafka(directory: Path) -> tuple[Kafka, int]:
    broker = Kafka(directory)
    broker.port, broker.controller_port, port = free_ports(3)
    broker.settings = settings(port) | {
        "listeners": f"LOGIN://127.0.0.1:{port},PLAINTEXT://127.0.0.1:{broker.port},"
        f"CONTROLLER://127.0.0.1:{broker.controller_port}"
    }
    return broker, port


def guarded_headrace(directory: Path) -> tuple[Headrace, int]:
    broker = Headrace(directory)
    port, plain = free_ports(2)
    # the plaintext one is the last: it is the one that tells whether the broker serves
    broker.settings = settings(port) | {
        "listeners": f"LOGIN://127.0.0.1:{port},PLAINTEXT://127.0.0.1:{plain}"
    }
    return broker, port


class Guarded:
    """One of the brokers."""

    def __init__(self, broker: Broker, port: int) -> None:
        self.broker = broker
        self._port = port
        self.admin = self.log_in("admin")

    def close(self) -> None:
        self.admin.close()

    def log_in(self, user: str) -> MessageSocket:
        client = MessageSocket(self._port)
        assert client.ask("login", SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        message = f"\0{user}\0{PASSWORD}".encode()
        assert client.ask("login", SaslAuthenticateRequest(auth_bytes=message), 2).error_code == 0
        return client

    def ask(self, user: str, request: Any, version: int) -> Any:
        """On a new connection. A text instead of an answer: it waits, or the connection was closed."""
        client = self.log_in(user)
        try:
            return self.answer(client, request, version)
        finally:
            client.close()

    def answer(self, client: MessageSocket, request: Any, version: int) -> Any:
        client.socket.settimeout(ANSWER_S)
        try:
            return client.ask("matrix", request, version)
        except TimeoutError:
            return "waits"
        except (AssertionError, ConnectionError):
            return "closed"

    def set_rules(self, rules: list[Rule]) -> None:
        """These and no others; the broker knows them when this returns."""
        everything = DeleteAclsFilter(
            resource_type_filter=ResourceType.ANY,
            resource_name_filter=None,
            pattern_type_filter=PatternType.ANY,
            principal_filter=None,
            host_filter=None,
            operation=Operation.ANY,
            permission_type=Permission.ANY,
        )
        deleted = self.admin.ask("admin", DeleteAclsRequest(filters=[everything]), 3)
        assert deleted.filter_results[0].error_code == 0, deleted
        creations = [
            AclCreation(
                resource_type=resource,
                resource_name=name,
                resource_pattern_type=PatternType.LITERAL,
                principal=principal,
                host="*",
                operation=operation,
                permission_type=permission,
            )
            for operation, resource, name, principal, permission in dict.fromkeys(rules)
        ]
        if creations:
            created = self.admin.ask("admin", CreateAclsRequest(creations=creations), 3)
            assert not any(one.error_code for one in created.results), created
        until = time.monotonic() + PROPAGATED_S
        while self._count() != len(creations):
            assert time.monotonic() < until, "the broker does not learn its rules"
            time.sleep(0.005)

    def _count(self) -> int:
        asked = DescribeAclsRequest(
            resource_type_filter=ResourceType.ANY,
            resource_name_filter=None,
            pattern_type_filter=PatternType.ANY,
            principal_filter=None,
            host_filter=None,
            operation=Operation.ANY,
            permission_type=Permission.ANY,
        )
        answer = self.admin.ask("admin", asked, 3)
        return sum(len(resource.acls) for resource in answer.resources)
