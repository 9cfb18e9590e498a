"""Kafka's own command-line tools, called in one long-lived JVM (java/Tools.java)."""

from __future__ import annotations

import base64
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple, Self

from harness.broker import CACHE
from harness.kafka import classpath

SOURCE = Path(__file__).parent / "java" / "Tools.java"
CLASSES = CACHE / "java"

TOOLS = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
}


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def compiled() -> Path:
    """Compiles the runner when it is newer than its class file."""
    target = CLASSES / "Tools.class"
    if not target.exists() or target.stat().st_mtime < SOURCE.stat().st_mtime:
        shutil.rmtree(CLASSES, ignore_errors=True)
        CLASSES.mkdir(parents=True)
        command = ["javac", "-nowarn", "-cp", classpath(), "-d", str(CLASSES), str(SOURCE)]
        subprocess.run(command, check=True, timeout=120)
    return CLASSES


class JavaTools:
    """`tools("kafka-topics", "--list", …)` → exit code and output, without a JVM's start."""

    def __init__(self) -> None:
        path = f"{compiled()}:{classpath()}"
        command = ["java", "-Xmx512m", "-Dfile.encoding=UTF-8", "-cp", path, "Tools"]
        self._jvm = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(self, tool: str, *arguments: str, stdin: str = "") -> Outcome:
        assert self._jvm.stdin is not None
        assert self._jvm.stdout is not None
        fields = [TOOLS[tool], stdin, *arguments]
        self._jvm.stdin.write(b" ".join(base64.b64encode(field.encode()) for field in fields) + b"\n")
        self._jvm.stdin.flush()
        code, out, err = self._jvm.stdout.readline().decode().rstrip("\n").split(" ")
        return Outcome(int(code), base64.b64decode(out).decode(), base64.b64decode(err).decode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._jvm.kill()
        self._jvm.wait()
        assert self._jvm.stdin is not None
        assert self._jvm.stdout is not None
        self._jvm.stdin.close()
        self._jvm.stdout.close()
