"""A development node as a child process, for `up` and `demo`.

DIR/node-1/
  server.properties   the settings it was started with
  pid                 the process id
  node.log            its log
  data/               its log directory
"""

import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import click

from headrace.cli.terminal import say
from headrace.server.lock import DirectoryInUse, DirectoryLock

READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
ABORT_TIMEOUT_S = 5.0
TAIL_CHARACTERS = 2000

# Facts in a node's log; a value with spaces in it is in quotes, as JSON writes them.
CANNOT_START = re.compile(r' cannot_start reason=("(?:[^"\\]|\\.)*"|\S+)')
METRICS = re.compile(r" metrics address=(\S+)")
READY = b"ready "  # on stdout, once

# Developers do not want to wait for a group's first members.
DEVELOPMENT = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
}
REPLICAS_MAX = 3
HOST = "127.0.0.1"


def has_ended(process: "subprocess.Popen[bytes]") -> bool:
    """Whether the process has ended. Without a lock: `Popen.poll` takes one, and a signal whose handler
    raises an exception just then leaves it taken, so that every later `wait` blocks for ever.
    """
    if process.returncode is not None:
        return True
    if sys.platform == "darwin":  # it has no waitid
        return process.poll() is not None
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # somebody else has waited for it
        return True


def replication_settings(nodes: int) -> dict[str, str]:
    """Three replicas of everything if there are enough nodes, of which two have to have a record."""
    replicas = str(min(nodes, REPLICAS_MAX))
    in_sync = "2" if nodes >= REPLICAS_MAX else "1"
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.replication.factor": replicas,
    }


class NodeFailed(click.ClickException):
    """The process ended or never served; the message carries the end of its log."""


