"""Kafka with a listener for every kind of security: plaintext, TLS, TLS with clients' certificates, SASL with
and without TLS, and SASL with short sessions. Alice is the user, of every mechanism.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from harness.certificates import Authority
from harness.kafka import Kafka, free_ports
from headrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)

USER, PASSWORD = "alice", "alice's secret, = with signs"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SESSION_MS = 1500

# name of the listener → its security protocol
LISTENERS = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "SASL": "SASL_PLAINTEXT",
    "SASLTLS": "SASL_SSL",
    "SHORT": "SASL_PLAINTEXT",
}

_PACKAGE = "org.apache.kafka.common.security"


class SecureKafka(Kafka):
    def __init__(self, directory: Path, authority: Authority) -> None:
        super().__init__(directory)
        self.ports: dict[str, int] = {}
        certificate = authority.issue("kafka")
        self.settings = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificate.both),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.certificate),
            "listener.name.mutual.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "inter.broker.listener.name": "PLAINTEXT",
        }
        for name in ("sasl", "sasltls", "short"):
            prefix = f"listener.name.{name}"
            plain = f'{_PACKAGE}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
            bearer = f"{_PACKAGE}.oauthbearer.OAuthBearerLoginModule required"
            self.settings |= {
                f"{prefix}.plain.sasl.jaas.config": plain,
                f"{prefix}.scram-sha-256.sasl.jaas.config": f"{_PACKAGE}.scram.ScramLoginModule required;",
                f"{prefix}.scram-sha-512.sasl.jaas.config": f"{_PACKAGE}.scram.ScramLoginModule required;",
                f"{prefix}.oauthbearer.sasl.jaas.config": f'{bearer} unsecuredLoginStringClaim_sub="kafka";',
            }
        for mechanism in MECHANISMS:
            name = f"listener.name.short.{mechanism.lower()}.connections.max.reauth.ms"
            self.settings[name] = str(SESSION_MS)
        self.settings["listener.name.short.sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-512,OAUTHBEARER"

    def write_settings(self) -> None:
        if not self.port:
            self.port, self.controller_port, *others = free_ports(2 + len(LISTENERS))
            self.ports = {"PLAINTEXT": self.port, **dict(zip(LISTENERS, others, strict=True))}
            protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **LISTENERS}
            every = {**self.ports, "CONTROLLER": self.controller_port}
            self.settings |= {
                "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in every.items()),
                "advertised.listeners": ",".join(
                    f"{name}://localhost:{port}" for name, port in self.ports.items()
                ),
                "listener.security.protocol.map": ",".join(
                    f"{name}:{protocol}" for name, protocol in protocols.items()
                ),
            }
        super().write_settings()


def scram_users() -> list[AlterUserScramCredentialsRequest]:
    """What makes alice known to both SCRAM mechanisms; Kafka takes a user once in a request."""
    salt = b"a grain of salt"
    return [
        AlterUserScramCredentialsRequest(
            deletions=[],
            upsertions=[
                ScramCredentialUpsertion(
                    name=USER,
                    mechanism=number,
                    iterations=iterations,
                    salt=salt,
                    salted_password=hashlib.pbkdf2_hmac(hash_name, PASSWORD.encode(), salt, iterations),
                )
            ],
        )
        for number, hash_name, iterations in ((1, "sha256", 4096), (2, "sha512", 16384))
    ]
