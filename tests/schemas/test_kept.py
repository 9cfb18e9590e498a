"""The registry is its log: what was acknowledged is there after kill -9, and what others write is seen."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from harness.headrace import Headrace
from harness.registry_broker import RegistryBroker
from headrace import Admin, Producer, Resource
from headrace.schemas import (
    Incompatible,
    Registry,
    RegistryRefused,
    RegistryUnreachable,
    Schema,
    SchemaError,
    SchemaUnknown,
    avro_serializer,
    by_record,
    by_topic_and_record,
    json_serializer,
)
from headrace.schemas.serializers import SchemaSerializer
from schemas.messages import AVRO, AVRO_GROWN


def test_kill_9_loses_nothing(tmp_path: Path) -> None:
    with Headrace(tmp_path, {"headrace.metrics.port": "0"}) as broker:
        registry_broker = RegistryBroker(broker)
        registry = Registry(registry_broker.url)
        assert registry.subjects() == []
        ids = [registry.register(f"s{number}", Schema(AVRO)) for number in range(3)]
        ids.append(registry.register("s0", Schema(AVRO_GROWN)))
        assert ids == [1, 1, 1, 2]
        registry.set_level("FULL_TRANSITIVE", "s1")
        registry.delete("s2")
        broker.kill()
        broker.start()
        again = Registry(registry_broker.url)
        assert again.subjects() == ["s0", "s1"]
        assert again.versions("s0") == [1, 2]
        assert again.schema(2).text == AVRO_GROWN
        assert again.level("s1") == "FULL_TRANSITIVE"
        assert again.register("s9", Schema('"string"')) == 3


def test_another_registry_may_write_to_the_topic(registry_broker: RegistryBroker, registry: Registry) -> None:
    registry.register("mine", Schema('"string"'))
    value = {"subject": "theirs", "version": 1, "id": 500, "schema": '"bytes"', "deleted": False}
    key = {"keytype": "SCHEMA", "subject": "theirs", "version": 1, "magic": 1}
    with Producer(registry_broker.servers) as producer:
        producer.send("_schemas", b"nonsense", b"nonsense").get(timeout=30)
        producer.send("_schemas", json.dumps(value), json.dumps(key)).get(timeout=30)
    assert registry.schema(500).text == '"bytes"'
    assert registry.register("mine-too", Schema('"double"')) == 501
    with Admin(registry_broker.servers) as admin:
        settings = admin.describe_config(Resource.topic("_schemas"), ["cleanup.policy"])
        assert settings["cleanup.policy"].value == "compact"


def test_a_topic_that_is_cut_or_gone_is_read_anew(tmp_path: Path) -> None:
    with Headrace(tmp_path, {"headrace.metrics.port": "0"}) as broker:
        registry_broker = RegistryBroker(broker)
        with Admin(registry_broker.servers) as admin:
            for number in range(4):
                Registry(registry_broker.url).register(f"cut-{number}", Schema('"string"'))
            admin.alter_config(Resource.topic("_schemas"), {"cleanup.policy": "delete"})
            admin.delete_records({("_schemas", 0): 2})
            assert Registry(registry_broker.url).subjects() == [
                f"cut-{number}" for number in range(4)
            ]  # it knew before
            broker.kill()
            broker.start()
            assert Registry(registry_broker.url).subjects() == ["cut-2", "cut-3"]
            admin.delete_topics(["_schemas"])
            assert Registry(registry_broker.url).subjects() == []
            assert Registry(registry_broker.url).register("fresh", Schema('"long"')) == 1
            assert Registry(registry_broker.url).subjects() == ["fresh"]


def test_a_hundred_registrations_at_once_are_one(registry_broker: RegistryBroker) -> None:
    ids: list[int] = []

    def register(number: int) -> None:
        ids.append(
            Registry(registry_broker.url).register(
                f"rush-{number % 3}", Schema('{"type": "fixed", "name": "F", "size": 9}')
            )
        )

    threads = [threading.Thread(target=register, args=[number]) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ids) == 40
    assert len(set(ids)) == 1
    assert Registry(registry_broker.url).versions("rush-0") == [1]


def test_errors_say_what_is_wrong(registry: Registry) -> None:
    with pytest.raises(SchemaUnknown, match="does not know schema 4711"):
        registry.schema(4711)
    with pytest.raises(SchemaUnknown, match="subject 'nobody'"):
        registry.latest("nobody")
    with pytest.raises(RegistryRefused, match="42201"):
        registry.register("bad", Schema("{"))
    registry.register("good", Schema(AVRO))
    with pytest.raises(Incompatible, match="TYPE_MISMATCH"):
        registry.register("good", Schema('"string"'))
    assert registry.obstacles("good", Schema('"string"')) == ["TYPE_MISMATCH at /: string cannot read record"]
    with pytest.raises(RegistryUnreachable):
        Registry("http://127.0.0.1:9", timeout_s=1).subjects()
    with pytest.raises(SchemaError, match="is not the address of a registry"):
        Registry("localhost:8081")


def subject_of(serializer: SchemaSerializer, registry: Registry, value: object) -> str:
    before = set(registry.subjects())
    serializer.to_bytes(value)
    (added,) = set(registry.subjects()) - before
    return added


def test_which_subject_and_which_version(registry: Registry) -> None:
    click = {"ad": "tea", "price": 1.0, "tags": {}, "at": None}
    made = avro_serializer(registry, AVRO, topic="t1", part="key")
    assert subject_of(made, registry, click) == "t1-key"
    assert subject_of(avro_serializer(registry, AVRO, naming=by_record), registry, click) == "shop.Click"
    both = avro_serializer(registry, AVRO, topic="t2", naming=by_topic_and_record)
    assert subject_of(both, registry, click) == "t2-shop.Click"
    with pytest.raises(SchemaError, match="needs a topic or a subject"):
        avro_serializer(registry, AVRO).writing.write(click)  # type: ignore[union-attr]
    careful = avro_serializer(registry, AVRO_GROWN, subject="t1-key", auto_register=False)
    with pytest.raises(SchemaUnknown):
        careful.writing.write({**click, "country": "at"})  # type: ignore[union-attr]
    grown = registry.register("t1-key", Schema(AVRO_GROWN))
    written = avro_serializer(registry, subject="t1-key", use_latest=True).to_bytes(
        {**click, "country": "at"}
    )
    assert written is not None
    assert int.from_bytes(written[1:5], "big") == grown
    refusing = json_serializer(registry, "{}", topic="t3", validate=lambda value: 1 / len(value))
    with pytest.raises(Exception, match="division by zero"):
        refusing.to_bytes({})
