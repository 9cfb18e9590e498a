"""The lasting catalog of a pipeline: places of tables and checkpoints, and one-time flows that are done."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.pipelines.errors import ProjectError
from headrace.pipelines.run_state import write_json

FILE_NAME = "catalog.json"


class Catalog:
    def __init__(self, storage: Path) -> None:
        self._storage = storage / "headrace"
        self._file = self._storage / FILE_NAME
        held = json.loads(self._file.read_text()) if self._file.exists() else {}
        self._versions: dict[str, int] = held.get("versions", {})  # of materialized views
        self._done: list[str] = held.get("done", [])  # flows that run one time

    @property
    def directory(self) -> Path:
        self._storage.mkdir(parents=True, exist_ok=True)
        return self._storage

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the storage for one run: two would write to the same checkpoints."""
        with (self.directory / "lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                holder = file.read().strip() or "another"
                raise ProjectError(
                    f"{self._storage}: process {holder} runs this pipeline already: stop it first, or use "
                    "another storage"
                ) from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield

    def checkpoint(self, flow: str) -> Path:
        return self.directory / "checkpoints" / flow

    def table(self, name: str) -> Path:
        """The directory of a table, which streams append to."""
        path = self.directory / "tables" / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def view(self, name: str) -> Path | None:
        """The directory with the current rows of a materialized view; None before its first run."""
        version = self._versions.get(name)
        return None if version is None else self._view(name, version)

    def rows(self, name: str) -> Path | None:
        """The directory of a table, or of the current rows of a view; None if nothing was written to it."""
        table = self._storage / "tables" / name
        return self.view(name) or (table if table.is_dir() else None)

    def next_view(self, name: str) -> Path:
        """An empty directory for new rows; what a failed run left there is removed."""
        path = self._view(name, self._versions.get(name, 0) + 1)
        shutil.rmtree(path, ignore_errors=True)
        return path

    def switch_view(self, name: str) -> None:
        """Make the new rows current. Those before them stay for readers that have begun."""
        version = self._versions.get(name, 0) + 1
        self._versions[name] = version
        self._write()
        shutil.rmtree(self._view(name, version - 2), ignore_errors=True)

    def is_done(self, flow: str) -> bool:
        return flow in self._done

    def set_done(self, flow: str) -> None:
        self._done.append(flow)
        self._write()

    def _view(self, name: str, version: int) -> Path:
        return self.directory / "views" / name / str(version)

    def _write(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        write_json(self._file, {"versions": self._versions, "done": self._done})
