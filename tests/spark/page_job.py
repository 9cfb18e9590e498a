"""Follows a page about Spark: `page_job.py PAGE` runs its blocks from top to bottom.

`headrace spark` gives the page a session, as its shell would. Commands that do not end by themselves (a
pipeline, a consumer with --follow) run beside the rest, each until it is killed or the page ends; the next
block runs when they have shown some work. Pages of other examples than the ad clicks are followed as a whole,
with their workers (see harness.example_pages).
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import headrace
import headrace.spark
from docs.fenced import ROOT, SPARK_SECTIONS, STORIES, Block, to_run
from harness.example_pages import follow_example
from harness.page_reader import Reader
from harness.wait import eventually

WAIT_S = 240
AD_CLICKS = "examples/ad_clicks/README.md"
WITH_WORKERS = {page for page in STORIES if page.startswith("examples/")} - {AD_CLICKS}
# Spark waits ten seconds for a worker, and no setting changes that; beside much other work it may need more.
TOO_SLOW = "Timed out while waiting for the Python worker to connect back"


class SparkReader(Reader):
    """A reader with one terminal for Spark and others for the programs that do not end."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self._running: list[subprocess.Popen[bytes]] = []
        copy_examples(place)

    def __exit__(self, *error: object) -> None:
        self._kill()
        super().__exit__(*error)

    def command(self, block: Block, command: str, expected: str) -> None:
        if command == "headrace spark":
            self.give(spark=headrace.spark.session("page", servers=self.bootstrap))
        elif command.startswith("kill -9"):
            self._kill()
        elif "to_database.py" in command:
            self._start(block, command, self._has_rows)
        elif command.startswith("python "):
            # two batches more than before: one of records, and one of closed minutes
            before = self._committed()
            self._start(block, command, lambda: self._committed() >= before + 2)
        elif "--follow" in command:
            self._start(block, command, lambda: self._output(command).stat().st_size > 0)
        elif command.startswith("headrace consume"):
            eventually(lambda: self._has_output(block, command), True, WAIT_S)
        else:
            super().command(block, command, expected)

    def _has_output(self, block: Block, command: str) -> bool:
        """The records may still be on their way."""
        return bool(self.run(block, command).stdout)

    def _start(self, block: Block, command: str, is_at_work: Callable[[], bool]) -> None:
        """Returns when it is at work. If Spark's workers had no time to start, so does it again."""
        log = self._output(command).with_suffix(".err")
        program = self._spawn(command, log)

        def is_ready() -> bool:
            nonlocal program
            if program.poll() is not None:
                text = log.read_text(errors="replace")
                assert TOO_SLOW in text, f"{block.where}: {command}: {program.poll()}\n{text[-4000:]}"
                self._running.remove(program)
                program = self._spawn(command, log)
            return is_at_work()

        eventually(is_ready, True, WAIT_S)
        print(f"--- {block.where}\n$ {command} &", flush=True)

    def _spawn(self, command: str, log: Path) -> subprocess.Popen[bytes]:
        with self._output(command).open("wb") as output, log.open("wb") as errors:
            program = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], stdout=output, stderr=errors, env=self._environment
            )
        self._running.append(program)
        return program

    def _output(self, command: str) -> Path:
        name = re.sub(r"\W+", "-", command)
        return self.place / f"{name}.txt"

    def _committed(self) -> int:
        with headrace.Admin(self.bootstrap) as admin:
            return max((sink.committed_batch_id or 0 for sink in admin.list_sinks()), default=-1)

    def _has_rows(self) -> bool:
        try:
            with closing(sqlite3.connect("file:clicks.db?mode=ro", uri=True)) as database:
                return database.execute("SELECT count(*) FROM clicks_per_minute").fetchone()[0] > 0
        except sqlite3.OperationalError:  # not created yet, or locked
            return False

    def _kill(self) -> None:
        for program in self._running:
            program.kill()
            program.wait()
        self._running.clear()


def copy_examples(place: Path) -> None:
    """Pages are read in a clone, and pipelines write to their own directories there."""
    shutil.copytree(ROOT / "examples", place / "examples", ignore=shutil.ignore_patterns("storage"))


def main(page: str) -> None:
    place = Path.cwd()
    if page in WITH_WORKERS:
        copy_examples(place)
        with Reader(place) as reader:
            follow_example(reader, to_run(page))
    else:
        with SparkReader(place) as reader:
            reader.follow(to_run(page, with_spark=True if page in SPARK_SECTIONS else None))


if __name__ == "__main__":
    main(sys.argv[1])
