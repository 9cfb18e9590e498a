"""The stories of consumer groups that were recorded from Kafka, told to a whole broker over a socket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.broker import Broker
from harness.consumer_stories import SETTINGS, Storyteller, stories
from harness.consumer_story_listeners import BrokerListener


@pytest.fixture(scope="module")
def listener(new_broker: Callable[..., Broker]) -> Iterator[BrokerListener]:
    broker = new_broker(SETTINGS | {"offsets.topic.num.partitions": "1"}).start()
    listener = BrokerListener(broker)
    yield listener
    listener.close()
    broker.stop()


@pytest.mark.parametrize("path", stories().values(), ids=stories().keys())
def test_story_ends_as_recorded_from_kafka(listener: BrokerListener, path: Path) -> None:
    story, group_id = path.read_text(), f"story-{path.stem}"
    listener.find(group_id)
    assert Storyteller(listener, group_id).tell(story) == story
