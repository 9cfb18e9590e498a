"""The recorded stories of consumer groups, told again to Kafka: what they say of it is still true.

With HEADRACE_RECORD=1 the stories are written again with Kafka's answers, to be read in review.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.consumer_stories import SETTINGS, Storyteller, stories
from harness.consumer_story_listeners import BrokerListener
from harness.kafka import Kafka


@pytest.fixture(scope="module")
def listener(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerListener]:
    kafka = Kafka(
        tmp_path_factory.mktemp("stories"), SETTINGS | {"offsets.topic.num.partitions": "1"}
    ).start()
    listener = BrokerListener(kafka)
    yield listener
    listener.close()
    kafka.kill()


@pytest.mark.parametrize("path", stories().values(), ids=stories().keys())
def test_story_is_true_of_kafka(listener: BrokerListener, path: Path) -> None:
    story, group_id = path.read_text(), f"story-{path.stem}"
    listener.find(group_id)
    told = Storyteller(listener, group_id).tell(story)
    if "HEADRACE_RECORD" in os.environ:
        path.write_text(told)
    else:
        assert told == story
