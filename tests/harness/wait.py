"""Waiting for a condition instead of for a time.

Kafka applies metadata a moment after the controller has answered, so what a test has just changed may be
seen late; `eventually` asks again until it is so, and shows the last answer when it never is.

How long that may take depends on what else the machine does. `Patience` counts the time that the machine had
to spare: as long as processes queue for a core, its clock runs ten times slower.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

# Far beyond anything that works, on any machine: only what is broken lets it run out.
WAIT_S = 120.0

# The kernel's own account of the time in which at least one process waited for a core (PSI).
PRESSURE = "/proc/pressure/cpu"
SLOWEST = 10.0


class Patience:
    """Seconds of a machine that has time, from now on."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._began_s, self._stalled_s = time.monotonic(), stalled_s()

    @property
    def is_over(self) -> bool:
        passed_s = time.monotonic() - self._began_s
        stalled = min(stalled_s() - self._stalled_s, passed_s)
        return passed_s - stalled * (1 - 1 / SLOWEST) > self.seconds


def stalled_s() -> float:
    """0 where the kernel keeps no such account: time is time then."""
    try:
        with open(PRESSURE) as file:
            found = re.search(r"^some .*total=(\d+)", file.read(), re.MULTILINE)
    except OSError:
        return 0.0
    return int(found[1]) / 1e6 if found else 0.0


def eventually(ask: Callable[[], object], expected: object, timeout_s: float = 30.0) -> None:
    patience = Patience(timeout_s)
    while (answer := ask()) != expected:
        if patience.is_over:
            raise AssertionError(f"still {answer!r} after {timeout_s} s, expected {expected!r}")
        time.sleep(0.02)


def run_to_end(
    command: Sequence[str | os.PathLike[str]], timeout_s: float = 300.0, *, input: str = "", **more: Any
) -> subprocess.CompletedProcess[str]:
    """`subprocess.run` with captured text, ended by `Patience` instead of by a number of seconds.

    The program gets a process group of its own, so that what it started ends with it.
    """
    with (
        tempfile.TemporaryFile("w+") as given,
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
    ):
        given.write(input)
        given.seek(0)
        program = subprocess.Popen(
            command, stdin=given, stdout=out, stderr=err, start_new_session=True, **more
        )
        patience = Patience(timeout_s)
        try:
            while program.poll() is None and not patience.is_over:
                time.sleep(0.05)
        finally:
            if program.poll() is None:
                os.killpg(program.pid, signal.SIGKILL)
                program.wait()
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read())
    return subprocess.CompletedProcess(command, program.returncode, *texts)
