"""Kafka's own command-line tools, called in one long-lived JVM (java/Tools.java)."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple, Self

from harness.broker import CACHE, Broker
from harness.fetching import alone
from harness.kafka import classpath
from harness.wait import eventually
from interop.side_by_side import plain

SOURCES = sorted((Path(__file__).parent / "java").glob("*.java"))
CLASSES = CACHE / "java"

# what kafka-dump-log prints about a file that is wrong
DUMP_LOG_COMPLAINTS = (
    "Mismatches in",
    "Found timestamp mismatch",
    "Found out of order",
    "isvalid: false",
    "sanity check failed",
    "Exception",
)
NOISE = re.compile(r"SLF4J|\tat |\t\.\.\. ")
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
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
}


class Outcome(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def compiled() -> str:
    """The class path with our own programs on it, compiled when one is newer than its class file."""
    targets = [CLASSES / f"{source.stem}.class" for source in SOURCES]
    libraries = classpath()
    with alone():
        if any(not t.exists() or t.stat().st_mtime < s.stat().st_mtime for s, t in zip(SOURCES, targets)):
            shutil.rmtree(CLASSES, ignore_errors=True)
            CLASSES.mkdir(parents=True)
            command = ["javac", "-nowarn", "-cp", libraries, "-d", str(CLASSES), *map(str, SOURCES)]
            subprocess.run(command, check=True, timeout=120)
    return f"{CLASSES}:{libraries}"


class JavaTools:
    """`tools("kafka-topics", "--list", …)` → exit code and output, without a JVM's start."""

    def __init__(self, *options: str) -> None:
        """`options` of the JVM."""
        command = ["java", "-Xmx512m", "-Dfile.encoding=UTF-8", *options, "-cp", compiled(), "Tools"]
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


class Run:
    """`run(broker, "kafka-topics", "--list")` → the outcome in plain form: no addresses, no stack traces."""

    def __init__(self, tools: JavaTools) -> None:
        self.tools = tools

    def __call__(self, broker: Broker, tool: str, *arguments: str, stdin: str = "") -> Outcome:
        if tool == "kafka-console-producer":  # which gives a record up after three tries, or 1.5 s
            patience = ("--request-timeout-ms", "60000", "--message-send-max-retries", "1000")
            arguments = (*patience, *arguments)
        outcome = self.tools(tool, "--bootstrap-server", broker.bootstrap, *arguments, stdin=stdin)
        error = "\n".join(line for line in outcome.err.splitlines() if not NOISE.match(line))
        return Outcome(outcome.code, plain(outcome.out, broker), plain(error, broker))


def create(run: Run, broker: Broker, topic: str, partitions: int = 1, *more: str) -> None:
    """Returns when every partition has a leader that answers. Before that Kafka may refuse a producer's first
    batch and take its second one, and the first is lost.
    """
    made = run(broker, "kafka-topics", "--create", "--topic", topic, "--partitions", str(partitions), *more)
    assert made.code == 0, made
    eventually(lambda: len(run(broker, "kafka-get-offsets", "--topic", topic).lines), partitions)
