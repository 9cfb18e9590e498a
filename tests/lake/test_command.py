"""`headrace lake` as users run it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import headrace
from cli.shell import Inside
from harness.broker import Broker
from lake.tables import Fill

HOUR_MS = 3_600_000


@pytest.fixture
def inside(broker: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Inside:
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", broker.bootstrap)
    return Inside(capsys)


def test_from_enable_to_verify(inside: Inside, topic: str, fill: Fill, tmp_path: Path) -> None:
    fill(topic, 12)
    table = str(tmp_path / "table")
    done = inside("lake", "enable", topic, "--table", table, "--json").json
    assert (done["rows"], done["group"], done["lost"]) == (24, f"lake-{topic}", [])
    assert inside("lake", "enable", topic, "--table", table, "--json").json["rows"] == 0
    fill(topic, 1, first=12)
    status = inside("lake", "status", table, "--json").json
    assert status["topic"] == topic
    assert status["partitions"] == [
        {
            "partition": number,
            "start": 0,
            "next": 12,
            "log_start": 0,
            "log_end": 13,
            "behind": 1,
            "loss_in_ms": None,
        }
        for number in (0, 1)
    ]
    assert "BEHIND" in inside("lake", "status", table).out.decode()
    report = inside("lake", "verify", table, "--full", "--json").json
    assert report["clean"] is True
    assert (report["rows"], report["compared"], report["findings"]) == (24, 24, [])
    assert "each offset once" in inside("lake", "verify", table).out.decode()
    lines = inside(
        "lake", "read", table, "--partition", "1", "--from", "3", "--limit", "2", "--json"
    ).json_lines
    assert [(line["partition"], line["offset"], line["value"]) for line in lines] == [
        (1, 3, "value-3"),
        (1, 4, "value-4"),
    ]
    assert lines[0] == {
        "topic": topic,
        "partition": 1,
        "offset": 3,
        "timestamp": 1_700_000_000_003,
        "key": "key-3",
        "value": "value-3",
        "headers": [["number", "3"]],
    }


def test_a_read_goes_on_in_the_topic(inside: Inside, topic: str, fill: Fill, tmp_path: Path) -> None:
    fill(topic, 2, 1)
    table = str(tmp_path / "table")
    inside("lake", "enable", topic, "--table", table)
    fill(topic, 2, 1, first=2)
    assert [line["value"] for line in inside("lake", "read", table, "--json").json_lines] == [
        "value-0",
        "value-1",
    ]
    live = inside("lake", "read", table, "--live", "--json").json_lines
    assert [(line["offset"], line["value"]) for line in live] == [(n, f"value-{n}") for n in range(4)]
    assert len(inside("lake", "read", table, "--live", "--limit", "3", "--json").json_lines) == 3


def test_status_says_when_records_will_be_lost(
    inside: Inside, new_topic: Callable[..., str], producer: headrace.Producer, tmp_path: Path
) -> None:
    topic, table = new_topic(1, retention_ms=str(100 * HOUR_MS)), str(tmp_path / "table")
    inside("lake", "enable", topic, "--table", table)
    assert inside("lake", "status", table, "--json").json["partitions"][0]["loss_in_ms"] is None
    producer.send(topic, b"x", partition=0)
    producer.flush()
    (partition,) = inside("lake", "status", table, "--json").json["partitions"]
    assert 99 * HOUR_MS < partition["loss_in_ms"] <= 100 * HOUR_MS
    assert f"{topic}-0 loses records in 4 d 3 h" in inside("lake", "status", table).out.decode()


def test_a_table_that_lost_a_file_fails_with_its_name(
    inside: Inside, topic: str, fill: Fill, tmp_path: Path
) -> None:
    fill(topic, 3)
    table = tmp_path / "table"
    inside("lake", "enable", topic, "--table", str(table))
    gone = next(iter(table.glob("*.parquet")))
    gone.unlink()
    done = inside.attempt("lake", "verify", str(table), "--json")
    assert done.code == 1
    assert done.json["findings"][0]["fault"] == "file_missing"
    assert done.json["findings"][0]["file"] == gone.name


def test_errors_say_what_to_do(inside: Inside, tmp_path: Path, new_topic: Callable[..., str]) -> None:
    done = inside.attempt("lake", "status", str(tmp_path / "nothing"))
    assert (done.code, "there is no Delta table" in done.err) == (1, True)
    assert inside.attempt("lake", "enable", "clicks").code == 2
    one, other = new_topic(), new_topic()
    inside("lake", "enable", one, "--table", str(tmp_path / "table"))
    done = inside.attempt("lake", "enable", other, "--table", str(tmp_path / "table"))
    assert (done.code, "use another path" in done.err) == (1, True)
