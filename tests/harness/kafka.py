"""Apache Kafka 4.3.1 as a one-node KRaft broker: fetched from Maven once, formatted, started, killed."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import IO

from harness.broker import CACHE, Broker, BrokerFailed, write_properties
from harness.fetching import alone
from headrace.simulator.manual_host import ONE_NODE

VERSION = "4.3.1"
LIBS = CACHE / f"kafka-{VERSION}" / "libs"
POM = Path(__file__).with_name("pom.xml")
CLUSTER_ID = "aGVhZHJhY2UtaW50ZXJvcA"
HEAP = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-Djava.awt.headless=true")


def classpath() -> str:
    """Kafka and everything it needs, copied out of Maven on first use."""
    if not (LIBS / ".complete").exists():
        with alone():
            _fetch()
    return f"{LIBS}/*"


def _fetch() -> None:
    if (LIBS / ".complete").exists():
        return
    shutil.rmtree(LIBS, ignore_errors=True)
    LIBS.mkdir(parents=True)
    fetch = [
        "mvn",
        "-q",
        "-B",
        "-f",
        str(POM),
        "dependency:copy-dependencies",
        f"-DoutputDirectory={LIBS}",
    ]
    subprocess.run(fetch, check=True, timeout=600)
    (LIBS / ".complete").touch()


def java(main: str, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
    return ["java", *options, "-cp", classpath(), main, *arguments]


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago; all are held at once so that no two are the same."""
    holders = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [holder.getsockname()[1] for holder in holders]
    for holder in holders:
        holder.close()
    return ports


class Kafka(Broker):
    name = "kafka"
    options: tuple[str, ...] = ()  # more of them for its JVM

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        super().__init__(directory, settings)
        self.controller_port = 0

    def write_settings(self) -> None:
        if not self.port:
            self.port, self.controller_port = free_ports(2)
        defaults = {
            "node.id": "1",
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.controller_port}",
            "log.dirs": str(self.data),
            **ONE_NODE,
        }
        write_properties(self.directory / "server.properties", defaults | self.settings)

    def format(self) -> None:
        properties = str(self.directory / "server.properties")
        # Eligible leader replicas say something on several brokers only; with them, Kafka would also set
        # min.insync.replicas for the cluster.
        without = ["--feature", "eligible.leader.replicas.version=0"]
        arguments = ["format", "--standalone", "-t", CLUSTER_ID, "-c", properties, *without]
        command = java("kafka.tools.StorageTool", *arguments)
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise BrokerFailed(f"kafka format: {done.stdout}{done.stderr}")

    def spawn(self, output: IO[bytes]) -> subprocess.Popen[bytes]:
        if not (self.data / "meta.properties").exists():
            self.format()
        command = java("kafka.Kafka", str(self.directory / "server.properties"), options=HEAP + self.options)
        environment = os.environ | {"LANG": "C.UTF-8"}
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
