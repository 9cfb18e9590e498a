"""`python -m headrace.testing.node_launcher`: starts and stops the nodes of a cluster under test.

It loads the server once and forks a process for each node, which is therefore there within milliseconds. Each
line on stdin is a call and gets one line as its answer, both JSON. When stdin is closed it kills all nodes,
and a node ends when its launcher does: none outlives the test.
"""

import asyncio
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import sys
import time
import traceback
from typing import Any, NoReturn

import headrace.node.handlers
from headrace.node.settings import Settings
from headrace.server.logs import Log
from headrace.server.process import Process, loop_factory, raise_open_files_limit

READY_S_MAX = 30.0
STOP_S_MAX = 30.0
LOOK_EVERY_S = 0.005
FAILED = 1


class CannotStart(Exception):
    """A node ended before it served."""


class NodeProcess:
    """A forked node: its process id, and the pipes to it."""

    def __init__(self, settings: dict[str, str], log: str, log_level: str, cut_off: list[int]) -> None:
        control_read, self.control = os.pipe()
        self.status, status_write = os.pipe()
        self.is_paused = False
        self.pid = os.fork()
        if self.pid == 0:
            _run_node(settings, log, log_level, cut_off, control_read, status_write)
        os.close(control_read)
        os.close(status_write)

    def await_ready(self) -> None:
        """CannotStart: the process ended, or did not serve in time."""
        readable, _, _ = select.select([self.status], [], [], READY_S_MAX)
        said = os.read(self.status, 65536).decode() if readable else f"not ready after {READY_S_MAX:g} s"
        if said != "ready":
            self.kill()
            raise CannotStart(said or "the process ended; its log has the reason")

    def tell(self, cut_off: list[int]) -> None:
        os.write(self.control, json.dumps(cut_off).encode() + b"\n")

    def pause(self) -> None:
        """SIGSTOP; returns when the process stands still."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)
        self.is_paused = True

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)
        self.is_paused = False

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self._close()

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGCONT)
        os.kill(self.pid, signal.SIGTERM)

    def await_end(self, deadline: float) -> int:
        """The exit code after `terminate`; it is killed at the deadline."""
        while True:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self._close()
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() >= deadline:
                self.kill()
                return -signal.SIGKILL
            time.sleep(LOOK_EVERY_S)

    def has_ended(self) -> bool:
        """Whether it ended by itself."""
        ended, _ = os.waitpid(self.pid, os.WNOHANG)
        if ended:
            self._close()
        return bool(ended)

    def _close(self) -> None:
        os.close(self.control)
        os.close(self.status)


class Launcher:
    def __init__(self) -> None:
        self._nodes: dict[int, NodeProcess] = {}

    def start(
        self,
        nodes: dict[str, dict[str, str]],
        logs: dict[str, str],
        log_level: str,
        cut_off: dict[str, list[int]],
    ) -> dict[int, int]:
        """Starts these nodes together; returns their process ids when all serve."""
        for id, settings in nodes.items():
            self._nodes[int(id)] = NodeProcess(settings, logs[id], log_level, cut_off.get(id, []))
        for number in map(int, nodes):
            try:
                self._nodes[number].await_ready()
            except CannotStart as error:
                del self._nodes[number]
                raise CannotStart(f"node {number} cannot start: {error}") from None
        return {int(id): self._nodes[int(id)].pid for id in nodes}

    def kill(self, id: int) -> None:
        self._nodes.pop(id).kill()

    def stop(self, ids: list[int]) -> dict[int, int]:
        """Stops these nodes together, cleanly; returns their exit codes."""
        nodes = {id: self._nodes.pop(id) for id in ids}
        for node in nodes.values():
            node.terminate()
        deadline = time.monotonic() + STOP_S_MAX
        return {id: node.await_end(deadline) for id, node in nodes.items()}

    def pause(self, id: int) -> None:
        self._nodes[id].pause()

    def resume(self, id: int) -> None:
        self._nodes[id].resume()

    def cut_off(self, peers: dict[str, list[int]]) -> None:
        """For each node the peers that it does not reach."""
        for id, cut_off in peers.items():
            if int(id) in self._nodes:
                self._nodes[int(id)].tell(cut_off)

    def ended(self) -> list[int]:
        """Nodes that ended by themselves since the last call."""
        ended = [id for id, node in self._nodes.items() if node.has_ended()]
        for id in ended:
            del self._nodes[id]
        return ended

    def kill_all(self) -> None:
        while self._nodes:
            self._nodes.popitem()[1].kill()

    def descriptors(self) -> list[int]:
        return [fd for node in self._nodes.values() for fd in (node.control, node.status)]


# --- in the process of a node ----------------------------------------------------------------------------


def _run_node(
    settings: dict[str, str], log: str, log_level: str, cut_off: list[int], control: int, status: int
) -> NoReturn:
    code = FAILED
    try:
        os.setsid()  # Ctrl-C is for the test
        for fd in LAUNCHER.descriptors():  # of its siblings: they must see the end of the launcher
            os.close(fd)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), 2)
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(_serve(Settings.parse(settings), Log(log_level), cut_off, control, status))
            code = 0
        except Exception as error:
            traceback.print_exc()  # to its log
            os.write(status, str(error).encode() or repr(error).encode())
    finally:
        os._exit(code)


async def _serve(settings: Settings, log: Log, cut_off: list[int], control: int, status: int) -> None:
    loop = asyncio.get_running_loop()
    is_stopping = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, is_stopping.set)
    process = Process(settings, log=log)

    def told() -> None:
        lines = os.read(control, 65536)
        if not lines:
            os._exit(FAILED)  # the launcher is gone
        process.driver.peers.cut_off(json.loads(lines.splitlines()[-1]))

    starting = loop.create_task(process.start())
    await asyncio.sleep(0)  # it comes as far as its first wait, when the driver is there
    if not starting.done():
        process.driver.peers.cut_off(cut_off)
        loop.add_reader(control, told)
    await starting
    os.write(status, b"ready")
    await is_stopping.wait()
    await process.stop()


# --- in the launcher -------------------------------------------------------------------------------------


def _load_all() -> None:
    """Everything that a node imports when it is first needed: nodes share it, and do not load it again."""
    importlib.import_module("headrace.node.node")
    for module in pkgutil.iter_modules(headrace.node.handlers.__path__):
        importlib.import_module(f"{headrace.node.handlers.__name__}.{module.name}")
    loop_factory()
    gc.collect()
    gc.freeze()  # so that the collector of a node does not copy what it shares


def _answer(line: str) -> dict[str, Any]:
    asked = json.loads(line)
    try:
        return {"result": getattr(LAUNCHER, asked["method"])(**asked["arguments"])}
    except Exception as error:
        return {"error": str(error) or repr(error), "kind": type(error).__name__}


LAUNCHER = Launcher()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the test decides
    raise_open_files_limit()
    _load_all()
    try:
        for line in sys.stdin:
            print(json.dumps(_answer(line)), flush=True)
    finally:
        LAUNCHER.kill_all()


if __name__ == "__main__":
    main()
