"""`headrace pipeline`: from a new project to a run and its status, with a stand-in for Spark."""

from __future__ import annotations

import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from harness import fake_spark
from harness.command_line import CommandLine
from harness.fake_spark import AnalysisException, FakeQuery, FakeSpark
from headrace.pipelines import case_runner, connect_session
from headrace.pipelines.case_runner import CaseResult
from headrace.pipelines.catalog import Catalog
from headrace.spark.prerequisites import MissingPrerequisite


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> FakeSpark:
    fake = fake_spark.install(monkeypatch)
    monkeypatch.setattr(connect_session, "connect_session", lambda **given: fake)
    return fake


@pytest.fixture
def headrace(capfdbinary: pytest.CaptureFixture[bytes]) -> CommandLine:
    return CommandLine(capfdbinary)


@pytest.fixture
def project(headrace: CommandLine, tmp_path: Path) -> Path:
    headrace("pipeline", "init", str(tmp_path / "clicks"))
    return tmp_path / "clicks"


def test_init_makes_a_project_in_a_new_directory(headrace: CommandLine, tmp_path: Path) -> None:
    place = tmp_path / "clicks"
    printed = headrace("pipeline", "init", str(place)).lines
    assert printed[0] == str(place / "spark-pipeline.yml")
    assert printed[-1] == f"next: headrace pipeline test {place}"
    files = headrace("pipeline", "init", str(tmp_path / "other"), "--json").json["files"]
    assert [Path(file).name for file in files] == ["spark-pipeline.yml", "clicks.py", "clicks.yml"]
    assert "not empty" in headrace.refused("pipeline", "init", str(place), code=2)


def test_explain(headrace: CommandLine, project: Path, spark: FakeSpark) -> None:
    text = headrace("pipeline", "explain", str(project)).lines
    assert text[0] == "pipeline clicks: 3 elements, 3 flows"
    assert spark.is_stopped
    flows = headrace("pipeline", "explain", str(project), "--json").json["flows"]
    assert {one["flow"]: one["guarantee"] for one in flows} == {
        "clicks": "inlined",
        "clean_clicks": "exactly once",
        "count_clicks": "exactly once",
    }
    assert not spark.started
    assert not (project / "storage").exists()


def test_a_wrong_pipeline_has_exit_code_2(headrace: CommandLine, project: Path, spark: FakeSpark) -> None:
    file = project / "transformations/clicks.py"
    file.write_text(file.read_text().replace('target="counts"', 'target="count"'))
    for command in ("explain", "run", "test"):
        assert "flow count_clicks writes to count, which is not defined; did you mean counts?" in (
            headrace.refused("pipeline", command, str(project), code=2)
        )
    error = headrace("pipeline", "explain", str(project), "--json", code=2).json
    assert error["error"] == "INVALID_PIPELINE"
    assert error["problems"][0]["file"] == "transformations/clicks.py"
    assert error["problems"][0]["line"] > 1


def test_a_directory_without_a_project(headrace: CommandLine, tmp_path: Path) -> None:
    assert "there is no spark-pipeline.yml" in headrace.refused("pipeline", "run", str(tmp_path), code=2)


def test_run_and_status(headrace: CommandLine, project: Path, spark: FakeSpark) -> None:
    assert "has no run yet" in headrace.refused("pipeline", "status", str(project), code=2)
    spark.queries["clean_clicks"] = FakeQuery(
        "clean_clicks",
        progresses=[{"batchId": 0, "sources": [{"numInputRows": 1234}], "sink": {"numOutputRows": 5}}],
    )
    handlers = signal.getsignal(signal.SIGTERM)
    clean, counts = headrace("pipeline", "run", str(project)).cells
    assert clean[:4] == ["clean_clicks", "0", "1,234", "5"]
    assert counts[:4] == ["count_clicks", "-", "0", "-"]
    assert signal.getsignal(signal.SIGTERM) is handlers
    assert spark.is_stopped
    lines = headrace("pipeline", "status", str(project)).lines
    assert lines[0] == "pipeline clicks does not run"
    assert lines[2].split()[:3] == ["clean_clicks", "0", "1,234"]
    status = headrace("pipeline", "status", str(project), "--json").json
    assert (status["is_alive"], status["flows"]["clean_clicks"]["rows_in"]) == (False, 1234)
    again = headrace("pipeline", "run", str(project), "--json").json
    assert again["flows"]["clean_clicks"]["batch"] == 0


