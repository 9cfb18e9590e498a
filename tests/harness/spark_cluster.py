"""A standalone Spark cluster on the loopback: a master and some workers, each a process of its own.

The package from PyPI has no scripts that start them, but the classes are there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from harness.wait import Patience

HOST = "127.0.0.1"
START_S = 120
HOME = Path(pyspark.__file__).parent


def environment(host: str = HOST) -> dict[str, str]:
    """For everybody who takes part."""
    known = {"SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": host, "PYSPARK_PYTHON": sys.executable}
    return {**os.environ, **known}


@contextmanager
def spark_cluster(directory: Path, workers: int, *, hosts: Sequence[str] = (HOST,)) -> Iterator[str]:
    """The master's address, once all workers have joined; they take turns on these addresses."""
    with ExitStack() as running:
        arguments = ["-h", HOST, "-p", "0", "--webui-port", "0"]
        master = running.enter_context(_process(directory / "master", HOST, "master.Master", arguments))
        (address,) = _told(master, r"Starting Spark master at (spark://\S+)", 1)
        for number in range(workers):
            place, host = directory / f"worker-{number}", hosts[number % len(hosts)]
            arguments = ["-h", host, "-c", "1", "-m", "1g", "-d", str(place), "--webui-port", "0", address]
            running.enter_context(_process(place, host, "worker.Worker", arguments))
        _told(master, "(Registering worker)", workers)
        yield address


@contextmanager
def _process(directory: Path, host: str, name: str, arguments: list[str]) -> Iterator[Path]:
    """What it prints goes to a file."""
    directory.mkdir(parents=True)
    command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
    output = directory / "output.txt"
    with output.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=environment(host))
    try:
        yield output
    finally:
        process.terminate()
        process.wait(60)


def _told(output: Path, pattern: str, count: int) -> list[str]:
    patience = Patience(START_S)
    while len(found := re.findall(pattern, output.read_text(errors="replace"))) < count:
        if patience.is_over:
            raise TimeoutError(f"not {count} × {pattern!r} in\n{output.read_text(errors='replace')[-4000:]}")
        time.sleep(0.05)
    return list(found)
