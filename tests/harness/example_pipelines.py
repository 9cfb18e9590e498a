"""Declared pipelines of `examples/`: run to their end, or killed in the middle of a run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.committed import committed
from harness.example_programs import Example
from harness.wait import Patience, run_to_end
from headrace.pipelines import read_table
from headrace.pipelines.errors import ProjectError

RUN_S = 600.0
MASTER = ("--master", "local[2]")


class ExamplePipeline(Example):
    """The pipeline of an example, in a copy of its directory. Micro-batches have `batch` records at most, so
    that there is a middle to be killed in.
    """

    def __init__(self, name: str, servers: str, place: Path, batch: int) -> None:
        super().__init__(name, servers, place)
        with (self.folder / "spark-pipeline.yml").open("a") as file:
            file.write(f'configuration:\n  headrace.max.offsets: "{batch}"\n')

    def run_pipeline(self) -> dict[str, int]:
        """Runs until caught up; the number of records that each query has read so far."""
        done = run_to_end(self._run_command("--json"), RUN_S)
        assert done.returncode == 0, done.stdout + done.stderr[-6000:]
        flows: dict[str, dict[str, Any]] = json.loads(done.stdout)["flows"]
        return {name: flow["rows_in"] for name, flow in flows.items()}

    def kill_pipeline(self, ask: Callable[[], int], target: int) -> None:
        """Starts a run, and kills driver and JVM with -9 when the number is reached, before the run ends."""
        with (self.folder / "killed.txt").open("wb") as output:
            run = subprocess.Popen(
                self._run_command(), stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
            try:
                patience = Patience(RUN_S)
                while ask() < target:
                    said = (self.folder / "killed.txt").read_text(errors="replace")[-6000:]
                    assert run.poll() is None, f"the run ended too soon: {said}"
                    assert not patience.is_over, f"{ask()} of {target}: {said}"
                    time.sleep(0.05)
            finally:
                os.killpg(run.pid, signal.SIGKILL)
                run.wait()

    def _run_command(self, *more: str) -> list[str]:
        return self.command("headrace", "pipeline", "run", self.folder, *MASTER, *more)

    def table_size(self, name: str) -> int:
        """The rows of a table so far, 0 before there is one."""
        try:
            return int(read_table(self.folder, name).num_rows)
        except (ProjectError, OSError):  # not yet, or a file that was just replaced
            return 0

    def survives(self, table: str, others: tuple[str, ...], topics: tuple[str, ...], *check: object) -> None:
        """Kills a run when the table has its first rows. The next one ends what it began, so that the check
        finds nothing wrong; the one after that adds nothing.
        """
        self.kill_pipeline(lambda: self.table_size(table), 1)
        read = self.run_pipeline()
        print(self.run("check.py", *check))
        before = self.sizes((table, *others), topics)
        assert self.run_pipeline() == read
        assert self.sizes((table, *others), topics) == before

    def sizes(self, tables: tuple[str, ...], topics: tuple[str, ...]) -> dict[str, int]:
        """Rows of tables, and committed records of topics."""
        found = {name: self.table_size(name) for name in tables}
        return found | {name: len(committed(self.servers, name)) for name in topics}
