"""`headrace …` as users run it: a process with pipes, and what it left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.main import run

COMMAND = [str(Path(sys.executable).with_name("headrace"))]
TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.decode().splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


def _hear_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Shell:
    """Runs `headrace …` with the broker's address in the environment."""

    def __init__(self, bootstrap: str) -> None:
        self.environment = os.environ | {"HEADRACE_BOOTSTRAP": bootstrap}
        self.started: list[subprocess.Popen[bytes]] = []

    def __call__(self, *arguments: str, stdin: bytes = b"") -> Done:
        """Runs a command that must succeed."""
        done = self.attempt(*arguments, stdin=stdin)
        assert done.code == 0, f"headrace {' '.join(arguments)}: exit {done.code}\n{done.err}"
        return done

    def attempt(self, *arguments: str, stdin: bytes = b"") -> Done:
        done = subprocess.run(
            [*COMMAND, *arguments],
            input=stdin,
            capture_output=True,
            env=self.environment,
            timeout=TIMEOUT_S,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr.decode())

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        """Starts a command that goes on; it is killed when the test ends.

        As from a terminal: tests that run in the background ignore SIGINT, and their children inherit that.
        """
        self.started.append(
            subprocess.Popen(
                [*COMMAND, *arguments], env=self.environment, preexec_fn=_hear_interrupts, **options
            )
        )
        return self.started[-1]

    def end(self) -> None:
        for process in self.started:
            process.kill()
            process.communicate()


class Inside:
    """`headrace …` without a process of its own."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Done:
        done = self.attempt(*arguments)
        assert done.code == 0, f"headrace {' '.join(arguments)}: exit {done.code}\n{done.err}"
        return done

    def attempt(self, *arguments: str) -> Done:
        code = run(list(arguments))
        said = self._capsys.readouterr()
        return Done(code, said.out.encode(), said.err)
