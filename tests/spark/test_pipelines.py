"""Declared pipelines with a real Spark: cases, runs that continue, both runners, and a run that is stopped.

Each command starts a Spark Connect of its own, which the session of the other tests does not share.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace
from harness.committed import committed
from harness.headrace import Headrace
from harness.wait import eventually, run_to_end
from headrace.schemas.dead_letters import read_dead_letter

PROGRAMS = Path(sys.executable).parent
WAIT_S = 240
SETTINGS = {"offsets.topic.num.partitions": "1", "log.retention.ms": "-1"}
TOPICS = ("clicks", "clicks-clean", "clicks-per-ad", "clicks-dead")
MASTER = ("--master", "local[2]")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    with Headrace(tmp_path_factory.mktemp("pipelines"), SETTINGS) as running:
        yield running


@pytest.fixture
def servers(broker: Headrace) -> str:
    """With empty topics."""
    with headrace.Admin(broker.bootstrap) as admin:
        for topic in admin.list_topics():
            if topic.name in TOPICS:
                admin.delete_topic(topic.name)
        for name in TOPICS:
            admin.create_topic(name, partitions=2)
    return broker.bootstrap


@pytest.fixture
def project(tmp_path: Path) -> Path:
    command(None, "init", str(tmp_path / "project"))
    return tmp_path / "project"


def environment(servers: str | None) -> dict[str, str]:
    return {**os.environ, "HEADRACE_BOOTSTRAP": servers or "127.0.0.1:1"}


def command(servers: str | None, *words: str, code: int = 0) -> str:
    done = run_to_end([str(PROGRAMS / "headrace"), "pipeline", *words], WAIT_S, env=environment(servers))
    assert done.returncode == code, done.stdout + done.stderr[-4000:]
    return done.stdout + (done.stderr if code else "")


def click(number: int, second: int, *, ad: str | None = "a1") -> dict[str, Any]:
    found = {"click": f"c{number}", "clicked_at": f"2026-01-01T10:{second // 60:02}:{second % 60:02}Z"}
    return found if ad is None else {**found, "ad": ad}


def publish(servers: str, clicks: list[dict[str, Any]]) -> None:
    with headrace.Producer(servers) as producer:
        for one in clicks:
            producer.send("clicks", json.dumps(one).encode(), one["click"].encode())


def results(servers: str) -> dict[str, list[Any]]:
    """What the pipeline wrote, without the places of the records."""
    found: dict[str, list[Any]] = {
        topic: sorted((one.key, one.value) for one in committed(servers, topic))
        for topic in ("clicks-clean", "clicks-per-ad")
    }
    letters = [read_dead_letter(one.key, one.value, one.headers) for one in committed(servers, "clicks-dead")]
    found["clicks-dead"] = sorted((one.key, one.value, one.reason) for one in letters)
    return found


CLICKS = [click(number, number * 20, ad="a1" if number % 2 else "a2") for number in range(12)]
BAD = [click(100, 30, ad=None), click(101, 31, ad=None)]


@pytest.mark.brief
def test_cases(project: Path) -> None:
    wrong = "name: nothing is expected\ngiven: {clicks: [{value: {ad: a1}}]}\nexpect: {clicks-clean: []}\n"
    (project / "cases" / "wrong.yml").write_text(wrong)
    said = command(None, "test", str(project), *MASTER, code=1)
    assert "ok  two clicks in one minute, and one without an ad" in said
    assert "failed  nothing is expected\n    clicks-clean: not expected" in said
    assert "2 cases, 1 failed" in said


def test_runs_continue_and_add_nothing_twice(project: Path, servers: str) -> None:
    publish(servers, CLICKS[:6] + BAD)
    first = json.loads(command(servers, "run", str(project), "--json", *MASTER))
    assert first["flows"]["clean_clicks"]["failed_expectations"] == {"has_ad": 2}
    assert first["flows"]["clean_clicks"]["rows_in"] == 8
    publish(servers, CLICKS[6:])
    command(servers, "run", str(project), *MASTER)
    found = results(servers)
    assert [key for key, _ in found["clicks-clean"]] == sorted(one["click"].encode() for one in CLICKS)
    assert found["clicks-dead"] == [
        (one["click"].encode(), json.dumps(one).encode(), "has_ad: ad IS NOT NULL") for one in BAD
    ]
    counts = [json.loads(value) for _, value in found["clicks-per-ad"]]
    assert sum(one["clicks"] for one in counts if one["minute"].startswith("2026-01-01T10:00")) == 3
    again = json.loads(command(servers, "run", str(project), "--json", *MASTER))
    assert again["flows"]["clean_clicks"]["rows_in"] == 14
    assert results(servers) == found


def test_both_runners_write_the_same(project: Path, servers: str) -> None:
    publish(servers, CLICKS + BAD)
    command(servers, "run", str(project), *MASTER)
    ours = results(servers)
    with headrace.Admin(servers) as admin:
        for topic in TOPICS[1:]:
            admin.delete_topic(topic)
            admin.create_topic(topic, partitions=2)
    spec = str(project / "spark-pipeline.yml")
    settings = {**environment(servers), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    zone = ("--conf", "spark.sql.session.timeZone=UTC", "--conf", "spark.sql.shuffle.partitions=2")
    done = run_to_end([str(PROGRAMS / "spark-pipelines"), "run", "--spec", spec, *zone], WAIT_S, env=settings)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert results(servers) == ours
    assert len(ours["clicks-clean"]) == 12


TABLES = """
from pyspark import pipelines as dp
from headrace.pipelines import expect_or_drop, expect_or_fail, parse

