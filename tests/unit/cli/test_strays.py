"""`headrace strays` on a log directory, and what `headrace doctor` says of one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.cli.doctor import Finding, examine
from headrace.cli.main import run
from headrace.server.lock import DirectoryLock
from headrace.storage.strays import parse_stray, stray_name
from headrace.testing import Broker

SINCE_MS = 1_700_000_000_000
ORDERS = stray_name("orders-0", bytes(range(16)), SINCE_MS, "unknown")
USERS = stray_name("us.ers-12", bytes(16), SINCE_MS, "duplicate")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name in (ORDERS, USERS, "kept-0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "00000000000000000000.log").write_bytes(b"x" * 10)
    (tmp_path / "meta.properties").write_text("version=1\n")
    return tmp_path


def test_a_name_says_since_when_and_why() -> None:
    assert ORDERS == "orders-0.000102030405060708090a0b0c0d0e0f_20231114T221320Z_unknown-stray"
    stray = parse_stray(ORDERS)
    assert stray is not None
    assert (stray.original, stray.topic_id, stray.since_ms) == ("orders-0", bytes(range(16)), SINCE_MS)
    assert "does not know" in stray.why
    of_kafka = parse_stray("orders-0.0123456789abcdef0123456789abcdef-stray")
    assert of_kafka is not None
    assert (of_kafka.original, of_kafka.since_ms) == ("orders-0", None)
    assert len(stray_name("t" * 249 + "-0", bytes(16), SINCE_MS, "unknown")) == 255
    assert parse_stray("orders-0") is None


def test_strays_are_listed(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["strays", str(data), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["partition"], row["since"], row["bytes"]) for row in rows] == [
        ("orders-0", "2023-11-14T22:13:20Z", 10),
        ("us.ers-12", "2023-11-14T22:13:20Z", 10),
    ]
    assert run(["strays", str(data)]) == 0
    assert "orders-0" in capsys.readouterr().out


def test_one_gets_its_name_back(data: Path) -> None:
    assert run(["strays", str(data), "--restore", ORDERS]) == 0
    assert (data / "orders-0").is_dir()
    assert run(["strays", str(data), "--restore", ORDERS]) == 2
    (data / "us.ers-12").mkdir()
    assert run(["strays", str(data), "--restore", USERS]) == 1
    assert (data / USERS).is_dir()


def test_nothing_is_removed_without_consent_or_under_a_running_node(data: Path) -> None:
    assert run(["strays", str(data), "--remove-all"]) == 2
    lock = DirectoryLock(str(data))
    assert run(["strays", str(data), "--remove-all", "--yes"]) == 1
    lock.release()
    assert (data / ORDERS).is_dir()
    assert run(["strays", str(data), "--remove", ORDERS, "--yes"]) == 0
    assert not (data / ORDERS).exists()
    assert run(["strays", str(data), "--remove-all", "--yes"]) == 0
    assert sorted(path.name for path in data.iterdir() if path.is_dir()) == ["kept-0"]


def test_a_question_that_nobody_answers_changes_nothing(data: Path) -> None:
    assert run(["strays", str(data), "--restore", ORDERS, "--remove", USERS]) == 2
    assert (data / ORDERS).is_dir()
    assert run(["strays", str(data), "--restore", ORDERS, "--remove", ORDERS, "--yes"]) == 2
    assert (data / ORDERS).is_dir()


def test_remove_all_leaves_what_is_restored(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["strays", str(data), "--restore", ORDERS, "--remove-all", "--yes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"restored": [ORDERS], "removed": [USERS]}
    assert sorted(path.name for path in data.iterdir() if path.is_dir()) == ["kept-0", "orders-0"]


def test_a_directory_that_is_no_log_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`headrace up` keeps a node's log directory two levels below --data."""
    log_directory = tmp_path / "node-1" / "data"
    log_directory.mkdir(parents=True)
    assert run(["strays", str(tmp_path)]) == 2
    assert "it has no meta.properties. The node's setting log.dirs names it." in capsys.readouterr().err
    (log_directory / "meta.properties").write_text("version=1\n")
    assert run(["strays", str(tmp_path)]) == 2
    assert f"Did you mean {log_directory}?" in capsys.readouterr().err
    assert run(["strays", str(log_directory)]) == 0


def test_the_doctor_finds_the_log_directory_of_up(tmp_path: Path) -> None:
    log_directory = tmp_path / "node-1" / "data"
    (log_directory / ORDERS).mkdir(parents=True)
    (log_directory / "meta.properties").write_text("version=1\n")
    found = {finding.check: finding for finding in examine(tmp_path, 9)}
    assert str(log_directory) in found["strays"].found


def test_the_doctor_sees_strays_and_damaged_metadata(data: Path) -> None:
    (data / "__cluster_metadata-0").mkdir()
    (data / "__cluster_metadata-0" / "00000000000000000000.log").write_bytes(b"\1" * 100)
    found = {finding.check: finding for finding in examine(data, 9)}
    assert found["strays"].state == "warning"
    assert "2 partitions" in found["strays"].found
    assert found["metadata"].state == "problem"
    assert "meta.properties has no node.id" in found["metadata"].found


def test_the_doctor_accepts_what_the_node_accepts(tmp_path: Path) -> None:
    """A batch that a kill has cut short is not damage; a log that is shorter than its checkpoint says is."""
    with Broker(storage="disk", path=tmp_path, topics=["orders"]):
        pass
    log = next(tmp_path.glob("**/__cluster_metadata-0/*.log"))
    directory, whole = log.parent.parent, log.read_bytes()

    def state() -> Finding:
        return next(finding for finding in examine(tmp_path, 9) if finding.check == "metadata")

    assert state().state == "ok"
    last = 0
    while (following := last + 12 + int.from_bytes(whole[last + 8 : last + 12])) < len(whole):
        last = following
    log.write_bytes(whole[:last])
    assert state().state == "problem"
    assert "the metadata log is damaged" in state().found
    log.write_bytes(whole)
    (directory / ".kafka_cleanshutdown").unlink()
    next_offset = int.from_bytes(whole[last : last + 8]) + int.from_bytes(whole[last + 23 : last + 27]) + 1
    log.write_bytes(whole + next_offset.to_bytes(8) + whole[last + 8 : last + 30])
    assert state().state == "ok"
