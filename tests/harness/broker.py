"""The one shape both brokers have: a process with settings, a data directory and a bootstrap address.

A test or a benchmark that takes a `Broker` runs unchanged against Headrace and against Apache Kafka.
`kill` is SIGKILL, `stop` is SIGTERM and waits; `start` after either reuses the port and the data.
"""

from __future__ import annotations

import abc
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from harness import wire
from harness.wait import Patience

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"


class BrokerFailed(Exception):
    """The process ended, or did not serve in time; the message carries the end of what it printed."""


class Broker(abc.ABC):
    """A single-node broker process under `directory`: `data/`, `server.properties` and `output.txt`."""

    name: str
    start_timeout_s = 60.0
    stop_timeout_s = 60.0
    is_under_fire = False  # whether its nodes are killed while tests use it
    is_judged = False  # whether the order of Headrace's answers is watched, at a cost for each request

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.settings = dict(settings or {})
        self.port = 0  # 0 until the first start
        self.process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def node_ports(self) -> list[int]:
        """Of each node."""
        return [self.port]

    @property
    def node_ids(self) -> list[int]:
        return [1]

    @property
    def pid(self) -> int:
        assert self.process is not None, "not started"
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def output(self) -> str:
        path = self.directory / "output.txt"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> Self:
        """Starts the process and returns once it answers Metadata with itself as a live broker."""
        self.launch()
        self.wait_until_ready()
        return self

    def launch(self) -> None:
        """Starts the process."""
        assert not self.is_running, "already running"
        self.write_settings()
        with (self.directory / "output.txt").open("ab") as output:
            self.process = self.spawn(output)

    def kill(self) -> None:
        """kill -9: nothing of the process's own memory survives, the page cache does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def pause(self) -> None:
        """SIGSTOP: its connections stay open, and nothing answers."""
        if self.process is not None:
            self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        """SIGTERM, then the exit code; a process that does not end in time is killed and reported."""
        self.terminate()
        return self.wait_for_end()

    def terminate(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)

    def wait_for_end(self) -> int:
        if self.process is None:
            return 0
        process, self.process = self.process, None
        patience = Patience(self.stop_timeout_s)
        while True:
            try:
                return process.wait(1.0)
            except subprocess.TimeoutExpired:
                if patience.is_over:
                    process.kill()
                    process.wait()
                    raise BrokerFailed(f"{self.name} ignored SIGTERM for {self.stop_timeout_s} s") from None

    def wait_until_ready(self) -> None:
        patience = Patience(self.start_timeout_s)
        while not self.is_serving():
            assert self.process is not None
            code = self.process.poll()
            if code is not None:
                raise BrokerFailed(f"{self.name} ended with {code}:\n{self.output()[-4000:]}")
            if patience.is_over:
                self.kill()
                raise BrokerFailed(f"{self.name} does not serve:\n{self.output()[-4000:]}")
            time.sleep(0.01)

    def is_serving(self) -> bool:
        return self.port != 0 and wire.has_live_broker("127.0.0.1", self.port)

    @abc.abstractmethod
    def write_settings(self) -> None:
        """Writes the settings file that `spawn` hands to the process."""

    @abc.abstractmethod
    def spawn(self, output: IO[bytes]) -> subprocess.Popen[bytes]:
        """Starts the process, with everything it prints going to `output`."""

    def __enter__(self) -> Self:
        return self if self.is_running else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def write_properties(path: Path, properties: dict[str, str]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
