"""A copier that kills itself with -9 where it is told to: `kill_job.py <bootstrap> <topic> <table> <point>`.

Run as a program by test_kill.py. It dies in its second step, so that there is something before and after.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

import headrace
from headrace.lake.copying import Copier
from headrace.lake.delta import DeltaLake, Snapshot
from headrace.lake.enabling import enable
from headrace.lake.files import WrittenFile
from headrace.lake.topic import LakeTopic
from headrace.machines.lake.ledger import Held, Span, Verdict
from headrace.machines.lake.plan import Plan

POINTS = (
    "before a file",
    "between files",
    "files before commit",
    "commit before its answer",
    "before the group commit",
    "after the group commit",
)
OFFSETS_PER_COMMIT = 3
STEP = 2


class Death:
    def __init__(self, point: str) -> None:
        self.point = point
        self.step = 0

    def passes(self, point: str) -> None:
        if point == self.point and self.step == STEP:
            os.kill(os.getpid(), signal.SIGKILL)


class KillingLake(DeltaLake):
    def __init__(self, path: Path, death: Death) -> None:
        super().__init__(path)
        self._death = death

    def _write(
        self,
        snapshot: Snapshot,
        files: list[WrittenFile],
        changed: Mapping[int, Held],
        replaced: Collection[str],
    ) -> None:
        super()._write(snapshot, files, changed, replaced)
        self._death.passes("commit before its answer")


class KillingCopier(Copier):
    def __init__(self, lake: DeltaLake, topic: LakeTopic, death: Death) -> None:
        super().__init__(lake, topic, offsets_per_commit=OFFSETS_PER_COMMIT)
        self._death = death

    def write(self, snapshot: Snapshot, todo: Plan) -> list[WrittenFile]:
        self._death.step += 1
        return super().write(snapshot, todo)

    def write_range(self, snapshot: Snapshot, span: Span) -> list[WrittenFile]:
        self._death.passes("before a file" if span.partition == 0 else "between files")
        return super().write_range(snapshot, span)

    def commit(self, snapshot: Snapshot, files: list[WrittenFile], todo: Plan) -> tuple[Verdict, Snapshot]:
        self._death.passes("files before commit")
        return super().commit(snapshot, files, todo)

    def commit_group(self, snapshot: Snapshot) -> None:
        self._death.passes("before the group commit")
        super().commit_group(snapshot)
        self._death.passes("after the group commit")


def main(bootstrap: str, topic: str, path: str, point: str) -> None:
    death = Death(point)
    with headrace.Admin(bootstrap) as admin:
        source = LakeTopic(admin, {"bootstrap.servers": bootstrap}, topic)
        lake = KillingLake(Path(path), death)
        enable(lake, source)
        KillingCopier(lake, source, death).copy_available()


if __name__ == "__main__":
    main(*sys.argv[1:])
