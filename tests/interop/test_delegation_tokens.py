"""Delegation tokens on Headrace as on Kafka 4.3.1: Kafka's own tool, our admin client, logins, refusals."""

from __future__ import annotations

import re
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

import headrace
from harness.certificates import Authority
from harness.secure_headrace import SecureHeadrace
from harness.secure_kafka import LISTENERS, PASSWORD, USER, SecureKafka
from harness.wait import WAIT_S, eventually
from headrace.client.admin.acls import Acl, AclOperation, AclResource
from headrace.client.errors import AuthenticationFailed, KafkaError
from interop.java_tools import JavaTools

SECRET = "a secret key for the tokens"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
USERS = {USER: PASSWORD, "bob": "bob's", "eve": "eve's", "admin": "admin's"}
Secured = SecureKafka | SecureHeadrace


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def secured(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority
) -> Iterator[tuple[SecureKafka, SecureHeadrace]]:
    """Both with an authorizer, four users of PLAIN, and a key for tokens."""
    kafka = SecureKafka(tmp_path_factory.mktemp("kafka"), authority)
    ours = SecureHeadrace(tmp_path_factory.mktemp("headrace"), authority)
    entries = " ".join(f'user_{user}="{password}"' for user, password in USERS.items())
    for broker in (kafka, ours):
        broker.settings |= {
            "delegation.token.secret.key": SECRET,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin;User:ANONYMOUS",
            "listener.name.sasl.plain.sasl.jaas.config": f"{PLAIN} required {entries};",
        }
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda broker: broker.start(), (kafka, ours)))
    yield kafka, ours
    kafka.kill()
    assert ours.is_running, ours.output()[-4000:]
    assert SECRET not in ours.output()
    ours.stop()


def as_user(broker: Secured, user: str, listener: str = "SASL") -> dict[str, Any]:
    return {
        "bootstrap.servers": f"localhost:{broker.ports[listener]}",
        "security.protocol": LISTENERS.get(listener, "PLAINTEXT"),
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": USERS[user],
    }


def with_token(broker: Secured, token: Any, mechanism: str = "SCRAM-SHA-256") -> dict[str, Any]:
    secret = b64encode(token.hmac).decode()
    return {
        "bootstrap.servers": f"localhost:{broker.ports['SASL']}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{SCRAM} required username="{token.token_id}" password="{secret}" '
        'tokenauth="true";',
    }


def same(secured: tuple[Secured, Secured], story: Callable[[Secured], Any]) -> Any:
    """What Kafka tells is what Headrace tells."""
    expected, told = (story(broker) for broker in secured)
    assert told == expected
    return told


def outcome(call: Callable[[], Any]) -> str:
    """The name of the error, or "" without one."""
    try:
        call()
    except KafkaError as error:
        return str(error.name)
    return ""


def knows(settings: dict[str, Any]) -> bool:
    """Kafka's brokers learn of a token a moment after the controller."""
    try:
        with headrace.Admin(settings) as admin:
            admin.list_topics()
    except AuthenticationFailed:
        return False
    return True


def test_the_life_of_a_token(secured: tuple[Secured, Secured]) -> None:
    def story(broker: Secured) -> list[Any]:
        told: list[Any] = []
        with (
            headrace.Admin(as_user(broker, USER)) as alice,
            headrace.Admin(as_user(broker, "bob")) as bob,
            headrace.Admin(as_user(broker, "eve")) as eve,
        ):
            before = time.time() * 1000
            token = alice.create_token(renewers=["User:bob"], lifetime_ms=60_000)
            told += [token.owner, token.requester, len(token.token_id), len(token.hmac)]
            told.append(token.issued_ms >= before - 1000)
            told.append((token.expires_ms - token.issued_ms, token.expires_ms_max - token.issued_ms))
            eventually(lambda: len(alice.describe_tokens()), 1)
            told.append([[one.owner, one.renewers] for one in bob.describe_tokens()])
            told.append(eve.describe_tokens())
            told.append(bob.renew_token(token.hmac, 10_000) - token.issued_ms < 30_000)
            told.append(bob.renew_token(token.hmac, 10_000_000) == token.expires_ms_max)
            told.append(outcome(lambda: eve.renew_token(token.hmac)))
            told.append(outcome(lambda: eve.expire_token(token.hmac)))
            told.append(outcome(lambda: alice.renew_token(b"another")))
            told.append(abs(alice.expire_token(token.hmac) - time.time() * 1000) < 5_000)
            eventually(lambda: alice.describe_tokens(), [])
            told.append(outcome(lambda: alice.renew_token(token.hmac)))
        return told

    assert same(secured, story)[4] is True


