"""Hosts of a broker under test: a thread of the test's own process, or a child process.

Both call a method of `RestartableBroker` by its name, with plain values.
"""

import asyncio
import atexit
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Protocol

from headrace.server.process import loop_factory
from headrace.testing.restartable_broker import BrokerDown, RestartableBroker
from headrace.testing.storage import DirectoryStorage, MemoryStorage, Storage

# How long a call may take. Far longer than any does: it is there so that a bug of ours fails a test instead
# of hanging it.
CALL_S_MAX = 60.0


class HostFailed(Exception):
    """The thread or the process that the broker runs in has ended, or does not answer."""


# What a call to another process raises here, by what was raised there; all else is a bug of ours.
TOLD_AS = {kind.__name__: kind for kind in (BrokerDown, ValueError)}


class Host(Protocol):
    def start(self) -> str:
        """Starts the broker; returns its address."""
        ...

    def call(self, method: str, /, **arguments: Any) -> Any: ...

    def stop(self) -> None: ...


class ThreadHost:
    """A daemon thread with a loop of its own."""

    def __init__(self, settings: dict[str, str], directory: Path | None, log_level: str) -> None:
        self._storage: Storage = MemoryStorage() if directory is None else DirectoryStorage(directory)
        self._broker = RestartableBroker(settings, self._storage, log_level)
        self._loop = (loop_factory() or asyncio.new_event_loop)()
        self._thread = threading.Thread(target=self._run, name="headrace-broker", daemon=True)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def start(self) -> str:
        self._thread.start()
        atexit.register(self.stop)  # the interpreter must not end around a running loop
        try:
            bootstrap: str = self.call("open")
        except BaseException:
            self._end()
            self._storage.close()
            raise
        return bootstrap

    def call(self, method: str, /, **arguments: Any) -> Any:
        if not self._thread.is_alive():
            raise HostFailed("the broker was stopped")
        asked = asyncio.run_coroutine_threadsafe(getattr(self._broker, method)(**arguments), self._loop)
        try:
            return asked.result(CALL_S_MAX)
        except TimeoutError:
            asked.cancel()
            raise HostFailed(
                f"the broker's thread did not answer {method!r} within {CALL_S_MAX:g} s"
            ) from None

    def stop(self) -> None:
        if self._thread.is_alive():
            try:
                self.call("close")
            finally:
                self._end()

    def _end(self) -> None:
        atexit.unregister(self.stop)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class ProcessHost:
    """A child process that reads calls from stdin and writes answers to stdout, one line of JSON each. It
    ends when its stdin is closed, so it never outlives the test.
    """

    def __init__(self, settings: dict[str, str], directory: Path | None, log_level: str) -> None:
        self._told = {"settings": settings, "directory": directory and str(directory), "log_level": log_level}
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()  # one question at a time

    def start(self) -> str:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "headrace.testing.broker_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            bootstrap: str = self._exchange(self._told)
        except BaseException:
            self.stop()
            raise
        return bootstrap

    def call(self, method: str, /, **arguments: Any) -> Any:
        return self._exchange({"method": method, "arguments": arguments})

    def _exchange(self, question: dict[str, Any]) -> Any:
        process = self._process
        if process is None:
            raise HostFailed("the broker was stopped")
        assert process.stdin is not None
        assert process.stdout is not None
        with self._lock:
            try:
                process.stdin.write(json.dumps(question) + "\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except BrokenPipeError:
                line = ""
        if not line:
            raise HostFailed(f"the broker's process ended with exit code {process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise TOLD_AS.get(answer["kind"], HostFailed)(answer["error"])
        return answer["result"]

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.communicate()  # the end of its stdin: it leaves in order
