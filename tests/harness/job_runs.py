"""Runs of jobs in the test's own process, and the records that they leave."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, NamedTuple

import headrace
from harness.wait import Patience
from headrace.jobs.child import perform
from headrace.jobs.errors import Fault
from headrace.jobs.file import Definition
from headrace.jobs.messages import Reported, Task
from headrace.jobs.progress import Progress
from headrace.jobs.state_topic import ensure_topics
from headrace.machines.jobs.schedule import parse_schedule
from headrace.records._messages import Message

WAIT_S = 60.0


class Performed(NamedTuple):
    fault: Fault | None
    progress: Progress


class JobRuns:
    """Performs jobs without a runner."""

    def __init__(self, bootstrap: str, directory: Path, topic: str = "headrace-jobs") -> None:
        self.bootstrap = bootstrap
        self.directory = directory
        self.topic = topic

    def perform(
        self,
        name: str,
        options: dict[str, Any],
        *,
        generation: int = 0,
        stopping: threading.Event | None = None,
    ) -> Performed:
        with headrace.Admin(self.bootstrap) as admin:
            ensure_topics(admin, self.topic, 1)
        given = {"schedule": "once", **options}
        kind, schedule = given.pop("kind"), parse_schedule(given.pop("schedule"))
        settings = {"bootstrap.servers": self.bootstrap}
        task = Task(
            Definition(name, kind, schedule, given, self.directory),
            1,
            generation,
            self.topic,
            dict.fromkeys(("admin", "consumer", "producer"), settings),
        )
        reports: list[Reported] = []
        finished = perform(task, stopping or threading.Event(), reports.append)
        return Performed(finished.fault, reports[-1].progress)


def fill(producer: headrace.Producer, topic: str, count: int, partitions: int = 2, *, first: int = 0) -> None:
    """Write so many records to each partition; all that a record has tells its number."""
    for number in range(first, first + count):
        for partition in range(partitions):
            producer.send(
                topic,
                b'{"number": %d, "user": "u%d"}' % (number, number % 7),
                b"key-%d" % number,
                partition=partition,
                timestamp_ms=1_700_000_000_000 + number,
                headers=[("number", b"%d" % number)],
            )
    producer.flush()


def read_all(bootstrap: str, topic: str) -> dict[int, list[Message]]:
    """All committed records by partition, in their order."""
    with headrace.Admin(bootstrap) as admin:
        places = admin.describe_topic(topic).all_partitions()
    found: dict[int, list[Message]] = {at.partition: [] for at in places}
    with headrace.Consumer(bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign(dict.fromkeys(places, 0))
        ends = consumer.end_offsets(places)
        patience = Patience(WAIT_S)
        while any(consumer.position(at) < ends[at] for at in places):
            assert not patience.is_over
            for message in consumer.poll(0.2):
                found[message.partition].append(message)
    return found


def contents(messages: list[Message]) -> list[tuple[Any, ...]]:
    return [(one.timestamp_ms, one.key, one.value, tuple(one.headers)) for one in messages]


def count_records(bootstrap: str, topic: str) -> int:
    return sum(len(messages) for messages in read_all(bootstrap, topic).values())
