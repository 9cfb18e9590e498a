"""The DataFrames of a pipeline's flows: plans in which reads of other datasets are replaced.

For a run, a view becomes its query and a table its directory. For analysis, every dataset becomes the query
that writes it, so that nothing has to exist and no data is read.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.pipelines import relations
from headrace.pipelines.catalog import Catalog
from headrace.pipelines.errors import InvalidPipeline, Problem, is_from_spark, short_message
from headrace.pipelines.expectations import OWN_COLUMNS, RECORD, applied
from headrace.pipelines.graph import LAKE_FORMAT, MATERIALIZED, TOPIC_FORMAT, VIEW, Flow

if TYPE_CHECKING:
    from headrace.pipelines.definitions import Definitions

SERVERS_OPTION = "kafka.bootstrap.servers"
GROUP_OPTIONS = ("kafka.group.id", "groupidprefix")


class Frames:
    """`servers` replaces the brokers that the files name: for cases."""

    def __init__(
        self, spark: Any, definitions: Definitions, catalog: Catalog, *, servers: str | None = None
    ) -> None:
        self._spark = spark
        self._graph = definitions.graph
        self._plans = definitions.plans
        self._catalog = catalog
        self._servers = servers
        self._schemas: dict[str, str] = {}

    def frame(self, flow: Flow, query: str | None = None) -> Any:
        """All rows of the flow's query, also those that do not meet expectations.

        Streams commit their progress to a group of this query, so that lag and retention go by it; two
        queries that read a topic do not share one.
        """
        group = f"{self._graph.name}.{query or flow.name}"
        return self._frame(flow, partial(self._provided, group=group), group)

    def rows(self, dataset: str) -> Any:
        """The rows of a table or materialized view so far, as a batch."""
        return relations.frame_of(self._provided(dataset, False), self._spark)

    def columns(self) -> dict[str, str]:
        """The columns of each flow, by Spark's analysis; raises InvalidPipeline for unknown columns."""
        found: dict[str, str] = {}
        problems = []
        wrong: set[str] = set()  # datasets whose readers would fail for the same reason
        for flow in self._graph.order():
            if wrong & set(self._graph.upstream(flow)):
                wrong.add(flow.target)
                continue
            try:
                found[flow.name] = self._columns(flow)
            except Exception as error:
                if not is_from_spark(error):
                    raise
                problems.append(Problem(flow.place, f"flow {flow.name}: {short_message(error)}"))
                wrong.add(flow.target)
        if problems:
            raise InvalidPipeline(problems)
        return found

    def _columns(self, flow: Flow) -> str:
        frame = self._frame(flow, self._inlined)
        fields = frame.schema.fields
        needed = [one.condition for one in flow.expectations]
        if flow.has_dead:
            needed.append(RECORD)
        if needed:
            _ = frame.selectExpr(*needed).schema  # analyzes the conditions
        shown = [one for one in fields if not (flow.expectations and one.name in OWN_COLUMNS)]
        return ", ".join(f"{one.name} {one.dataType.simpleString()}" for one in shown)

    def _frame(self, flow: Flow, provide: relations.Provide, group: str | None = None) -> Any:
        def tune(source: Any, is_stream: bool) -> None:
            if source.format == TOPIC_FORMAT:
                if self._servers is not None:
                    source.options[SERVERS_OPTION] = self._servers
                limit = flow.settings.offsets_per_trigger_max
                if is_stream and limit is not None:
                    source.options["maxOffsetsPerTrigger"] = str(limit)
                given = {name.lower() for name in source.options}
                if is_stream and group is not None and given.isdisjoint(GROUP_OPTIONS):
                    source.options["kafka.group.id"] = group

        relation = relations.rewritten(self._plans[flow.name], provide, tune)
        return relations.frame_of(relation, self._spark)

    def _inlined(self, name: str, is_stream: bool) -> Any:
        writer = self._graph.flows_into(name)[0]
        if not is_stream and self._graph.datasets[name].kind != VIEW:
            return relations.empty_relation(self._schema(writer))  # a stream wrote it, but it is not one
        return relations.relation_of(kept_rows(writer, self._frame(writer, self._inlined)))

    def _provided(self, name: str, is_stream: bool, group: str | None = None) -> Any:
        dataset = self._graph.datasets[name]
        writer = self._graph.flows_into(name)[0]
        if dataset.kind == VIEW:
            provide = partial(self._provided, group=group)
            return relations.relation_of(kept_rows(writer, self._frame(writer, provide, group)))
        path = self._catalog.view(name) if dataset.kind == MATERIALIZED else self._catalog.table(name)
        assert path is not None, f"{name} is written before it is read"
        schema = None if dataset.format == LAKE_FORMAT else self._schema(writer)
        return relations.read_relation(dataset.format, str(path), is_stream=is_stream, schema=schema)

    def _schema(self, flow: Flow) -> str:
        if flow.name not in self._schemas:
            frame = kept_rows(flow, self._frame(flow, self._inlined))
            self._schemas[flow.name] = ", ".join(
                f"`{one.name}` {one.dataType.simpleString()}" for one in frame.schema.fields
            )
        return self._schemas[flow.name]


def kept_rows(flow: Flow, frame: Any) -> Any:
    """The rows that go to the target. A flow without expectations keeps `_record`, as in Spark's runner."""
    return applied(frame, flow.expectations) if flow.expectations else frame