class LocalNode:
    """One node under its directory; `start` after `kill` or `stop` takes up the same port and data."""

    def __init__(
        self,
        directory: Path,
        node_id: int,
        port: int,
        settings: dict[str, str],
        controller_ports: dict[int, int] | None = None,
        *,
        internal_port: int | None = None,
        is_secure: bool = False,
    ) -> None:
        """`controller_ports`: of all nodes of its cluster, by their ids; None if it is alone.

        A secure node asks its clients to log in, over TLS. The other nodes of its cluster come to listeners
        of their own, with certificates: to that of its controller, and to its internal port.
        """
        self._controller_ports = controller_ports or {}
        self._internal_port = internal_port
        self._is_secure = is_secure
        self.directory = directory / f"node-{node_id}"
        self.node_id = node_id
        self.port = port  # 0: any free one, known after the first start
        self.settings = settings
        self.bootstrap = ""
        self.metrics_url: str | None = None  # None: the settings have no such port
        self.process: subprocess.Popen[bytes] | None = None
        self._log_from = 0  # where this process's lines begin in the log

    @property
    def name(self) -> str:
        return f"node {self.node_id}" if self._controller_ports else "the node"

    @property
    def log_path(self) -> Path:
        return self.directory / "node.log"

    @property
    def pid_path(self) -> Path:
        return self.directory / "pid"

    @property
    def is_running(self) -> bool:
        return self.process is not None and not has_ended(self.process)

    def _write_settings(self) -> Path:
        properties = {
            "node.id": str(self.node_id),
            "process.roles": "broker,controller",
            "listeners": f"{'SASL_SSL' if self._is_secure else 'PLAINTEXT'}://{HOST}:{self.port}",
            "log.dirs": str(self.directory / "data"),
            **DEVELOPMENT,
            **replication_settings(max(1, len(self._controller_ports))),
        } | self.settings
        if self._controller_ports:
            voters = (f"{voter}@{HOST}:{port}" for voter, port in self._controller_ports.items())
            properties |= {
                "listeners": f"{properties['listeners']},CONTROLLER://{HOST}:"
                f"{self._controller_ports[self.node_id]}",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": ",".join(voters),
            }
        if self._internal_port is not None:
            properties |= {
                "listeners": f"{properties['listeners']},INTERNAL://{HOST}:{self._internal_port}",
                "inter.broker.listener.name": "INTERNAL",
                "listener.security.protocol.map": "SASL_SSL:SASL_SSL,INTERNAL:SSL,CONTROLLER:SSL",
                "listener.name.internal.ssl.client.auth": "required",
                "listener.name.controller.ssl.client.auth": "required",
            }
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
        first_new = first_missing(self.directory)
        try:
            return self._start()
        except BaseException:
            if first_new is not None and not self.is_running:
                import shutil  # loads every kind of archive, which a start need not wait for

                shutil.rmtree(first_new, ignore_errors=True)
            raise

    def _start(self) -> float:
        began_at = time.monotonic()
        self.launch()
        self.await_ready()
        return time.monotonic() - began_at

    def launch(self) -> None:
        """Starts the process."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if (self.directory.parent / "bootstrap.checkpoint").exists():  # users, who wait for the first start
            from headrace.cli.bootstrap_users import hand_over

            hand_over(self.directory.parent, self.directory / "data")
        path = self._write_settings()
        with self.log_path.open("ab") as log:
            self._log_from = log.tell()
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headrace.server", str(path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C goes to this process, which shuts the node down
            )
        self.pid_path.write_text(f"{self.process.pid}\n")

    def await_ready(self) -> None:
        """Waits until the process serves."""
        self._serves_at(self._await_ready(self._log_from))

    def has_become_ready(self) -> bool:
        """Whether the process has said since the last call that it serves. Does not wait."""
        assert self.process is not None
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], 0)[0]:
            return False
        line = self.process.stdout.readline()  # nothing if the process has ended
        if not line.startswith(READY):
            return False
        self._serves_at(line.split()[1].decode())
        return True

    def _serves_at(self, address: str) -> None:
        """The next start takes the same ports, also where any free one was taken."""
        if self._internal_port is not None:
            address = address.split(",")[0]  # the other one is not for clients
        self.bootstrap = address
        self.port = int(address.rpartition(":")[2])
        self.metrics_url = self._logged(METRICS, self._log_from)
        if self.metrics_url is not None and "headrace.http.listeners" not in self.settings:
            http_port = self.metrics_url.removesuffix("/metrics").rpartition(":")[2]
            self.settings = self.settings | {"headrace.metrics.port": http_port}

    def _await_ready(self, log_from: int) -> str:
        assert self.process is not None
        assert self.process.stdout is not None
        watchdog = _Watchdog(self.process, READY_TIMEOUT_S)
        with watchdog:
            for line in self.process.stdout:
                if line.startswith(READY):
                    return line.split()[1].decode()
        code = self.process.wait()
        self.pid_path.unlink(missing_ok=True)
        if self._logged(CANNOT_START, log_from) is not None:
            raise NodeFailed(f"{self.name} {self.how_it_ended(code)}.")
        what = (
            f"was not ready after {READY_TIMEOUT_S:g} s" if watchdog.has_barked else self.how_it_ended(code)
        )
        tail = self._log(log_from)[-TAIL_CHARACTERS:].rstrip() or "(the log is empty)"
        raise NodeFailed(f"{self.name} {what}; the end of its log:\n{tail}")

    def how_it_ended(self, code: int) -> str:
        """The rest of a sentence that begins with its name: the reason in its log, or its exit code."""
        if (reason := self._logged(CANNOT_START, self._log_from)) is not None:
            return f"cannot start: {reason.rstrip('.')}"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    def _log(self, start: int) -> str:
        return self.log_path.read_bytes()[start:].decode(errors="replace")

    def _logged(self, fact: re.Pattern[str], start: int) -> str | None:
        """The last value that the node logged for a fact."""
        found = fact.findall(self._log(start))
        if not found:
            return None
        word = str(found[-1])
        if not word.startswith('"'):
            return word
        import json

        return str(json.loads(word))

    def kill(self) -> None:
        """kill -9: what the process had in memory is gone."""
        if self.process is not None:
            self.process.kill()
            self._ended()

    def stop(self) -> int:
        """SIGTERM, and its exit code. A process that does not end in time is killed."""
        self.terminate()
        return self.await_end()

    def terminate(self) -> None:
        """SIGTERM. A second one would end the process at once."""
        if self.process is not None:
            self.process.terminate()

    def await_end(self) -> int:
        if self.process is None:
            return 0
        try:
            code = self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            code = self._abort()
        self._ended()
        return code

    def _abort(self) -> int:
        """Ends a process that does not stop. SIGABRT first: it then logs what its threads are doing."""
        assert self.process is not None
        say(
            f"node {self.node_id} has not stopped for {STOP_TIMEOUT_S:g} s and is killed; its log "
            f"{self.log_path} says what it was doing",
            err=True,
        )
        self.process.send_signal(signal.SIGABRT)
        try:
            return self.process.wait(ABORT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

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


def first_missing(directory: Path) -> Path | None:
    """The outermost directory on the way that does not exist yet."""
    missing = None
    while not directory.exists():
        missing, directory = directory, directory.parent
    return missing


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")
