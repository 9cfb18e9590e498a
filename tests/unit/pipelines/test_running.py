"""The runner: which queries it starts, with which rows and settings, and how a run ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness import fake_spark
from harness.fake_spark import AnalysisException, FakeQuery, FakeSpark
from headrace.pipelines.catalog import Catalog
from headrace.pipelines.definitions import Definitions, load_definitions
from headrace.pipelines.errors import InvalidPipeline, ProjectError
from headrace.pipelines.project import Trigger, load_project
from headrace.pipelines.run_state import read_state
from headrace.pipelines.running import WORKER_RETRIES_MAX, FlowFailed, Runner

HEAD = """
from pyspark import pipelines as dp
from headrace.pipelines import *
def clicks_topic():
    return spark.readStream.format("headrace").load("clicks")
"""
VIEW_AND_SINK = """
dp.create_sink("out", "headrace", {"topic": "clean"})
@dp.temporary_view
def clicks():
    return clicks_topic()
@dp.append_flow(target="out")
@expect_or_dead("has_ad", "ad", topic="dead", options={"a": "b"})
@expect_or_drop("small", "price < 9")
def clean():
    return spark.readStream.table("clicks")
"""
TABLES = """
@dp.table
@expect_or_dead("has_ad", "ad", topic="dead")
def clean():
    return clicks_topic()
@dp.table
def further():
    return spark.readStream.table("clean")
@dp.materialized_view
def report():
    return spark.read.table("further")
@dp.materialized_view
def short_report():
    return spark.read.table("report")
"""
PROJECT = "name: p\nstorage: storage\nlibraries:\n  - glob: {include: flows/**}\n"


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> FakeSpark:
    return fake_spark.install(monkeypatch)


def evaluated(
    spark: FakeSpark, directory: Path, text: str, trigger: Trigger | None = None, more: str = ""
) -> Definitions:
    (directory / "flows").mkdir(exist_ok=True)
    (directory / "flows" / "f.py").write_text(HEAD + text)
    file = directory / "spark-pipeline.yml"
    file.write_text(PROJECT + more)
    return load_definitions(spark, load_project(file), trigger)


def runner(spark: FakeSpark, directory: Path, text: str, **more: Any) -> Runner:
    trigger = more.pop("trigger", None)
    more.setdefault("pause", lambda seconds: None)
    return Runner(spark, evaluated(spark, directory, text, trigger), directory / "storage", **more)


def calls(spark: FakeSpark, name: str) -> list[str]:
    return [call[0] for call in spark.started[name].frame.calls]


def test_good_rows_and_dead_letters_of_a_topic_are_one_query(spark: FakeSpark, tmp_path: Path) -> None:
    spark.queries["clean"] = FakeQuery(
        "clean",
        progresses=[{"batchId": 0, "sources": [{"numInputRows": 4}], "sink": {"numOutputRows": 3}}],
    )
    run = runner(spark, tmp_path, VIEW_AND_SINK)
    run.run()
    assert list(spark.started) == ["clean"]
    written = spark.started["clean"]
    assert calls(spark, "clean") == ["observe", "where", "selectExpr"]
    assert written.frame.calls[1][1] == (
        "CASE WHEN NOT coalesce((price < 9), false) THEN false "
        "WHEN NOT coalesce((ad), false) THEN true ELSE true END"
    )
    assert "ELSE 'clean' END AS topic" in written.frame.calls[2][1]
    assert written.settings == {
        "format": "headrace",
        "a": "b",
        "name": "clean",
        "mode": "append",
        "checkpointLocation": str(tmp_path / "storage/headrace/checkpoints/clean"),
        "trigger": {"availableNow": True},
    }
    state = read_state(tmp_path / "storage/headrace")
    assert (state.is_running, state.flows["clean"].rows_in) == (False, 4)


def test_dead_letters_of_tables_have_a_query_of_their_own(spark: FakeSpark, tmp_path: Path) -> None:
    run = runner(spark, tmp_path, TABLES, servers="b:1")
    run.run()
    assert list(spark.started) == ["clean.dead", "clean", "further"]
    assert calls(spark, "clean.dead") == ["where", "selectExpr"]
    assert spark.started["clean.dead"].settings["kafka.bootstrap.servers"] == "b:1"
    assert calls(spark, "clean") == ["observe", "where", "select"]
    assert spark.started["clean"].settings["path"] == str(tmp_path / "storage/headrace/tables/clean")
    read = spark.started["clean"].frame.reads[0].options
    assert read == {"kafka.bootstrap.servers": "b:1", "kafka.group.id": "p.clean"}
    (read,) = spark.started["further"].frame.reads
    assert read.reads == ("parquet tables/clean stream `value` string",)
    assert [path.rpartition("headrace/")[2] for path, _ in spark.saved if path] == [
        "views/report/1",
        "views/short_report/1",
    ]
    (read,) = spark.saved[1][1].frame.reads
    assert read.reads == ("parquet views/report/1 batch `value` string",)
    spark.rows["parquet tables/further batch `value` string"] = [{"value": 1}]
    assert run.table_rows("further") == [{"value": 1}]


def test_dead_letters_of_a_view_are_written_once(spark: FakeSpark, tmp_path: Path) -> None:
    text = """
