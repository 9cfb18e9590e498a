"""The recorded transaction stories, told again to Kafka: what they say of it is still true.

With HEADRACE_RECORD=1 the stories are written anew with Kafka's answers, to be read in review.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.kafka import Kafka
from harness.transaction_stories import Storyteller, stories
from harness.transaction_wire import BrokerCoordinator

# how often Kafka looks for transactions whose time is over; and few shards start quickly
SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "transaction.state.log.num.partitions": "5",
}


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerCoordinator]:
    kafka = Kafka(tmp_path_factory.mktemp("stories"), SETTINGS).start()
    coordinator = BrokerCoordinator(kafka)
    yield coordinator
    coordinator.close()
    kafka.kill()


@pytest.mark.parametrize("path", stories().values(), ids=stories().keys())
def test_story_is_true_of_kafka(coordinator: BrokerCoordinator, path: Path) -> None:
    story, transactional_id = path.read_text(), f"story-{path.stem}"
    coordinator.finalize(transaction_version=1 if path.stem.startswith("feature_1") else 2)
    coordinator.find(transactional_id)
    told = Storyteller(coordinator, transactional_id).tell(story)
    if "HEADRACE_RECORD" in os.environ:
        path.write_text(told)
    else:
        assert told == story
