"""A stand-in for Spark and for `pyspark.pipelines`: tests of pipelines run without both.

A frame remembers what it reads and what is done with it. Queries are started, polled and stopped, and nothing
is computed; `FakeSpark` says which columns, rows, progress and errors Spark would answer with.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from headrace.pipelines import relations
from headrace.pipelines.plans import DatasetRead, PlanFacts, SourceRead


class AnalysisException(Exception):
    """An error that looks as if pyspark had raised it."""


AnalysisException.__module__ = "pyspark.errors"


@dataclass
class FakeQuery:
    """Active for so many polls; `progresses` are its reports."""

    name: str
    polls: int = 1
    error: Exception | None = None
    progresses: list[dict[str, Any]] = field(default_factory=list)
    status: dict[str, bool] = field(default_factory=lambda: {"isTriggerActive": False})
    is_stopped: bool = False

    @property
    def isActive(self) -> bool:
        self.polls -= 1
        return self.polls >= 0 and not self.is_stopped

    @property
    def recentProgress(self) -> list[Any]:
        return [SimpleNamespace(json=json.dumps(one)) for one in self.progresses]

    @property
    def lastProgress(self) -> Any:
        return self.recentProgress[-1] if self.progresses else None

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        self.is_stopped = True


@dataclass(frozen=True)
class Source:
    format: str
    options: dict[str, str]
    paths: tuple[str, ...]
    is_stream: bool


@dataclass(frozen=True)
class FakeFrame:
    """`reads` are sources, datasets (a name, and whether it is a stream), and frames put in their place."""

    spark: FakeSpark
    reads: tuple[Any, ...]
    calls: tuple[tuple[Any, ...], ...] = ()

    @property
    def columns(self) -> list[str]:
        return [one.name for one in self.schema.fields]

    @property
    def schema(self) -> Any:
        for one in [one for call in self.calls for one in call[1:]]:
            if isinstance(one, str) and one in self.spark.unknown_columns:
                raise AnalysisException(f"[UNRESOLVED_COLUMN] {one} is not there.\n'Project [...]")
        names = self.spark.columns
        return SimpleNamespace(
            fields=[
                SimpleNamespace(name=one, dataType=SimpleNamespace(simpleString=lambda: "string"))
                for one in names
            ]
        )

    @property
    def write(self) -> FakeWriter:
        return FakeWriter(self.spark, self)

    @property
    def writeStream(self) -> FakeWriter:
        return FakeWriter(self.spark, self)

    def collect(self) -> list[Any]:
        rows = self.spark.rows.get(str(self.reads[0]), [])
        return [SimpleNamespace(asDict=lambda recursive, row=row: row) for row in rows]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *given, **named: replace(self, calls=(*self.calls, (name, *given, *named.values())))


class FakeReader:
    def __init__(self, spark: FakeSpark, is_stream: bool) -> None:
        self._spark = spark
        self._is_stream = is_stream
        self._format = ""
        self._options: dict[str, str] = {}

    def format(self, name: str) -> FakeReader:
        self._format = name
        return self

    def option(self, name: str, value: str) -> FakeReader:
        self._options[name] = value
        return self

    def load(self, *paths: str) -> FakeFrame:
        return FakeFrame(self._spark, (Source(self._format, self._options, paths, self._is_stream),))

    def table(self, name: str) -> FakeFrame:
        return FakeFrame(self._spark, ((name, self._is_stream),))


class FakeWriter:
    """Of a batch and of a stream."""

    def __init__(self, spark: FakeSpark, frame: FakeFrame) -> None:
        self._spark = spark
        self.frame = frame
        self.settings: dict[str, Any] = {}

    def options(self, **options: str) -> FakeWriter:
        self.settings.update(options)
        return self

    def option(self, name: str, value: str) -> FakeWriter:
        self.settings[name] = value
        return self

    def trigger(self, **trigger: Any) -> FakeWriter:
        self.settings["trigger"] = trigger
        return self

    def format(self, name: str) -> FakeWriter:
        return self.option("format", name)

    def mode(self, name: str) -> FakeWriter:
        return self.option("mode", name)

    outputMode = mode

    def queryName(self, name: str) -> FakeWriter:
        return self.option("name", name)

    def start(self) -> FakeQuery:
        self._fail()
        name = self.settings["name"]
        self._spark.started[name] = self
        self._spark.starts[name] += 1
        return self._spark.queries.setdefault(name, FakeQuery(name))

    def save(self, path: str | None = None) -> None:
        self._fail()
        self._spark.saved.append((path, self))

    def _fail(self) -> None:
        if self._spark.write_error is not None:
            raise self._spark.write_error


@dataclass
class FakeSpark:
    columns: tuple[str, ...] = ("value",)
    unknown_columns: set[str] = field(default_factory=set)
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # by what `read_relation` made
    queries: dict[str, FakeQuery] = field(default_factory=dict)
    write_error: Exception | None = None
    started: dict[str, FakeWriter] = field(default_factory=dict)
    starts: Counter[str] = field(default_factory=Counter)
    saved: list[tuple[str | None, FakeWriter]] = field(default_factory=list)
    is_stopped: bool = False

    @property
    def read(self) -> FakeReader:
        return FakeReader(self, False)

    @property
    def readStream(self) -> FakeReader:
        return FakeReader(self, True)

    def stop(self) -> None:
        self.is_stopped = True


# --- pyspark.pipelines -----------------------------------------------------------------------------------


class FakePipelines(ModuleType):
    """The functions of `pyspark.pipelines` that definition files call."""

    def __init__(self) -> None:
        super().__init__("pyspark.pipelines")
        self.registry: Any = None

    @contextmanager
    def graph_element_registration_context(self, registry: Any) -> Iterator[None]:
        self.registry = registry
        try:
            yield
        finally:
            self.registry = None

    def get_active_graph_element_registry(self) -> Any:
        if self.registry is None:
            raise AnalysisException("outside of a pipeline")
        return self.registry

    def create_sink(self, name: str, format: str, options: dict[str, str]) -> None:
        self._output("Sink", name, format=format, options=options)

    def append_flow(self, *, target: str, name: str = "", spark_conf: dict[str, str] | None = None) -> Any:
        def register(function: Any) -> None:
            flow = SimpleNamespace(name=name or function.__name__, target=target, func=function)
            flow.spark_conf, flow.source_code_location = spark_conf or {}, _caller()
            self.registry.register_flow(flow)

        return register

    def temporary_view(self, function: Any) -> None:
        self._output("TemporaryView", function.__name__)
        self.append_flow(target=function.__name__)(function)

    def table(self, function: Any) -> None:
        self._output("StreamingTable", function.__name__, format=None)
        self.append_flow(target=function.__name__)(function)

    def materialized_view(self, function: Any) -> None:
        self._output("MaterializedView", function.__name__, format=None)
        self.append_flow(target=function.__name__)(function)

    def create_auto_cdc_flow(self) -> None:
        self.registry.register_auto_cdc_flow(SimpleNamespace(source_code_location=_caller()))

    def _output(self, kind: str, name: str, **more: Any) -> None:
        output = type(kind, (), {})()
        output.name, output.source_code_location = name, _caller()
        for key, value in more.items():
            setattr(output, key, value)
        self.registry.register_output(output)


def _caller() -> Any:
    """The first frame outside this file: the definition file."""
    frame: Any = sys._getframe(1)
    while frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return SimpleNamespace(filename=frame.f_code.co_filename, line_number=frame.f_lineno)


@contextmanager
def _allowed() -> Iterator[None]:
    yield


def install(patch: pytest.MonkeyPatch) -> FakeSpark:
    """Put the stand-ins where pyspark would be, and plain frames where Connect has messages."""
    spark = FakeSpark()

    def read(format: str, path: str, *, is_stream: bool, schema: str | None) -> FakeFrame:
        how = "stream" if is_stream else "batch"
        return FakeFrame(spark, (f"{format} {path.rpartition('/headrace/')[2]} {how} {schema}",))

    pipelines, package, sql = FakePipelines(), ModuleType("pyspark"), ModuleType("pyspark.sql")
    package.pipelines, package.sql = pipelines, sql  # type: ignore[attr-defined]
    sql.functions = MagicMock()  # type: ignore[attr-defined]
    blocking = SimpleNamespace(block_session_mutations=_allowed)
    modules = {
        "pyspark": package,
        "pyspark.sql": sql,
        "pyspark.errors": SimpleNamespace(PySparkRuntimeError=AnalysisException),
        "pyspark.pipelines": pipelines,
        "pyspark.pipelines.graph_element_registry": pipelines,
        "pyspark.pipelines.block_session_mutations": blocking,
    }
    for name, module in modules.items():
        patch.setitem(sys.modules, name, module)
    patch.setattr(relations, "relation_of", lambda frame: frame)
    patch.setattr(relations, "frame_of", lambda frame, spark: frame)
    patch.setattr(relations, "facts", _facts)
    patch.setattr(relations, "rewritten", _rewritten)
    patch.setattr(relations, "read_relation", read)
    patch.setattr(relations, "empty_relation", lambda schema: FakeFrame(spark, (f"empty {schema}",)))
    patch.setattr(relations, "sql_relation", lambda query: FakeFrame(spark, ((query, True),)))
    patch.setattr(relations, "observed", lambda frame, name, found: frame.observe(name, tuple(found)))
    return spark


def _facts(frame: FakeFrame) -> PlanFacts:
    facts = PlanFacts()
    for one in frame.reads:
        if isinstance(one, Source):
            facts.sources.append(SourceRead(one.format, ",".join(one.paths) or "?", one.is_stream))
        else:
            facts.datasets.append(DatasetRead(*one))
    return facts


def _rewritten(frame: FakeFrame, provide: relations.Provide, tune: relations.Tune) -> FakeFrame:
    reads: list[Any] = []
    for one in frame.reads:
        if isinstance(one, Source):
            reads.append(replace(one, options=dict(one.options)))
            tune(reads[-1], one.is_stream)
        else:
            reads.append(provide(*one))
    return replace(frame, reads=tuple(reads))
