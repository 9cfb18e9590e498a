"""Headrace with a listener for every kind of security, as `secure_kafka.py` has it: plaintext, TLS, TLS with
clients' certificates, SASL with and without TLS, and SASL with short sessions. Alice is the user, of every
mechanism.
"""

from __future__ import annotations

from pathlib import Path

from harness.certificates import Authority
from harness.headrace import Headrace
from harness.kafka import free_ports
from harness.secure_kafka import LISTENERS, PASSWORD, SESSION_MS, USER

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


class SecureHeadrace(Headrace):
    def __init__(self, directory: Path, authority: Authority) -> None:
        super().__init__(directory)
        self.certificate = authority.issue("headrace")
        self.ports = dict(zip((*LISTENERS, "PLAINTEXT"), free_ports(len(LISTENERS) + 1), strict=True))
        protocols = {**LISTENERS, "PLAINTEXT": "PLAINTEXT"}
        self.settings = {
            # the plaintext one is the last: it is the one that tells whether the broker serves
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items()),
            "advertised.listeners": ",".join(
                f"{name}://localhost:{port}" for name, port in self.ports.items()
            ),
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, protocol in protocols.items()
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificate.both),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.certificate),
            "listener.name.mutual.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.short.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.short.connections.max.reauth.ms": str(SESSION_MS),
        }
        for name in ("sasl", "short"):  # of SASLTLS by the users' SCRAM credentials
            key = f"listener.name.{name}.plain.sasl.jaas.config"
            self.settings[key] = f'{_MODULE} required user_{USER}="{PASSWORD}";'
