"""A broker for all tests of jobs, topics with records in them, and runners as processes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import headrace
from harness import job_runs
from harness.broker import Broker
from jobs.runners import Jobs

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.retention.ms": "-1",  # the records are of 2023
    "group.min.session.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
}
_numbers = itertools.count()


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
    def make(partitions: int = 2, **config: object) -> str:
        name = f"records-{next(_numbers)}"
        configs = {key.replace("_", "."): value for key, value in config.items()}
        admin.create_topic(name, partitions=partitions, configs=configs)
        return name

    return make


@pytest.fixture
def fill(producer: headrace.Producer) -> Callable[..., None]:
    """Writes so many records to each partition."""

    def write(topic: str, count: int, partitions: int = 2, *, first: int = 0) -> None:
        job_runs.fill(producer, topic, count, partitions, first=first)

    return write


@pytest.fixture
def jobs(broker: Broker, tmp_path: Path) -> Iterator[Jobs]:
    """Runners with a topic for their states that no other test uses."""
    with Jobs(broker.bootstrap, tmp_path, f"jobs-{next(_numbers)}") as running:
        yield running
