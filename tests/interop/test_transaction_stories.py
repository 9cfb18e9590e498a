"""The recorded transaction stories, over a socket: true of Kafka, and of the broker under test.

With HEADRACE_RECORD=1 they are written again with Kafka's answers, to be read in review.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.broker import Broker
from harness.transaction_stories import Storyteller, stories
from harness.transaction_wire import BrokerCoordinator


@pytest.fixture(scope="module")
def coordinators(brokers: tuple[Broker, Broker]) -> Iterator[tuple[BrokerCoordinator, BrokerCoordinator]]:
    oracle, tested = (BrokerCoordinator(broker) for broker in brokers)
    yield oracle, tested
    for coordinator in (oracle, tested):
        coordinator.finalize(transaction_version=2)
        coordinator.close()


@pytest.mark.parametrize("path", stories().values(), ids=stories().keys())
def test_story_is_true(coordinators: tuple[BrokerCoordinator, BrokerCoordinator], path: Path) -> None:
    oracle, tested = coordinators
    true = told(oracle, path)
    if "HEADRACE_RECORD" in os.environ:
        path.write_text(true)
    assert true == path.read_text()
    assert told(tested, path) == true


def told(coordinator: BrokerCoordinator, path: Path) -> str:
    coordinator.finalize(transaction_version=1 if path.stem.startswith("feature_1") else 2)
    coordinator.find(f"story-{path.stem}")
    return Storyteller(coordinator, f"story-{path.stem}").tell(path.read_text())
