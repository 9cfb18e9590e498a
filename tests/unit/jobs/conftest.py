"""A broker in memory that is empty at the start of each test, and jobs that run in the test's process."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import headrace
from harness import job_runs
from harness.job_runs import JobRuns
from headrace.testing import Broker


@pytest.fixture(scope="session")
def shared_broker() -> Iterator[Broker]:
    with Broker({"group.min.session.timeout.ms": "500"}) as broker:
        yield broker


@pytest.fixture
def broker(shared_broker: Broker) -> Broker:
    shared_broker.reset()
    return shared_broker


@pytest.fixture
def admin(broker: Broker) -> Iterator[headrace.Admin]:
    with headrace.Admin(broker.bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def new_topic(broker: Broker) -> Callable[..., str]:
    numbers = itertools.count()

    def make(partitions: int = 2, **config: object) -> str:
        name = f"records-{next(numbers)}"
        broker.create_topic(name, partitions, **{"retention_ms": -1, **config})  # the records are of 2023
        return name

    return make


@pytest.fixture
def fill(broker: Broker) -> Iterator[Callable[..., None]]:
    with headrace.Producer(broker.bootstrap_servers) as producer:

        def write(topic: str, count: int, partitions: int = 2, *, first: int = 0) -> None:
            job_runs.fill(producer, topic, count, partitions, first=first)

        yield write


@pytest.fixture
def jobs(broker: Broker, tmp_path: Path) -> JobRuns:
    return JobRuns(broker.bootstrap_servers, tmp_path)
