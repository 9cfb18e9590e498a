"""OAUTHBEARER on Headrace as on Kafka 4.3.1: the same tokens, good and forged, get the same answers, and
Java's client logs in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from harness.broker import Broker
from harness.headrace import Headrace
from harness.kafka import Kafka, free_ports
from harness.message_socket import MessageSocket
from harness.tokens import IdentityProvider, Key, base64url, hmac_token, key_set, token_of
from headrace.protocol.messages.metadata import MetadataRequest
from headrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headrace.protocol.messages.sasl_handshake import SaslHandshakeRequest
from interop.java_tools import JavaTools

PACKAGE = "org.apache.kafka.common.security.oauthbearer"
RSA, OTHER = Key("rsa", "RS256"), Key("other", "RS256")
EC, STRANGER = Key("ec", "ES256"), Key("rsa", "RS256")


class Secured:
    def __init__(self, broker: Broker, port: int) -> None:
        self.broker = broker
        self.port = port


@pytest.fixture(scope="module")
def issuer() -> Iterator[IdentityProvider]:
    with IdentityProvider(RSA) as running:
        yield running


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Secured, Secured]]:
    directory = tmp_path_factory.mktemp("oauth")
    keys = directory / "keys.json"
    keys.write_bytes(key_set(RSA.public(alg="RS256"), OTHER.public(), EC.public()))
    kafka, ours = Kafka(directory / "kafka"), Headrace(directory / "headrace")
    kafka.options = (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys.as_uri()}",)
    common = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.login.oauthbearer.sasl.server.callback.handler.class": (
            f"{PACKAGE}.OAuthBearerValidatorCallbackHandler"
        ),
        "listener.name.login.oauthbearer.sasl.jaas.config": f"{PACKAGE}.OAuthBearerLoginModule required ;",
        "listener.name.login.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "listener.name.login.oauthbearer.sasl.oauthbearer.expected.audience": "headrace",
        "listener.name.login.oauthbearer.sasl.oauthbearer.expected.issuer": "https://issuer.example",
        "listener.name.login.oauthbearer.connections.max.reauth.ms": "3600000",
    }
    logins = free_ports(2)
    kafka.port, kafka.controller_port, ours.port = free_ports(3)
    protocols = "LOGIN:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
    for broker, login in ((kafka, logins[0]), (ours, logins[1])):
        listeners = f"LOGIN://127.0.0.1:{login},PLAINTEXT://127.0.0.1:{broker.port}"
        own = common | {"listener.security.protocol.map": protocols, "advertised.listeners": listeners}
        if broker is kafka:
            listeners += f",CONTROLLER://127.0.0.1:{kafka.controller_port}"
        broker.settings |= own | {"listeners": listeners}
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda broker: broker.start(), (kafka, ours)))
    yield Secured(kafka, logins[0]), Secured(ours, logins[1])
    kafka.kill()
    assert ours.is_running, ours.output()[-4000:]
    ours.stop()


def conversation(port: int, *messages: bytes) -> list[Any]:
    """What the broker answers to each message of a login, and whether it serves afterwards."""
    line = MessageSocket(port)
    told: list[Any] = []
    try:
        told.append(line.ask("c", SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1).error_code)
        for message in messages:
            answer = line.ask("c", SaslAuthenticateRequest(auth_bytes=message), 2)
            # in seconds, roughly: a token's end is that of the earlier of two clocks
            lifetime = round(answer.session_lifetime_ms / 100_000)
            told.append((answer.error_code, answer.error_message, bytes(answer.auth_bytes), lifetime))
        told.append(len(line.ask("c", MetadataRequest(topics=[]), 4).brokers))
    except (AssertionError, OSError):
        told.append("closed")
    finally:
        line.close()
    return told


def first(token: str, header: str = "n,,") -> bytes:
    return f"{header}\x01auth=Bearer {token}\x01\x01".encode()


def good(**claims: object) -> dict[str, Any]:
    now = int(time.time())
    said = {"sub": "alice", "iat": now, "exp": now + 600, "iss": "https://issuer.example", "aud": "headrace"}
    return {name: value for name, value in (said | claims).items() if value is not None}


def ago(seconds: float) -> float:
    return int(time.time() - seconds)


Make = Callable[[], str]
ACCEPTED: dict[str, Make] = {
    "RS256": lambda: RSA.sign(good()),
    "ES256": lambda: EC.sign(good()),
    "several audiences": lambda: RSA.sign(good(aud=["web", "headrace"])),
    "expired within the skew": lambda: RSA.sign(good(exp=ago(10), iat=ago(100))),
    "issued within the skew": lambda: RSA.sign(good(iat=ago(-10))),
    "a scope": lambda: RSA.sign(good(scope="a b")),
    "scopes": lambda: RSA.sign(good(scope=["a", "b"])),
    "a long session": lambda: RSA.sign(good(exp=ago(-86_400))),
    "a key of somebody else brought along": lambda: RSA.sign(good(), jwk=STRANGER.public()),
    "no typ": lambda: RSA.sign(good(), typ=None),
    "spaces around the name": lambda: RSA.sign(good(sub=" alice ")),
}
REFUSED: dict[str, Make] = {
    "unsigned": lambda: token_of({"alg": "none"}, good()),
    "unsigned, in another case": lambda: token_of({"alg": "NONE", "kid": "rsa"}, good()),
    "HMAC with the public key": lambda: hmac_token(str(RSA.public()).encode(), good(), kid="rsa"),
    "an unknown kid": lambda: RSA.sign(good(), kid="unknown"),
    "the kid of another key": lambda: RSA.sign(good(), kid="other"),
    "a stranger's key": lambda: STRANGER.sign(good()),
    "another algorithm than the key's": lambda: RSA.sign(good(), alg="RS512"),
    "expired": lambda: RSA.sign(good(exp=ago(60), iat=ago(100))),
    "not yet valid": lambda: RSA.sign(good(nbf=ago(-60))),
    "without exp": lambda: RSA.sign(good(exp=None)),
    "without iat": lambda: RSA.sign(good(iat=None)),
    "without sub": lambda: RSA.sign(good(sub=None)),
    "an empty sub": lambda: RSA.sign(good(sub=" ")),
    "exp is a text": lambda: RSA.sign(good(exp="tomorrow")),
    "another audience": lambda: RSA.sign(good(aud="billing")),
    "no audience": lambda: RSA.sign(good(aud=None)),
    "another issuer": lambda: RSA.sign(good(iss="https://somebody")),
    "no issuer": lambda: RSA.sign(good(iss=None)),
    "crit": lambda: RSA.sign(good(), crit=["exp"]),
    "two parts": lambda: "a.b",
    "five parts": lambda: "a.b.c.d.e",
    "not JSON": lambda: f"{base64url(b'x')}.{base64url(b'y')}.{base64url(b'z')}",
    "claims that are a list": lambda: RSA.sign([1]),
    "a bomb of brackets": lambda: token_of({"alg": "RS256", "kid": "rsa"}, b"[" * 20_000),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_tokens_that_are_accepted(secured: tuple[Secured, Secured], name: str) -> None:
    kafka, ours = (conversation(one.port, first(ACCEPTED[name]())) for one in secured)
    assert ours == kafka
    assert ours[-1] == ("closed" if name == "expired within the skew" else 1)


@pytest.mark.parametrize("name", REFUSED)
def test_tokens_that_are_refused(secured: tuple[Secured, Secured], name: str) -> None:
    """In JSON first, and with an error behind the client's acknowledgement."""
    kafka, ours = (conversation(one.port, first(REFUSED[name]()), b"\x01") for one in secured)
    assert ours == kafka
    assert ours[2][:2] == (58, '{"status":"invalid_token"}')
    assert ours[-1] == "closed"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01auth=Bearer\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
    ],
)
def test_messages_that_cannot_be_read(secured: tuple[Secured, Secured], message: bytes) -> None:
    """To some of them Kafka has no answer."""
    kafka, ours = (conversation(one.port, message) for one in secured)
    assert kafka[1] == "closed" or kafka[1][0] == 58
    assert ours[1][0] == 58
    assert ours[-1] == kafka[-1] == "closed"


