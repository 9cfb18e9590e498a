"""`headrace up` as a process that goes on."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any


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
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def end(self) -> None:
        if self.process.poll() is None:
            self.stop()
