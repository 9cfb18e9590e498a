"""The transcoding queue of `examples/` at work: its workers, and how far they are."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Self

from harness.broker import Broker
from harness.example_programs import Example, Workers
from harness.group_offsets import GroupOffsets

JOB_TIMEOUT_S = 3  # a stuck clip has three jobs
PARTITIONS = 4


class Transcoding:
    PROGRAMS = ("planner.py", "collector.py", "transcoder.py", "transcoder.py")

    def __init__(self, broker: Broker, directory: Path, clips: int, encoder: str) -> None:
        self.broker = broker
        self.example = Example("transcoding_queue", broker.bootstrap)
        self.media = directory / "media"
        self.sample = ("--media", self.media, "--clips", clips)
        work = ("--media", self.media, "--timeout", JOB_TIMEOUT_S, "--encoder", encoder)
        self.workers = Workers(
            self.example.command("planner.py"),
            self.example.command("collector.py"),
            self.example.command("transcoder.py", "--worker", 1, *work),
            self.example.command("transcoder.py", "--worker", 2, *work),
        )

    def __enter__(self) -> Self:
        self.example.run("uploads.py", *self.sample)
        self.workers.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.workers.__exit__(kind, error, trace)

    def until_done(self, jobs: int) -> None:
        with closing(GroupOffsets(self.broker.bootstrap, "transcoders", "jobs", PARTITIONS)) as done:
            self.workers.until(done.total, jobs)

    def until_right(self, *more: str) -> None:
        self.workers.until_right(self.example, "check.py", *self.sample, *more)

    def repair_and_redrive(self) -> None:
        self.example.run("uploads.py", *self.sample, "--repair")
        self.example.run("headrace", "redrive", "jobs_dead", "--execute")