@dp.temporary_view
@expect_or_dead("has_ad", "ad", topic="dead")
def clicks():
    return clicks_topic()
@dp.temporary_view
def same():
    return spark.readStream.table("clicks")
@dp.table
def first():
    return spark.readStream.table("same")
@dp.table
def second():
    return spark.readStream.table("clicks")
"""
    runner(spark, tmp_path, text).run()
    assert list(spark.started) == ["first", "clicks.dead", "second"]


def test_a_sink_with_a_value_format_takes_no_dead_letters(spark: FakeSpark, tmp_path: Path) -> None:
    text = VIEW_AND_SINK.replace('"topic": "clean"', '"topic": "clean", "valueFormat": "json"')
    runner(spark, tmp_path, text).run()
    assert list(spark.started) == ["clean.dead", "clean"]


def test_a_long_run_refreshes_views_and_ends_when_it_is_asked_to(spark: FakeSpark, tmp_path: Path) -> None:
    text = """
@dp.table
def clean():
    return clicks_topic()
@dp.materialized_view
def report():
    return spark.read.table("clean")
"""
    spark.queries["clean"] = FakeQuery("clean", polls=100)
    more = "configuration: {headrace.refresh: 0 s}\n"
    definitions = evaluated(spark, tmp_path, text, Trigger("every", 2.0), more)
    pauses: list[float] = []
    run = Runner(spark, definitions, tmp_path / "storage", pause=pauses.append)
    run.run(lambda: len(pauses) > 2)
    assert spark.started["clean"].settings["trigger"] == {"processingTime": "2000 milliseconds"}
    assert len(spark.saved) == 4, "at the start and with each of three polls"
    assert spark.queries["clean"].is_stopped
    assert read_state(tmp_path / "storage/headrace").trigger == "until stopped"


def test_a_stop_waits_for_the_micro_batch(spark: FakeSpark, tmp_path: Path) -> None:
    query = FakeQuery("clean", polls=1000, status={"isTriggerActive": True})
    spark.queries["clean"] = query
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 5:
            query.progresses.append({"batchId": 0})

    run = runner(
        spark, tmp_path, VIEW_AND_SINK.replace("@expect", "#"), trigger=Trigger("continuous"), pause=pause
    )
    run.run(lambda: True)
    assert len(pauses) == 5
    assert query.is_stopped
    assert "trigger" not in spark.started["clean"].settings


def test_patience_ends(spark: FakeSpark, tmp_path: Path) -> None:
    query = FakeQuery("clean", polls=10_000, status={"isTriggerActive": True})
    spark.queries["clean"] = query
    runner(spark, tmp_path, VIEW_AND_SINK, trigger=Trigger("continuous")).run(lambda: True)
    assert query.is_stopped
    assert query.polls > 5_000


def test_a_failed_query_ends_the_run(spark: FakeSpark, tmp_path: Path) -> None:
    error = AnalysisException("[BAD] no broker\n\tat org.apache")
    spark.queries["clean"] = FakeQuery("clean", polls=3, error=error)
    run = runner(spark, tmp_path, VIEW_AND_SINK)
    with pytest.raises(FlowFailed, match=r"^flow clean failed: \[BAD\] no broker$"):
        run.run()
    assert spark.queries["clean"].is_stopped
    assert read_state(tmp_path / "storage/headrace").flows["clean"].error == "[BAD] no broker"
    spark.queries["clean"] = FakeQuery("clean")
    again = runner(spark, tmp_path, VIEW_AND_SINK)
    again.run()
    assert again.state.flows["clean"].error is None


def test_a_query_whose_worker_was_too_slow_is_started_again(spark: FakeSpark, tmp_path: Path) -> None:
    error = AnalysisException("Python worker failed to connect back.")
    spark.queries["clean"] = FakeQuery("clean", polls=2, error=error)
    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 4:
            spark.queries["clean"].error = None

    runner(spark, tmp_path, VIEW_AND_SINK, pause=pause).run()
    assert spark.starts["clean"] == 5
    spark.queries["clean"] = FakeQuery("clean", polls=2, error=error)
    with pytest.raises(FlowFailed, match="flow clean failed: Python worker failed to connect back"):
        runner(spark, tmp_path, VIEW_AND_SINK).run()
    assert spark.starts["clean"] == 5 + 1 + WORKER_RETRIES_MAX


@pytest.mark.parametrize("text", [VIEW_AND_SINK, TABLES])
def test_what_cannot_be_started_is_named(spark: FakeSpark, tmp_path: Path, text: str) -> None:
    spark.write_error = AnalysisException("no")
    with pytest.raises(FlowFailed, match=r"flow clean(.dead)? failed: no"):
        runner(spark, tmp_path, text).run()
    spark.write_error = ValueError("ours")
    with pytest.raises(ValueError, match="ours"):
        runner(spark, tmp_path, text).run()


ONE_TIME = """
dp.create_sink("out", "headrace", {"topic": "old"})
@dp.append_flow(target="out", spark_conf={"headrace.once": "true"})
def history():
    return spark.read.format("parquet").load("old")
