"""The load generators in C and Go: built on first use into .cache, called as processes, answering in JSON.

A generator in Python would measure itself.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple, Protocol

import confluent_kafka

from harness.broker import CACHE

HERE = Path(__file__).parent
BIN = CACHE / "bench" / "bin"
TIMEOUT_S = 600

Figures = dict[str, float]

SHARED = ("wire.go", "login.go")  # what Go generators have in common


class Served(Protocol):
    """A broker, or a cluster of them."""

    @property
    def bootstrap(self) -> str: ...


class Login(NamedTuple):
    """Of the generators' clients, by SCRAM-SHA-256. They use the librdkafka of confluent-kafka: those before
    2.6.1, as Debian has one, send a wrong nonce, and are refused.
    """

    user: str  # "": nobody logs in, but the same librdkafka is used
    password: str
    authority: Path | None = None  # whose certificates are believed; None: without TLS

    def for_librdkafka(self) -> list[str]:
        if not self.user:
            return []
        protocol = "sasl_plaintext" if self.authority is None else "sasl_ssl"
        settings = {
            "security.protocol": protocol,
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": self.user,
            "sasl.password": self.password,
        }
        if self.authority is not None:
            settings["ssl.ca.location"] = str(self.authority)
        return [f"{key}={value}" for key, value in settings.items()]

    def for_go(self) -> list[str]:
        if not self.user:
            return []
        options = ["-user", self.user, "-password", self.password]
        return options if self.authority is None else [*options, "-ca", str(self.authority)]


NOBODY = Login("", "")


def built(source: str, *, with_wheel: bool = False) -> Path:
    """The generator's binary, built again when its source is newer. `with_wheel`: with the librdkafka of
    confluent-kafka instead of the system's.
    """
    path = HERE / source
    sources = [path] if path.suffix == ".c" else [path, *(HERE / name for name in SHARED)]
    binary = BIN / (path.stem + ("-wheel" if with_wheel else ""))
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
        library = _wheels_library() if with_wheel else ["-lrdkafka"]
        command = [compiler, "-O2", "-o", str(binary), str(path), *library]
    subprocess.run(command, check=True, timeout=TIMEOUT_S)
    return binary


def _wheels_library() -> list[str]:
    libraries = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    (library,) = libraries.glob("librdkafka-*.so*")
    return [str(library), f"-Wl,-rpath,{libraries}"]


def call(source: str, *arguments: object, with_wheel: bool = False) -> Figures:
    command = [str(built(source, with_wheel=with_wheel)), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}{done.stdout}")
    figures: Figures = json.loads(done.stdout)
    return figures


def produce(
    broker: Served,
    topic: str,
    count: int,
    size: int,
    *settings: str,
    partition: int = 0,
    acks: str = "1",
    login: Login | None = None,
) -> Figures:
    """librdkafka writes `count` records to one partition, or in turn to n of them with partition=-n."""
    more = [*settings, *(login.for_librdkafka() if login else [])]
    where = (broker.bootstrap, topic, partition)
    return call("perf.c", "P", *where, count, size, acks, *more, with_wheel=login is not None)


def consume(broker: Served, topic: str, count: int, size: int, *, login: Login | None = None) -> Figures:
    settings = login.for_librdkafka() if login else []
    where = (broker.bootstrap, topic, 0)
    return call("perf.c", "C", *where, count, size, 1, *settings, with_wheel=login is not None)


def ping_pong(
    broker: Served,
    topic: str,
    requests: int,
    connections: int,
    *,
    fetch_below: int = 0,
    login: Login | None = None,
) -> Figures:
    """Raw one-record produce requests, or fetches of one batch at random offsets below `fetch_below`."""
    arguments = ["-b", broker.bootstrap, "-t", topic, "-n", requests, "-c", connections]
    return call("pingpong.go", *arguments, "-fetch", fetch_below, *(login.for_go() if login else []))


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


def frames(broker: Served, file: Path, requests: int, *, login: Login | None = None) -> Figures:
    """The requests in the file (`benchmarks.exchanges`) over and over, on as many connections as it has."""
    options = login.for_go() if login else []
    return call("frames.go", "-b", broker.bootstrap, "-n", requests, *options, file)
