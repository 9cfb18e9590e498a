"""Records of the topic in which runners keep the state of jobs, and commands leave their orders.

The topic is compacted. A key is a kind and the name of a job; all records of a job are in one partition,
whose owner in the group of runners runs the job.

    state NAME      what the runner decided last
    progress NAME   what the last run has done so far
    order NAME      what somebody asked for last
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final, NamedTuple

from headrace.machines.jobs.job import JobError, JobState, Order, Phase

STATE: Final = "state"
PROGRESS: Final = "progress"
ORDER: Final = "order"
KINDS: Final = (STATE, PROGRESS, ORDER)


class Unreadable(ValueError):
    """A record that no runner wrote, or a newer one."""


class Key(NamedTuple):
    kind: str
    job: str

    def encode(self) -> bytes:
        return f"{self.kind} {self.job}".encode()


class Described(NamedTuple):
    """A job's state, and what people want to know about its definition."""

    state: JobState
    kind: str
    schedule: str
    runner: str


def read_key(key: bytes | None) -> Key:
    try:
        kind, _, job = (key or b"").decode().partition(" ")
    except UnicodeDecodeError as error:
        raise Unreadable("its key is not text") from error
    if kind not in KINDS or not job:
        raise Unreadable(f"its key is {key!r}")
    return Key(kind, job)


def encode_state(described: Described) -> bytes:
    facts = asdict(described.state)
    more = {"kind": described.kind, "schedule": described.schedule, "runner": described.runner}
    return json.dumps({**more, **facts}).encode()


def read_state(value: bytes | None) -> Described:
    facts = read_json(value)
    try:
        error = facts.pop("error")
        return Described(
            kind=str(facts.pop("kind")),
            schedule=str(facts.pop("schedule")),
            runner=str(facts.pop("runner")),
            state=JobState(
                **{
                    **facts,
                    "phase": Phase(facts["phase"]),
                    "error": None if error is None else JobError(**error),
                }
            ),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"it is not the state of a job: {error}") from error


def encode_order(order: Order, asked_ms: int) -> bytes:
    return json.dumps({"order": order, "asked_ms": asked_ms}).encode()


def read_order(value: bytes | None) -> Order:
    try:
        return Order(read_json(value)["order"])
    except (KeyError, ValueError) as error:
        raise Unreadable(f"it is not an order: {error}") from error


def encode_json(facts: Mapping[str, Any]) -> bytes:
    return json.dumps(facts).encode()


def read_json(value: bytes | None) -> dict[str, Any]:
    try:
        facts = json.loads(value or b"")
    except ValueError as error:
        raise Unreadable("its value is not JSON") from error
    if not isinstance(facts, dict):
        raise Unreadable("its value is not a JSON object")
    return facts
