"""One broker for all client tests, fresh topic names, and the admin they are made with."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from harness.broker import Broker
from harness.members import HEARTBEAT_MS, SESSION_TIMEOUT_MS
from harness.wait import WAIT_S, eventually

# Rebalances begin at once; crashed members, forgotten transactions and dirty logs are noticed within seconds.
QUICK_COORDINATORS = {
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.min.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "group.consumer.assignment.interval.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "log.cleaner.backoff.ms": "100",
}


@pytest.fixture(scope="session")
def broker(new_broker: Callable[..., Broker]) -> Iterator[Broker]:
    running = new_broker(QUICK_COORDINATORS).start()
    yield running
    assert running.is_running, f"the broker died under the tests:\n{running.output()[-4000:]}"
    running.stop()


@pytest.fixture(scope="session")
def bootstrap(broker: Broker) -> str:
    return broker.bootstrap


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})


def partition_count(admin: AdminClient, topic: str) -> int:
    """How many partitions clients are told of; 0 while the topic is unknown."""
    return len(admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions)


@pytest.fixture(autouse=True)
def the_broker_lives(broker: Broker) -> None:
    """A dead broker fails the next test at once instead of by every client's own patience."""
    assert broker.is_running, f"the broker died under the tests:\n{broker.output()[-4000:]}"


_numbers = itertools.count()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic name nobody else uses; the topic is not created."""
    return f"{request.function.__name__.removeprefix('test_')}-{next(_numbers)}"


@pytest.fixture
def new_topic(admin: AdminClient, name: str) -> Callable[..., str]:
    """Creates the topic `name`, with the partitions and configs asked for."""

    def create(partitions: int = 1, **configs: str) -> str:
        config = {key.replace("_", "."): value for key, value in configs.items()}
        created = admin.create_topics(
            [NewTopic(name, partitions, 1, config=config)], operation_timeout=WAIT_S
        )
        created[name].result(WAIT_S)
        eventually(lambda: partition_count(admin, name), partitions)
        return name

    return create


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A socket that is left to the garbage collector would fail whichever test runs at that moment.

    Seen once, during a test of kafka-python; which client leaves it is not known yet.
    """
    for item in items:
        if "clients" in item.path.parts:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
