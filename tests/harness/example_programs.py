"""Programs of `examples/`, started as their README says, and workers that are killed and started again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
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
    """One of the examples, and the broker that its programs use."""

    def __init__(self, name: str, servers: str) -> None:
        self.folder = ROOT / "examples" / name
        self.servers = servers

    def command(self, program: str, *arguments: object) -> list[str]:
        texts = [str(argument) for argument in arguments]
        return [sys.executable, str(self.folder / program), "--servers", self.servers, *texts]

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
    """Programs that run until the end of the block; one that ended is started again."""

    def __init__(self, *commands: Sequence[str]) -> None:
        self._commands = commands
        self._running: list[subprocess.Popen[bytes]] = []

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
        process = self._running[number]
        assert process.poll() is None, f"{self._commands[number]} ended by itself with {process.returncode}"
        process.kill()
        process.wait()
        self._running[number] = self._start(self._commands[number])

    def tend(self) -> None:
        for number, process in enumerate(self._running):
            if process.poll() is not None:
                self._running[number] = self._start(self._commands[number])

    def until(self, ask: Callable[[], int | None], target: int) -> None:
        """Waits until the number is reached; None: nobody can tell."""
        patience = Patience(WAIT_S)
        while ((reached := ask()) or 0) < target:
            self.tend()
            assert not patience.is_over, f"{reached} of {target}"
            time.sleep(0.01)

    def _start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, env=os.environ | {"PYTHONUNBUFFERED": "1"})
