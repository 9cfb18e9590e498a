"""Serializers that threads share, as they share a producer."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import headrace
from headrace.schema_formats.schema import Schema, SchemaType
from headrace.schemas import registry as registries
from headrace.schemas import serializers
from headrace.schemas.errors import RegistryUnreachable
from headrace.schemas.registry import Registered
from headrace.schemas.serializers import SchemaSerializer, Writing, json_serializer
from headrace.schemas.subjects import Registration
from headrace.schemas.wire import prefix
from headrace.testing import Broker


class Registry:
    """The newest version changes between two look-ups."""

    def __init__(self, *ids: int) -> None:
        self._ids = list(ids)

    def latest(self, subject: str) -> Registered:
        number = self._ids.pop(0)
        return Registered(subject, number, number, Schema(str(number), SchemaType.JSON))


def test_a_value_has_the_id_of_the_schema_that_it_was_written_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread changes to the newest version while another one, which has just looked it up, writes."""
    registry: Any = Registry(1, 2, 1)
    registration = Registration(subject="s", use_latest=True)
    writing = Writing(registry, None, registration, lambda schema: (lambda _: schema.text.encode(), None))
    assert writing.write(None) == b"\0\0\0\0\x011"
    written: list[bytes] = []

    def interrupted(*given: Any) -> bytes:
        monkeypatch.setattr(serializers, "prefix", prefix)
        other = threading.Thread(target=lambda: written.append(writing.write(None)))
        other.start()
        other.join()
        return prefix(*given)

    monkeypatch.setattr(serializers, "prefix", interrupted)
    written.append(writing.write(None))
    assert written == [b"\0\0\0\0\x011", b"\0\0\0\0\x022"]


def test_a_registry_that_is_away_is_not_the_fault_of_a_record(headrace_broker: Broker) -> None:
    """Who seeks past records that cannot be decoded must not leave these out."""
    headrace_broker.create_topic("pets")
    servers = headrace_broker.bootstrap_servers
    with headrace.Consumer(servers, value_deserializer=names(headrace_broker.registry_url)) as consumer:
        with headrace.Producer(servers, value_serializer=names(headrace_broker.registry_url)) as producer:
            producer.send("pets", "rex").get(30)
        consumer.assign({("pets", 0): 0})
        assert [message.value for message in consumer.poll(30)] == ["rex"]
    away = names("http://127.0.0.1:1")
    with headrace.Consumer(servers, value_deserializer=away) as consumer:
        consumer.assign({("pets", 0): 0})
        for _ in range(2):
            with pytest.raises(RegistryUnreachable):
                consumer.poll(30)
        assert consumer.position(("pets", 0)) == 0
    with headrace.Producer(servers, value_serializer=away) as producer, pytest.raises(RegistryUnreachable):
        producer.send("pets", "rex")


def names(registry_url: str) -> SchemaSerializer:
    return json_serializer(registries.Registry(registry_url), '{"type": "string"}', topic="pets")