def test_read(headrace: CommandLine, project: Path) -> None:
    assert "no rows of a table or view clicks" in headrace.refused(
        "pipeline", "read", str(project), "clicks", code=2
    )
    rows = pa.table(
        {
            "ad": ["a1", "a2"],
            "minute": [datetime(2026, 1, 1, tzinfo=UTC)] * 2,
            "more": [{"tags": [b"x"], "size": 1}] * 2,
        }
    )
    write_deltalake(str(Catalog(project / "storage").table("clicks")), rows)
    assert headrace("pipeline", "read", str(project), "clicks").lines == [
        "AD  MINUTE                     MORE",
        "a1  2026-01-01 00:00:00+00:00  {'tags': ['x'], 'size': 1}",
        "a2  2026-01-01 00:00:00+00:00  {'tags': ['x'], 'size': 1}",
    ]
    found = headrace("pipeline", "read", str(project), "clicks", "--json", "--limit", "1").json
    more = {"tags": ["x"], "size": 1}
    assert found == [{"ad": "a1", "minute": "2026-01-01 00:00:00+00:00", "more": more}]


def test_a_run_that_is_stopped_by_a_signal(headrace: CommandLine, project: Path, spark: FakeSpark) -> None:
    class Interrupting(FakeQuery):
        def exception(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    spark.queries["clean_clicks"] = query = Interrupting("clean_clicks", polls=100)
    headrace("pipeline", "run", str(project), "--trigger", "continuous")
    assert query.is_stopped
    assert "not an interval" in headrace.refused(
        "pipeline", "run", str(project), "--trigger", "often", code=2
    )


def test_a_flow_that_fails(headrace: CommandLine, project: Path, spark: FakeSpark) -> None:
    error = AnalysisException("[X] y\nheadrace.client.errors.Unreachable: no broker at a:1")
    spark.queries["count_clicks"] = FakeQuery("count_clicks", error=error)
    said = headrace.refused("pipeline", "run", str(project))
    assert "flow count_clicks failed: no broker at a:1. Is a broker running there?" in said
    assert "error  count_clicks: [X] y" in "\n".join(headrace("pipeline", "status", str(project)).lines)
    spark.queries["count_clicks"] = FakeQuery("count_clicks", error=AnalysisException("[X] y"))
    assert "flow count_clicks failed: [X] y" in headrace.refused("pipeline", "run", str(project))


def test_cases(
    headrace: CommandLine, project: Path, spark: FakeSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []

    def run_case(spark: Any, definitions: Any, broker: Any, case: Any, directory: Path) -> CaseResult:
        assert broker.settings["log.retention.ms"] == "-1"  # records may be of any year
        return CaseResult(case, list(found))

    monkeypatch.setattr(case_runner, "run_case", run_case)
    assert headrace("pipeline", "test", str(project)).lines[-1] == "1 case, 0 failed"
    found.append("counts: missing {}")
    lines = headrace("pipeline", "test", str(project), code=1).lines
    assert lines[0].startswith("failed  two clicks in one minute")
    assert lines[1:] == ["    counts: missing {}", "1 case, 1 failed"]
    (one,) = headrace("pipeline", "test", str(project), "--json", code=1).json
    assert one["failures"] == found
    assert "has no case to run" in headrace.refused(
        "pipeline", "test", str(project), "--case", "three", code=2
    )


def test_what_is_missing_is_said(
    headrace: CommandLine, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(**given: Any) -> None:
        raise MissingPrerequisite("Spark needs a JDK.")

    monkeypatch.setattr(connect_session, "connect_session", missing)
    assert "Spark needs a JDK." in headrace.refused("pipeline", "run", str(project))