@pytest.mark.parametrize(("header", "code"), [("n,a=alice,", 0), ("n,a=admin,", 58)])
def test_nobody_acts_for_somebody_else(secured: tuple[Secured, Secured], header: str, code: int) -> None:
    for one in secured:
        assert conversation(one.port, first(RSA.sign(good()), header))[1][0] == code


def test_a_login_again_as_somebody_else(secured: tuple[Secured, Secured]) -> None:
    for one in secured:
        told = []
        line = MessageSocket(one.port)
        for name in ("alice", "alice", "bob"):
            assert line.ask("c", SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1).error_code == 0
            request = SaslAuthenticateRequest(auth_bytes=first(RSA.sign(good(sub=name))))
            told.append(line.ask("c", request, 2).error_code)
            time.sleep(1.1)  # a login again is served once in a second
        line.close()
        assert told == [0, 0, 58]


def test_javas_client(secured: tuple[Secured, Secured], tmp_path: Path) -> None:
    """With a token from a file, and with one that it fetches from the identity provider."""
    with IdentityProvider(RSA) as issuer:
        file = tmp_path / "token.jwt"
        file.write_text(issuer.token("bob"))
        endpoint = f"{issuer.url}/token"
        with JavaTools(
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={endpoint},{file.as_uri()}",
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={file}",
        ) as tools:
            for url in (file.as_uri(), endpoint):
                properties = tmp_path / "client.properties"
                properties.write_text(
                    "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
                    f"sasl.login.callback.handler.class={PACKAGE}.OAuthBearerLoginCallbackHandler\n"
                    f"sasl.oauthbearer.token.endpoint.url={url}\n"
                    "sasl.oauthbearer.client.credentials.client.id=service\n"
                    "sasl.oauthbearer.client.credentials.client.secret=secret\n"
                    f"sasl.jaas.config={PACKAGE}.OAuthBearerLoginModule required ;\n"
                )
                for one in secured:
                    server = ("--bootstrap-server", f"127.0.0.1:{one.port}")
                    done = tools("kafka-topics", *server, "--command-config", str(properties), "--list")
                    assert done.code == 0, done
