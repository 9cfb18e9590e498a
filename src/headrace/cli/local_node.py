"""A development node as a child process: `up` and `demo` start, watch, kill and end it here.

DIR/node-1/
  server.properties   what it was started with
  pid                 of the running process
  node.log            what it says
  data/               its log directory
"""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import click

from headrace.server.lock import DirectoryInUse, DirectoryLock

READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
TAIL_CHARACTERS = 2000

# Facts in a node's log; a value with spaces in it is in quotes, as JSON writes them.
CANNOT_START = re.compile(r' cannot_start reason=("(?:[^"\\]|\\.)*"|\S+)')
METRICS = re.compile(r" metrics address=(\S+)")

# One node holds one copy of everything, and who develops does not want to wait for a group's first members.
DEVELOPMENT = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
}


class NodeFailed(click.ClickException):
    """The process ended or never served; the message carries the end of its log."""


class LocalNode:
    """One node under its directory; `start` after `kill` or `stop` takes up the same port and data."""

    def __init__(self, directory: Path, node_id: int, port: int, settings: dict[str, str]) -> None:
        self.directory = directory / f"node-{node_id}"
        self.node_id = node_id
        self.port = port  # 0: any free one, known after the first start
        self.settings = settings
        self.bootstrap = ""
        self.metrics_url: str | None = None  # None: the settings have no such port
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def log_path(self) -> Path:
        return self.directory / "node.log"

    @property
    def pid_path(self) -> Path:
        return self.directory / "pid"

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def _write_settings(self) -> Path:
        properties = {
            "node.id": str(self.node_id),
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self.directory / "data"),
            **DEVELOPMENT,
        } | self.settings
        path = self.directory / "server.properties"
        lines = [f"{key}={_escaped(value)}\n" for key, value in properties.items()]
        path.write_text(
            "# written at every start; `headrace up --set key=value` changes it\n" + "".join(lines)
        )
        return path

    def holder(self) -> str | None:
        """The process that serves from this directory now."""
        data = self.directory / "data"
        if not data.is_dir():
            return None
        try:
            DirectoryLock(str(data)).release()
        except DirectoryInUse as error:
            return error.holder
        return None

    def start(self) -> float:
        """Starts the process and waits until it serves; how many seconds that took.

        A start that fails leaves no directory behind that was not there before.
        """
        # asked before anything is written: the files of a node that runs are its own
        if (holder := self.holder()) is not None:
            raise NodeFailed(f"{self.directory} is in use by process {holder}.")
        first_new = _first_missing(self.directory)
        try:
            return self._start()
        except BaseException:
            if first_new is not None and not self.is_running:
                shutil.rmtree(first_new, ignore_errors=True)
            raise

    def _start(self) -> float:
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self._write_settings()
        began_at = time.monotonic()
        with self.log_path.open("ab") as log:
            log_from = log.tell()
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headrace.server", str(path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us: we end it in order
            )
        self.pid_path.write_text(f"{self.process.pid}\n")
        self.bootstrap = self._await_ready(log_from)
        self.port = int(self.bootstrap.rpartition(":")[2])
        self.metrics_url = self._logged(METRICS, log_from)
        return time.monotonic() - began_at

    def _await_ready(self, log_from: int) -> str:
        assert self.process is not None
        assert self.process.stdout is not None
        watchdog = _Watchdog(self.process, READY_TIMEOUT_S)
        with watchdog:
            for line in self.process.stdout:
                if line.startswith(b"ready "):
                    return line.split()[1].decode()
        code = self.process.wait()
        self.pid_path.unlink(missing_ok=True)
        if (reason := self._logged(CANNOT_START, log_from)) is not None:
            raise NodeFailed(f"the node cannot start: {reason.rstrip('.')}.")
        what = "did not serve in time" if watchdog.has_barked else f"ended with code {code}"
        tail = self._log(log_from)[-TAIL_CHARACTERS:].rstrip() or "(it said nothing)"
        raise NodeFailed(f"the node {what}; the end of its log:\n{tail}")

    def _log(self, start: int) -> str:
        return self.log_path.read_bytes()[start:].decode(errors="replace")

    def _logged(self, fact: re.Pattern[str], start: int) -> str | None:
        """What the node said last of something, in the words of its log."""
        found = fact.findall(self._log(start))
        if not found:
            return None
        word = str(found[-1])
        return str(json.loads(word)) if word.startswith('"') else word

    def kill(self) -> None:
        """kill -9: what the process had in memory is gone."""
        if self.process is not None:
            self.process.kill()
            self._ended()

    def stop(self) -> int:
        """SIGTERM, and its exit code; SIGKILL when it does not end in time."""
        if self.process is None:
            return 0
        self.process.terminate()
        try:
            code = self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self._ended()
        return code

    def wait(self) -> int:
        """Until the process ends by itself."""
        assert self.process is not None
        code = self.process.wait()
        self._ended()
        return code

    def _ended(self) -> None:
        assert self.process is not None
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.process = None
        self.pid_path.unlink(missing_ok=True)


class _Watchdog:
    """Kills a process that does not say `ready` in time, by an alarm: reading its output blocks."""

    def __init__(self, process: subprocess.Popen[bytes], timeout_s: float) -> None:
        self.process = process
        self.timeout_s = timeout_s
        self.has_barked = False

    def _bark(self, *_: object) -> None:
        self.has_barked = True
        self.process.kill()

    def __enter__(self) -> None:
        self._before = signal.signal(signal.SIGALRM, self._bark)
        signal.setitimer(signal.ITIMER_REAL, self.timeout_s)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)


def _first_missing(directory: Path) -> Path | None:
    """The outermost directory on the way that does not exist yet."""
    missing = None
    while not directory.exists():
        missing, directory = directory, directory.parent
    return missing


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")
