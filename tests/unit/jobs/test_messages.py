"""What a runner and a run say to each other, and what a run reports."""

from __future__ import annotations

from pathlib import Path

from headrace.base.secret import Secret
from headrace.jobs.errors import Fault
from headrace.jobs.file import Definition
from headrace.jobs.messages import (
    Finished,
    Reported,
    Task,
    encode_message,
    encode_task,
    read_message,
    read_task,
)
from headrace.jobs.progress import BATCHES_KEPT, Batch, Progress, read_progress
from headrace.machines.jobs.schedule import Every


def test_a_task_reaches_the_child_with_its_passwords() -> None:
    definition = Definition("copy", "replay", Every(5000, "every 5s"), {"source": "a", "rate": 3}, Path("/x"))
    task = Task(definition, 7, 2, "headrace-jobs", {"admin": {"sasl.password": Secret("s3cret")}})
    read = read_task(encode_task(task))
    assert read.clients == {"admin": {"sasl.password": "s3cret"}}
    assert (read.definition, read.run, read.generation, read.topic) == (definition, 7, 2, "headrace-jobs")
    assert read.definition.digest == definition.digest


def test_messages_of_a_child() -> None:
    progress = Progress(records_in=3, failed_expectations={"has_ad": 2})
    progress.add(Batch({"a-0": (1, 4)}, "b", 3, 1500, 99))
    for message in (
        Reported(progress),
        Finished(),
        Finished(Fault("no", "yes", True), False),
        Finished(is_done=False),
    ):
        line = encode_message(message)
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        read = read_message(line)
        if isinstance(read, Reported):
            read.progress.recent[0].source = {"a-0": (1, 4)}  # JSON has no tuples
        assert read == message


def test_progress_keeps_the_last_batches() -> None:
    progress = Progress()
    for number in range(BATCHES_KEPT + 5):
        progress.add(Batch({"a-0": (number, number + 1)}, "b", 10, 500, number))
    assert progress.batch_count == BATCHES_KEPT + 5
    assert (progress.rate, progress.batch_ms) == (20.0, 500)
    assert [batch.at_ms for batch in progress.recent] == list(range(5, BATCHES_KEPT + 5))
    assert read_progress({**progress.as_json(), "of_a_newer_version": 1}) == progress
