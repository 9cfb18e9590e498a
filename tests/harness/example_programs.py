"""Programs of `examples/`, started as their README says, and workers that are killed and started again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from harness.broker import ROOT
from harness.wait import WAIT_S, Patience, run_to_end

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "log.retention.ms": "-1",  # the events of examples are of a fixed day
}


class Example:
    """One of the examples, and the broker that its programs use.

    With `place` a copy of the example is used: a declared pipeline writes to its own directory.
    """

    def __init__(self, name: str, servers: str, place: Path | None = None) -> None:
        self.folder = ROOT / "examples" / name
        self.servers = servers
        if place is not None:
            unwanted = shutil.ignore_patterns("storage", "__pycache__")
            self.folder = Path(shutil.copytree(self.folder, place / name, ignore=unwanted))

    def command(self, program: str, *arguments: object) -> list[str]:
        """`headrace` stands for the command of that name."""
        texts = [str(argument) for argument in arguments]
        start = [sys.executable, str(self.folder / program)]
        if program == "headrace":
            start = [str(Path(sys.executable).with_name(program))]
        return ["env", f"HEADRACE_BOOTSTRAP={self.servers}", *start, *texts]

    def run(self, program: str, *arguments: object) -> str:
        """Runs it to its end; what it printed."""
        ended = run_to_end(self.command(program, *arguments))
        assert ended.returncode == 0, f"{program} {arguments}: {ended.stdout}\n{ended.stderr}"
        return ended.stdout

    def fails(self, program: str, *arguments: object) -> str:
        """Runs a check that finds something wrong; what it printed."""
        ended = run_to_end(self.command(program, *arguments))
        assert ended.returncode == 1, f"{program} {arguments}: {ended.stdout}\n{ended.stderr}"
        return ended.stdout


class Workers:
    """Programs that run until the end of the block.

    One that ended by itself is started again, as a supervisor would: its transaction may have timed out while
    the broker was away. One that ends again and again is a failure.
    """

    RESTARTS_MAX = 5

    def __init__(self, *commands: Sequence[str]) -> None:
        self._commands = commands
        self._running: list[subprocess.Popen[bytes]] = []
        self._restarts = 0

    def __enter__(self) -> Self:
        self._running = [self._start(command) for command in self._commands]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._running:
            process.kill()
        for process in self._running:
            process.wait()

    def kill(self, number: int) -> None:
        """kill -9, and another one in its place."""
        self.tend()
        process = self._running[number]
        process.kill()
        process.wait()
        self._running[number] = self._start(self._commands[number])

    def tend(self) -> None:
        for number, process in enumerate(self._running):
            if process.poll() is not None:
                self._restarts += 1
                command = self._commands[number]
                assert self._restarts <= self.RESTARTS_MAX, f"{command} ended with {process.returncode}"
                self._running[number] = self._start(command)

    def until(self, ask: Callable[[], int | None], target: int) -> None:
        """Waits until the number is reached; None: nobody can tell."""
        patience = Patience(WAIT_S)
        while ((reached := ask()) or 0) < target:
            self.tend()
            assert not patience.is_over, f"{reached} of {target}"
            time.sleep(0.01)

    def until_right(self, example: Example, program: str, *arguments: object) -> str:
        """Waits until a check finds nothing wrong; what it printed."""
        patience = Patience(WAIT_S)
        while (ended := run_to_end(example.command(program, *arguments))).returncode != 0:
            self.tend()
            assert not patience.is_over, f"{program} {arguments}: {ended.stdout}\n{ended.stderr}"
            time.sleep(0.1)
        return ended.stdout

    def _start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, env=os.environ | {"PYTHONUNBUFFERED": "1"})
