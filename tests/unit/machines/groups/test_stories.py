"""Every way in which a group rebalances, commits and ends, as Kafka 4.3.1 told it.

A story that changed is recorded again from Kafka (`tests/interop/test_group_stories.py`), never from here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.group_shard import GroupShard
from harness.group_stories import SETTINGS, STEP_MS, Answer, Storyteller
from headrace.machines.groups.settings import GroupSettings
from headrace.protocol.compiler import codec
from headrace.protocol.coordinator_records import Record
from headrace.protocol.notation import Request

STORIES = sorted((Path(__file__).parent / "stories").glob("*.txt"))


class MachineGroups:
    """The machine alone as the listener; requests and answers go through the bytes of their version."""

    def __init__(self) -> None:
        settings: dict[str, Any] = {key.replace(".", "_"): int(value) for key, value in SETTINGS.items()}
        self.shard = GroupShard(GroupSettings(**settings))
        self.producers: dict[str, int] = {}

    def ask(self, client: str, request: Request, version: int) -> list[Answer]:
        request = _through_bytes(request, version)
        reply = self.shard.ask(request, version, client, ticket=(client, version))
        answers = [] if reply is None else [(client, _through_bytes(reply, version))]
        return answers + self.wait(STEP_MS)

    def wait(self, milliseconds: int) -> list[Answer]:
        self.shard.advance(milliseconds)
        return self._answers()

    def _answers(self) -> list[Answer]:
        return [
            (client, _through_bytes(reply, version)) for (client, version), reply in self.shard.take_answers()
        ]

    def producer(self, client: str) -> tuple[int, int]:
        return self.producers.setdefault(client, len(self.producers) + 1), 0

    def end_transaction(self, client: str, is_commit: bool) -> None:
        self.shard.end_transaction(self.producers[client], is_commit)

    def log(self, group_id: str) -> list[Record]:
        return self.shard.records()


def _through_bytes(message: Any, version: int) -> Any:
    bound = codec(type(message), version)
    return bound.decode(bound.encode(message), 0)


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_the_machine_tells_the_story_as_kafka_did(path: Path) -> None:
    story = path.read_text()
    listener = MachineGroups()
    assert Storyteller(listener, path.stem).tell(story) == story
    assert listener.shard.rebuilt().state() == listener.shard.machine.state()
