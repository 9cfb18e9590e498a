"""The transcoding queue of `examples/` at work: its workers, and how far they are."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Self

from harness.broker import Broker
from harness.committed import committed
from harness.example_programs import Example, Workers
from harness.group_offsets import GroupOffsets
from harness.wait import run_to_end

JOB_TIMEOUT_S = 3  # a stuck clip has three jobs
PARTITIONS = 4


class Transcoding:
    PROGRAMS = ("planner.py", "collector.py", "transcoder.py", "transcoder.py")

    def __init__(self, broker: Broker, directory: Path, clips: int) -> None:
        self.broker = broker
        self.example = Example("transcoding_queue", broker.bootstrap)
        self.media = directory / "media"
        self.sample = ("--media", self.media, "--clips", clips)
        work = ("--media", self.media, "--timeout", JOB_TIMEOUT_S)
        self.workers = Workers(
            self.example.command("planner.py"),
            self.example.command("collector.py"),
            self.example.command("transcoder.py", "--worker", 1, *work),
            self.example.command("transcoder.py", "--worker", 2, *work),
        )
        self.broken = 0  # known after `upload`

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.workers.__exit__(kind, error, trace)

    def upload(self) -> None:
        self.example.run("uploads.py", *self.sample)
        whole = [file for file in (self.media / "uploads").iterdir() if file.is_file()]
        clips = len(list((self.media / "uploads").iterdir()))
        self.broken = clips - sum(file.stat().st_size > 100 for file in whole)
        self.workers.__enter__()

    def until_done(self, jobs: int) -> None:
        with closing(GroupOffsets(self.broker.bootstrap, "transcoders", "jobs", PARTITIONS)) as done:
            self.workers.until(done.total, jobs)

    def until_manifests(self, count: int) -> None:
        self.workers.until(lambda: len(committed(self.broker.bootstrap, "manifests")), count)

    def check(self, *more: str) -> None:
        self.example.run("check.py", *self.sample, *more)

    def repair_and_redrive(self) -> None:
        self.example.run("uploads.py", *self.sample, "--repair")
        headrace = Path(sys.executable).with_name("headrace")
        redrive = [headrace, "redrive", "jobs_dead", "--execute", "-b", self.broker.bootstrap]
        ended = run_to_end(redrive)
        assert ended.returncode == 0, ended.stderr
