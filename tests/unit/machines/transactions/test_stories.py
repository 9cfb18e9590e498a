"""The machine answers, and writes, what Kafka 4.3.1 did when it was told the same story."""

from pathlib import Path

import pytest

from harness.transaction_machine import MachineCoordinator
from harness.transaction_stories import Storyteller, stories
from headrace.machines.transactions.settings import TransactionSettings


@pytest.mark.parametrize("path", stories().values(), ids=stories().keys())
def test_story_ends_as_recorded_from_kafka(path: Path) -> None:
    settings = TransactionSettings(transaction_version=1 if path.stem.startswith("feature_1") else 2)
    story = path.read_text()
    assert Storyteller(MachineCoordinator(settings), f"story-{path.stem}").tell(story) == story
