"""A runner's side of the process of a run: starts and stops it, takes its reports, says how it ended."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import Callable
from typing import Final

from headrace.jobs.errors import Fault
from headrace.jobs.messages import Finished, Reported, Task, encode_task, read_message
from headrace.jobs.progress import Progress

# A report names the partitions of the last batches: some hundred bytes each.
LINE_BYTES_MAX: Final = 4 * 2**20
LINES_KEPT: Final = 20  # of what it printed, for the error of a process that crashes
COMMAND: Final = (sys.executable, "-m", "headrace.jobs.child")


class ChildProcess:
    def __init__(
        self, task: Task, on_progress: Callable[[Progress], None], on_line: Callable[[str], None]
    ) -> None:
        self.task = task
        self._on_progress = on_progress
        self._on_line = on_line
        self._process: asyncio.subprocess.Process | None = None
        self._finished: Finished | None = None
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._is_asked_to_stop = False
        self._ending: int | None = None  # a signal that came before the process was there

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def run(self) -> Finished:
        """Start the process, and return how it ended."""
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                *COMMAND,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=LINE_BYTES_MAX,
                start_new_session=True,  # so that it can be killed with all that it started
            )
        except OSError as error:
            return Finished(Fault(f"no process can be started: {error}", "", is_retriable=True), False)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            process.stdin.write(encode_task(self.task))
            if self._ending is not None:
                self._signal(self._ending)
            await asyncio.gather(self._take_reports(process.stdout), self._take_lines(process.stderr))
            code = await process.wait()
        finally:
            self._signal(signal.SIGKILL)  # what it may have left behind
            process.stdin.close()
        if self._finished is None and self._is_asked_to_stop and code == -signal.SIGTERM:
            return Finished(is_done=False)  # it had not even begun
        return self._finished or Finished(self._crash(code), False)

    def stop(self) -> None:
        """Ask it to end after its batch."""
        self._is_asked_to_stop = True
        if self._process is None:
            self._ending = signal.SIGTERM
        elif self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        if self._process is None:
            self._ending = signal.SIGKILL
        else:
            self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        assert self._process is not None
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            pass  # all of them have ended

    async def _take_reports(self, stream: asyncio.StreamReader) -> None:
        async for line in _lines(stream):
            try:
                message = read_message(line)
            except (ValueError, KeyError, TypeError):
                continue  # half a line of a process that was killed
            if isinstance(message, Reported):
                self._on_progress(message.progress)
            else:
                self._finished = message

    async def _take_lines(self, stream: asyncio.StreamReader) -> None:
        async for line in _lines(stream):
            text = line.decode("utf-8", "replace").rstrip()
            self._lines.append(text)
            self._on_line(text)

    def _crash(self, code: int) -> Fault:
        what = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        last = next((line for line in reversed(self._lines) if line.strip()), "")
        return Fault(f"the process {what}{': ' + last if last else ''}", "", is_retriable=True)


async def _lines(stream: asyncio.StreamReader):  # type: ignore[no-untyped-def]
    """Lines until the end; one that is too long is left out."""
    while True:
        try:
            line = await stream.readline()
        except ValueError:
            continue
        if not line:
            return
        yield line
