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
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from mutants.warm import WarmTests

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
        self.is_warm = (
            False  # whether tests may run in a process that has imported them before the mutant came
        )
        self._warm: WarmTests | None = None
        self._originals: dict[str, str] = {}
        self._changed = ""  # the file with a mutant
        self._stamp = int(time.time())
        self.path.mkdir(parents=True, exist_ok=True)
        for name in COPIED:
            source, target = project / name, self.path / name
            if source.is_dir():
                shutil.rmtree(target, ignore_errors=True)
                shutil.copytree(source, target, ignore=shutil.ignore_patterns(".cache", "node_modules"))
            elif source.exists():
                shutil.copy2(source, target)

    def warm_up(self, files: Collection[str]) -> None:
        """Import these tests once for all mutants that allow it; `wait` before there is any."""
        self._warm = WarmTests(self.path, files, self._environment())

    def wait(self) -> None:
        if self._warm is not None:
            self._warm.wait()

    def close(self) -> None:
        if self._warm is not None:
            self._warm.close()

    def _environment(self) -> dict[str, str]:
        # with CI set, hypothesis draws the same examples each time: a mutant is not killed by chance
        return os.environ | {"PYTHONPATH": f"{self.path / 'src'}:{self.path / 'tools'}", "CI": "1"}

    def read(self, path: str) -> str:
        return (self.path / path).read_text()

    def write(self, path: str, text: str) -> None:
        """With a time of its own: what was compiled before must not be taken for it."""
        file = self.path / path
        original = self._originals.setdefault(path, file.read_text())
        self._changed = path if text != original else ""
        file.write_text(text)
        self._stamp += 2
        os.utime(file, (self._stamp, self._stamp))

    def run(self, arguments: list[str], cpu_s: int) -> Outcome:
        if self.is_warm and self._warm is not None and arguments[:2] == ["-m", "pytest"]:
            outcome = self._run_warm(self._warm, arguments, cpu_s)
            if outcome is not None:
                return outcome
        return self._run_cold(arguments, cpu_s)

    def _run_warm(self, warm: WarmTests, arguments: list[str], cpu_s: int) -> Outcome | None:
        tests, left_out = tests_in(arguments)
        change = None
        if self._changed:
            path = self.path / self._changed
            change = str(path), self._originals[self._changed], path.read_text()
        answer = warm.ask(tests, left_out, change, cpu_s)
        return Outcome(**answer) if answer is not None else None

    def _run_cold(self, arguments: list[str], cpu_s: int) -> Outcome:
        """A run that computes for too long fails; the machine may have other work, so that time which passes
        without computing counts a tenth.
        """

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 5))

        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self.path,
            env=self._environment(),
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


def tests_in(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Of the arguments of pytest: the tests and files of tests, and those that are left out."""
    tests, left_out = [], []
    following = iter(arguments)
    for argument in following:
        if argument == "--deselect":
            left_out.append(next(following))
        elif argument.startswith("tests/"):
            tests.append(argument)
    return tests, left_out


def outcome_of(code: int, output: str) -> Outcome:
    lines = output.strip().splitlines()
    said = [line for line in lines if line.startswith(("FAILED", "ERROR", "E  "))]
    named = [
        match[1] for line in lines if (match := re.match(r"(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", line))
    ]
    last = (said or lines or ["nothing was said"])[-1][:200]
    return Outcome(code in (0, 5), last, named[-1] if named else "")
