"""One broker for all client tests, fresh topic names, and the admin they are made with."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from harness.broker import Broker
from harness.kafka_python_sockets import close_abandoned_sockets
from harness.quick_coordinators import QUICK_COORDINATORS
from harness.topic_creation import create_topic
from harness.wait import eventually
from harness.wire import leaders

close_abandoned_sockets()


@pytest.fixture(scope="session")
def broker(new_broker: Callable[..., Broker]) -> Iterator[Broker]:
    running = new_broker(QUICK_COORDINATORS).start()
    yield running
    assert running.is_running, f"the broker died under the tests:\n{running.output()[-4000:]}"
    running.stop()


# Whoever does not log in may do everything, and all others what rules allow them.
GUARD = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def guarded(new_broker: Callable[..., Broker]) -> Iterator[str]:
    """The address of a broker with an authorizer."""
    running = new_broker(GUARD).start()
    yield running.bootstrap
    running.stop()


@pytest.fixture(scope="session")
def bootstrap(broker: Broker) -> str:
    return broker.bootstrap


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})


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
def new_topic(broker: Broker, admin: AdminClient, name: str) -> Callable[..., str]:
    """Creates the topic `name`, with the partitions and configs asked for; all nodes know it then."""

    def create(partitions: int = 1, **configs: str) -> str:
        config = {key.replace("_", "."): value for key, value in configs.items()}
        create_topic(admin, NewTopic(name, partitions, config=config))
        known = [partitions] * len(broker.node_ports)
        eventually(lambda: [len(leaders(port, name)) for port in broker.node_ports], known)
        return name

    return create
