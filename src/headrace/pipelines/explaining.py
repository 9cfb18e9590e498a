"""The text and the JSON form of `headrace pipeline explain`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.pipelines.errors import Problem
from headrace.pipelines.graph import SINK, VIEW, Dataset, Flow, Graph
from headrace.pipelines.guarantees import guarantee

Columns = Mapping[str, str]  # flow → its columns as text


def explain_text(graph: Graph, columns: Columns) -> str:
    lines = [f"pipeline {graph.name}: {len(graph.datasets)} elements, {len(graph.flows)} flows", ""]
    for flow in graph.order():
        lines += _flow_lines(graph, flow, columns)
        lines.append("")
    return "\n".join(lines).rstrip()


def _flow_lines(graph: Graph, flow: Flow, columns: Columns) -> list[str]:
    target = graph.datasets[flow.target]
    found = [f"{target_text(target)}  <-  flow {flow.name}  ({flow.place})"]
    for source in flow.facts.sources:
        how = "stream" if source.is_stream else "batch"
        found.append(f"    reads      {source.format} {source.what} ({how})")
    for read in flow.facts.datasets:
        held = graph.datasets.get(read.name)
        how = "stream" if read.is_stream else "batch"
        found.append(f"    reads      {read.name if held is None else target_text(held)} ({how})")
    if flow.name in columns:
        found.append(f"    columns    {columns[flow.name]}")
    if flow.facts.state and graph.reads_stream(flow):
        found.append(f"    state      {', '.join(flow.facts.state)}")
    for column, delay in graph.watermarks(flow):
        found.append(f"    watermark  {column}, {delay}")
    for one in flow.expectations:
        goal = f" -> {one.topic}" if one.topic else ""
        found.append(f"    expects    {one.name}: {one.condition} (else {one.action}{goal})")
    if target.kind != VIEW:
        found.append(f"    trigger    {trigger_text(graph, flow)}")
        kind, why = guarantee(graph, flow)
        found.append(f"    guarantee  {kind}: {why}")
    return found


def target_text(dataset: Dataset) -> str:
    if dataset.kind == VIEW:
        return f"{dataset.kind} {dataset.name}"
    if dataset.kind == SINK:
        what = f"topic {dataset.topic}" if dataset.topic else dataset.format
        return f"sink {dataset.name} ({what})"
    return f"{dataset.kind} {dataset.name} ({dataset.format})"


def trigger_text(graph: Graph, flow: Flow) -> str:
    if flow.settings.is_once:
        return "one time"
    if not graph.reads_stream(flow):
        return f"each run; in a long run every {flow.settings.refresh_s:g} s"
    limit = flow.settings.offsets_per_trigger_max
    return f"{flow.settings.trigger}" + (f", at most {limit:,} records each" if limit else "")


def explain_json(graph: Graph, columns: Columns) -> dict[str, Any]:
    flows = []
    for flow in graph.order():
        kind, why = guarantee(graph, flow)
        flows.append(
            {
                "flow": flow.name,
                "target": flow.target,
                "target_kind": graph.datasets[flow.target].kind,
                "format": graph.datasets[flow.target].format,
                "topic": graph.datasets[flow.target].topic,
                "file": flow.place.file,
                "line": flow.place.line,
                "reads": [
                    *(
                        {"source": one.format, "what": one.what, "stream": one.is_stream}
                        for one in flow.facts.sources
                    ),
                    *({"dataset": one.name, "stream": one.is_stream} for one in flow.facts.datasets),
                ],
                "columns": columns.get(flow.name),
                "state": flow.facts.state if graph.reads_stream(flow) else [],
                "watermarks": [{"column": name, "delay": delay} for name, delay in graph.watermarks(flow)],
                "expectations": [
                    {"name": one.name, "condition": one.condition, "action": one.action, "topic": one.topic}
                    for one in flow.expectations
                ],
                "trigger": trigger_text(graph, flow),
                "guarantee": kind,
                "why": why,
            }
        )
    return {"pipeline": graph.name, "flows": flows}


def problems_json(problems: list[Problem]) -> list[dict[str, Any]]:
    return [{"file": one.place.file, "line": one.place.line, "problem": one.text} for one in problems]
