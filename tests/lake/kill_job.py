"""A copier that kills itself with -9 where it is told to.

`kill_job.py <bootstrap> <topic> <table> <format> <point> <step>`; run as a program by test_kill.py. It dies
in that step, so that there is something before and after.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import headrace
from headrace.lake.copying import Copier
from headrace.lake.enabling import enable
from headrace.lake.files import WrittenFile
from headrace.lake.formats import table_at
from headrace.lake.store import Change, Store, Version
from headrace.lake.table import LakeTable, Snapshot
from headrace.lake.topic import LakeTopic
from headrace.machines.lake.ledger import Span, Verdict
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


class Death:
    def __init__(self, point: str, step: int) -> None:
        self.point = point
        self.last_step = step
        self.step = 0

    def passes(self, point: str) -> None:
        if point == self.point and self.step == self.last_step:
            os.kill(os.getpid(), signal.SIGKILL)


class KillingStore:
    """A store whose versions may die right after a commit."""

    def __init__(self, store: Store, death: Death) -> None:
        self._store = store
        self._death = death

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def load(self) -> KillingVersion:
        return KillingVersion(self._store.load(), self._death)


class KillingVersion:
    def __init__(self, version: Version, death: Death) -> None:
        self._version = version
        self._death = death

    def __getattr__(self, name: str) -> Any:
        return getattr(self._version, name)

    def commit(self, change: Change) -> None:
        self._version.commit(change)
        self._death.passes("commit before its answer")


class KillingCopier(Copier):
    def __init__(self, lake: LakeTable, topic: LakeTopic, death: Death) -> None:
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


def main(bootstrap: str, topic: str, path: str, format: str, point: str, step: str) -> None:
    death = Death(point, int(step))
    with headrace.Admin(bootstrap) as admin:
        source = LakeTopic(admin, {"bootstrap.servers": bootstrap}, topic)
        lake = LakeTable(KillingStore(table_at(Path(path), format).store, death))
        enable(lake, source)
        KillingCopier(lake, source, death).copy_available()


if __name__ == "__main__":
    main(*sys.argv[1:])
