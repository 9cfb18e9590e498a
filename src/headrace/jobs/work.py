"""What a kind of job gets for a run: its clients' settings, whether to stop, and where to report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from headrace.base.secret import Secret
from headrace.client.threads.admin import Admin
from headrace.jobs.progress import Progress

CLIENT_ID: Final = "headrace-jobs"
REPORT_EVERY_S: Final = 0.5  # a job may have thousands of small batches a second

Settings = Mapping[str, str | Secret]


@dataclass(slots=True)
class Work:
    job: str
    run: int
    generation: int  # how often it was asked to begin again from the start
    topic: str  # of the jobs' states
    clients: Mapping[str, Settings]  # admin, consumer, producer
    send: Callable[[Progress], None]
    is_stopping: Callable[[], bool]
    is_continuous: bool = False  # the run goes on until it is stopped
    progress: Progress = field(default_factory=Progress)
    _reported_s: float = -1.0

    def settings(self, kind: str, /, **own: object) -> dict[str, object]:
        named = {name.replace("_", "."): value for name, value in own.items()}
        return {**self.clients[kind], "client.id": f"{CLIENT_ID}-{self.job}", **named}

    @property
    def bootstrap(self) -> str:
        return str(self.clients["admin"]["bootstrap.servers"])

    def admin(self) -> Admin:
        return Admin(self.settings("admin"))

    def report(self, *, is_due: bool = False) -> None:
        """Say what was done so far; most calls are left out, unless it is the last one of something."""
        now_s = time.monotonic()
        if is_due or now_s - self._reported_s >= REPORT_EVERY_S:
            self._reported_s = now_s
            self.send(self.progress)


def wall_ms() -> int:
    return time.time_ns() // 1_000_000
