"""Two secured brokers, Kafka 4.3.1 and Headrace, with the same settings, and the cells of a table that every
client goes through: each a way to get in, to be refused, or to stay longer than a session lasts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import headrace
from harness.broker import Broker
from harness.certificates import Authority
from harness.headrace import Headrace
from harness.kafka import Kafka, free_ports
from harness.login_counter import LoginCounter
from harness.tokens import IdentityProvider, Key, key_set
from harness.wait import eventually
from headrace.client.errors import AuthenticationFailed

USER, PASSWORD = "alice", "alice's secret & signs"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SESSION_S = 4.0  # franz-go logs in again a second before the end, and kafkajs as we tell it to
STAY_S = 1.5 * SESSION_S
PROTOCOLS = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "LOGIN": "SASL_SSL",
    "SHORT": "SASL_PLAINTEXT",
    "UNSIGNED": "SASL_PLAINTEXT",
    "PLAINTEXT": "PLAINTEXT",
}
_PACKAGE = "org.apache.kafka.common.security"
BEARER = f"{_PACKAGE}.oauthbearer"

WELCOME = ("TLS", "mTLS", *MECHANISMS)
AGAIN = ("SCRAM-SHA-512 again", "OAUTHBEARER again")
UNSIGNED = "OAUTHBEARER unsigned"  # with a token that nobody has signed
REFUSED = ("TLS refused", "mTLS refused", *(f"{mechanism} refused" for mechanism in MECHANISMS))


@dataclass
class Cell:
    """What go/secured.go, js/secured.js and java/Secured.java read as JSON."""

    name: str
    bootstrap: str
    topic: str  # and the name of the group and of the client
    protocol: str
    authority: str = ""  # a PEM file
    certificate: str = ""
    key: str = ""
    both: str = ""  # in one file, as Java wants it
    mechanism: str = ""
    user: str = ""
    password: str = ""
    token: str = ""
    count: int = 10
    seconds: float = 0.0  # and then more records for so long
    properties: dict[str, str] = field(default_factory=dict)  # the same for Java


@dataclass
class Secured:
    broker: Broker
    ports: dict[str, int]
    counter: LoginCounter


class Site:
    """Brokers, authority, identity provider, and a stranger for each who is not trusted."""

    def __init__(self, directory: Path, issuer: IdentityProvider) -> None:
        self.directory = directory
        self.authority = Authority(directory / "authority")
        self.stranger = Authority(directory / "stranger", "stranger")
        self.client = self.authority.issue("client")
        self.issuer = issuer
        self.forged = Key(issuer.keys[0].key_id, "RS256")
        self.brokers: tuple[Secured, ...] = ()

    def cells(self, secured: Secured, client: str, names: tuple[str, ...]) -> list[Cell]:
        return [self._cell(secured, client, name) for name in names]

    def _cell(self, secured: Secured, client: str, name: str) -> Cell:
        kind, _, fate = name.partition(" ")
        by_fate = {"again": "SHORT", "unsigned": "UNSIGNED"}
        listener = {"TLS": "TLS", "mTLS": "MUTUAL"}.get(kind, by_fate.get(fate, "LOGIN"))
        cell = Cell(
            name,
            f"localhost:{secured.ports[listener]}",
            re.sub("[^a-z0-9-]+", "-", f"{client}-{name}".lower()),
            PROTOCOLS[listener],
            seconds=STAY_S if fate == "again" else 0.0,
        )
        if cell.protocol.endswith("SSL"):
            trusted = self.stranger if name == "TLS refused" else self.authority
            cell.authority = str(trusted.certificate)
        if name == "mTLS":
            cell.certificate, cell.key, cell.both = map(str, self.client)
        if kind == "OAUTHBEARER":
            cell.mechanism = kind
            key = self.forged if fate == "refused" else self.issuer.keys[0]
            cell.token = key.sign(self.issuer.said())
        elif kind in MECHANISMS:
            cell.mechanism, cell.user = kind, USER
            cell.password = "guessed" if fate == "refused" else PASSWORD
        cell.properties = self._for_java(cell, self._token_file(name, secured))
        return cell

    def _token_file(self, name: str, secured: Secured) -> Path:
        return self.directory / f"{name.replace(' ', '-')}-{secured.broker.name}.jwt"

    def _for_java(self, cell: Cell, file: Path) -> dict[str, str]:
        given = {
            "bootstrap.servers": cell.bootstrap,
            "client.id": cell.topic,
            "security.protocol": cell.protocol,
        }
        if cell.authority:
            given |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": cell.authority}
        if cell.both:
            given |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": cell.both}
        if cell.token:
            file.write_text(cell.token)
            given |= {
                "sasl.jaas.config": f"{BEARER}.OAuthBearerLoginModule required ;",
                "sasl.login.callback.handler.class": f"{BEARER}.OAuthBearerLoginCallbackHandler",
                "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
            }
        elif cell.mechanism:
            module = "plain.Plain" if cell.mechanism == "PLAIN" else "scram.Scram"
            login = f'username="{cell.user}" password="{cell.password}"'
            given["sasl.jaas.config"] = f"{_PACKAGE}.{module}LoginModule required {login};"
        return given | ({"sasl.mechanism": cell.mechanism} if cell.mechanism else {})

    def write(self, cells: list[Cell], name: str) -> Path:
        path = self.directory / f"{name}.json"
        path.write_text(json.dumps([asdict(cell) for cell in cells]))
        return path

    def java_options(self) -> list[str]:
        """Kafka's clients read tokens only from files that their JVM allows."""
        with_tokens = [name for name in (*WELCOME, *AGAIN, *REFUSED) if name.startswith("OAUTHBEARER")]
        files = [self._token_file(name, secured) for name in with_tokens for secured in self.brokers]
        property = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
        return [
            f"{property}.urls={','.join(file.as_uri() for file in files)}",
            f"{property}.files={','.join(map(str, files))}",
        ]


