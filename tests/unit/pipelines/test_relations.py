"""Plans of Spark Connect as messages: what is put in place of reads, and what stays.

The messages here have the names and fields of Spark's protocol that the module uses, made without Spark.
"""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from headrace.pipelines import relations
from headrace.pipelines.plans import DatasetRead, SourceRead

FIELD = descriptor_pb2.FieldDescriptorProto
STRING, BOOL, INT64 = FIELD.TYPE_STRING, FIELD.TYPE_BOOL, FIELD.TYPE_INT64
# message → field → type; [x] is repeated, and a field of a "oneof" stands behind its name
MESSAGES: dict[str, dict[str, Any]] = {
    "RelationCommon": {"plan_id": INT64},
    "NamedTable": {"unparsed_identifier": STRING},
    "Option": {"name": STRING, "value": STRING},
    "DataSource": {"format": STRING, "schema": STRING, "paths": [STRING], "options": ["Option"]},
    "Read": {
        "read_type:named_table": "NamedTable",
        "read_type:data_source": "DataSource",
        "is_streaming": BOOL,
    },
    "SQL": {"query": STRING},
    "LocalRelation": {"schema": STRING},
    "SubqueryAlias": {"input": "Relation", "alias": STRING},
    "WithRelations": {"root": "Relation", "references": ["Relation"]},
    "Side": {"input": "Relation"},
    "Join": {"left": "Side", "right": "Side", "using_columns": [STRING]},
    "Filter": {"input": "Relation", "condition": STRING},
    "Relation": {
        "common": "RelationCommon",
        "rel_type:read": "Read",
        "rel_type:sql": "SQL",
        "rel_type:subquery_alias": "SubqueryAlias",
        "rel_type:with_relations": "WithRelations",
        "rel_type:join": "Join",
        "rel_type:filter": "Filter",
        "rel_type:local_relation": "LocalRelation",
    },
}


def _relation_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="plans.proto", package="spark.connect", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (key, kind) in enumerate(fields.items(), 1):
            choice, _, field_name = key.rpartition(":")
            is_repeated = isinstance(kind, list)
            one = kind[0] if is_repeated else kind
            label = FIELD.LABEL_REPEATED if is_repeated else FIELD.LABEL_OPTIONAL
            field = message.field.add(name=field_name, number=number, label=label)
            if isinstance(one, str):
                field.type, field.type_name = FIELD.TYPE_MESSAGE, f".spark.connect.{one}"
            else:
                field.type = one
            if choice:
                if not message.oneof_decl:
                    message.oneof_decl.add(name=choice)
                field.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("spark.connect.Relation"))


Relation = _relation_class()


@pytest.fixture(autouse=True)
def _messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relations, "new_relation", Relation)


def table(name: str, *, is_stream: bool = False) -> Any:
    relation = Relation()
    relation.read.named_table.unparsed_identifier = name
    relation.read.is_streaming = is_stream
    return relation


def filtered(inner: Any) -> Any:
    relation = Relation()
    relation.filter.input.CopyFrom(inner)
    relation.filter.condition = "a > 0"
    return relation


def joined(left: Any, right: Any) -> Any:
    relation = Relation()
    relation.join.left.input.CopyFrom(left)
    relation.join.right.input.CopyFrom(right)
    relation.join.using_columns.append("id")
    return relation


def topic(name: str) -> Any:
    return relations.read_relation("headrace", name, is_stream=True, schema=None)


def nothing(source: Any, is_stream: bool) -> None:
    pass


def test_datasets_are_replaced_at_any_depth() -> None:
    plan = filtered(joined(filtered(table("`db`.`clicks`", is_stream=True)), table("elsewhere")))
    asked = []

    def provide(name: str, is_stream: bool) -> Any:
        asked.append((name, is_stream))
        return topic("raw") if name == "clicks" else None

    found = relations.rewritten(plan, provide, nothing)
    assert asked == [("clicks", True), ("elsewhere", False)]
    assert found == filtered(joined(filtered(topic("raw")), table("elsewhere")))
    assert plan == filtered(joined(filtered(table("`db`.`clicks`", is_stream=True)), table("elsewhere"))), (
        "the plan itself is not changed"
    )


def test_sources_are_tuned() -> None:
    def tune(source: Any, is_stream: bool) -> None:
        source.format += f" {is_stream}"

    found = relations.rewritten(filtered(topic("clicks")), lambda name, is_stream: None, tune)
    assert found.filter.input.read.data_source.format == "headrace True"


def test_sql_gets_its_datasets_beside_it() -> None:
    plan = relations.sql_relation("SELECT * FROM STREAM(clicks) JOIN ads ON 'STREAM x' = b JOIN other")

    def provide(name: str, is_stream: bool) -> Any:
        return None if name == "other" else table(f"{name} {is_stream}")

    found = relations.rewritten(plan, provide, nothing).with_relations
    assert found.root.sql.query == "SELECT * FROM clicks JOIN ads ON 'STREAM x' = b JOIN other"
    assert [(one.subquery_alias.alias, one.subquery_alias.input) for one in found.references] == [
        ("clicks", table("clicks True")),
        ("ads", table("ads False")),
    ]
    assert len({one.common.plan_id for one in found.references}) == 2


def test_facts_of_a_message() -> None:
    facts = relations.facts(joined(topic("clicks"), table("ads")))
    assert facts.sources == [SourceRead("headrace", "clicks", is_stream=True)]
    assert facts.datasets == [DatasetRead("ads", is_stream=False)]
    assert facts.state == ["join"]


def test_a_table_is_read_with_the_schema_of_its_writer() -> None:
    read = relations.read_relation("parquet", "/t", is_stream=False, schema="a INT").read
    assert (read.data_source.schema, list(read.data_source.paths), read.is_streaming) == (
        "a INT",
        ["/t"],
        False,
    )


def test_the_message_of_a_frame() -> None:
    class Plan:
        def plan(self, client: str) -> str:
            return f"message for {client}"

    class Session:
        client = "c"

    class Frame:
        _plan, _session = Plan(), Session()

    assert relations.relation_of(Frame()) == "message for c"


def test_a_table_without_rows() -> None:
    assert relations.empty_relation("ad string").local_relation.schema == "ad string"
