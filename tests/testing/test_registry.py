"""The schema registry of a broker for tests: there for who asks, and as new after a reset."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.schema_registry import Schema as ConfluentSchema
from confluent_kafka.schema_registry import SchemaRegistryClient

from headrace import Consumer, Producer
from headrace.schemas import Incompatible, Registry, RegistryUnreachable, Schema, avro_serializer
from headrace.testing import Broker

CLICK = '{"type": "record", "name": "Click", "fields": [{"name": "ad", "type": "string"}]}'
LATER = CLICK.replace("}]}", '}, {"name": "at", "type": "long"}]}')


@pytest.fixture(scope="module", params=[False, True], ids=["thread", "process"])
def shared(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(process=request.param) as broker:
        yield broker


@pytest.fixture
def broker(shared: Broker) -> Broker:
    shared.reset()
    return shared


def test_avro_goes_in_and_out(broker: Broker) -> None:
    clicks = avro_serializer(Registry(broker.registry_url), CLICK, topic="clicks")
    with Producer(broker.bootstrap_servers, value_serializer=clicks) as producer:
        producer.send("clicks", {"ad": "tea"}).get(timeout=30)
    with Consumer(broker.bootstrap_servers, value_deserializer=clicks) as consumer:
        consumer.assign({("clicks", 0): 0})
        assert consumer.poll(30)[0].value == {"ad": "tea"}
    assert Registry(broker.registry_url).subjects() == ["clicks-value"]
    with pytest.raises(Incompatible):
        Registry(broker.registry_url).register("clicks-value", Schema(LATER))


def test_a_client_of_confluents(broker: Broker) -> None:
    with SchemaRegistryClient({"url": broker.registry_url}) as client:
        id = client.register_schema("clicks-value", ConfluentSchema(CLICK, "AVRO"))
    assert Registry(broker.registry_url).schema(id).text == CLICK


def test_a_reset_forgets_and_the_address_stays(broker: Broker) -> None:
    url = broker.registry_url
    Registry(url).register("clicks-value", Schema(CLICK))
    broker.reset()
    assert broker.registry_url == url
    assert Registry(url).subjects() == []
    assert Registry(url).register("other-value", Schema(LATER)) == 1


def test_a_snapshot_and_a_restart_keep_schemas(broker: Broker) -> None:
    url = broker.registry_url
    Registry(url).register("clicks-value", Schema(CLICK))
    before = broker.snapshot()
    Registry(url).register("more-value", Schema(CLICK))
    broker.restore(before)
    assert Registry(url).subjects() == ["clicks-value"]
    broker.faults.kill()
    with pytest.raises(RegistryUnreachable):
        Registry(url, timeout_s=1).subjects()
    broker.faults.restart()
    assert Registry(url).subjects() == ["clicks-value"]


def test_faults_of_requests_are_for_the_clients_of_the_test(broker: Broker) -> None:
    faults = [
        broker.faults.error(api="Produce", code="NOT_ENOUGH_REPLICAS", times=1),
        broker.faults.delay(api="Fetch", ms=60_000, times=1),
        broker.faults.drop_after_write(api="Metadata"),
    ]
    assert Registry(broker.registry_url).register("clicks-value", Schema(CLICK)) == 1
    assert [fault.times_left for fault in faults] == [1, 1, 1]
