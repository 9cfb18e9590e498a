"""The guarantee of each edge into a target, and why."""

from __future__ import annotations

from typing import NamedTuple

from headrace.pipelines.graph import FILE_FORMAT, LAKE_FORMAT, SINK, TOPIC_FORMAT, VIEW, Flow, Graph

EXACTLY_ONCE, AT_LEAST_ONCE, RECOMPUTED, INLINED = "exactly once", "at least once", "recomputed", "inlined"


class Guarantee(NamedTuple):
    kind: str
    why: str


def guarantee(graph: Graph, flow: Flow) -> Guarantee:
    target = graph.datasets[flow.target]
    if target.kind == VIEW:
        return Guarantee(INLINED, "a view is part of the flows that read it")
    if not graph.reads_stream(flow) and not flow.settings.is_once:
        return Guarantee(RECOMPUTED, "each run writes all rows to a new directory and then switches to it")
    options = {name.lower(): text for name, text in target.options.items()}
    unsafe = _repeats_differ(graph, flow)
    if target.format == TOPIC_FORMAT:
        if options.get("deliveryguarantee") == AT_LEAST_ONCE.replace(" ", "-"):
            return Guarantee(AT_LEAST_ONCE, "deliveryGuarantee is at-least-once")
        by = "the flow's name" if flow.settings.is_once else "the number of the micro-batch"
        return Guarantee(
            EXACTLY_ONCE, f"the broker keeps {by} in the sink; needs Headrace as broker" + unsafe
        )
    if target.format == LAKE_FORMAT:
        return Guarantee(EXACTLY_ONCE, "the table's log has the number of the micro-batch" + unsafe)
    if target.format == FILE_FORMAT:
        return Guarantee(EXACTLY_ONCE, "the directory has a list of files per micro-batch" + unsafe)
    if target.kind == SINK:
        return Guarantee(AT_LEAST_ONCE, f"nothing is known about format {target.format}")
    return Guarantee(AT_LEAST_ONCE, f"the format {target.format} has no ledger")


def _repeats_differ(graph: Graph, flow: Flow) -> str:
    """A micro-batch that is written again has other rows if a table that changes is joined."""
    tables = [
        read.name
        for read in flow.facts.datasets
        if not read.is_stream and read.name in graph.datasets and graph.datasets[read.name].kind != VIEW
    ]
    tables += [read.what for read in flow.facts.sources if not read.is_stream]
    if not tables or not graph.reads_stream(flow):
        return ""
    return f"; a repeated micro-batch reads {', '.join(tables)} again, which may have changed"
