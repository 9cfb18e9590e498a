"""Logins with OAUTHBEARER of real clients: tokens that an identity provider has signed, keys that change, and
sessions that end with their token.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.abc import AbstractTokenProvider

import headrace
from clients import with_aiokafka
from harness.headrace import Headrace
from harness.kafka import free_ports
from harness.tokens import IdentityProvider, Key, key_set, token_of
from harness.wait import WAIT_S, eventually
from headrace.client.errors import AuthenticationFailed, ClientError

VALUES = [b"%d" % number for number in range(100)]
SESSION_S = 3.0


@pytest.fixture(scope="module")
def issuer() -> Iterator[IdentityProvider]:
    with IdentityProvider() as running:
        yield running


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, issuer: IdentityProvider) -> Iterator[Headrace]:
    made = Headrace(tmp_path_factory.mktemp("oauth"))
    made.settings = settings_of(f"{issuer.url}/keys")
    with made as running:
        yield running
        assert running.is_running, running.output()[-4000:]
        assert "internal_error" not in running.output()
        assert "eyJ" not in running.output(), "a token was printed"


def settings_of(url: str) -> dict[str, str]:
    login, short, plain = free_ports(3)
    return {
        "listeners": f"LOGIN://127.0.0.1:{login},SHORT://127.0.0.1:{short},PLAINTEXT://127.0.0.1:{plain}",
        "listener.security.protocol.map": "LOGIN:SASL_PLAINTEXT,SHORT:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "listener.name.short.oauthbearer.connections.max.reauth.ms": str(int(SESSION_S * 1000)),
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.expected.issuer": "https://issuer.example",
        "sasl.oauthbearer.expected.audience": "headrace",
    }


def given(broker: Headrace, listener: str = "LOGIN") -> dict[str, Any]:
    addresses = dict(one.split("://") for one in broker.settings["listeners"].split(","))
    return {
        "bootstrap.servers": addresses[listener],
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
    }


Tokens = Callable[[], tuple[str, float]]  # a token, and until when it counts


def copy_with_headrace(settings: dict[str, Any], token: Tokens, topic: str) -> list[bytes]:
    def provide() -> headrace.Token:
        value, until = token()
        return headrace.Token(value, until - time.time(), {"traceId": "1"})

    ours = settings | {"oauth_token_provider": provide}
    with headrace.Producer(ours) as producer:
        for value in VALUES:
            producer.send(topic, value)
        producer.flush(WAIT_S)
    with headrace.Consumer(ours, auto_offset_reset="earliest") as consumer:
        consumer.assign([headrace.TopicPartition(topic, 0)])
        read: list[bytes] = []
        while len(read) < len(VALUES):
            read += [message.value for message in consumer.poll(WAIT_S) if message.value is not None]
    return read


def copy_with_confluent(settings: dict[str, Any], token: Tokens, topic: str) -> list[bytes]:
    def provide(_: str) -> tuple[str, float, str, dict[str, str]]:
        value, until = token()
        return value, until, "", {"traceId": "1"}

    theirs = settings | {"oauth_cb": provide}
    producer = confluent_kafka.Producer(theirs)
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(WAIT_S) == 0
    consumer = confluent_kafka.Consumer({**theirs, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    read: list[bytes] = []
    give_up = time.monotonic() + WAIT_S
    while len(read) < len(VALUES):
        assert time.monotonic() < give_up
        for message in consumer.consume(100, 1.0):
            assert message.error() is None, message.error()
            content = message.value()
            assert isinstance(content, bytes)
            read.append(content)
    consumer.close()
    return read


def copy_with_aiokafka(settings: dict[str, Any], token: Tokens, topic: str) -> list[bytes]:
    class Provider(AbstractTokenProvider):
        async def token(self) -> str:
            return token()[0]

        def extensions(self) -> dict[str, str]:
            return {"traceId": "1"}

    async def copy() -> list[bytes]:
        theirs = {
            "security_protocol": settings["security.protocol"],
            "sasl_mechanism": settings["sasl.mechanism"],
            "sasl_oauth_token_provider": Provider(),
        }
        servers = settings["bootstrap.servers"]
        async with AIOKafkaProducer(bootstrap_servers=servers, acks="all", **theirs) as producer:
            for value in VALUES:
                await producer.send_and_wait(topic, value, partition=0)
        async with with_aiokafka.consumer(servers, topic, **theirs) as consumer:
            await consumer.seek_to_beginning(TopicPartition(topic, 0))
            return [record.value for record in await with_aiokafka.read(consumer, len(VALUES))]

    return asyncio.run(copy())


COPIES = [copy_with_headrace, copy_with_confluent, copy_with_aiokafka]


@pytest.mark.parametrize("copy", COPIES, ids=["headrace", "confluent", "aiokafka"])
def test_records_come_and_go(
    broker: Headrace,
    issuer: IdentityProvider,
    name: str,
    copy: Callable[[dict[str, Any], Tokens, str], list[bytes]],
) -> None:
    def token() -> tuple[str, float]:
        return issuer.token(), time.time() + issuer.lifetime_s

    assert copy(given(broker), token, name) == VALUES


def test_tokens_of_client_credentials(broker: Headrace, issuer: IdentityProvider, name: str) -> None:
    """Our client and librdkafka fetch their tokens by themselves."""
    ours = given(broker) | {
        "sasl.oauthbearer.token.endpoint.url": f"{issuer.url}/token",
        "sasl.oauthbearer.client.credentials.client.id": "service",
        "sasl.oauthbearer.client.credentials.client.secret": "secret",
    }
    with headrace.Producer(ours) as producer:
        assert producer.send(name, b"value").get(WAIT_S).offset == 0
    theirs = given(broker) | {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": f"{issuer.url}/token",
        "sasl.oauthbearer.client.id": "service",
        "sasl.oauthbearer.client.secret": "secret",
    }
    other = confluent_kafka.Producer(theirs)
    other.produce(name, b"value")
    assert other.flush(WAIT_S) == 0


def refused(broker: Headrace, token: str) -> ClientError:
    settings = given(broker) | {"oauth_token_provider": lambda: token}
    with headrace.Admin(settings) as admin, pytest.raises(ClientError) as raised:
        admin.list_topics()
    return raised.value


@pytest.mark.parametrize(
    "forge",
    [
        lambda issuer: issuer.token(exp=time.time() - 100),
        lambda issuer: issuer.token(aud="billing"),
        lambda issuer: issuer.token(iss="https://somebody"),
        lambda issuer: Key("key-1", "RS256").sign({"sub": "alice"}),
        lambda issuer: token_of({"alg": "none"}, {"sub": "alice", "exp": time.time() + 100}),
        lambda issuer: "nothing",
    ],
)
def test_tokens_that_are_refused(
    broker: Headrace, issuer: IdentityProvider, forge: Callable[[IdentityProvider], str]
) -> None:
    token = forge(issuer)
    error = refused(broker, token)
    assert isinstance(error, AuthenticationFailed)
    assert "invalid_token" in str(error)
    errors: list[confluent_kafka.KafkaError] = []
    theirs = given(broker) | {
        "oauth_cb": lambda _: (token, time.time() + 300),
        "error_cb": errors.append,
        "log_level": 0,
    }
    producer = confluent_kafka.Producer(theirs)
    eventually(lambda: producer.poll(0.05) is not None and bool(errors), True)
    assert errors[0].code() == confluent_kafka.KafkaError._AUTHENTICATION
    assert "invalid_token" in errors[0].str()


def test_sessions_end_with_their_token(broker: Headrace, issuer: IdentityProvider, name: str) -> None:
    """Nothing is tried again, so that a request which the broker hangs up on would be an error."""
    tokens: list[str] = []

    def provide() -> headrace.Token:
        tokens.append(issuer.token(exp=time.time() + SESSION_S))
        return headrace.Token(tokens[-1], SESSION_S)

    settings = given(broker) | {"oauth_token_provider": provide}
    with headrace.Admin(settings) as admin:
        admin.create_topic(name, partitions=1)
    until = time.monotonic() + 2.5 * SESSION_S
    with headrace.Producer(settings, retries=0, enable_idempotence=False) as producer:
        offsets = []
        while time.monotonic() < until:
            offsets.append(producer.send(name, b"value").get(WAIT_S).offset)
            time.sleep(0.01)
    assert offsets == list(range(len(offsets)))
    assert len(set(tokens)) > 2


def test_librdkafka_logs_in_again_while_records_are_sent(
    broker: Headrace, issuer: IdentityProvider, name: str
) -> None:
    """Its tokens count for longer than the broker's sessions."""
    errors: list[confluent_kafka.KafkaError] = []
    own = {
        "oauth_cb": lambda _: (issuer.token(), time.time() + issuer.lifetime_s),
        "error_cb": errors.append,
        "retries": 0,
        "linger.ms": 0,
    }
    producer = confluent_kafka.Producer(given(broker, "SHORT") | own)
    delivered: list[int | None] = []

    def on_delivery(error: Any, message: confluent_kafka.Message) -> None:
        assert error is None, error
        delivered.append(message.offset())

    sent = 0
    until = time.monotonic() + 2.5 * SESSION_S
    while time.monotonic() < until:
        producer.produce(name, b"value", on_delivery=on_delivery)
        sent += 1
        producer.poll(0.02)
    assert producer.flush(WAIT_S) == 0
    assert delivered == list(range(sent))
    assert not errors


