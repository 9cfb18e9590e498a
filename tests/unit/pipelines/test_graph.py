"""The graph's checks and order, the guarantees, and what `explain` prints."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.pipelines.errors import InvalidPipeline, Place
from headrace.pipelines.expectations import expect_or_dead, expectations_of
from headrace.pipelines.explaining import explain_json, explain_text, problems_json
from headrace.pipelines.graph import MATERIALIZED, SINK, TABLE, VIEW, Dataset, Flow, Graph, check
from headrace.pipelines.guarantees import guarantee
from headrace.pipelines.plans import DatasetRead, PlanFacts, SourceRead
from headrace.pipelines.project import FlowSettings, Trigger

TOPIC = SourceRead("headrace", "clicks", is_stream=True)


def graph_of(*elements: Dataset | Flow) -> Graph:
    graph = Graph("p")
    for one in elements:
        if isinstance(one, Dataset):
            graph.add_dataset(one)
        else:
            graph.add_flow(one)
    return graph


def dataset(name: str, kind: str, line: int = 1, format: str = "parquet", **options: str) -> Dataset:
    return Dataset(name, kind, Place("a.py", line), format, options)


def flow(
    target: str, *reads: DatasetRead | SourceRead, line: int = 1, name: str | None = None, **settings: Any
) -> Flow:
    facts = PlanFacts(
        [one for one in reads if isinstance(one, DatasetRead)],
        [one for one in reads if isinstance(one, SourceRead)],
    )
    return Flow(name or target, target, Place("a.py", line), facts, FlowSettings(**settings))


def stream(name: str) -> DatasetRead:
    return DatasetRead(name, is_stream=True)


def batch(name: str) -> DatasetRead:
    return DatasetRead(name, is_stream=False)


def texts(graph: Graph) -> list[str]:
    return [str(problem) for problem in check(graph)]


def test_a_right_graph_has_an_order() -> None:
    graph = graph_of(
        dataset("report", MATERIALIZED),
        flow("report", batch("counts")),
        dataset("counts", TABLE),
        flow("counts", stream("clicks")),
        dataset("clicks", VIEW),
        flow("clicks", TOPIC),
        dataset("out", SINK, format="headrace", topic="copy"),
        flow("out", stream("counts")),
    )
    assert texts(graph) == []
    assert [one.name for one in graph.order()] == ["clicks", "counts", "report", "out"]
    assert [[one.name for one in wave] for wave in graph.waves()] == [["counts"], ["report", "out"]]
    assert graph.is_streaming("clicks")
    assert not graph.is_streaming("report")


@pytest.mark.parametrize(
    ("elements", "said"),
    [
        (
            [
                dataset("a", TABLE),
                flow("a", stream("b"), line=3),
                dataset("b", TABLE),
                flow("b", stream("a"), line=4),
            ],
            "a.py:3: cycle: a reads b reads a",
        ),
        ([flow("b", TOPIC)], "a.py:1: flow b writes to b, which is not defined"),
        (
            [dataset("clicks", TABLE), flow("clicks", TOPIC), flow("click", TOPIC, line=9)],
            "a.py:9: flow click writes to click, which is not defined; did you mean clicks?",
        ),
        ([dataset("a", TABLE)], "a.py:1: table a has no flow that writes to it"),
        (
            [dataset("a", TABLE), dataset("a", TABLE, 7), flow("a", TOPIC)],
            "a.py:7: table a is defined twice, first at a.py:1",
        ),
        (
            [dataset("a", TABLE), flow("a", TOPIC), flow("a", TOPIC, line=8)],
            "a.py:8: two flows are named a, the first at a.py:1",
        ),
        (
            [dataset("a", MATERIALIZED), flow("a", batch("a2"), name="x")],
            "a.py:1: flow x reads a2, which the pipeline does not define; did you mean a?",
        ),
        (
            [
                dataset("a", TABLE),
                flow("a", TOPIC, name="one"),
                flow("a", TOPIC, name="two", line=5),
            ],
            "a.py:5: table a has two writers, at a.py:1 and here",
        ),
        (
            [
                dataset("v", VIEW),
                flow("v", TOPIC, name="one"),
                flow("v", TOPIC, name="two", line=5),
            ],
            "a.py:5: temporary view v has two writers",
        ),
        (
            [
                dataset("s", SINK, format="headrace", topic="t", txnAppId="x"),
                flow("s", TOPIC, name="one"),
                flow("s", TOPIC, name="two", line=5),
            ],
            "a.py:5: sink s has a txnAppId, so it takes one flow",
        ),
        (
            [
                dataset("s", SINK, format="headrace_lake", path="/t"),
                flow("s", TOPIC),
                dataset("r", SINK, 6, format="headrace_lake", path="/t"),
                flow("r", TOPIC),
            ],
            "a.py:6: sink r has the path /t of sink s, defined at a.py:1",
        ),
        (
            [
                *(dataset("s", SINK, format="headrace", topic="t"), flow("s", TOPIC)),
                *(dataset("v", VIEW), flow("v", stream("s"), line=2)),
            ],
            "a.py:2: flow v reads the sink s: read the sink's topic or path instead",
        ),
        ([dataset("m", MATERIALIZED), flow("m", TOPIC)], "materialized view m reads a stream"),
        (
            [dataset("t", TABLE), flow("t", SourceRead("parquet", "/x", is_stream=False))],
            "flow t reads no stream, and table t takes streams",
        ),
        (
            [dataset("t", TABLE), flow("t", SourceRead("parquet", "/x", is_stream=False), is_once=True)],
            "which needs a target that knows what was written",
        ),
        ([dataset("t", TABLE, format="orc"), flow("t", TOPIC)], "format orc is not supported by this runner"),
        (
            [
                *(dataset("t", TABLE, format="headrace_lake"), flow("t", TOPIC)),
                *(dataset("u", TABLE), flow("u", stream("t"), line=2)),
            ],
            "a.py:2: flow u reads the table t as a stream, which the format headrace_lake does not have",
        ),
        (
            [
                *(dataset("m", MATERIALIZED), flow("m", SourceRead("parquet", "/x", is_stream=False))),
                *(dataset("u", TABLE), flow("u", stream("m"), line=2)),
            ],
            "a.py:2: flow u reads the materialized view m as a stream: use spark.read",
        ),
    ],
)
def test_a_problem_has_its_place(elements: list[Dataset | Flow], said: str) -> None:
    found = texts(graph_of(*elements))
    assert any(said in text for text in found), found


def test_an_aggregation_needs_a_watermark_or_another_mode() -> None:
    made = flow("t", TOPIC)
    made.facts.state.append("aggregation")
    assert "aggregates a stream without a watermark" in texts(graph_of(dataset("t", TABLE), made))[0]
    made.facts.watermarks.append(("at", "1 minute"))
    assert texts(graph_of(dataset("t", TABLE), made)) == []


def kind_of(target: Dataset, one: Flow, *others: Dataset | Flow) -> tuple[str, str]:
    return guarantee(graph_of(target, one, *others), one)


def test_guarantees() -> None:
    topic = dataset("s", SINK, format="headrace", topic="t")
    assert kind_of(topic, flow("s", TOPIC))[0] == "exactly once"
    slow = dataset("s", SINK, format="headrace", topic="t", deliveryGuarantee="at-least-once")
    assert kind_of(slow, flow("s", TOPIC))[0] == "at least once"
    assert "flow's name" in kind_of(topic, flow("s", batch("x"), is_once=True))[1]
    assert kind_of(dataset("v", VIEW), flow("v", TOPIC))[0] == "inlined"
    assert kind_of(dataset("m", MATERIALIZED), flow("m", batch("x")))[0] == "recomputed"
    lake = dataset("l", TABLE, format="headrace_lake")
    assert kind_of(lake, flow("l", TOPIC)) == (
        "exactly once",
        "the table's log has the number of the micro-batch",
    )
    assert kind_of(dataset("t", TABLE), flow("t", TOPIC))[0] == "exactly once"
    assert kind_of(dataset("c", SINK, format="console"), flow("c", TOPIC))[0] == "at least once"
    assert kind_of(dataset("o", TABLE, format="orc"), flow("o", TOPIC))[1] == "the format orc has no ledger"
    users = SourceRead("headrace", "users", is_stream=False)
    found = kind_of(topic, flow("s", TOPIC, users, batch("m")), dataset("m", MATERIALIZED))
    assert found[1].endswith("reads m, users again, which may have changed")


def explained() -> Graph:
    @expect_or_dead("has_ad", "ad IS NOT NULL", topic="dead")
    def query() -> None: ...

    clean = flow(
        "out", stream("clicks"), line=12, trigger=Trigger("every", 5.0), offsets_per_trigger_max=1000
    )
    clean.facts.state.append("deduplication")
    clean.facts.watermarks.append(("at", "1 minute"))
    clean = Flow(clean.name, clean.target, clean.place, clean.facts, clean.settings, expectations_of(query))
    return graph_of(
        dataset("clicks", VIEW),
        flow("clicks", TOPIC),
        dataset("out", SINK, format="headrace", topic="copy"),
        clean,
        dataset("m", MATERIALIZED),
        flow("m", SourceRead("headrace", "users", is_stream=False)),
        dataset("l", TABLE, format="headrace_lake"),
        flow("l", SourceRead("headrace", "users", is_stream=False), is_once=True),
    )


def test_explain_prints_every_fact() -> None:
    graph = explained()
    assert texts(graph) == []
    text = explain_text(graph, {"out": "key string, value string"})
    for line in (
        "pipeline p: 4 elements, 4 flows",
        "temporary view clicks  <-  flow clicks  (a.py:1)",
        "    reads      headrace clicks (stream)",
        "sink out (topic copy)  <-  flow out  (a.py:12)",
        "    reads      temporary view clicks (stream)",
        "    columns    key string, value string",
        "    state      deduplication",
        "    watermark  at, 1 minute",
        "    expects    has_ad: ad IS NOT NULL (else dead -> dead)",
        "    trigger    every 5 s, at most 1,000 records each",
        "    trigger    each run; in a long run every 60 s",
        "    trigger    one time",
    ):
        assert line in text.splitlines(), line


def test_explain_as_json() -> None:
    graph = explained()
    found = {one["flow"]: one for one in explain_json(graph, {"out": "key string"})["flows"]}
    assert found["out"]["reads"] == [{"dataset": "clicks", "stream": True}]
    assert found["out"]["topic"] == "copy"
    assert found["out"]["guarantee"] == "exactly once"
    assert found["out"]["expectations"][0]["topic"] == "dead"
    assert found["clicks"]["reads"] == [{"source": "headrace", "what": "clicks", "stream": True}]
    problems = check(graph_of(flow("b", TOPIC)))
    assert problems_json(problems)[0]["line"] == 1
    assert "a.py:1: flow b writes" in str(InvalidPipeline(problems))


def test_the_watermark_of_a_view_holds_for_its_readers() -> None:
    view, made = flow("v", TOPIC), flow("t", stream("v"))
    made.facts.state.append("aggregation")
    graph = graph_of(dataset("v", VIEW), view, dataset("t", TABLE), made)
    assert "without a watermark" in str(check(graph)[0])
    view.facts.watermarks.append(("at", "1 minute"))
    assert check(graph) == []
    assert graph.watermarks(made) == [("at", "1 minute")]
