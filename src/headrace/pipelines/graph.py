"""The graph of a pipeline: datasets, sinks and flows with their places, its checks and its order.

`check` finds what no run could do: cycles, two definitions of a name, targets that nobody defined, readers of
what does not exist, elements that the runner does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from headrace.pipelines.errors import Place, Problem
from headrace.pipelines.expectations import DEAD, Expectation
from headrace.pipelines.plans import PlanFacts
from headrace.pipelines.project import FlowSettings

TABLE, MATERIALIZED, VIEW, SINK = "table", "materialized view", "temporary view", "sink"
TOPIC_FORMAT, LAKE_FORMAT, FILE_FORMAT = "headrace", "headrace_lake", "parquet"
TABLE_FORMATS = (FILE_FORMAT, LAKE_FORMAT)


@dataclass(frozen=True, slots=True)
class Dataset:
    name: str
    kind: str
    place: Place
    format: str = FILE_FORMAT
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def topic(self) -> str | None:
        """The topic of a sink that has one for all rows."""
        options = {name.lower(): text for name, text in self.options.items()}
        is_topic = self.kind == SINK and self.format == TOPIC_FORMAT
        return options.get("topic") or options.get("path") if is_topic else None


@dataclass(frozen=True, slots=True)
class Flow:
    name: str
    target: str
    place: Place
    facts: PlanFacts = field(default_factory=PlanFacts)
    settings: FlowSettings = field(default_factory=FlowSettings)
    expectations: tuple[Expectation, ...] = ()

    @property
    def has_dead(self) -> bool:
        return any(one.action == DEAD for one in self.expectations)


@dataclass(slots=True)
class Graph:
    name: str
    datasets: dict[str, Dataset] = field(default_factory=dict)
    flows: dict[str, Flow] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)  # found while it was read

    def add_dataset(self, dataset: Dataset) -> None:
        held = self.datasets.setdefault(dataset.name, dataset)
        if held is not dataset:
            text = f"{dataset.kind} {dataset.name} is defined twice, first at {held.place}"
            self.problems.append(Problem(dataset.place, text))

    def add_flow(self, flow: Flow) -> None:
        held = self.flows.setdefault(flow.name, flow)
        if held is not flow and flow.target in self.datasets:
            text = f"two flows are named {flow.name}, the first at {held.place}"
            self.problems.append(Problem(flow.place, text))

    def is_streaming(self, name: str) -> bool:
        """Whether rows of this dataset arrive as a stream: a view is what its query is."""
        dataset = self.datasets[name]
        if dataset.kind != VIEW:
            return dataset.kind == TABLE
        return any(self.reads_stream(flow) for flow in self.flows_into(name))

    def reads_stream(self, flow: Flow) -> bool:
        """Views pass streams on; tables do so only to those that read them as streams."""
        if any(read.is_stream for read in flow.facts.sources):
            return True
        for read in flow.facts.datasets:
            held = self.datasets.get(read.name)
            if read.is_stream or (held is not None and held.kind == VIEW and self.is_streaming(read.name)):
                return True
        return False

    def watermarks(self, flow: Flow) -> list[tuple[str, str]]:
        """The columns and delays of this flow and of the views that it reads."""
        found = list(flow.facts.watermarks)
        for name in self.upstream(flow):
            if self.datasets[name].kind == VIEW:
                found += [one for writer in self.flows_into(name) for one in self.watermarks(writer)]
        return list(dict.fromkeys(found))

    def flows_into(self, name: str) -> list[Flow]:
        return [flow for flow in self.flows.values() if flow.target == name]

    def upstream(self, flow: Flow) -> list[str]:
        return [read.name for read in flow.facts.datasets if read.name in self.datasets]

    def order(self) -> list[Flow]:
        """Return the flows so that each comes after the writers of what it reads; needs no cycle."""
        done: dict[str, Flow] = {}

        def visit(flow: Flow) -> None:
            if flow.name in done:
                return
            for name in self.upstream(flow):
                for writer in self.flows_into(name):
                    visit(writer)
            done[flow.name] = flow

        for flow in self.flows.values():
            visit(flow)
        return list(done.values())

    def waves(self) -> list[list[Flow]]:
        """Flows that write somewhere, in groups: a group needs only what earlier ones wrote."""
        depth: dict[str, int] = {}
        for flow in self.order():
            before = [depth[one.name] for name in self.upstream(flow) for one in self.flows_into(name)]
            own = self.datasets[flow.target].kind != VIEW
            depth[flow.name] = max(before, default=0) + own
        groups: dict[int, list[Flow]] = {}
        for flow in self.order():
            if self.datasets[flow.target].kind != VIEW:
                groups.setdefault(depth[flow.name], []).append(flow)
        return [groups[number] for number in sorted(groups)]


def check(graph: Graph) -> list[Problem]:
    """Return all problems of the graph, in the order of their places."""
    cycle = _cycle(graph)
    found = [*graph.problems, *_targets(graph), *_reads(graph), *cycle]
    if not cycle:
        found += _kinds(graph)
    return sorted(set(found), key=lambda problem: (problem.place.file, problem.place.line or 0))


def _targets(graph: Graph) -> Iterable[Problem]:
    for flow in graph.flows.values():
        if flow.target not in graph.datasets:
            hint = suggestion(flow.target, graph.datasets)
            yield Problem(flow.place, f"flow {flow.name} writes to {flow.target}, which is not defined{hint}")
    for dataset in graph.datasets.values():
        writers = graph.flows_into(dataset.name)
        if not writers:
            yield Problem(dataset.place, f"{dataset.kind} {dataset.name} has no flow that writes to it")
        if dataset.kind in (TABLE, SINK):
            yield from _shared_targets(dataset, writers)
        elif len(writers) > 1:
            text = f"{dataset.kind} {dataset.name} has two writers, at {writers[0].place} and here"
            yield Problem(writers[1].place, text)
    yield from _shared_places(graph)


def _shared_targets(dataset: Dataset, writers: list[Flow]) -> Iterable[Problem]:
    options = {name.lower(): text for name, text in dataset.options.items()}
    if len(writers) > 1 and "txnappid" in options:
        text = f"sink {dataset.name} has a txnAppId, so it takes one flow; the first is {writers[0].name}"
        yield Problem(writers[1].place, text)
    if len(writers) > 1 and dataset.kind == TABLE and dataset.format == FILE_FORMAT:
        text = (
            f"table {dataset.name} has two writers, at {writers[0].place} and here: files of two queries in "
            'one directory hide each other; use format="headrace_lake", or one flow with a union'
        )
        yield Problem(writers[1].place, text)


def _shared_places(graph: Graph) -> Iterable[Problem]:
    """Two sinks with one topic and one sink id, or with one path."""
    held: dict[tuple[str, str], Dataset] = {}
    for dataset in graph.datasets.values():
        options = {name.lower(): text for name, text in dataset.options.items()}
        if dataset.kind != SINK:
            continue
        name = options.get("txnappid") if dataset.format == TOPIC_FORMAT else options.get("path")
        if name is None:
            continue
        first = held.setdefault((dataset.format, name), dataset)
        if first is not dataset:
            what = "txnAppId" if dataset.format == TOPIC_FORMAT else "path"
            text = f"sink {dataset.name} has the {what} {name} of sink {first.name}, defined at {first.place}"
            yield Problem(dataset.place, text)


def _reads(graph: Graph) -> Iterable[Problem]:
    for flow in graph.flows.values():
        for read in flow.facts.datasets:
            held = graph.datasets.get(read.name)
            if held is None:
                hint = suggestion(read.name, graph.datasets)
                text = f"flow {flow.name} reads {read.name}, which the pipeline does not define{hint}"
                yield Problem(flow.place, text)
            elif held.kind == SINK:
                text = f"flow {flow.name} reads the sink {read.name}: read the sink's topic or path instead"
                yield Problem(flow.place, text)


def _cycle(graph: Graph) -> list[Problem]:
    done: set[str] = set()

    def visit(flow: Flow, path: list[Flow]) -> list[Flow]:
        if flow in path:
            return [*path[path.index(flow) :], flow]
        if flow.name in done:
            return []
        for name in graph.upstream(flow):
            for writer in graph.flows_into(name):
                if found := visit(writer, [*path, flow]):
                    return found
        done.add(flow.name)
        return []

    for flow in graph.flows.values():
        if found := visit(flow, []):
            names = " reads ".join(one.target for one in found)
            return [Problem(found[0].place, f"cycle: {names}")]
    return []


def _kinds(graph: Graph) -> Iterable[Problem]:
    for flow in graph.flows.values():
        target = graph.datasets.get(flow.target)
        if target is None or any(read.name not in graph.datasets for read in flow.facts.datasets):
            continue
        is_stream = graph.reads_stream(flow)
        if target.kind == MATERIALIZED and is_stream:
            text = f"materialized view {target.name} reads a stream: use a table, or read with spark.read"
            yield Problem(flow.place, text)
        if target.kind in (TABLE, SINK) and not is_stream:
            yield from _batch_flow(flow, target)
        if target.kind in (TABLE, MATERIALIZED) and target.format not in TABLE_FORMATS:
            text = (
                f"{target.kind} {target.name}: format {target.format} is not supported by this runner; use "
                f"{' or '.join(TABLE_FORMATS)}"
            )
            yield Problem(target.place, text)
        yield from _table_streams(graph, flow)
        if target.kind in (TABLE, SINK) and flow.settings.output_mode != "complete" and is_stream:
            yield from _unbounded(graph, flow)


def _batch_flow(flow: Flow, target: Dataset) -> Iterable[Problem]:
    if not flow.settings.is_once:
        yield Problem(
            flow.place,
            f"flow {flow.name} reads no stream, and {target.kind} {target.name} takes streams: read with "
            'spark.readStream, or set spark_conf={"headrace.once": "true"} for a flow that runs one time',
        )
    elif target.format not in (TOPIC_FORMAT, LAKE_FORMAT):
        yield Problem(
            flow.place,
            f"flow {flow.name} runs one time, which needs a target that knows what was written: a topic or a "
            f"table in the format {LAKE_FORMAT}, not {target.format}",
        )


def _table_streams(graph: Graph, flow: Flow) -> Iterable[Problem]:
    for read in flow.facts.datasets:
        held = graph.datasets[read.name]
        if not read.is_stream or held.kind == VIEW:
            continue
        if held.kind == MATERIALIZED:
            text = f"flow {flow.name} reads the materialized view {held.name} as a stream: use spark.read"
            yield Problem(flow.place, text)
        elif held.format == LAKE_FORMAT:
            yield Problem(
                flow.place,
                f"flow {flow.name} reads the table {held.name} as a stream, which the format {LAKE_FORMAT} "
                "does not have: read a temporary view of the same rows, or leave out the table's format",
            )


def _unbounded(graph: Graph, flow: Flow) -> Iterable[Problem]:
    is_aggregated = "aggregation" in flow.facts.state
    if is_aggregated and flow.settings.output_mode == "append" and not graph.watermarks(flow):
        yield Problem(
            flow.place,
            f"flow {flow.name} aggregates a stream without a watermark, so no row is ever final: add "
            'withWatermark, or set spark_conf={"headrace.output.mode": "update"}',
        )


def suggestion(name: str, known: Iterable[str]) -> str:
    likely = get_close_matches(name, list(known), 1)
    return f"; did you mean {likely[0]}?" if likely else ""
