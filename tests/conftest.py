"""What the client tests talk to: `--broker=headrace`, the default, or the oracle, `--broker=kafka`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness import answer_order
from harness.broker import Broker
from harness.headrace import Headrace
from harness.judged_server import MARK
from harness.kafka import Kafka

BROKERS: dict[str, type[Broker]] = {"headrace": Headrace, "kafka": Kafka}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--broker", choices=sorted(BROKERS), default="headrace", help="what the clients talk to")


@pytest.fixture(scope="session")
def misplaced_answers() -> Iterator[list[str]]:
    """What the judge of answers' order has seen in this process."""
    seen: list[str] = []
    end = answer_order.watch(seen.append)
    yield seen
    end()


@pytest.fixture(autouse=True)
def answers_leave_in_request_order(misplaced_answers: list[str]) -> Iterator[None]:
    misplaced_answers.clear()
    yield
    assert not misplaced_answers, "\n".join(misplaced_answers)


@pytest.fixture(scope="session")
def new_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Broker]]:
    """Makes brokers of the chosen kind, not yet started; all that still run are killed at the end."""
    kind = BROKERS[request.config.getoption("--broker")]
    made: list[Broker] = []

    def make(settings: dict[str, str] | None = None, directory: Path | None = None) -> Broker:
        made.append(kind(directory or tmp_path_factory.mktemp(kind.name), settings))
        if isinstance(made[-1], Headrace):
            made[-1].is_judged = True
        return made[-1]

    yield make
    for broker in made:
        broker.kill()
    assert not [line for broker in made for line in broker.output().splitlines() if MARK in line]