def test_who_may_ask(secured: tuple[Secured, Secured], authority: Authority) -> None:
    """Neither a client without a login, nor one that came with a token."""

    def story(broker: Secured) -> list[Any]:
        told: list[Any] = []

        def ask(settings: dict[str, Any]) -> None:
            with headrace.Admin(settings) as admin:
                told.extend(
                    outcome(call)
                    for call in (
                        admin.create_token,
                        lambda: admin.renew_token(b"x"),
                        lambda: admin.expire_token(b"x"),
                        admin.describe_tokens,
                    )
                )

        ask({"bootstrap.servers": f"localhost:{broker.ports['PLAINTEXT']}"})
        trusted = {"ssl.ca.location": str(authority.certificate)}
        one_way = {"bootstrap.servers": f"localhost:{broker.ports['TLS']}", "security.protocol": "SSL"}
        ask(one_way | trusted)
        with headrace.Admin(as_user(broker, USER)) as alice:
            token = alice.create_token()
            eventually(lambda: knows(with_token(broker, token)), True)
            ask(with_token(broker, token))
            alice.expire_token(token.hmac)
        return told

    assert set(same(secured, story)) == {"DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"}


def test_rights(secured: tuple[Secured, Secured]) -> None:
    def story(broker: Secured) -> list[Any]:
        told: list[Any] = []
        with (
            headrace.Admin(as_user(broker, "admin")) as admin,
            headrace.Admin(as_user(broker, "bob")) as bob,
            headrace.Admin(as_user(broker, "eve")) as eve,
        ):
            told.append(outcome(lambda: eve.create_token(owner="User:bob")))
            told.append(outcome(lambda: eve.create_token(owner="User:eve")))
            told.append(outcome(lambda: eve.create_token(renewers=["Group:x"])))
            told.append(outcome(lambda: eve.create_token(owner="Group:bob")))
            told.append(outcome(lambda: admin.create_token(renewers=["Group:x"])))
            rule = Acl(
                principal="User:eve",
                operation=AclOperation.CREATE_TOKENS,
                resource=AclResource.USER,
                name="User:bob",
            )
            admin.create_acls([rule])
            eventually(lambda: outcome(lambda: eve.create_token(owner="User:bob")), "")
            eventually(lambda: len(bob.describe_tokens()), 1)
            (token,) = bob.describe_tokens()
            told.append((token.owner, token.requester))
            told.append(sorted(one.owner for one in eve.describe_tokens()))
            told.append(sorted(one.owner for one in eve.describe_tokens(["User:bob"])))
            told.append(sorted(one.owner for one in eve.describe_tokens([])))
            told.append(outcome(lambda: eve.expire_token(token.hmac)))
            with headrace.Admin(as_user(broker, USER)) as alice:
                told.append(alice.describe_tokens())
                admin.create_acls(
                    [
                        Acl(
                            principal=f"User:{USER}",
                            operation=AclOperation.DESCRIBE,
                            resource=AclResource.DELEGATION_TOKEN,
                            name=token.token_id,
                        )
                    ]
                )
                eventually(lambda: [one.owner for one in alice.describe_tokens()], ["User:bob"])
            for user in (bob, eve):
                for one in user.describe_tokens():
                    if one.owner == ("User:bob" if user is bob else "User:eve"):
                        user.expire_token(one.hmac)
        return told

    same(secured, story)


