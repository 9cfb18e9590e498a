"""The machine answers, and writes, what Kafka 4.3.1 did when it was told the same story."""

from pathlib import Path

import pytest

from harness.consumer_stories import Storyteller, stories
from harness.consumer_story_listeners import MachineListener


@pytest.mark.parametrize("path", stories().values(), ids=stories().keys())
def test_story_ends_as_recorded_from_kafka(path: Path) -> None:
    story = path.read_text()
    assert Storyteller(MachineListener(), f"story-{path.stem}").tell(story) == story
