"""Evaluation of a project's definition files: the graph and the plans of its flows.

The files run in a registry of ours, so nothing is sent to Spark's own pipelines. The registry has the methods
of pyspark's `GraphElementRegistry`, and this module imports pyspark only where it evaluates a file.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.pipelines import relations
from headrace.pipelines.errors import InvalidPipeline, Place, Problem, ProjectError, is_from_spark
from headrace.pipelines.expectations import expectations_of, plain_query
from headrace.pipelines.graph import FILE_FORMAT, MATERIALIZED, SINK, TABLE, VIEW, Dataset, Flow, Graph
from headrace.pipelines.project import Project, Trigger
from headrace.pipelines.sql_files import statements


@dataclass(slots=True)
class Definitions:
    graph: Graph
    plans: dict[str, Any] = field(default_factory=dict)  # flow → its relation


# classes of pyspark.pipelines.output; a temporary view is the one that is left
KINDS = {"Sink": SINK, "MaterializedView": MATERIALIZED, "StreamingTable": TABLE}


class Registry:
    takes_expectations = True  # see headrace.pipelines.expectations

    def __init__(self, project: Project, trigger: Trigger | None) -> None:
        self._project = project
        self._trigger = trigger
        self.definitions = Definitions(Graph(project.name))

    def register_output(self, output: Any) -> None:
        kind = KINDS.get(type(output).__name__, VIEW)
        format = getattr(output, "format", None) or FILE_FORMAT
        options = dict(output.options) if kind == SINK else {}
        place = self._place(output.source_code_location)
        self.definitions.graph.add_dataset(Dataset(output.name, kind, place, format, options))

    def register_flow(self, flow: Any) -> None:
        place = self._place(flow.source_code_location)
        try:
            plan = relations.relation_of(plain_query(flow.func)())
            settings = self._project.flow_settings(flow.spark_conf, self._trigger)
        except Exception as error:
            if not (isinstance(error, ProjectError) or is_from_spark(error)):
                raise
            raise InvalidPipeline([Problem(place, f"flow {flow.name}: {first_line(error)}")]) from error
        self._add(
            Flow(flow.name, flow.target, place, relations.facts(plan), settings, expectations_of(flow.func)),
            plan,
        )

    def register_auto_cdc_flow(self, flow: Any) -> None:
        text = "create_auto_cdc_flow is not supported by this runner"
        self.definitions.graph.problems.append(Problem(self._place(flow.source_code_location), text))

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        for one in statements(sql_text, str(file_path)):
            if one.kind != "flow":
                self.definitions.graph.add_dataset(
                    Dataset(one.name, one.kind, one.place, one.format or FILE_FORMAT)
                )
            if one.query is not None:
                plan = relations.sql_relation(one.query)
                settings = self._project.flow_settings({}, self._trigger)
                self._add(Flow(one.name, one.target, one.place, relations.facts(plan), settings), plan)

    def _add(self, flow: Flow, plan: Any) -> None:
        self.definitions.graph.add_flow(flow)
        self.definitions.plans.setdefault(flow.name, plan)

    def _place(self, location: Any) -> Place:
        file = Path(location.filename)
        inside = file.is_relative_to(self._project.root)
        return Place(str(file.relative_to(self._project.root) if inside else file), location.line_number)


def load_definitions(spark: Any, project: Project, trigger: Trigger | None = None) -> Definitions:
    """Evaluate all files; raise InvalidPipeline if one cannot be evaluated."""
    from pyspark.pipelines.graph_element_registry import graph_element_registration_context

    registry = Registry(project, trigger)
    with _inside(project.root), graph_element_registration_context(registry):
        for file in project.definition_files():
            name = file.relative_to(project.root)
            if file.suffix == ".sql":
                registry.register_sql(file.read_text(encoding="utf-8"), name)
            else:
                _run_file(file, name, spark)
    return registry.definitions


def _run_file(file: Path, name: Path, spark: Any) -> None:
    from pyspark.pipelines.block_session_mutations import block_session_mutations

    found = importlib.util.spec_from_file_location(file.stem, file)
    assert found is not None, f"{file} ends with .py"
    assert found.loader is not None, f"{file} ends with .py"
    module = importlib.util.module_from_spec(found)
    module.__dict__["spark"] = spark
    try:
        with block_session_mutations():
            found.loader.exec_module(module)
    except InvalidPipeline:
        raise
    except Exception as error:
        place = Place(str(name), _line(error, str(file)))
        text = f"{type(error).__name__}: {first_line(error)}"
        raise InvalidPipeline([Problem(place, text)]) from error


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _line(error: BaseException, file: str) -> int | None:
    if isinstance(error, SyntaxError):
        return error.lineno
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


@contextlib.contextmanager
def _inside(directory: Path) -> Iterator[None]:
    """Make the project's directory the current one, and let its files import modules that lie there."""
    before, path = Path.cwd(), list(sys.path)
    os.chdir(directory)
    sys.path.insert(0, str(directory))
    try:
        yield
    finally:
        os.chdir(before)
        sys.path[:] = path
