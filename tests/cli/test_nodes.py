"""`headrace up`, `serve` and `demo`: nodes as processes of their own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cli.running import Up
from headrace.cli.local_cluster import LocalCluster
from headrace.cli.local_node import LocalNode
from headrace.cli.up import Stopped
from headrace.protocol.api import request_codec, response_codec
from headrace.protocol.framing import decode_response_header, request_frame
from headrace.protocol.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from headrace.simulator.frames import joined


@pytest.fixture
def shell(new_shell: Callable[[str], Any]) -> Any:
    return new_shell("127.0.0.1:1")  # each test says which broker it means


@pytest.fixture
def up(shell: Any, tmp_path: Path) -> Iterator[Up]:
    running = Up(shell, tmp_path / "data")
    yield running
    running.end()


def test_up_says_ready_serves_and_ends_in_order(up: Up, shell: Any) -> None:
    word, bootstrap = up.line.split()
    assert word == "ready"
    pid = up.pid
    assert pid != up.process.pid, "the node is a process of its own"
    made = shell.attempt("produce", "kept", "--create", "-b", bootstrap, stdin=b"one\ntwo\n")
    assert made.code == 0, made.err
    assert up.stop() == 0
    assert not (up.node / "pid").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_node_that_does_not_stop_says_what_it_was_doing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    node = LocalNode(tmp_path, 1, 0, {})
    node.start()
    monkeypatch.setattr(node, "terminate", lambda: None)  # it does not hear the signal
    monkeypatch.setattr("headrace.cli.local_node.STOP_TIMEOUT_S", 0.1)
    assert node.stop() == -signal.SIGABRT
    assert f"its log {node.log_path} says what it was doing" in capsys.readouterr().err
    assert "server/process.py" in node.log_path.read_text(), "the stack of its main thread"


class LockAndSignal:
    """The lock of a `Popen`, and a signal that arrives when `poll` has just taken it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def acquire(self, blocking: bool) -> bool:
        if self._lock.acquire(blocking):
            raise Stopped
        return False

    def __enter__(self) -> None:
        assert self._lock.acquire(timeout=1), "a signal has left the lock taken"

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_a_signal_at_any_moment_does_not_keep_up_from_waiting_for_its_nodes(tmp_path: Path) -> None:
    """`up` looks at its nodes ten times a second, and its signal handler raises."""
    cluster = LocalCluster(tmp_path, 2, 0, {}, {})
    for node in cluster.nodes:
        node.directory.mkdir()
        node.process = subprocess.Popen(["sleep", "60"], stdout=subprocess.PIPE)
        node.process._waitpid_lock = LockAndSignal()  # type: ignore[attr-defined]
    processes = [node.process for node in cluster.nodes if node.process is not None]
    with suppress(Stopped):
        assert cluster.look_after(restarts=False, tell=print)
    for process in processes:
        os.kill(process.pid, signal.SIGTERM)
    assert [node.wait() for node in cluster.nodes] == [-signal.SIGTERM] * 2
    assert not cluster.look_after(restarts=False, tell=print)


def test_clusters_that_start_at_the_same_time_have_ports_of_their_own(shell: Any, tmp_path: Path) -> None:
    with ThreadPoolExecutor() as threads:
        ups = list(threads.map(lambda n: Up(shell, tmp_path / str(n), "--brokers", "2"), range(3)))
    try:
        assert [up.line.split()[0] for up in ups] == ["ready"] * 3
    finally:
        for up in ups:
            up.end()


def test_the_data_is_there_the_next_time(up: Up, shell: Any) -> None:
    assert (
        shell.attempt("produce", "kept", "--create", "-b", up.line.split()[1], stdin=b"one\ntwo\n").code == 0
    )
    assert up.stop() == 0
    again = Up(shell, up.data)
    try:
        read = shell.attempt("consume", "kept", "-b", again.line.split()[1])
        assert read.out == b"one\ntwo\n"
    finally:
        again.end()


def test_a_second_up_on_the_same_data_is_refused(up: Up, shell: Any) -> None:
    refused = shell.attempt("up", "--data", str(up.data), "--port", "0")
    assert refused.code == 1
    assert f"is in use by process {up.pid}" in refused.err
    assert up.process.poll() is None


def test_up_notices_that_its_node_died(up: Up) -> None:
    os.kill(up.pid, signal.SIGKILL)
    assert up.process.wait(30) == 1
    assert b"the node was killed by SIGKILL; its log is " in up.process.stderr.read()


def test_settings_are_handed_to_the_node(shell: Any, tmp_path: Path) -> None:
    given = ("--set", "num.partitions=7", "--set", "log.retention.ms=36h")
    running = Up(shell, tmp_path / "data", *given, "--json")
    try:
        bootstrap = json.loads(running.line)["bootstrap"]
        assert shell.attempt("topic", "create", "t", "-b", bootstrap).out == b"created t with 7 partitions\n"
        (told,) = shell.attempt("config", "get", "topic", "t", "retention.ms", "-b", bootstrap, "--json").json
        assert (told["value"], told["source"]) == ("129600000", "server settings")
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
    word, bootstrap = process.stdout.readline().decode().split()
    assert word == "ready"
    assert int(pid_file.read_text()) == process.pid
    assert shell.attempt("topic", "create", "t", "-b", bootstrap).out == b"created t with 3 partitions\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0


def test_serve_runs_a_controller_alone(shell: Any, tmp_path: Path) -> None:
    settings = tmp_path / "controller.properties"
    settings.write_text(
        "node.id=7\nprocess.roles=controller\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=CONTROLLER://127.0.0.1:0\nlog.dirs={tmp_path}/data\n"
    )
    process = shell.start("serve", str(settings), stdout=subprocess.PIPE)
    word, address = process.stdout.readline().decode().split()
    assert word == "ready"
    host, _, port = address.rpartition(":")
    asked = TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])
    body = request_codec(DescribeQuorumRequest.KEY, 2).encode(DescribeQuorumRequest(topics=[asked]))
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(joined(request_frame(DescribeQuorumRequest.KEY, 2, 1, "test", [body])))
        answer = client.makefile("rb")
        frame = answer.read(int.from_bytes(answer.read(4)))
    codec = response_codec(DescribeQuorumRequest.KEY, 2)
    (topic,) = codec.decode(frame, decode_response_header(frame, codec.header_version)[1]).topics
    assert topic.partitions[0].leader_id == 7
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0


def test_serve_says_what_is_wrong_with_its_settings(shell: Any, tmp_path: Path) -> None:
    settings = tmp_path / "server.properties"
    settings.write_text("node.id=many\n")
    refused = shell.attempt("serve", str(settings))
    assert refused.code == 1
    assert "server.properties" in refused.err
    assert "node.id" in refused.err


def test_the_demo_ends_by_itself_and_leaves_nothing_behind(shell: Any, tmp_path: Path) -> None:
    shell.environment["TMPDIR"] = str(tmp_path)
    done = shell.attempt("demo", "--records", "20000", "--json")
    assert done.code == 0, done.err
    facts = json.loads(done.out)
    assert facts["intact"] is True
    assert facts["records_written"] == facts["records_read"] == 25_000
    assert [p["end_offset"] for p in facts["partitions"]] == [p["written"] for p in facts["partitions"]]
    assert list(tmp_path.iterdir()) == []
