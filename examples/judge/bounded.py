"""Runs a program with limits on processor time, time, memory and output.

The limits are set by a small launcher, this file run as a program, before it becomes the foreign program. All
of them are the kernel's, so they hold even if the judge itself is killed: nothing is left running.

Limits are not a sandbox. A program can still read files and open connections; a judge of strangers' programs
runs in a container or a virtual machine as well.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

CPU_S = 1  # processor time: the same verdict on a slow or busy computer
TIME_S = 20  # for programs that sleep
MEMORY_BYTES = 512 * 2**20
OUTPUT_BYTES = 64 * 2**10
OUT_OF_TIME = (-signal.SIGXCPU, -signal.SIGALRM, -signal.SIGKILL)


def judge(program: str, tests: list[tuple[str, str]]) -> str:
    """The verdict: of the first test that the program fails, or "accepted"."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        (place / "program.py").write_text(program)
        for given, expected in tests:
            verdict = _run(place, given, expected)
            if verdict != "accepted":
                return verdict
    return "accepted"


def _run(place: Path, given: str, expected: str) -> str:
    (place / "input").write_text(given)
    with (
        (place / "input").open("rb") as input_file,
        (place / "output").open("wb") as output,
        (place / "errors").open("wb") as errors,
    ):
        ended = subprocess.run(
            [sys.executable, "-I", "-S", os.path.abspath(__file__), "program.py"],
            stdin=input_file,
            stdout=output,
            stderr=errors,
            cwd=place,
            env={},
            check=False,
        )
    if (place / "output").stat().st_size >= OUTPUT_BYTES:
        return "output limit"
    if ended.returncode in OUT_OF_TIME:
        return "time limit"
    if "MemoryError" in (place / "errors").read_text(errors="replace"):
        return "memory limit"
    if ended.returncode != 0:
        return "crashed"
    printed = (place / "output").read_text(errors="replace")
    return "accepted" if printed.split() == expected.split() else "wrong answer"


def _become(program: str) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (OUTPUT_BYTES, OUTPUT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.alarm(TIME_S)  # stays set in the program that takes this one's place
    os.execv(sys.executable, [sys.executable, "-I", "-S", program])


if __name__ == "__main__":
    _become(sys.argv[1])
