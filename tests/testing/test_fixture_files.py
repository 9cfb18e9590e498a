"""Topics from files and into files."""

from __future__ import annotations

import sys
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from headrace.testing import BadFixture, Broker, Record


def test_a_recording_brings_everything_back(headrace_broker: Broker, tmp_path: Path) -> None:
    headrace_broker.create_topic("orders", 3)
    given = [
        Record.of("text", key="k", headers={"trace": "1"}, partition=2, timestamp_ms=1_700_000_000_000),
        Record(b"\xff\x00", b"\xfe", partition=1, timestamp_ms=1_700_000_000_001),
        Record(None, b"deleted", partition=0, timestamp_ms=1_700_000_000_002),
    ]
    headrace_broker.produce_all("orders", given)
    recording = tmp_path / "orders.jsonl"
    assert headrace_broker.record("orders", recording) == 3
    headrace_broker.reset({"again": 3})
    assert headrace_broker.replay(recording, "again") == 3
    headrace_broker.assert_consumed("again", given)


def test_a_recording_may_be_spread_anew(headrace_broker: Broker, tmp_path: Path) -> None:
    headrace_broker.create_topic("orders", 3)
    headrace_broker.produce_all("orders", [Record.of("x", key="k", partition=2)])
    headrace_broker.record("orders", tmp_path / "orders.jsonl")
    headrace_broker.replay(tmp_path / "orders.jsonl", "narrow", keep_partitions=False)
    headrace_broker.assert_consumed("narrow", [("k", "x")])


def test_json_lines(headrace_broker: Broker, tmp_path: Path) -> None:
    seed = tmp_path / "orders.jsonl"
    seed.write_text('{"id": "a", "n": 1}\n\n{"id": "b", "n": 2}\n')
    assert headrace_broker.seed("orders", seed, key="id") == 2
    headrace_broker.assert_consumed("orders", [("a", {"id": "a", "n": 1}), ("b", {"id": "b", "n": 2})])


def test_csv(headrace_broker: Broker, tmp_path: Path) -> None:
    seed = tmp_path / "orders.csv"
    seed.write_text('id,name\n1,Ann\n2,"Bob, the ""builder"""\n')
    headrace_broker.seed("orders", seed)
    expected = [{"id": "1", "name": "Ann"}, {"id": "2", "name": 'Bob, the "builder"'}]
    headrace_broker.assert_consumed("orders", expected)


def test_parquet(headrace_broker: Broker, tmp_path: Path) -> None:
    columns = {"id": [1, 2], "day": [date(2026, 1, 31), None], "price": [Decimal("9.90"), Decimal("0.10")]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "orders.parquet")
    assert headrace_broker.seed("orders", tmp_path / "orders.parquet", key="id") == 2
    expected = [
        ("1", {"id": 1, "day": "2026-01-31", "price": "9.90"}),
        ("2", {"id": 2, "day": None, "price": "0.10"}),
    ]
    headrace_broker.assert_consumed("orders", expected)


def test_parquet_without_pyarrow_says_what_to_do(
    headrace_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(BadFixture, match=r'reading Parquet needs pyarrow.*pip install "\.\[arrow\]"'):
        headrace_broker.seed("orders", tmp_path / "orders.parquet")


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("a.jsonl", '{"id": 1}\n{oops}\n', "line 2: not JSON"),
        ("a.jsonl", '{"id": 1}\n[1]\n', "line 2: no field 'id' for the record's key"),
        ("a.csv", "name\nAnn\n", "line 2: no field 'id' for the record's key"),
        ("a.xml", "<a/>", r"\.jsonl, \.ndjson, \.csv, \.parquet"),
    ],
)
def test_a_bad_seed_is_told_by_its_line(
    headrace_broker: Broker, tmp_path: Path, name: str, text: str, what: str
) -> None:
    seed = tmp_path / name
    seed.write_text(text)
    with pytest.raises(BadFixture, match=what):
        headrace_broker.seed("orders", seed, key="id")


def test_a_bad_recording_is_told_by_its_line(headrace_broker: Broker, tmp_path: Path) -> None:
    recording = tmp_path / "orders.jsonl"
    recording.write_text('{"value": "a"}\n{"valeu": "b"}\n')
    with pytest.raises(BadFixture, match="line 2: unknown field 'valeu'"):
        headrace_broker.replay(recording, "orders")
