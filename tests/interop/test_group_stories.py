"""The recorded group stories, told again to Kafka, of which they are still true, and to the tested broker.

They wait for timeouts more than for anything else, and so are told side by side, each of its own group. With
HEADRACE_RECORD=1 they are written again with Kafka's answers, to be read in review.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.broker import Broker
from harness.group_stories import SETTINGS, Storyteller
from harness.group_wire import BrokerGroups
from harness.kafka import Kafka

STORIES = sorted((Path(__file__).parents[1] / "unit/machines/groups/stories").glob("*.txt"))
ONE_SHARD = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
SIDE_BY_SIDE = 6
WARM_UP = "a join 9\na join 9\nwait 1800\na sync 5 a1=x\na commit 9 t-0=1\np txn 3 t-1=1\np end commit\n"

Told = dict[str, Future[str]]


@pytest.fixture(scope="module")
def told_by_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    with Kafka(tmp_path_factory.mktemp("stories"), SETTINGS | ONE_SHARD) as kafka:
        yield from _told_to(kafka)


@pytest.fixture(scope="module")
def told_by_tested(new_broker: Callable[..., Broker]) -> Iterator[Told]:
    with new_broker(SETTINGS | ONE_SHARD) as tested:
        yield from _told_to(tested)


def _told_to(broker: Broker) -> Iterator[Told]:
    _tell(broker, "warm-up", WARM_UP)
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        yield {path.stem: pool.submit(_tell, broker, path.stem, path.read_text()) for path in STORIES}


def _tell(broker: Broker, group_id: str, story: str) -> str:
    listener = BrokerGroups(broker, group_id)
    try:
        listener.create_topics("t", "u", "p")
        return Storyteller(listener, group_id).tell(story)
    finally:
        listener.close()


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story_is_true_of_kafka(told_by_kafka: Told, path: Path) -> None:
    told = told_by_kafka[path.stem].result()
    if "HEADRACE_RECORD" in os.environ:
        path.write_text(told)
    else:
        assert told == path.read_text()


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story_is_true_of_the_broker_under_test(told_by_tested: Told, path: Path) -> None:
    assert told_by_tested[path.stem].result() == path.read_text()
