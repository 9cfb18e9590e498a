"""Copies of the project in which mutants live, one at a time, and runs of tests in them."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

COPIED = (
    "src",
    "tests",
    "tools",
    "docs",
    "examples",
    "benchmarks",
    "pyproject.toml",
    "README.md",
    "Makefile",
)


@dataclass(frozen=True)
class Outcome:
    is_fine: bool
    said: str  # the line that says why, or the last one
    test: str = ""  # the test that failed, or the file that cannot be collected, if it said so


class Tree:
    """A copy of the project in which one mutant at a time lives."""

    def __init__(self, project: Path, path: Path) -> None:
        self.path = path
        self._stamp = int(time.time())
        self.path.mkdir(parents=True, exist_ok=True)
        for name in COPIED:
            source, target = project / name, self.path / name
            if source.is_dir():
                shutil.rmtree(target, ignore_errors=True)
                shutil.copytree(source, target, ignore=shutil.ignore_patterns(".cache", "node_modules"))
            elif source.exists():
                shutil.copy2(source, target)

    def read(self, path: str) -> str:
        return (self.path / path).read_text()

    def write(self, path: str, text: str) -> None:
        """With a time of its own: what was compiled before must not be taken for it."""
        file = self.path / path
        file.write_text(text)
        self._stamp += 2
        os.utime(file, (self._stamp, self._stamp))

    def run(self, arguments: list[str], cpu_s: int) -> Outcome:
        """A run that computes for too long fails; the machine may have other work, so that time which passes
        without computing counts a tenth.
        """

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 5))

        # with CI set, hypothesis draws the same examples each time: a mutant is not killed by chance
        environment = os.environ | {"PYTHONPATH": f"{self.path / 'src'}:{self.path / 'tools'}", "CI": "1"}
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self.path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=limit,
        )
        try:
            output, _ = process.communicate(timeout=cpu_s * 10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its own session: this run and its children
            process.communicate()
            return Outcome(False, "timeout")
        if process.returncode == -signal.SIGXCPU:
            return Outcome(False, f"more than {cpu_s} s of computing")
        return outcome_of(process.returncode, output)


def outcome_of(code: int, output: str) -> Outcome:
    lines = output.strip().splitlines()
    said = [line for line in lines if line.startswith(("FAILED", "ERROR", "E  "))]
    named = [
        match[1] for line in lines if (match := re.match(r"(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", line))
    ]
    last = (said or lines or ["nothing was said"])[-1][:200]
    return Outcome(code in (0, 5), last, named[-1] if named else "")