def test_logins(secured: tuple[Secured, Secured], topic: str) -> None:
    """Our client and librdkafka do what the owner may, until the token has gone."""

    def story(broker: Secured) -> list[Any]:
        told: list[Any] = []
        with headrace.Admin(as_user(broker, "admin")) as admin:
            token = admin.create_token()
            eventually(lambda: knows(with_token(broker, token, "SCRAM-SHA-256")), True)
            eventually(lambda: knows(with_token(broker, token, "SCRAM-SHA-512")), True)
            with headrace.Producer(with_token(broker, token, "SCRAM-SHA-512")) as producer:
                told.append(producer.send(topic, b"value").get(WAIT_S).offset)
            admin.expire_token(token.hmac)
            eventually(lambda: knows(with_token(broker, token)), False)
        return told

    assert same(secured, story) == [0]


def test_the_tool(secured: tuple[Secured, Secured], tools: JavaTools, tmp_path: Path) -> None:
    def story(broker: Secured) -> list[Any]:
        properties = tmp_path / f"{broker.name}.properties"
        settings = as_user(broker, USER)
        properties.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={PLAIN} required username="{USER}" password="{PASSWORD}";\n'
        )
        told: list[Any] = []
        secret = ""

        def tool(*arguments: str) -> str:
            done = tools(
                "kafka-delegation-tokens",
                "--bootstrap-server",
                str(settings["bootstrap.servers"]),
                "--command-config",
                str(properties),
                *arguments,
            )
            told.append((done.code, normalized(done.out), normalized(done.err)))
            return done.out

        made = tool("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
        (secret,) = re.findall(r"\s(\S{86}==)\s", made)
        eventually(lambda: secret in tool("--describe", "--owner-principal", f"User:{USER}"), True)
        del told[1:-1]
        (token_id,) = re.findall(r"tokenId : (\S{22})\s", made)
        as_token = tmp_path / f"{broker.name}-token.properties"
        as_token.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
            f'sasl.jaas.config={SCRAM} required username="{token_id}" password="{secret}" tokenauth="true";\n'
        )
        server = ("--bootstrap-server", str(settings["bootstrap.servers"]))
        listed = tools("kafka-topics", *server, "--command-config", str(as_token), "--list")
        told.append((listed.code, listed.err))
        tool("--renew", "--renew-time-period", "-1", "--hmac", secret)
        tool("--expire", "--expiry-time-period", "-1", "--hmac", secret)
        tool("--renew", "--renew-time-period", "-1", "--hmac", b64encode(b"wrong").decode())
        return told

    told = same(secured, story)
    assert [code for code, *_ in told[:5]] == [0, 0, 0, 0, 0]


def normalized(text: str) -> str:
    """Without what differs from token to token, and without stack traces."""
    text = re.sub(r"\S{86}==", "HMAC", text)
    text = re.sub(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}", "TIME", text)
    text = re.sub(r"(?m)(^|tokenId : )[\w-]{22}\s", r"\1TOKEN ", text)
    lines = (line for line in text.splitlines() if not re.match(r"SLF4J|\tat |\t\.\.\. ", line))
    return re.sub(r"[ \t]+", " ", "\n".join(lines))


def test_librdkafka(secured: tuple[Secured, Secured], topic: str) -> None:
    """It has no setting for tokens: with the right user and password it is not let in, on both."""

    def story(broker: Secured) -> list[int]:
        with headrace.Admin(as_user(broker, "admin")) as admin:
            token = admin.create_token()
            eventually(lambda: knows(with_token(broker, token)), True)
            errors: list[confluent_kafka.KafkaError] = []
            given = with_token(broker, token)
            del given["sasl.jaas.config"]
            given |= {
                "sasl.username": token.token_id,
                "sasl.password": b64encode(token.hmac).decode(),
                "error_cb": errors.append,
                "log_level": 0,
            }
            producer = confluent_kafka.Producer(given)
            eventually(lambda: producer.poll(0.05) is not None and bool(errors), True)
            admin.expire_token(token.hmac)
        return [errors[0].code()]

    assert same(secured, story) == [confluent_kafka.KafkaError._AUTHENTICATION]