def test_keys_change_while_the_broker_runs(tmp_path: Path, issuer: IdentityProvider, name: str) -> None:
    """The first token with a new key has the keys fetched; the next ones with unknown keys do not."""
    with IdentityProvider() as changing:
        made = Headrace(tmp_path)
        made.settings = settings_of(f"{changing.url}/keys")
        with made as running:
            settings = given(running) | {"oauth_token_provider": changing.token}
            with headrace.Producer(settings) as producer:
                producer.send(name, b"1").get(WAIT_S)
            time.sleep(10.0)  # between two fetches
            changing.keys.append(Key("key-2", "ES256"))
            with headrace.Producer(settings) as producer:
                producer.send(name, b"2").get(WAIT_S)
            fetched = len(changing.given)
            unknown = Key("key-3", "ES256")
            for _ in range(5):
                refused(running, unknown.sign({"sub": "alice"}))
            assert len(changing.given) == fetched
            assert "login_refused" in running.output()


def test_keys_in_a_file(tmp_path: Path, issuer: IdentityProvider, name: str) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(key_set(issuer.keys[0].public()))
    made = Headrace(tmp_path / "broker")
    made.settings = settings_of(path.as_uri())
    with made as running:
        settings = given(running) | {"oauth_token_provider": issuer.token}
        with headrace.Producer(settings) as producer:
            assert producer.send(name, b"1").get(WAIT_S).offset == 0


def test_without_keys_the_broker_starts_and_says_so(tmp_path: Path, issuer: IdentityProvider) -> None:
    made = Headrace(tmp_path)
    made.settings = settings_of("http://127.0.0.1:1/keys")
    with made as running:
        assert "invalid_token" in str(refused(running, issuer.token()))
        eventually(lambda: "signing_keys_not_fetched" in running.output(), True)
