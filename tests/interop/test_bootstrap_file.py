"""The first users of a cluster: Kafka's `bootstrap.checkpoint` in Headrace, and Headrace's in Kafka."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from cli.shell import Shell
from harness.headrace import Headrace
from harness.kafka import CLUSTER_ID, Kafka, free_ports, java
from headrace import Admin
from interop.java_tools import JavaTools

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
MECHANISMS = {"sasl.enabled.mechanisms": "SCRAM-SHA-512", "inter.broker.listener.name": "PLAINTEXT"}


class KafkaWithUsers(Kafka):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory, MECHANISMS)
        self.port, self.controller_port, self.sasl_port = free_ports(3)
        self.settings |= {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port},"
            f"SASL_PLAINTEXT://127.0.0.1:{self.sasl_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
            "SASL_PLAINTEXT:SASL_PLAINTEXT",
            "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
        }


def log_in(port: int, user: str, password: str) -> int:
    settings = {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": password,
    }
    with Admin(settings) as admin:
        return len(admin.list_brokers())


def test_headrace_starts_with_the_users_of_kafka_storage(tmp_path: Path) -> None:
    kafka = KafkaWithUsers(tmp_path / "kafka")
    kafka.write_settings()
    properties = str(kafka.directory / "server.properties")
    user = ["--add-scram", "SCRAM-SHA-512=[name=alice,password=open sesame]"]
    command = java(
        "kafka.tools.StorageTool", "format", "--standalone", "-t", CLUSTER_ID, "-c", properties, *user
    )
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    sasl_port, port = free_ports(2)
    listeners = f"SASL_PLAINTEXT://127.0.0.1:{sasl_port},PLAINTEXT://127.0.0.1:{port}"
    ours = Headrace(tmp_path / "headrace", MECHANISMS | {"listeners": listeners})
    ours.data.mkdir(parents=True)
    shutil.copy(kafka.data / "bootstrap.checkpoint", ours.data)
    with ours:
        assert log_in(sasl_port, "alice", "open sesame") == 1


def test_kafka_starts_with_the_users_of_headrace(tmp_path: Path, tools: JavaTools) -> None:
    made = tmp_path / "made"
    shell = Shell("127.0.0.1:1")
    shell("user", "add", "alice", "--data", str(made), "--password-stdin", stdin=b"open sesame\n")
    shell("user", "add", "bob", "--data", str(made), "--password-stdin", stdin=b"another\n")
    file = made / "bootstrap.checkpoint"
    shown = tools("kafka-dump-log", "--cluster-metadata-decoder", "--files", str(file))
    assert shown.out.count("USER_SCRAM_CREDENTIAL_RECORD") == 4, shown
    assert "KRaft bootstrap snapshot" in shown.out
    assert "isvalid: false" not in shown.out

    kafka = KafkaWithUsers(tmp_path / "kafka")
    kafka.write_settings()
    kafka.format()
    shutil.copy(file, kafka.data / "bootstrap.checkpoint")
    with kafka:
        assert log_in(kafka.sasl_port, "alice", "open sesame") == 1
        assert log_in(kafka.sasl_port, "bob", "another") == 1
