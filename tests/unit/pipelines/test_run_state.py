"""Counts of a run, the catalog, and cases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.pipelines.cases import differences, load_cases, parse_case, record_bytes
from headrace.pipelines.catalog import Catalog
from headrace.pipelines.errors import ProjectError
from headrace.pipelines.run_state import FlowState, RunState, read_state, status_rows, write_state
from headrace.pipelines.templates import CASE


def progress(batch: int, rows: int, failed: int) -> dict[str, Any]:
    return {
        "batchId": batch,
        "batchDuration": 12,
        "processedRowsPerSecond": 5.0,
        "sources": [{"numInputRows": rows}],
        "sink": {"numOutputRows": rows - failed},
        "eventTime": {"watermark": "2026-01-01T00:00:00.000Z"} if batch else {},
        "stateOperators": [{"numRowsTotal": 3}],
        "observedMetrics": {
            "headrace": {
                "values": [failed, rows],
                "schema": {"fields": [{"name": "has_ad"}, {"name": "_rows"}]},
            }
        },
    }


def test_a_micro_batch_counts_once() -> None:
    state = FlowState()
    state.absorb([progress(0, 10, 1)])
    state.absorb([progress(0, 10, 1), progress(1, 5, 2)])
    state.absorb([{"batchId": 1}])
    assert (state.batch, state.rows_in, state.rows_out) == (1, 15, 12)
    assert state.failed_expectations == {"has_ad": 3}
    assert state.watermark == "2026-01-01T00:00:00.000Z"
    state.absorb([{"batchId": 2, "observedMetrics": {"headrace": {"has_ad": 1, "_rows": 2}}}])
    assert state.failed_expectations == {"has_ad": 4}
    assert state.watermark is not None


def test_the_state_lasts(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="has no run yet"):
        read_state(tmp_path)
    state = RunState("p", "once", 7, 100.0)
    state.flows["clean"] = FlowState(batch=3, rows_in=1000, failed_expectations={"a": 2, "b": 0})
    state.flows["new"] = FlowState()
    write_state(tmp_path / "deep", state)
    assert read_state(tmp_path / "deep") == state
    assert state.is_alive(110.0)
    assert not state.is_alive(200.0)
    clean, new = status_rows(state)
    assert clean == ["clean", 3, "1,000", "-", "0", "0", "-", "a 2"]
    assert new[1] == "-"


def test_the_catalog_switches_views_and_remembers_flows(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    assert catalog.view("m") is None
    for number in (1, 2, 3):
        path = catalog.next_view("m")
        path.mkdir(parents=True)
        (path / "half").touch()
        assert not catalog.next_view("m").exists()  # what a failed run left is gone
        path.mkdir()
        catalog.switch_view("m")
        assert path.name == str(number)
    assert sorted(one.name for one in (tmp_path / "headrace" / "views" / "m").iterdir()) == ["2", "3"]
    catalog.set_done("load")
    later = Catalog(tmp_path)
    assert later.view("m") == path
    assert later.is_done("load")
    assert not later.is_done("other")
    assert later.table("t").is_dir()
    assert later.checkpoint("t") != later.table("t")


def test_the_case_of_a_new_project(tmp_path: Path) -> None:
    file = tmp_path / "clicks.yml"
    file.write_text(CASE + "---\nexpect: {}\n")
    case, empty = load_cases(file)
    assert len(case.given["clicks"]) == 4
    assert set(case.expect) == {"clicks-per-ad", "clicks-clean", "clicks-dead"}
    assert empty.name == "clicks"
    file.write_text("{")
    with pytest.raises(ProjectError, match="not YAML"):
        load_cases(file)


@pytest.mark.parametrize(
    ("read", "message"),
    [
        ([], "has the fields name, given and expect"),
        ({"given": {}}, "has the fields name, given and expect"),
        ({"expect": {"a": 1}}, "expect must map topics or tables to lists of rows"),
        ({"expect": {"a": [1]}}, "a row of a in expect is not a mapping"),
        (
            {"given": {"a": [{"vlue": 1}]}, "expect": {}},
            "a record of a has the field vlue; known are key, value",
        ),
    ],
)
def test_a_wrong_case_is_told(read: Any, message: str) -> None:
    with pytest.raises(ProjectError, match=message):
        parse_case(read, "a.yml")


def test_rows_are_compared_by_what_the_case_names() -> None:
    found: list[dict[str, Any]] = [
        {"key": b"a", "value": b'{"n": 1, "m": 2}', "headers": {}},
        {"key": b"b", "value": b"text", "headers": {"h": b"x"}},
        {"key": None, "value": None, "headers": {}},
        {"ad": "a", "n": 3, "list": [1, 2]},
    ]
    right: list[dict[str, Any]] = [
        {"key": "b", "value": "text", "headers": {"h": "x"}},
        {"value": None},
        {"n": 3, "list": [1, 2]},
        {"key": "a", "value": {"n": 1}},
    ]
    assert differences("t", right, found) == []
    assert differences("t", right[:3], found) == [
        't: not expected {"key": "a", "value": {"n": 1, "m": 2}, "headers": {}}'
    ]
    assert differences("t", [*right, {"key": "a"}], found) == ['t: missing {"key": "a"}']
    assert differences("t", [{"n": "3"}], found[3:]) == []
    assert differences("t", [{"list": [1]}], found[3:])[0] == 't: missing {"list": [1]}'


def test_given_values() -> None:
    assert record_bytes({"a": 1}) == b'{"a": 1}'
    assert record_bytes("x") == b"x"
    assert record_bytes(None) is None
    assert record_bytes(7) == b"7"
