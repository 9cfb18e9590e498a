"""`headrace up` at first contact: mistakes are told in its own options, and people learn where all is."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.running import Up
from headrace.cli.local_cluster import LocalCluster
from headrace.schemas import Registry, Schema

TIMEOUT_S = 30


@pytest.fixture
def shell(new_shell: Callable[[str], Any]) -> Any:
    return new_shell("127.0.0.1:1")  # each test says which broker it means


@pytest.fixture
def taken() -> Iterator[int]:
    """A port of this machine that somebody else has."""
    with socket.create_server(("127.0.0.1", 0)) as holder:
        yield holder.getsockname()[1]


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("num.partitons=3", "num.partitons: unknown setting. Did you mean num.partitions?"),
        ("retention.ms=5", "Did you mean log.retention.ms?"),
        ("colour=blue", "colour: unknown setting"),
        ("num.partitions=0", "Invalid value 0 for configuration num.partitions: Value must be at least 1"),
        ("authorizer.class.name=X", "loads no Java classes"),
        ("listeners=SSL://127.0.0.1:0", "SSL needs a certificate"),
    ],
)
def test_a_wrong_setting_is_refused_before_anything_is_written(
    shell: Any, tmp_path: Path, setting: str, says: str
) -> None:
    refused = shell.attempt("up", "--data", str(tmp_path / "data"), "--port", "0", "--set", setting)
    assert (refused.code, refused.out) == (2, b"")
    assert f"--set {setting.partition('=')[0]}" in refused.err
    assert says in refused.err
    assert "server.properties" not in refused.err
    assert list(tmp_path.iterdir()) == []


def test_a_taken_port_is_told_with_a_free_one(shell: Any, tmp_path: Path, taken: int) -> None:
    refused = shell.attempt("up", "--data", str(tmp_path / "some" / "data"), "--port", str(taken))
    assert (refused.code, refused.out) == (1, b"")
    assert f"port {taken} of 127.0.0.1 is taken" in refused.err
    suggested = re.search(r"--port (\d+)", refused.err)
    assert suggested is not None
    assert taken < int(suggested[1]) or suggested[1] == "0"
    assert list(tmp_path.iterdir()) == []


def test_a_taken_port_of_a_cluster(shell: Any, tmp_path: Path, taken: int) -> None:
    data = str(tmp_path / "data")
    refused = shell.attempt("up", "--brokers", "2", "--data", data, "--port", str(taken))
    assert refused.code == 1
    assert f"port {taken} of 127.0.0.1 is taken" in refused.err
    assert f"(the nodes use {taken} to {taken + 1})" in refused.err
    assert "the next free 2 ports: --port " in refused.err
    assert list(tmp_path.iterdir()) == []


def test_ports_behind_the_last(shell: Any, tmp_path: Path) -> None:
    refused = shell.attempt("up", "--brokers", "3", "--data", str(tmp_path / "data"), "--port", "65534")
    assert refused.code == 2
    assert "--port 65534: 3 nodes need 3 ports from there on, up to 65535" in refused.err


def test_a_high_port_leaves_ports_for_the_controllers(tmp_path: Path) -> None:
    assert len(LocalCluster(tmp_path, 3, 65533, {}, {}).nodes) == 3


def kept(data: Path, node: int, cluster_id: str) -> None:
    """What a node leaves behind by which `up` knows it."""
    directory = data / f"node-{node}" / "data"
    directory.mkdir(parents=True)
    (directory / "meta.properties").write_text(f"version=1\ncluster.id={cluster_id}\nnode.id={node}\n")


def test_the_data_of_a_cluster_needs_all_of_its_nodes(shell: Any, tmp_path: Path) -> None:
    """Fewer nodes would wait in vain for the others, which have the votes and the records."""
    for node in (1, 2, 3):
        kept(tmp_path, node, "one")
    for brokers in ("1", "2"):
        refused = shell.attempt("up", "--brokers", brokers, "--data", str(tmp_path), "--port", "0")
        assert refused.code == 1
        assert f"{tmp_path} has the files of a cluster of 3 nodes" in refused.err
        assert "--brokers 3" in refused.err


def test_a_single_broker_cannot_become_a_cluster(shell: Any, tmp_path: Path) -> None:
    kept(tmp_path, 1, "one")
    refused = shell.attempt("up", "--brokers", "3", "--data", str(tmp_path), "--port", "0")
    assert refused.code == 1
    assert "a broker that was started without --brokers" in refused.err
    assert [path.name for path in tmp_path.iterdir()] == ["node-1"]


def test_a_node_of_another_cluster(shell: Any, tmp_path: Path) -> None:
    kept(tmp_path, 1, "one")
    kept(tmp_path, 2, "two")
    (tmp_path / "cluster-id").write_text("one\n")
    refused = shell.attempt("up", "--brokers", "3", "--data", str(tmp_path), "--port", "0")
    assert refused.code == 1
    assert f"{tmp_path}/node-2 has the files of another cluster (two) than {tmp_path} (one)" in refused.err


def test_a_cluster_that_cannot_start_leaves_nothing_new_behind(
    shell: Any, tmp_path: Path, taken: int
) -> None:
    wanted = f"headrace.metrics.port={taken}"
    refused = shell.attempt("up", "--brokers", "2", "--data", str(tmp_path), "--port", "0", "--set", wanted)
    assert refused.code == 1
    assert "node 1 cannot start: cannot listen on http://127.0.0.1" in refused.err
    assert list(tmp_path.iterdir()) == []


def test_a_start_that_fails_leaves_nothing_new_behind(shell: Any, tmp_path: Path, taken: int) -> None:
    """The node itself finds the metrics port taken; what is said is its reason, not the end of a log."""
    wanted = f"headrace.metrics.port={taken}"
    data = tmp_path / "some" / "data"
    refused = shell.attempt("up", "--data", str(data), "--port", "0", "--set", wanted)
    assert (refused.code, refused.out) == (1, b"")
    assert "the node cannot start: cannot listen on http://127.0.0.1" in refused.err
    assert "headrace.metrics.port" in refused.err
    assert list(tmp_path.iterdir()) == []
    data.mkdir(parents=True)
    assert shell.attempt("up", "--data", str(data), "--port", "0", "--set", wanted).code == 1
    assert data.exists()


def test_a_directory_in_use_is_told_in_the_words_of_the_command(shell: Any, tmp_path: Path) -> None:
    up = Up(shell, tmp_path / "data")
    try:
        before = sorted((up.node / "server.properties").stat()[:9])
        refused = shell.attempt("up", "--data", str(up.data), "--port", up.line.rpartition(":")[2].strip())
        assert refused.code == 1
        assert f"{up.data} is in use by process {up.pid}" in refused.err
        assert "--data" in refused.err
        assert "log.dirs" not in refused.err
        assert sorted((up.node / "server.properties").stat()[:9]) == before
    finally:
        up.end()


def test_a_directory_that_cannot_be_made(shell: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    refused = shell.attempt("up", "--data", str(tmp_path / "file" / "data"), "--port", "0")
    assert (refused.code, refused.out) == (1, b"")
    assert "--data" in refused.err
    assert "Traceback" not in refused.err


def test_the_registry_and_the_metrics_are_on_and_only_this_machine_reaches_them(
    shell: Any, tmp_path: Path
) -> None:
    up = Up(shell, tmp_path / "data", "--json")
    try:
        told = json.loads(up.line)
        assert told["registry"].startswith("http://127.0.0.1:")
        assert told["metrics"] == told["registry"] + "/metrics"
        assert Registry(told["registry"]).register("orders-value", Schema('"string"')) == 1
        with urllib.request.urlopen(told["metrics"], timeout=TIMEOUT_S) as page:
            assert b"headrace_requests_total" in page.read()
        assert up.stop() == 0
    finally:
        up.end()
    off = Up(shell, tmp_path / "data", "--json", "--set", "headrace.metrics.port=-1")
    try:
        told = json.loads(off.line)
        assert (told["registry"], told["metrics"]) == (None, None)
    finally:
        off.end()


def test_people_are_told_where_everything_is(shell: Any, tmp_path: Path) -> None:
    """On a terminal; the first line is the one that scripts read."""
    mine, its = pty.openpty()
    up = Up(shell, tmp_path / "data", stderr=its)
    os.close(its)
    try:
        word, bootstrap = up.line.split()
        assert word == "ready"
        text = ""
        while "headrace consume hello" not in text:
            text += os.read(mine, 4096).decode()
        plain = re.sub(r"\x1b\[[0-9;]*m|\r", "", text)
        registry = re.search(r"schema registry +(http://127\.0\.0\.1:\d+)\n", plain)
        assert registry is not None
        assert re.search(rf"bootstrap +{re.escape(bootstrap)}\n", plain)
        assert re.search(rf"metrics +{re.escape(registry[1])}/metrics\n", plain)
        assert re.search(rf"data +{re.escape(str(up.node))}\n", plain)
        assert re.search(r"stop +Ctrl-C", plain)
        assert f"headrace topic create hello -b {bootstrap}" in plain
        up.process.send_signal(signal.SIGINT)
        assert up.process.wait(TIMEOUT_S) == 0
    finally:
        up.end()
        os.close(mine)
