"""A broker for all tests of lake tables, topics with records in them, and tables of these."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import headrace
from harness.broker import Broker
from lake.tables import Fill, Lake

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.retention.ms": "-1",  # the records are of 2023
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "500",
    "log.cleaner.backoff.ms": "100",
}
_names = itertools.count()


@pytest.fixture(scope="session")
def broker(new_broker: Callable[..., Broker]) -> Iterator[Broker]:
    with new_broker(SETTINGS) as running:
        yield running


@pytest.fixture(scope="session")
def admin(broker: Broker) -> Iterator[headrace.Admin]:
    with headrace.Admin(broker.bootstrap) as admin:
        yield admin


@pytest.fixture(scope="session")
def producer(broker: Broker) -> Iterator[headrace.Producer]:
    with headrace.Producer(broker.bootstrap) as producer:
        yield producer


@pytest.fixture
def new_topic(admin: headrace.Admin) -> Callable[..., str]:
    def make(partitions: int = 2, **config: str) -> str:
        name = f"clicks-{next(_names)}"
        admin.create_topic(
            name,
            partitions=partitions,
            configs={key.replace("_", "."): value for key, value in config.items()},
        )
        return name

    return make


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    """A new topic with two partitions."""
    return new_topic()


@pytest.fixture(params=["delta", "iceberg"])
def format(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def lake(topic: str, admin: headrace.Admin, broker: Broker, tmp_path: Path, format: str) -> Lake:
    """A table of the topic, not made yet."""
    return Lake(tmp_path / "table", topic, admin, broker.bootstrap, format)


@pytest.fixture
def fill(producer: headrace.Producer) -> Fill:
    """Writes so many records to each partition: key, value, headers and timestamp tell the number."""

    def write(topic: str, count: int, partitions: int = 2, *, first: int = 0) -> None:
        for partition in range(partitions):
            for number in range(first, first + count):
                producer.send(
                    topic,
                    b"value-%d" % number,
                    b"key-%d" % number,
                    partition=partition,
                    timestamp_ms=1_700_000_000_000 + number,
                    headers=[("number", b"%d" % number)],
                )
        producer.flush()

    return write
