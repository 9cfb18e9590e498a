"""Relations of Spark Connect: plans whose reads of other datasets are replaced.

A flow's plan names the datasets that it reads. The runner puts in their place what they are in this run: the
plan of a view, the directory of a table. Names of the messages are those of Spark's protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from headrace.pipelines.plans import PlanFacts, facts_of, plain_name
from headrace.pipelines.sql_files import tables_of, without_stream

Provide = Callable[[str, bool], Any]  # dataset, as a stream? → its relation, or None to leave the read
Tune = Callable[[Any, bool], None]  # changes a data source


def relation_of(frame: Any) -> Any:
    """The plan of a Connect DataFrame, as a message."""
    return frame._plan.plan(frame._session.client)


def frame_of(relation: Any, spark: Any) -> Any:
    from pyspark.sql.connect.dataframe import DataFrame
    from pyspark.sql.connect.plan import LogicalPlan

    plan = LogicalPlan(None)
    plan.plan = lambda client: relation
    return DataFrame(plan, spark)


def observed(frame: Any, name: str, expressions: Sequence[str]) -> Any:
    """The frame, which reports these aggregates of its rows with each micro-batch."""
    from pyspark.sql import functions

    return frame.observe(name, *(functions.expr(one) for one in expressions))


def new_relation() -> Any:
    from pyspark.sql.connect import proto

    return proto.Relation()


def sql_relation(query: str) -> Any:
    relation = new_relation()
    relation.sql.query = query
    return relation


def read_relation(format: str, path: str, *, is_stream: bool, schema: str | None) -> Any:
    relation = new_relation()
    source = relation.read.data_source
    source.format = format
    source.paths.append(path)
    relation.read.is_streaming = is_stream
    if schema is not None:
        source.schema = schema
    return relation


def empty_relation(schema: str) -> Any:
    """A table with these columns and no rows."""
    relation = new_relation()
    relation.local_relation.schema = schema
    return relation


def facts(relation: Any) -> PlanFacts:
    from google.protobuf.json_format import MessageToDict

    return facts_of(MessageToDict(relation))


def rewritten(relation: Any, provide: Provide, tune: Tune) -> Any:
    """A copy of the relation with what `provide` returns in place of reads of datasets."""
    copy = type(relation)()
    copy.CopyFrom(relation)
    match copy.WhichOneof("rel_type"):
        case "read" if copy.read.WhichOneof("read_type") == "named_table":
            name = plain_name(copy.read.named_table.unparsed_identifier)
            given = provide(name, copy.read.is_streaming)
            return copy if given is None else given
        case "read":
            tune(copy.read.data_source, copy.read.is_streaming)
        case "sql":
            return _rewritten_sql(copy, provide)
        case _:
            for child in _children(copy):
                child.CopyFrom(rewritten(child, provide, tune))
    return copy


def _rewritten_sql(relation: Any, provide: Provide) -> Any:
    """SQL gets its datasets as named relations beside it."""
    query = relation.sql.query
    given = {name: provide(name, is_stream) for name, is_stream in tables_of(query)}
    outer = type(relation)()
    outer.with_relations.root.CopyFrom(relation)
    outer.with_relations.root.sql.query = without_stream(query)
    for number, (name, one) in enumerate(given.items()):
        if one is not None:
            reference = outer.with_relations.references.add()
            reference.common.plan_id = -1 - number
            reference.subquery_alias.alias = name
            reference.subquery_alias.input.CopyFrom(one)
    return outer


def _children(message: Any) -> Iterator[Any]:
    """The nearest relations below this message."""
    for _, value in message.ListFields():
        parts = [value] if hasattr(value, "ListFields") else value
        if isinstance(parts, str | bytes | int | float | bool):
            continue
        for part in parts:
            if not hasattr(part, "ListFields"):
                continue
            if part.DESCRIPTOR.full_name == "spark.connect.Relation":
                yield part
            else:
                yield from _children(part)
