"""Cases in one Spark with the testing kit's broker: each case runs twice, and the second run adds nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.pipelines.cases import Case, differences, record_bytes
from headrace.pipelines.definitions import Definitions
from headrace.pipelines.expectations import DEAD
from headrace.pipelines.graph import MATERIALIZED, TABLE, Graph
from headrace.pipelines.running import FlowFailed, Runner
from headrace.testing import Broker, Record

# Of the broker: records of cases may be of any year, and must not expire.
BROKER_SETTINGS = {"log.retention.ms": -1}


@dataclass(slots=True)
class CaseResult:
    case: Case
    failures: list[str] = field(default_factory=list)


def run_case(spark: Any, definitions: Definitions, broker: Broker, case: Case, directory: Path) -> CaseResult:
    """Run one case with a storage of its own; the broker is emptied first."""
    result = CaseResult(case)
    graph = definitions.graph
    tables = [one.name for one in graph.datasets.values() if one.kind in (TABLE, MATERIALIZED)]
    topics = topics_of(graph, case)
    for target in case.expect:
        if target not in tables and target not in topics:
            result.failures.append(f"{target}: neither a table of the pipeline nor a topic that it writes")
    if result.failures:
        return result
    broker.reset(dict.fromkeys(sorted(topics), 1))
    for topic, records in case.given.items():
        broker.produce_all(topic, [_record(one) for one in records])
    before: dict[str, int] = {}
    for number in (1, 2):
        runner = Runner(
            spark,
            definitions,
            directory,
            servers=broker.bootstrap_servers,
            sink_paths=directory / "sinks",
        )
        try:
            runner.run()
        except FlowFailed as error:
            result.failures.append(f"run {number}: {error}")
            return result
        found = {
            target: runner.table_rows(target) if target in tables else _records(broker, target)
            for target in [*tables, *sorted(topics)]
        }
        if number == 1:
            for target, rows in case.expect.items():
                result.failures += differences(target, rows, found[target])
        else:
            for target, count in before.items():
                if len(found[target]) != count:
                    more = len(found[target]) - count
                    result.failures.append(f"{target}: the second run added {more} rows, not 0")
        before = {target: len(rows) for target, rows in found.items()}
    return result


def topics_of(graph: Graph, case: Case) -> set[str]:
    """All topics that the pipeline reads and writes, and those that get records."""
    found = set(case.given)
    found.update(one.topic for one in graph.datasets.values() if one.topic)
    for flow in graph.flows.values():
        found.update(one.topic for one in flow.expectations if one.action == DEAD and one.topic)
        for source in flow.facts.sources:
            if source.format == "headrace" and source.what != "?":
                found.update(name.strip() for name in source.what.split(","))
    return found


def _record(given: Mapping[str, Any]) -> Record:
    headers = tuple((name, record_bytes(text)) for name, text in (given.get("headers") or {}).items())
    return Record(
        record_bytes(given.get("value")),
        record_bytes(given.get("key")),
        headers,
        given.get("partition"),
        given.get("timestamp_ms"),
    )


def _records(broker: Broker, topic: str) -> list[dict[str, Any]]:
    return [
        {
            "key": one.key,
            "value": one.value,
            "headers": dict(one.headers),
            "partition": one.partition,
            "timestamp_ms": one.timestamp_ms,
        }
        for one in broker.consume_all(topic)
    ]
