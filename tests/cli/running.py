"""`headrace up` as a process that goes on."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

# Longer than `up` waits for each of three nodes.
STOP_S_MAX = 120


def _processes() -> str:
    """What every process is waiting for, in the kernel's words."""
    columns = "pid,ppid,stat,wchan:30,etime,time,args"
    return subprocess.run(["ps", "-eo", columns], capture_output=True, text=True, check=False).stdout


class Up:
    """A running `headrace up` and the first line it printed."""

    def __init__(self, shell: Any, data: Path, *arguments: str, stderr: int = subprocess.PIPE) -> None:
        self.data = data
        self.process = shell.start(
            "up",
            "--data",
            str(data),
            "--port",
            "0",
            *arguments,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
        self.line = self.process.stdout.readline().decode()

    @property
    def node(self) -> Path:
        return self.data / "node-1"

    @property
    def pid(self) -> int:
        """Of the node, by its pid file."""
        return int((self.node / "pid").read_text())

    def stop(self) -> int:
        """SIGTERM, and its exit code. `up` itself kills a node that does not stop, after a while."""
        self.process.send_signal(signal.SIGTERM)
        try:
            code: int = self.process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            pytest.fail(f"`up` did not stop in {STOP_S_MAX} s\n{self._logs()}{_processes()}")
        if code != 0:
            print(self._logs())  # pytest shows it if the test fails
        return code

    def _logs(self) -> str:
        texts = (f"{path}:\n{path.read_text()[-5000:]}\n" for path in self.data.glob("node-*/node.log"))
        return "".join(texts)

    def end(self) -> None:
        if self.process.poll() is None:
            self.stop()
