"""A Headrace that lets nobody in without a login and nothing be done without a right, and how a Spark job
gets in: by each security protocol and mechanism, as the user `job`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import headrace
from harness.certificates import Authority
from harness.headrace import Headrace
from harness.kafka import free_ports
from harness.tokens import IdentityProvider
from headrace.client.admin.acls import Acl, AclFilter, AclOperation, AclPattern, AclResource

JOB, PASSWORD = "job", "the job's secret, = with signs"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
LISTENERS = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "SASL": "SASL_PLAINTEXT",
    "SASLTLS": "SASL_SSL",
    "PLAINTEXT": "PLAINTEXT",
}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
# the listener, and the mechanism where it is one of SASL
LOGINS = [
    ("TLS", ""),
    ("MUTUAL", ""),
    *((listener, each) for listener in ("SASL", "SASLTLS") for each in MECHANISMS),
]


class Secured:
    """The broker, its authority, its identity provider, and an administrator."""

    def __init__(self, directory: Path, issuer: IdentityProvider, *, password: str = PASSWORD) -> None:
        self.authority = Authority(directory / "authority")
        self.certificate = self.authority.issue(JOB)
        self.issuer = issuer
        self._password = password  # of the job
        self.broker = Headrace(directory / "broker", self._settings())

    def _settings(self) -> dict[str, str]:
        self.ports = dict(zip(LISTENERS, free_ports(len(LISTENERS)), strict=True))
        served = self.authority.issue("broker").both
        return {
            # the plaintext one is the last: it is the one that tells whether the broker serves
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items()),
            "advertised.listeners": ",".join(
                f"{name}://localhost:{port}" for name, port in self.ports.items()
            ),
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in LISTENERS.items()),
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.location": str(served),
            "ssl.truststore.location": str(self.authority.certificate),
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/,DEFAULT",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            # of SASLTLS by the users' SCRAM credentials
            "listener.name.sasl.plain.sasl.jaas.config": f'{PLAIN} required user_admin="admin\'s" '
            f'user_{JOB}="{self._password}";',
            "sasl.oauthbearer.jwks.endpoint.url": f"{self.issuer.url}/keys",
            "sasl.oauthbearer.expected.issuer": "https://issuer.example",
            "sasl.oauthbearer.expected.audience": "headrace",
            "delegation.token.secret.key": "a secret key for the tokens",
            "authorizer.class.name": "standard",
            "super.users": "User:admin",
            "headrace.http.listeners": "http://127.0.0.1:0,https://127.0.0.1:0",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
        }

    def start(self) -> None:
        self.broker.start()
        self.admin = headrace.Admin(self.login("SASL", "PLAIN", "admin", "admin's"))
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            self.admin.set_password(JOB, self._password, mechanism=mechanism, iterations=4096)

    def stop(self) -> None:
        self.admin.close()
        self.broker.stop()

    # --- logins ------------------------------------------------------------------------------------------

    def login(
        self, listener: str, mechanism: str = "", user: str = JOB, password: str = PASSWORD
    ) -> dict[str, Any]:
        """Settings of a client."""
        settings = {
            "bootstrap.servers": f"localhost:{self.ports[listener]}",
            "security.protocol": LISTENERS[listener],
        }
        if LISTENERS[listener].endswith("SSL"):
            settings["ssl.ca.location"] = str(self.authority.certificate)
        if listener == "MUTUAL":
            settings["ssl.keystore.location"] = str(self.certificate.both)
        if mechanism:
            settings["sasl.mechanism"] = mechanism
        if mechanism == "OAUTHBEARER":
            settings |= {
                "sasl.oauthbearer.token.endpoint.url": f"{self.issuer.url}/token",
                "sasl.oauthbearer.client.id": user,
                "sasl.oauthbearer.client.secret": "secret",
            }
        elif mechanism:
            settings |= {"sasl.username": user, "sasl.password": password}
        return settings

    def principals(self) -> list[str]:
        """Whoever the job is: without a login and a certificate nobody knows."""
        return [f"User:{JOB}", "User:ANONYMOUS"]

    def registry_url(self, scheme: str) -> str:
        (address,) = set(re.findall(rf"address=({scheme}://\S+)/metrics", self.broker.output()))
        return str(address).replace("127.0.0.1", "localhost")

    # --- rights ------------------------------------------------------------------------------------------

    def allow(self, *rights: tuple[AclOperation, AclResource, str], prefixed: Iterable[str] = ()) -> None:
        pattern = dict.fromkeys(prefixed, AclPattern.PREFIXED)
        self.admin.create_acls(
            [
                Acl(resource, name, principal, operation, pattern=pattern.get(name, AclPattern.LITERAL))
                for operation, resource, name in rights
                for principal in self.principals()
            ]
        )

    def forbid_all(self) -> None:
        self.admin.delete_acls([AclFilter(pattern=AclPattern.ANY)])


def spark_options(settings: dict[str, Any]) -> dict[str, str]:
    return {f"kafka.{name}": str(value) for name, value in settings.items()}
