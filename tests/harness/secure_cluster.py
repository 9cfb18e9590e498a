"""Three nodes as processes, broker and controller in one each, that reach each other by TLS and SASL.

`SASL_SSL` is the listener of clients and other brokers, `CONTROLLER` that of the quorum. All nodes have an
authorizer; nodes are super users, and so is the administrator.
"""

from __future__ import annotations

import base64
import os
import re
from pathlib import Path
from typing import Self
from urllib.request import urlopen

from harness.certificates import Authority
from harness.headrace import READY, Headrace
from harness.kafka import free_ports

NODE, NODE_PASSWORD = "node", "the nodes' secret, = with signs"
ADMIN, ADMIN_PASSWORD = "admin", "the admin's secret"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"


def plain_jaas(password: str = NODE_PASSWORD) -> str:
    """With this node's own password, and those that are right."""
    return (
        f'{PLAIN_MODULE} username="{NODE}" password="{password}" user_{NODE}="{NODE_PASSWORD}" '
        f'user_{ADMIN}="{ADMIN_PASSWORD}" user_alice="alice-secret";'
    )


class SecureNode(Headrace):
    """Ready when it says so: what it answers needs a login."""

    def is_serving(self) -> bool:
        return READY.search(self.output(), self._mark) is not None

    def launch(self) -> None:
        self._mark = len(self.output())
        super().launch()

    _mark = 0


class SecureCluster:
    def __init__(
        self,
        directory: Path,
        authority: Authority,
        more: dict[str, str] | None = None,
        *,
        listeners: tuple[str, ...] = (),
        count: int = 3,
    ) -> None:
        """`more` replaces settings of all nodes; `listeners` are further ones."""
        self.authority = authority
        self.ids = tuple(range(1, count + 1))
        ports = free_ports((3 + len(listeners)) * count)
        self.ports, self.controller_ports, self.metrics_ports, *others = (
            dict(zip(self.ids, ports[at : at + count], strict=True)) for at in range(0, len(ports), count)
        )
        self._others = dict(zip(listeners, others, strict=True))
        certificate = authority.issue("node")
        self.common = {
            "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:SASL_SSL",
            "inter.broker.listener.name": "SASL_SSL",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(
                f"{id}@127.0.0.1:{port}" for id, port in self.controller_ports.items()
            ),
            "headrace.cluster.id": base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("="),
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": plain_jaas(),
            "listener.name.controller.plain.sasl.jaas.config": plain_jaas(),
            "ssl.keystore.location": str(certificate.both),
            "ssl.truststore.location": str(authority.certificate),
            "authorizer.class.name": "standard",
            "super.users": f"User:{NODE};User:{ADMIN}",
            "broker.heartbeat.interval.ms": "500",
            "broker.session.timeout.ms": "20000",  # only a refused connection fences a broker sooner
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "offsets.topic.replication.factor": "3",
            "offsets.topic.num.partitions": "3",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.num.partitions": "3",
            **(more or {}),
        }
        self.nodes = {id: SecureNode(directory / f"node-{id}", self.settings_of(id)) for id in self.ids}

    def settings_of(self, id: int) -> dict[str, str]:
        return self.common | {
            "node.id": str(id),
            "listeners": ",".join(
                f"{name}://127.0.0.1:{ports[id]}"
                for name, ports in {
                    "SASL_SSL": self.ports,
                    "CONTROLLER": self.controller_ports,
                    **self._others,
                }.items()
            ),
            "headrace.metrics.port": str(self.metrics_ports[id]),
        }

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def client(
        self, user: str = ADMIN, password: str = ADMIN_PASSWORD
    ) -> dict[str, str | int | float | bool]:
        """Settings of a confluent-kafka client."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": password,
            "ssl.ca.location": str(self.authority.certificate),
            "log_level": 0,
        }

    def start(self) -> Self:
        """All of them: none is ready before most of them run."""
        for node in self.nodes.values():
            node.launch()
        for node in self.nodes.values():
            node.wait_until_ready()
        return self

    def logins(self) -> int:
        """That all nodes have accepted so far."""
        total = 0
        for port in self.metrics_ports.values():
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
                text = answer.read().decode()
            found = re.search(r"^headrace_logins_total (\d+)", text, re.MULTILINE)
            assert found is not None
            total += int(found[1])
        return total

    def kill(self) -> None:
        for node in self.nodes.values():
            node.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
