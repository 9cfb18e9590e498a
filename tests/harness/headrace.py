"""Headrace as a process: `headrace serve` with a properties file, its port read from the ready line."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import IO

from harness.broker import Broker, write_properties
from headrace.simulator.manual_host import ONE_NODE

COMMAND = (str(Path(sys.executable).with_name("headrace")),)
JUDGED = [sys.executable, str(Path(__file__).with_name("judged_server.py"))]
READY = re.compile(r"^ready (\S+)$", re.MULTILINE)


class Headrace(Broker):
    name = "headrace"
    start_timeout_s = 30.0
    uses_core = True  # the compiled network core, where there is one; else asyncio's transports
    command: tuple[str, ...] = COMMAND
    environment: dict[str, str] | None = None  # of its process; None: this one's

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        super().__init__(directory, settings)
        self._printed = 0  # where the running process's output begins

    def write_settings(self) -> None:
        defaults = {
            "node.id": "1",
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",  # 0 at the first start: any free port
            "log.dirs": str(self.data),
            "headrace.network.core": str(self.uses_core).lower(),
            **ONE_NODE,
        }
        write_properties(self.directory / "server.properties", defaults | self.settings)

    def spawn(self, output: IO[bytes]) -> subprocess.Popen[bytes]:
        self._printed = output.tell()
        command = [
            *(JUDGED if self.is_judged else [*self.command, "serve"]),
            str(self.directory / "server.properties"),
        ]
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=self.environment,
        )

    def is_serving(self) -> bool:
        with (self.directory / "output.txt").open("rb") as output:
            output.seek(self._printed)
            ready = READY.search(output.read().decode(errors="replace"))
        if ready is None:
            return False
        self.port = int(ready[1].rpartition(":")[2])
        return super().is_serving()
