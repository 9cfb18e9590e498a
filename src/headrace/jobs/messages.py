"""What a runner and the process of a run say to each other: lines of JSON.

The runner writes one line to the child's stdin, the task, and leaves the pipe open: its end is the end of the
runner, and the child's, too. The child writes lines to its stdout: reports, and how it ended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.base.secret import revealed
from headrace.jobs.errors import Fault
from headrace.jobs.file import Definition
from headrace.jobs.progress import Progress, read_progress
from headrace.jobs.work import Settings
from headrace.machines.jobs.schedule import parse_schedule


@dataclass(frozen=True, slots=True)
class Task:
    definition: Definition
    run: int
    generation: int
    topic: str
    clients: Mapping[str, Settings]


@dataclass(frozen=True, slots=True)
class Reported:
    progress: Progress


@dataclass(frozen=True, slots=True)
class Finished:
    """`fault` is None if nothing went wrong; `is_done` is False for a run that was asked to stop."""

    fault: Fault | None = None
    is_done: bool = True


def encode_task(task: Task) -> bytes:
    definition = task.definition
    facts = {
        "name": definition.name,
        "kind": definition.kind,
        "schedule": str(definition.schedule),
        "options": definition.options,
        "directory": str(definition.directory),
        "run": task.run,
        "generation": task.generation,
        "topic": task.topic,
        "clients": {
            kind: {name: revealed(value) for name, value in settings.items()}
            for kind, settings in task.clients.items()
        },
    }
    return json.dumps(facts, default=str).encode() + b"\n"


def read_task(line: bytes) -> Task:
    facts = json.loads(line)
    definition = Definition(
        facts["name"],
        facts["kind"],
        parse_schedule(facts["schedule"]),
        facts["options"],
        Path(facts["directory"]),
    )
    return Task(definition, facts["run"], facts["generation"], facts["topic"], facts["clients"])


def encode_message(message: Reported | Finished) -> bytes:
    facts: dict[str, Any]
    match message:
        case Reported(progress):
            facts = {"progress": progress.as_json()}
        case Finished(fault, is_done):
            facts = {"fault": None if fault is None else list(fault), "is_done": is_done}
    return json.dumps(facts).encode() + b"\n"


def read_message(line: bytes) -> Reported | Finished:
    facts = json.loads(line)
    if "progress" in facts:
        return Reported(read_progress(facts["progress"]))
    fault = facts["fault"]
    return Finished(None if fault is None else Fault(*fault), facts["is_done"])
