"""Programs that the demo starts, kills with -9 and starts again, each with a log of its own.

A Spark driver is a family: its Python starts a JVM, and that one the Python workers, in process groups of
their own. So a kill finds all descendants first; nobody is left who could write on.
"""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

STOP_TIMEOUT_S = 20.0
TAIL_BYTES = 2000


class ProgramEnded(Exception):
    """A program ended that should have gone on; the message names its log and carries the end of it."""


class Program:
    """A command that runs in a directory, again after each kill."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, *, cwd: Path, environment: Mapping[str, str]
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log = log
        self.cwd = cwd
        self.environment = {**os.environ, **environment}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.cwd,
                env=self.environment,
                start_new_session=True,  # Ctrl-C is for the demo, which ends them in order
            )

    def check(self) -> None:
        """Raises ProgramEnded if it does not run though it should."""
        if self.process is not None and (code := self.process.poll()) is not None:
            end = self.log.read_bytes()[-TAIL_BYTES:].decode(errors="replace").rstrip()
            raise ProgramEnded(f"{self.name} ended with code {code}; the end of its log, {self.log}:\n{end}")

    def kill(self) -> int:
        """kill -9 of the whole family; how many processes that were."""
        if self.process is None:
            return 0
        family = [self.process.pid, *descendants(self.process.pid)]
        for pid in family:
            _kill(pid)
        self.process.wait()
        self.process = None
        return len(family)

    def stop(self) -> None:
        """SIGTERM, and -9 for whoever is left."""
        if self.process is None:
            return
        family = descendants(self.process.pid)
        self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None
        for pid in family:
            _kill(pid)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it went with its parent


def descendants(ancestor: int) -> list[int]:
    """Children first, then theirs."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents():
        children.setdefault(parent, []).append(pid)
    found = list(children.get(ancestor, ()))
    for pid in found:  # grows while it is walked
        found += children.get(pid, ())
    return found


def _parents() -> list[tuple[int, int]]:
    """Every process and its parent: from /proc, or from `ps` where there is none."""
    proc = Path("/proc")
    if not (proc / "self" / "stat").exists():
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True)
        return [(int(pid), int(parent)) for pid, parent in map(str.split, listed.stdout.splitlines())]
    pairs = []
    for directory in proc.iterdir():
        if directory.name.isdigit():
            try:
                stat = (directory / "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended while we looked
            # pid (name) state ppid …, and a name may hold anything
            pairs.append((int(directory.name), int(stat.rpartition(")")[2].split()[1])))
    return pairs
