"""Two brokers side by side: Kafka 4.3.1, which says what is right, and the one under test.

`--broker=kafka` puts a second Kafka in Headrace's place: that run judges the tests themselves, since whatever
two Kafkas answer differently must be normalised away before it can count against Headrace.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.broker import Broker
from harness.kafka import Kafka
from interop.java_tools import JavaTools


@pytest.fixture(scope="session")
def brokers(
    new_broker: Callable[..., Broker], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Broker, Broker]]:
    """(the oracle, the broker under test), both running."""
    oracle, tested = Kafka(tmp_path_factory.mktemp("oracle")), new_broker()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda broker: broker.start(), (oracle, tested)))
    yield oracle, tested
    oracle.kill()
    assert tested.is_running, f"the broker died under the tests:\n{tested.output()[-4000:]}"
    tested.stop()


@pytest.fixture(scope="session")
def tools() -> Iterator[JavaTools]:
    with JavaTools() as running:
        yield running


_numbers = itertools.count()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name nobody else uses, the same on both brokers."""
    return f"{request.function.__name__.removeprefix('test_')}-{next(_numbers)}"
