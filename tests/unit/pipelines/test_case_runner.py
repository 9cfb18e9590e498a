"""Cases against the broker in memory: what is compared, and that a second run adds nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.pipelines import case_runner
from headrace.pipelines.case_runner import run_case
from headrace.pipelines.cases import Case, parse_case
from headrace.pipelines.definitions import Definitions
from headrace.pipelines.errors import Place
from headrace.pipelines.expectations import DEAD, Expectation
from headrace.pipelines.graph import SINK, TABLE, Dataset, Flow, Graph
from headrace.pipelines.plans import PlanFacts, SourceRead
from headrace.pipelines.running import FlowFailed
from headrace.testing import Broker

HERE = Place("a.py", 1)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def definitions() -> Definitions:
    graph = Graph("p")
    graph.add_dataset(Dataset("out", SINK, HERE, "headrace", {"topic": "copies"}))
    graph.add_dataset(Dataset("kept", TABLE, HERE))
    facts = PlanFacts(sources=[SourceRead("headrace", "clicks, users", is_stream=True)])
    dead = Expectation("e", "a", DEAD, "dead")
    graph.add_flow(Flow("out", "out", HERE, facts, expectations=(dead,)))
    graph.add_flow(Flow("kept", "kept", HERE, facts))
    return Definitions(graph)


class CopyingRunner:
    """Copies clicks to the topic and to the table; `again` copies them in the second run, too."""

    again = False
    fails = False
    runs: list[Path] = []

    def __init__(
        self, spark: Any, definitions: Definitions, storage: Path, *, servers: str, sink_paths: Path
    ) -> None:
        self._broker: Broker = spark
        self._is_first = storage not in CopyingRunner.runs
        CopyingRunner.runs.append(storage)
        assert servers == self._broker.bootstrap_servers
        assert sink_paths == storage / "sinks"

    def run(self) -> None:
        if CopyingRunner.fails:
            raise FlowFailed("out", "no")
        if self._is_first or CopyingRunner.again:
            given = self._broker.consume_all("clicks")
            self._broker.produce_all("copies", [(one.key, one.value) for one in given])

    def table_rows(self, name: str) -> list[dict[str, Any]]:
        assert name == "kept"
        return [{"ad": "a1", "clicks": 2}]


@pytest.fixture(autouse=True)
def runner(monkeypatch: pytest.MonkeyPatch) -> type[CopyingRunner]:
    monkeypatch.setattr(case_runner, "Runner", CopyingRunner)
    monkeypatch.setattr(CopyingRunner, "runs", [])
    return CopyingRunner


def case(**expect: list[dict[str, Any]]) -> Case:
    given = {"clicks": [{"key": "k", "value": {"ad": "a1"}, "headers": {"h": "x"}, "timestamp_ms": 5}]}
    return parse_case({"name": "c", "given": given, "expect": expect}, "c.yml")


def failures(broker: Broker, one: Case, directory: Path) -> list[str]:
    return run_case(broker, definitions(), broker, one, directory).failures


def test_a_case_that_holds(broker: Broker, tmp_path: Path) -> None:
    good = case(copies=[{"key": "k", "value": {"ad": "a1"}}], kept=[{"ad": "a1"}], dead=[])
    assert failures(broker, good, tmp_path) == []
    assert CopyingRunner.runs == [tmp_path, tmp_path]
    assert sorted(broker.topics()) == ["clicks", "copies", "dead", "users"]


def test_what_differs_is_shown(broker: Broker, tmp_path: Path) -> None:
    wrong = case(copies=[{"key": "other"}], kept=[])
    missing, surplus, row = failures(broker, wrong, tmp_path)
    assert missing == 'copies: missing {"key": "other"}'
    assert surplus.startswith('copies: not expected {"key": "k", "value": {"ad": "a1"}, ')
    assert row == 'kept: not expected {"ad": "a1", "clicks": 2}'


def test_the_second_run_must_add_nothing(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CopyingRunner, "again", True)
    assert failures(broker, case(kept=[{"clicks": 2}]), tmp_path) == [
        "copies: the second run added 1 rows, not 0"
    ]


def test_a_flow_that_fails(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CopyingRunner, "fails", True)
    assert failures(broker, case(kept=[]), tmp_path) == ["run 1: flow out failed: no"]


def test_a_target_that_does_not_exist(broker: Broker, tmp_path: Path) -> None:
    (text,) = failures(broker, case(copy=[]), tmp_path)
    assert text == "copy: neither a table of the pipeline nor a topic that it writes"
    assert CopyingRunner.runs == []
