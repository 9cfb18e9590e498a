"""`headrace up`, `serve` and `demo`: nodes as processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.local_node import running_pid


class Up:
    """A running `headrace up` and the first line it printed."""

    def __init__(self, shell: Any, data: Path, *arguments: str) -> None:
        self.data = data
        self.process = shell.start(
            "up",
            "--data",
            str(data),
            "--port",
            "0",
            *arguments,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.line = self.process.stdout.readline().decode()

    @property
    def node(self) -> Path:
        return self.data / "node-1"

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def end(self) -> None:
        if self.process.poll() is None:
            self.stop()
        self.process.stdout.close()
        self.process.stderr.close()


@pytest.fixture
def shell() -> Any:
    from harness.headrace import COMMAND

    class Commands:
        def start(self, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
            return subprocess.Popen([*COMMAND, *arguments], **options)

        def run(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
            return subprocess.run(
                [*COMMAND, *arguments], input=stdin, capture_output=True, timeout=60, check=False
            )

    return Commands()


@pytest.fixture
def up(shell: Any, tmp_path: Path) -> Iterator[Up]:
    running = Up(shell, tmp_path / "data")
    yield running
    running.end()


def test_up_says_ready_serves_and_ends_in_order(up: Up, shell: Any) -> None:
    word, bootstrap = up.line.split()
    assert word == "ready"
    pid = running_pid(up.node)
    assert pid is not None
    assert pid != up.process.pid, "the node is a process of its own"
    made = shell.run("produce", "kept", "-b", bootstrap, stdin=b"one\ntwo\n")
    assert made.returncode == 0, made.stderr
    assert up.stop() == 0
    assert running_pid(up.node) is None
    assert not (up.node / "pid").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_the_data_is_there_the_next_time(up: Up, shell: Any) -> None:
    assert shell.run("produce", "kept", "-b", up.line.split()[1], stdin=b"one\ntwo\n").returncode == 0
    assert up.stop() == 0
    again = Up(shell, up.data)
    try:
        read = shell.run("consume", "kept", "-b", again.line.split()[1])
        assert read.stdout == b"one\ntwo\n"
    finally:
        again.end()


def test_a_second_up_on_the_same_data_is_refused(up: Up, shell: Any) -> None:
    refused = shell.run("up", "--data", str(up.data), "--port", "0")
    assert refused.returncode == 1
    assert f"process {running_pid(up.node)} already runs".encode() in refused.stderr
    assert up.process.poll() is None


def test_up_notices_that_its_node_died(up: Up) -> None:
    pid = running_pid(up.node)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert up.process.wait(30) == 1
    assert b"ended by itself" in up.process.stderr.read()


def test_a_port_that_is_taken_is_said_with_the_nodes_own_words(up: Up, shell: Any, tmp_path: Path) -> None:
    port = up.line.rpartition(":")[2].strip()
    refused = shell.run("up", "--data", str(tmp_path / "other"), "--port", port)
    assert refused.returncode == 1
    assert b"cannot listen" in refused.stderr
    assert not (tmp_path / "other" / "node-1" / "pid").exists()


def test_settings_are_handed_to_the_node(shell: Any, tmp_path: Path) -> None:
    running = Up(shell, tmp_path / "data", "--set", "num.partitions=7", "--json")
    try:
        import json

        bootstrap = json.loads(running.line)["bootstrap"]
        assert shell.run("topic", "create", "t", "-b", bootstrap).stdout == b"created t with 7 partitions\n"
    finally:
        running.end()


def test_serve_becomes_the_node(shell: Any, tmp_path: Path) -> None:
    """The same process all the way: what a supervisor started is what serves and what gets the signals."""
    settings = tmp_path / "node.toml"
    settings.write_text(
        'node.id = 1\nprocess.roles = "broker,controller"\n'
        f'listeners = "PLAINTEXT://127.0.0.1:0"\nlog.dirs = "{tmp_path}/data"\n'
    )
    pid_file = tmp_path / "pid"
    process = shell.start(
        "serve",
        str(settings),
        "--set",
        "num.partitions=3",
        "--pid-file",
        str(pid_file),
        stdout=subprocess.PIPE,
    )
    try:
        word, bootstrap = process.stdout.readline().decode().split()
        assert word == "ready"
        assert int(pid_file.read_text()) == process.pid
        assert shell.run("topic", "create", "t", "-b", bootstrap).stdout == b"created t with 3 partitions\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_serve_says_what_is_wrong_with_its_settings(shell: Any, tmp_path: Path) -> None:
    settings = tmp_path / "server.properties"
    settings.write_text("node.id=many\n")
    refused = shell.run("serve", str(settings))
    assert refused.returncode == 1
    assert b"server.properties" in refused.stderr
    assert b"node.id" in refused.stderr


def test_the_demo_ends_by_itself_and_leaves_nothing_behind(shell: Any, tmp_path: Path) -> None:
    import json
    import tempfile

    before = set(Path(tempfile.gettempdir()).glob("headrace-demo-*"))
    done = shell.run("demo", "--records", "20000", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["intact"] is True
    assert facts["records_written"] == facts["records_read"] == 25_000
    assert [p["end_offset"] for p in facts["partitions"]] == [p["written"] for p in facts["partitions"]]
    assert set(Path(tempfile.gettempdir()).glob("headrace-demo-*")) <= before
