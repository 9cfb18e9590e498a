"""A page about Spark that is followed to the letter: `page_job.py PAGE` runs its blocks, in one session.

`headrace spark` gives the page a session, as its shell would. `python pipeline.py` runs beside the rest,
until it is killed or the page ends.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import headrace
import headrace.spark
from docs.fenced import Block, to_run
from harness.page_reader import Reader
from harness.wait import eventually

WAIT_S = 240


class SparkReader(Reader):
    """Somebody with a terminal for Spark and one for a pipeline."""

    _pipeline: subprocess.Popen[bytes] | None = None

    def __exit__(self, *error: object) -> None:
        self._kill()
        super().__exit__(*error)

    def command(self, block: Block, command: str, expected: str) -> None:
        if command == "headrace spark":
            self.give(spark=headrace.spark.session("page", servers=self.bootstrap))
        elif command.startswith("kill -9"):
            self._kill()
        elif command == "python pipeline.py":
            self._start(command.split()[1])
        elif command.startswith("headrace consume"):
            eventually(lambda: self._has_output(block, command), True, WAIT_S)
        else:
            super().command(block, command, expected)

    def _has_output(self, block: Block, command: str) -> bool:
        """What is to be seen may still be on its way."""
        return bool(self.run(block, command).stdout)

    def _start(self, script: str) -> None:
        """Returns when it has written two batches more than before: a read one, and one of closed minutes."""
        before = self._committed()
        self._pipeline = subprocess.Popen([sys.executable, script])
        eventually(lambda: self._committed() >= before + 2, True, WAIT_S)

    def _committed(self) -> int:
        with headrace.Admin(self.bootstrap) as admin:
            return max((sink.committed_batch_id or 0 for sink in admin.list_sinks()), default=-1)

    def _kill(self) -> None:
        if self._pipeline is not None:
            self._pipeline.kill()
            self._pipeline.wait()


if __name__ == "__main__":
    with SparkReader(Path.cwd()) as reader:
        reader.follow(to_run(sys.argv[1], with_spark=True if sys.argv[1] == "README.md" else None))