@dp.table
@expect_or_fail("short", "length(ad) < 10")
@expect_or_drop("has_ad", "ad IS NOT NULL")
def kept():
    records = spark.readStream.format("headrace").option("startingOffsets", "earliest").load("clicks")
    return parse(records, "click string, ad string")
"""
VIEW = "CREATE MATERIALIZED VIEW per_ad AS SELECT ad, count(*) AS clicks FROM kept GROUP BY ad;\n"
TABLE_CASES = """
name: rows of a table and of a view
given:
  clicks: [{value: {click: c1, ad: a1}}, {value: {click: c2, ad: a1}}, {value: {click: c3}}]
expect:
  kept: [{click: c1, ad: a1}, {click: c2, ad: a1}]
  per_ad: [{ad: a1, clicks: 2}]
---
name: a row that must not be
given: {clicks: [{value: {ad: much too long}}]}
expect: {kept: []}
"""


def test_tables_views_and_sql(project: Path) -> None:
    (project / "transformations" / "clicks.py").write_text(TABLES)
    (project / "transformations" / "view.sql").write_text(VIEW)
    (project / "cases" / "clicks.yml").write_text(TABLE_CASES)
    said = command(None, "test", str(project), *MASTER, code=1)
    assert "ok  rows of a table and of a view" in said
    assert "expectation short is not met: length(ad) < 10" in said


def test_a_continuous_run_ends_when_it_is_asked_to(project: Path, servers: str) -> None:
    run = subprocess.Popen(
        [str(PROGRAMS / "headrace"), "pipeline", "run", str(project), "--trigger", "continuous", *MASTER],
        env=environment(servers),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        publish(servers, CLICKS[:4])
        eventually(lambda: len(committed(servers, "clicks-clean")), 4, WAIT_S)
        publish(servers, CLICKS[4:])
        eventually(lambda: len(committed(servers, "clicks-clean")), len(CLICKS), WAIT_S)
        assert "process" in command(servers, "run", str(project), *MASTER, code=2)
        assert "runs in process" in command(None, "status", str(project))
        run.send_signal(signal.SIGTERM)
        said, errors = run.communicate(timeout=WAIT_S)
        assert run.returncode == 0, errors[-4000:]
        assert "clean_clicks" in said
    finally:
        if run.poll() is None:
            run.kill()
            run.wait()
    assert "does not run" in command(None, "status", str(project))


@pytest.mark.brief
def test_explain_finds_unknown_columns(project: Path) -> None:
    file = project / "transformations" / "clicks.py"
    file.write_text(file.read_text().replace('"ad IS NOT NULL", topic', '"advert IS NOT NULL", topic'))
    said = command(None, "explain", str(project), *MASTER, code=2)
    assert "transformations/clicks.py:" in said
    assert "flow clean_clicks:" in said
    assert "advert" in said
