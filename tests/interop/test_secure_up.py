"""The settings that `headrace up --secure` writes work unchanged in Kafka's own tools and in kcat."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.running import Up
from cli.shell import Shell
from harness.kcat import kcat
from harness.wait import run_to_end
from interop.java_tools import JavaTools


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory with the files."""
    shell = Shell("")
    del shell.environment["HEADRACE_BOOTSTRAP"]
    up = Up(shell, tmp_path_factory.mktemp("secure") / "data", "--secure")
    assert up.line.startswith("ready "), up.process.communicate()
    files = up.data / "secure"
    shell("topic", "create", "hello", "--client-config", str(files / "client.properties"))
    shell("produce", "hello", "--client-config", str(files / "client.properties"), stdin=b"world\n")
    yield files
    up.end()
    shell.end()


def bootstrap(secure: Path) -> str:
    return (secure / "client.properties").read_text().split("bootstrap.servers=")[1].split("\n")[0]


@pytest.mark.parametrize("user", ["client", "admin"])
def test_kafkas_tools(secure: Path, tools: JavaTools, user: str) -> None:
    config = str(secure / f"{user}.properties")
    listed = tools(
        "kafka-topics", "--bootstrap-server", bootstrap(secure), "--command-config", config, "--list"
    )
    assert (listed.code, listed.lines) == (0, ["hello"]), listed.err
    rules = tools("kafka-acls", "--bootstrap-server", bootstrap(secure), "--command-config", config, "--list")
    assert ("ClusterAuthorizationException" in rules.out + rules.err) == (user == "client"), rules


def test_kcat(secure: Path) -> None:
    config = str(secure / "client.librdkafka.properties")

    def run(*words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        plain = ("-X", "sasl.mechanism=PLAIN")  # its SCRAM is wrong before librdkafka 2.6.1
        return run_to_end([kcat(), "-F", config, *plain, *words], input=given)

    done = run("-P", "-t", "hello", "-p", "0", given="again\n")
    assert done.returncode == 0, done.stderr
    done = run("-C", "-t", "hello", "-o", "beginning", "-e", "-q")
    assert (done.returncode, done.stdout) == (0, "world\nagain\n"), done.stderr
    done = run("-X", "auto.offset.reset=earliest", "-G", "readers", "-c", "2", "-q", "hello")
    assert (done.returncode, done.stdout) == (0, "world\nagain\n"), done.stderr
    done = run("-L", "-X", "sasl.password=guessed")
    assert done.returncode != 0
    assert "Authentication failed: Invalid username or password" in done.stderr
