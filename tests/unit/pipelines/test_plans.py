"""What a plan reads and does, and SQL files."""

from __future__ import annotations

import pytest

from headrace.pipelines.errors import InvalidPipeline
from headrace.pipelines.plans import DatasetRead, SourceRead, facts_of
from headrace.pipelines.sql_files import statements, tables_of, without_stream


def test_facts_of_a_plan() -> None:
    clicks = {"read": {"dataSource": {"format": "headrace", "paths": ["clicks"]}, "isStreaming": True}}
    users = {"read": {"dataSource": {"format": "headrace", "options": {"Subscribe": "users"}}}}
    table = {"read": {"namedTable": {"unparsedIdentifier": "`db`.`ads`"}}}
    plan = {
        "aggregate": {
            "input": {
                "join": {
                    "left": {
                        "withWatermark": {"input": clicks, "eventTime": "at", "delayThreshold": "1 minute"}
                    },
                    "right": {"setOp": {"leftInput": users, "rightInput": table}},
                }
            },
            "groupingExpressions": [{"unresolvedAttribute": {"unparsedIdentifier": "ad"}}],
        }
    }
    facts = facts_of(plan)
    assert facts.sources == [
        SourceRead("headrace", "clicks", is_stream=True),
        SourceRead("headrace", "users", is_stream=False),
    ]
    assert facts.datasets == [DatasetRead("ads", is_stream=False)]
    assert facts.state == ["aggregation", "join"]
    assert facts.watermarks == [("at", "1 minute")]
    assert facts.reads_stream
    assert not facts_of(table).reads_stream
    assert facts_of({"read": {"dataSource": {"format": "rate"}}}).sources[0].what == "?"
    assert facts_of({"sql": {"query": "SELECT * FROM STREAM clicks"}}).datasets == [
        DatasetRead("clicks", is_stream=True)
    ]


SQL = """\
-- clicks; of today
CREATE STREAMING TABLE clicks;

CREATE FLOW one AS INSERT INTO clicks BY NAME
SELECT 'a;b' AS x FROM STREAM(raw);
/* a report */ CREATE OR REFRESH MATERIALIZED VIEW `report` USING parquet COMMENT 'all; of it'
AS SELECT count(*) FROM clicks JOIN db.ads USING (ad);
CREATE TEMPORARY VIEW v AS WITH c AS (SELECT 1 FROM clicks) SELECT * FROM c
"""


def test_statements_of_a_file() -> None:
    table, flow, report, view = statements(SQL, "a.sql")
    assert (table.kind, table.name, table.query, table.place.line) == ("table", "clicks", None, 2)
    assert (flow.kind, flow.name, flow.target, flow.place.line) == ("flow", "one", "clicks", 4)
    assert flow.query == "SELECT 'a;b' AS x FROM STREAM(raw)"
    assert (report.kind, report.name, report.format, report.place.line) == (
        "materialized view",
        "report",
        "parquet",
        6,
    )
    assert (view.kind, view.name) == ("temporary view", "v")


def test_what_is_not_a_definition_has_its_line() -> None:
    with pytest.raises(InvalidPipeline, match=r"a.sql:2: DROP TABLE x …: not supported here"):
        statements("\nDROP TABLE x", "a.sql")


def test_tables_of_a_query() -> None:
    query = (
        "WITH c AS (SELECT extract(YEAR FROM t) FROM STREAM a WHERE x IS DISTINCT FROM y) "
        "SELECT 'from x' FROM c JOIN STREAM(db.b) ON true JOIN `d` -- from e"
    )
    assert tables_of(query) == [("a", True), ("b", True), ("d", False)]
    assert without_stream("SELECT * FROM STREAM a JOIN STREAM(b) JOIN stream `c`") == (
        "SELECT * FROM a JOIN b JOIN `c`"
    )
