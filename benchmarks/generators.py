"""The load generators in C and Go: built on first use into .cache, called as processes, answering in JSON.

A generator in Python would measure itself.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Protocol

from harness.broker import CACHE

HERE = Path(__file__).parent
BIN = CACHE / "bench" / "bin"
TIMEOUT_S = 600

Figures = dict[str, float]

SHARED = "wire.go"  # what Go generators have in common


class Served(Protocol):
    """A broker, or a cluster of them."""

    @property
    def bootstrap(self) -> str: ...


def built(source: str) -> Path:
    """The generator's binary, built again when its source is newer."""
    path = HERE / source
    sources = [path] if source in ("perf.c", "frames.go") else [path, HERE / SHARED]
    binary = BIN / path.stem
    if binary.exists() and binary.stat().st_mtime >= max(one.stat().st_mtime for one in sources):
        return binary
    BIN.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".go":
        command = ["go", "build", "-o", str(binary), *map(str, sources)]
    else:
        if not Path("/usr/include/librdkafka/rdkafka.h").exists():
            subprocess.run(["apt-get", "update", "-qq"], check=True)
            subprocess.run(["apt-get", "install", "-y", "-qq", "librdkafka-dev"], check=True)
        compiler = shutil.which("gcc") or "cc"
        command = [compiler, "-O2", "-o", str(binary), str(path), "-lrdkafka"]
    subprocess.run(command, check=True, timeout=TIMEOUT_S)
    return binary


def call(source: str, *arguments: object) -> Figures:
    command = [str(built(source)), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}{done.stdout}")
    figures: Figures = json.loads(done.stdout)
    return figures


def produce(
    broker: Served, topic: str, count: int, size: int, *settings: str, partition: int = 0, acks: str = "1"
) -> Figures:
    """librdkafka writes `count` records to one partition, or in turn to n of them with partition=-n."""
    return call("perf.c", "P", broker.bootstrap, topic, partition, count, size, acks, *settings)


def consume(broker: Served, topic: str, count: int, size: int) -> Figures:
    return call("perf.c", "C", broker.bootstrap, topic, 0, count, size, 1)


def ping_pong(
    broker: Served, topic: str, requests: int, connections: int, *, fetch_below: int = 0
) -> Figures:
    """Raw one-record produce requests, or fetches of one batch at random offsets below `fetch_below`."""
    arguments = ["-b", broker.bootstrap, "-t", topic, "-n", requests, "-c", connections]
    return call("pingpong.go", *arguments, "-fetch", fetch_below)


def fetching(
    broker: Served,
    topic: str,
    rounds: int,
    *,
    partitions: int = 1,
    busy: int = 1,
    readers: int = 1,
    waits: bool = False,
) -> Figures:
    """Readers in fetch sessions of so many partitions, of which `busy` ones get a record in each round. They
    ask for it when it is there, or wait for it.
    """
    arguments = ["-b", broker.bootstrap, "-t", topic, "-n", rounds, "-p", partitions, "-busy", busy]
    return call("fetching.go", *arguments, "-c", readers, f"-wait={str(waits).lower()}")


def frames(broker: Served, file: Path, requests: int) -> Figures:
    """The requests in the file (`benchmarks.exchanges`) over and over, on as many connections as it has."""
    return call("frames.go", "-b", broker.bootstrap, "-n", requests, file)