"""


def test_a_flow_that_runs_one_time(spark: FakeSpark, tmp_path: Path) -> None:
    run = runner(spark, tmp_path, ONE_TIME, servers="b:1")
    run.run()
    runner(spark, tmp_path, ONE_TIME).run()
    ((_, writer),) = spark.saved
    assert (writer.settings["txnAppId"], writer.settings["txnVersion"]) == ("p/history", "0")
    spark.write_error = AnalysisException("full")
    (tmp_path / "storage/headrace/catalog.json").unlink()
    with pytest.raises(FlowFailed, match="flow history failed: full"):
        runner(spark, tmp_path, ONE_TIME).run()
    spark.write_error = ValueError("ours")
    with pytest.raises(ValueError, match="ours"):
        runner(spark, tmp_path, ONE_TIME).run()


def test_cases_write_files_elsewhere(spark: FakeSpark, tmp_path: Path) -> None:
    text = VIEW_AND_SINK.replace('"headrace", {"topic": "clean"}', '"parquet", {"path": "/data"}')
    runner(spark, tmp_path, text, sink_paths=tmp_path / "sinks").run()
    assert spark.started["clean"].settings["path"] == str(tmp_path / "sinks/out")


def test_one_run_at_a_time(spark: FakeSpark, tmp_path: Path) -> None:
    run = runner(spark, tmp_path, VIEW_AND_SINK)
    with (
        Catalog(tmp_path / "storage").lock(),
        pytest.raises(ProjectError, match=r"process \d+ runs this pipeline already"),
    ):
        run.run()
    assert not spark.started


# --- analysis --------------------------------------------------------------------------------------------


def test_columns_of_flows(spark: FakeSpark, tmp_path: Path) -> None:
    spark.columns = ("value", "_record")
    columns = runner(spark, tmp_path, VIEW_AND_SINK).frames.columns()
    assert columns == {"clicks": "value string, _record string", "clean": "value string"}


def test_for_the_analysis_a_table_that_is_read_as_a_whole_is_no_stream(
    spark: FakeSpark, tmp_path: Path
) -> None:
    """Spark would refuse what streams cannot do, such as subqueries."""
    run = runner(spark, tmp_path, TABLES)
    report, further = (run.graph.flows[name] for name in ("report", "further"))
    assert run.frames._frame(report, run.frames._inlined).reads[0].reads == ("empty `value` string",)
    (stream,) = run.frames._frame(further, run.frames._inlined).reads
    assert stream.reads[0].is_stream


def test_unknown_columns_are_found_where_they_are(spark: FakeSpark, tmp_path: Path) -> None:
    text = """
@dp.table
def wrong():
    return clicks_topic().select("add")
@dp.table
def below():
    return spark.readStream.table("wrong")
@dp.table
@expect("counted", "prize > 0")
def other():
    return clicks_topic()
"""
    spark.unknown_columns = {"add", "prize > 0"}
    with pytest.raises(InvalidPipeline) as caught:
        runner(spark, tmp_path, text).frames.columns()
    first, second = caught.value.problems
    assert first.text == "flow wrong: [UNRESOLVED_COLUMN] add is not there."
    assert second.text == "flow other: [UNRESOLVED_COLUMN] prize > 0 is not there."


def test_other_errors_of_analysis_are_ours(
    spark: FakeSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = runner(spark, tmp_path, VIEW_AND_SINK)
    monkeypatch.setattr(run.frames, "_columns", lambda flow: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run.frames.columns()


def test_limits_of_flows(spark: FakeSpark, tmp_path: Path) -> None:
    text = VIEW_AND_SINK.replace("@dp.temporary_view\ndef clicks():\n    return clicks_topic()", "").replace(
        'spark.readStream.table("clicks")', "clicks_topic()"
    )
    text = text.replace('target="out"', 'target="out", spark_conf={"headrace.max.offsets": "10"}')
    runner(spark, tmp_path, text).run()
    options = spark.started["clean"].frame.reads[0].options
    assert options == {"maxOffsetsPerTrigger": "10", "kafka.group.id": "p.clean"}


def test_each_query_commits_to_a_group_of_its_own(spark: FakeSpark, tmp_path: Path) -> None:
    runner(spark, tmp_path, TABLES).run()
    groups = {
        name: started.frame.reads[0].options["kafka.group.id"]
        for name, started in spark.started.items()
        if name != "further"  # reads a table
    }
    assert groups == {"clean": "p.clean", "clean.dead": "p.clean.dead"}
    given = VIEW_AND_SINK.replace("return clicks_topic()", 'return spark.readStream.format("headrace")')
    for option in ("kafka.group.id", "groupIdPrefix"):
        text = given.replace('format("headrace")', f'format("headrace").option("{option}", "own").load("t")')
        other = tmp_path / option
        other.mkdir()
        runner(spark, other, text).run()
        (view,) = spark.started["clean"].frame.reads
        assert view.reads[0].options == {option: "own"}
