"""Evaluation of definition files: elements with their places, and files that cannot be evaluated."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness import fake_spark
from harness.fake_spark import FakeSpark
from headrace.pipelines.definitions import Definitions, load_definitions
from headrace.pipelines.errors import InvalidPipeline, short_message
from headrace.pipelines.graph import check
from headrace.pipelines.project import load_project
from headrace.pipelines.templates import write_project


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> FakeSpark:
    return fake_spark.install(monkeypatch)


def evaluated(spark: FakeSpark, directory: Path, **files: str) -> Definitions:
    write_project(directory / "p")
    if files:
        (directory / "p/transformations/clicks.py").unlink()
    for name, text in files.items():
        (directory / "p/transformations" / name.replace("_", ".")).write_text(text)
    return load_definitions(spark, load_project(directory / "p/spark-pipeline.yml"))


def test_the_project_of_init(spark: FakeSpark, tmp_path: Path) -> None:
    definitions = evaluated(spark, tmp_path)
    graph = definitions.graph
    assert check(graph) == []
    assert {name: one.kind for name, one in graph.datasets.items()} == {
        "counts": "sink",
        "clean": "sink",
        "clicks": "temporary view",
    }
    assert graph.datasets["clean"].topic == "clicks-clean"
    clean = graph.flows["clean_clicks"]
    assert [(one.name, one.action) for one in clean.expectations] == [("has_ad", "dead")]
    assert (clean.place.file, graph.reads_stream(clean)) == ("transformations/clicks.py", True)
    assert definitions.plans.keys() == graph.flows.keys()


def test_files_import_modules_of_the_project(spark: FakeSpark, tmp_path: Path) -> None:
    text = "from pyspark import pipelines as dp\nfrom own_steps import TOPIC\n"
    text += 'dp.create_sink("out", "headrace", {"topic": TOPIC})\n'
    before = list(sys.path)
    write_project(tmp_path / "p")
    (tmp_path / "p/own_steps.py").write_text('TOPIC = "from-the-project"\n')
    (tmp_path / "p/transformations/clicks.py").write_text(text)
    found = load_definitions(spark, load_project(tmp_path / "p/spark-pipeline.yml")).graph
    assert found.datasets["out"].topic == "from-the-project"
    assert sys.path == before
    del sys.modules["own_steps"]


def test_sql_files(spark: FakeSpark, tmp_path: Path) -> None:
    text = """
CREATE TEMPORARY VIEW raw AS SELECT 1;
CREATE STREAMING TABLE clicks;
CREATE FLOW more AS INSERT INTO clicks BY NAME SELECT * FROM STREAM raw;
"""
    graph = evaluated(spark, tmp_path, a_sql=text).graph
    assert [str(one.place) for one in graph.datasets.values()] == [
        "transformations/a.sql:2",
        "transformations/a.sql:3",
    ]
    assert {name: one.target for name, one in graph.flows.items()} == {"raw": "raw", "more": "clicks"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x = 1\n1 / 0\n", "transformations/a.py:2: ZeroDivisionError: division by zero"),
        ("x = (\n", "transformations/a.py:1: SyntaxError: '(' was never closed (a.py, line 1)"),
        (
            "import missing_module\n",
            "transformations/a.py:1: ModuleNotFoundError: No module named 'missing_module'",
        ),
        (
            "from pyspark import pipelines as dp\n"
            "@dp.append_flow(target='t', spark_conf={'headrace.x': '1'})\n"
            "def f():\n    return spark.read.table('a')\n",
            "transformations/a.py:2: flow f: spark_conf: unknown setting headrace.x; known are "
            "headrace.trigger, headrace.refresh, headrace.max.offsets, headrace.output.mode, headrace.once",
        ),
        (
            "from pyspark import pipelines as dp\nfrom harness.fake_spark import AnalysisException\n"
            "@dp.append_flow(target='t')\ndef f():\n    raise AnalysisException('[NO] such\\nplan')\n",
            "transformations/a.py:3: flow f: [NO] such",
        ),
        (
            "from pyspark import pipelines as dp\n"
            "@dp.append_flow(target='t')\ndef f():\n    return [].pop()\n",
            "transformations/a.py:4: IndexError: pop from empty list",
        ),
    ],
)
def test_what_cannot_be_evaluated_has_a_place(
    spark: FakeSpark, tmp_path: Path, text: str, problem: str
) -> None:
    before = Path.cwd()
    with pytest.raises(InvalidPipeline) as caught:
        evaluated(spark, tmp_path, a_py=text)
    assert str(caught.value) == problem
    assert Path.cwd() == before


def test_change_capture_is_not_supported(spark: FakeSpark, tmp_path: Path) -> None:
    text = "from pyspark import pipelines as dp\ndp.create_auto_cdc_flow()\n"
    (problem,) = check(evaluated(spark, tmp_path, a_py=text).graph)
    assert str(problem) == "transformations/a.py:2: create_auto_cdc_flow is not supported by this runner"


def test_sparks_own_runner_gets_a_flow_for_dead_letters(
    spark: FakeSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.pipelines.definitions.Registry.takes_expectations", False)
    graph = evaluated(spark, tmp_path).graph
    dead = graph.flows["clean_clicks_has_ad_dead"]
    assert graph.datasets[dead.target].topic == "clicks-dead"


def test_messages_of_spark_are_cut() -> None:
    assert short_message(ValueError("a\n b \n\nJVM stacktrace:\nmuch")) == "a b"
    assert short_message(ValueError()) == "ValueError"