def settings(site: Site, ports: dict[str, int], short: int, keys: Path, name: str) -> dict[str, str]:
    """Kafka's, which Headrace takes unchanged."""
    certificate = site.authority.issue(name)
    advertised = ports | {"SHORT": short}
    given = {
        "listeners": ",".join(f"{listener}://127.0.0.1:{port}" for listener, port in ports.items()),
        "advertised.listeners": ",".join(
            f"{listener}://localhost:{port}" for listener, port in advertised.items()
        ),
        "listener.security.protocol.map": ",".join(f"{one}:{PROTOCOLS[one]}" for one in PROTOCOLS),
        "inter.broker.listener.name": "PLAINTEXT",
        "offsets.topic.num.partitions": "1",  # so that the first group has it loaded for all others
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificate.both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(site.authority.certificate),
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.unsigned.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.unsigned.oauthbearer.sasl.jaas.config": (
            f'{BEARER}.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="kafka";'
        ),
    }
    for listener in ("login", "short"):
        plain = f'{_PACKAGE}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        prefix = f"listener.name.{listener}"
        given |= {
            f"{prefix}.plain.sasl.jaas.config": plain,
            f"{prefix}.scram-sha-256.sasl.jaas.config": f"{_PACKAGE}.scram.ScramLoginModule required;",
            f"{prefix}.scram-sha-512.sasl.jaas.config": f"{_PACKAGE}.scram.ScramLoginModule required;",
            f"{prefix}.oauthbearer.sasl.jaas.config": f"{BEARER}.OAuthBearerLoginModule required ;",
            f"{prefix}.oauthbearer.sasl.server.callback.handler.class": (
                f"{BEARER}.OAuthBearerValidatorCallbackHandler"
            ),
            f"{prefix}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            f"{prefix}.oauthbearer.sasl.oauthbearer.expected.audience": "headrace",
            f"{prefix}.oauthbearer.sasl.oauthbearer.expected.issuer": "https://issuer.example",
        }
    for mechanism in MECHANISMS:
        key = f"listener.name.short.{mechanism.lower()}.connections.max.reauth.ms"
        given[key] = str(int(SESSION_S * 1000))
    return given


@contextmanager
def secured_site(directory: Path) -> Iterator[Site]:
    with IdentityProvider() as issuer, ExitStack() as stack:
        issuer.lifetime_s = 3600.0  # they are signed once
        site = Site(directory, issuer)
        keys = directory / "keys.json"
        keys.write_bytes(key_set(issuer.keys[0].public()))
        made: list[Secured] = []
        for broker in (Kafka(directory / "kafka"), Headrace(directory / "headrace")):
            counter = stack.enter_context(LoginCounter())
            # the plaintext one is the last: it is the one that tells whether Headrace serves
            ports = dict(zip(PROTOCOLS, free_ports(len(PROTOCOLS)), strict=True))
            broker.settings = settings(site, ports, counter.port, keys, broker.name)
            broker.port, counter.target_port = ports["PLAINTEXT"], ports["SHORT"]
            ports["SHORT"] = counter.port
            if isinstance(broker, Kafka):
                (broker.controller_port,) = free_ports(1)
                broker.settings["listeners"] += f",CONTROLLER://127.0.0.1:{broker.controller_port}"
                broker.settings["listener.security.protocol.map"] += ",CONTROLLER:PLAINTEXT"
                broker.options = (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys.as_uri()}",)
            else:
                broker.settings["listener.name.unsigned.headrace.oauthbearer.unsigned.tokens"] = "true"
            made.append(Secured(broker, ports, counter))
        site.brokers = tuple(made)
        try:
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(_start, made))
            yield site
            ours = made[1].broker
            assert ours.is_running, ours.output()[-4000:]
            assert PASSWORD not in ours.output()
            assert "internal_error" not in ours.output()
        finally:
            for one in made:
                one.broker.kill()


def _start(secured: Secured) -> None:
    secured.broker.start()
    with headrace.Admin(f"localhost:{secured.ports['PLAINTEXT']}") as admin:
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            admin.set_password(USER, PASSWORD, mechanism=mechanism)
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        eventually(lambda mechanism=mechanism: _is_known(secured, mechanism), True)  # type: ignore[misc]


def _is_known(secured: Secured, mechanism: str) -> bool:
    """Kafka's broker learns of a user a moment after its controller."""
    given: dict[str, Any] = {
        "bootstrap.servers": f"localhost:{secured.ports['SHORT']}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    try:
        with headrace.Admin(given) as admin:
            admin.list_topics()
    except AuthenticationFailed:
        return False
    return True
