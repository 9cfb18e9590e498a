"""Expectations: decorators, and the SQL that they mean."""

from __future__ import annotations

import re
from typing import Any

import pytest

import headrace.pipelines
from harness import fake_spark
from headrace.pipelines import expectations as e
from headrace.pipelines import steps


class Frame:
    """Keeps what is asked of it."""

    def __init__(self, *calls: tuple[Any, ...]) -> None:
        self.calls = calls

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **named: Frame(*self.calls, (name, *arguments, *named.values()))


def test_decorators_collect_in_the_order_of_reading_upwards() -> None:
    @e.expect("counted", "a > 0")
    @e.expect_or_fail("whole", "b IS NOT NULL")
    @e.expect_or_dead("known", "c", topic="dead")
    @e.expect_or_drop("small", "d < 10")
    def query() -> Frame:
        return Frame()

    names = [(one.name, one.action) for one in e.expectations_of(query)]
    assert names == [("small", "drop"), ("known", "dead"), ("whole", "fail"), ("counted", "warn")]
    assert query.__name__ == "query"
    assert e.plain_query(query)().calls == ()
    (where, select) = query().calls
    assert select[1].calls[-1] == ("colRegex", e.OTHER_COLUMNS)
    failing, small, known = where[1].split(" AND ")
    assert "raise_error('expectation whole is not met: b IS NOT NULL')" in failing
    assert (small, known) == ("coalesce((d < 10), false)", "coalesce((c), false)")


def test_expect_changes_no_row() -> None:
    @headrace.pipelines.expect("counted", "a > 0")
    def query() -> Frame:
        return Frame()

    ((name, columns),) = query().calls
    assert (name, columns.calls) == ("select", (("colRegex", e.OTHER_COLUMNS),))


def test_columns_of_our_own_are_left_out() -> None:
    pattern = re.compile(e.OTHER_COLUMNS.strip("`"))
    kept = ["ad", "_record", "_record2", "_corrupt_record", "x_record"]
    assert [name for name in kept if pattern.fullmatch(name)] == ["ad", "_record2", "x_record"]


def test_a_plain_function_has_none() -> None:
    assert e.expectations_of(lambda: None) == ()


DEAD = [
    e.Expectation("it's", "a = 'x'", e.DEAD, "dead-a"),
    e.Expectation("b", "b", e.DEAD, "dead-b"),
    e.Expectation("c", "c", e.DROP),
]


def test_counts_and_reasons() -> None:
    assert e.count_columns(DEAD)[0] == "count_if(NOT coalesce((a = 'x'), false)) AS `it's`"
    assert e.count_columns(DEAD)[-1] == "count(*) AS `_rows`"
    assert "THEN 'it\\'s: a = \\'x\\'' WHEN" in e.reason(DEAD)
    assert "(c)" not in e.reason(DEAD)


def test_dead_letters_have_the_headers_of_redrive() -> None:
    headers = e.dead_headers(DEAD)
    for name in ("reason", "topic", "partition", "offset", "timestamp", "attempt"):
        assert f"'headrace.dead_letter.{name}'" in headers
    (written, where, select) = e.dead_rows(Frame(), DEAD).calls
    assert written[1].endswith("WHEN NOT coalesce((c), false) THEN false ELSE true END")
    assert where[1] == "NOT (coalesce((a = 'x'), false) AND coalesce((b), false))"
    assert select[2:4] == ("_record.key AS key", "_record.value AS value")
    assert select[1].startswith("CASE WHEN NOT coalesce((a = 'x'), false) THEN 'dead-a' WHEN NOT")


def test_good_rows_and_dead_letters_are_one_frame() -> None:
    topic, key, value, headers, partition = e.shared_columns(DEAD, ["key", "value", "partition"], "good")
    assert topic.endswith("ELSE 'good' END AS topic")
    good = "coalesce((a = 'x'), false) AND coalesce((b), false)"
    assert key == f"CASE WHEN {good} THEN CAST(key AS BINARY) ELSE _record.key END AS key"
    assert value == f"CASE WHEN {good} THEN CAST(value AS BINARY) ELSE _record.value END AS value"
    assert "CAST(NULL AS ARRAY" in headers
    assert partition == f"CASE WHEN {good} THEN partition END AS partition"
    topic, key, _, headers = e.shared_columns(DEAD, ["value", "topic", "headers"], None)
    assert topic.endswith("ELSE topic END AS topic")
    assert "THEN NULL ELSE _record.key" in key
    assert "THEN headers ELSE" in headers


def test_parse_keeps_the_record() -> None:
    (first, second) = steps.parse(Frame(), "ad string", headers=True).calls
    assert first[1].startswith("named_struct('topic', topic,")
    assert first[1].endswith("'headers', headers) AS _record")
    assert first[2] == "from_json(CAST(value AS STRING), 'ad string, _corrupt_record STRING') AS _parsed"
    assert second == ("selectExpr", "_parsed.*", "_record")


def test_deduplicate() -> None:
    assert steps.deduplicate(Frame(), "id", time="at", within="1 hour").calls == (
        ("withWatermark", "at", "1 hour"),
        ("dropDuplicatesWithinWatermark", ["id"]),
    )
    with pytest.raises(ValueError, match="at least one column"):
        steps.deduplicate(Frame(), time="at", within="1 hour")


def test_names_of_the_package() -> None:
    for name in headrace.pipelines.__all__:
        assert callable(getattr(headrace.pipelines, name))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = headrace.pipelines.nothing


def test_sessionize_counts_the_events_of_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_spark.install(monkeypatch)
    made = steps.sessionize(Frame(), "user", time="at", gap="5 minutes", late="1 minute")
    watermark, group, count, select = made.calls
    assert watermark == ("withWatermark", "at", "1 minute")
    assert group[2] == "user"
    assert count == ("count",)
    assert select[1:] == (
        "user",
        "_session.start AS session_start",
        "_session.end AS session_end",
        "count AS events",
    )


def test_enrich_joins_the_latest_value_of_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_spark.install(monkeypatch)
    ((name, found, on, how),) = steps.enrich(Frame(), Frame(), "name string", on="user").calls
    assert (name, on, how) == ("join", "user", "left")
    assert [call[0] for call in found.calls] == [
        "selectExpr",
        "groupBy",
        "agg",
        "where",
        "selectExpr",
        "selectExpr",
    ]
    assert found.calls[-1] == ("selectExpr", "_key AS `user`", "_fields.*")
