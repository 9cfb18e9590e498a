"""The launcher of nodes, as the test's process sees it: one child process, called by lines of JSON.

Half of the time of a cluster's start is that of its launcher. So one that is not needed any more is kept for
the next cluster.
"""

import atexit
import json
import subprocess
import sys
import threading
from typing import Any

from headrace.testing.hosts import HostFailed


class NodeFailed(Exception):
    """A node could not start; the message has the reason."""


# What a call raises here, by what was raised in the launcher; all else is a bug of ours.
TOLD_AS = {"CannotStart": NodeFailed}


class NodeProcesses:
    """See `node_launcher.py` for the calls."""

    def __init__(self) -> None:
        self._launcher = subprocess.Popen(
            [sys.executable, "-m", "headrace.testing.node_launcher"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lock = threading.Lock()  # one call at a time

    def call(self, method: str, /, **arguments: Any) -> Any:
        launcher = self._launcher
        assert launcher.stdin is not None
        assert launcher.stdout is not None
        with self._lock:
            try:
                launcher.stdin.write(json.dumps({"method": method, "arguments": arguments}) + "\n")
                launcher.stdin.flush()
                line = launcher.stdout.readline()
            except BrokenPipeError:
                line = ""
        if not line:
            raise HostFailed(f"the launcher of the nodes ended with exit code {launcher.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise TOLD_AS.get(answer["kind"], HostFailed)(answer["error"])
        return answer["result"]

    def end(self) -> None:
        """Kills all nodes that still run."""
        try:
            self.call("kill_all")
        except HostFailed:
            self.close()
            return
        with _LOCK:
            _IDLE.append(self)

    def close(self) -> None:
        self._launcher.communicate()  # the end of its stdin


_IDLE: list[NodeProcesses] = []
_LOCK = threading.Lock()


def node_processes() -> NodeProcesses:
    """A launcher without nodes: one that was used before, or a new one."""
    with _LOCK:
        return _IDLE.pop() if _IDLE else NodeProcesses()


@atexit.register
def _close_idle() -> None:
    while _IDLE:
        _IDLE.pop().close()
