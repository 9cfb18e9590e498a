"""A page that is followed to the letter: `page_job.py <page> <bootstrap>` runs its blocks, in one session.

Blocks of Python are executed one behind the other; one that begins with a file's name is saved as that file.
Lines of shell are run, but for those that the reader of a page does once or elsewhere: installing, starting
the broker. `python pipeline.py` runs beside the rest, until it is killed or the page ends.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import headrace
from harness.wait import eventually

BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\w+\.py)\n")
WRITTEN_DOWN = "localhost:9092"  # where the page's broker is
WAIT_S = 240


class Reader:
    """Somebody who follows a page."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._names: dict[str, Any] = {"__name__": "page"}
        self._pipeline: subprocess.Popen[bytes] | None = None
        os.environ["HEADRACE_BOOTSTRAP"] = bootstrap
        sys.path.insert(0, os.getcwd())

    def follow(self, page: str) -> None:
        try:
            for language, text in BLOCK.findall(page):
                if language == "python":
                    self._python(text.replace(WRITTEN_DOWN, self._bootstrap))
                else:
                    for line in text.splitlines():
                        self._shell(line)
        finally:
            self._kill()

    def _python(self, text: str) -> None:
        if named := FILE.match(text):
            Path(named[1]).write_text(text)
        else:
            exec(compile(text, "<page>", "exec"), self._names)

    def _shell(self, line: str) -> None:
        if line.startswith(("pip install", "headrace up")):
            return
        if line.startswith("kill -9"):
            self._kill()
        elif line == "python pipeline.py":
            self._start(line.split()[1])
        elif line.startswith("headrace consume"):
            eventually(
                lambda: bool(self._run(line)), True, WAIT_S
            )  # what is to be seen may still be on its way
        else:
            self._run(line)

    def _run(self, line: str) -> str:
        command = line.replace("headrace", str(Path(sys.executable).with_name("headrace")), 1)
        done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=WAIT_S)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        print(f"$ {line}\n{done.stdout}", flush=True)
        return done.stdout

    # --- the pipeline ------------------------------------------------------------------------------------

    def _start(self, script: str) -> None:
        """Returns when it has written two batches more than before: a read one, and one of closed minutes."""
        before = self._committed()
        self._pipeline = subprocess.Popen([sys.executable, script])
        eventually(lambda: self._committed() >= before + 2, True, WAIT_S)

    def _committed(self) -> int:
        with headrace.Admin(self._bootstrap) as admin:
            return max((sink.committed_batch_id or 0 for sink in admin.list_sinks()), default=-1)

    def _kill(self) -> None:
        if self._pipeline is not None:
            self._pipeline.kill()
            self._pipeline.wait()


if __name__ == "__main__":
    Reader(sys.argv[2]).follow(Path(sys.argv[1]).read_text())
