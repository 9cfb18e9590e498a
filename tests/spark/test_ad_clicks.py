"""The ad-click example as a whole, on a real broker: what it counts, rejects and stores is what is true of
the events that were published, in Spark and in the databases behind it.
"""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession

from harness.ad_clicks import (
    EXAMPLE,
    Counts,
    counts_in,
    create_sources,
    minute_ms,
    pipeline,
    publish,
    steps,
    to_database_program,
)
from harness.committed import committed
from harness.headrace import Headrace
from harness.postgres import postgres
from harness.spark_queries import await_end
from harness.wait import eventually
from headrace.sample.clicks import CLICKS, IMPRESSIONS, LATE, SampleClicks, Truth, truth
from headrace.schemas.dead_letters import read_dead_letter

MINUTES = 24
RUN_S = 300
WAIT_S = 120
SETTINGS = {"offsets.topic.num.partitions": "1", "log.retention.ms": "-1"}


class Counted(NamedTuple):
    """Sample events in the topics, and a pipeline that has read them all."""

    servers: str
    truth: Truth
    dropped: int  # rows that were too old for Spark
    run: Callable[[], int]  # the pipeline once more: how many rows it reads


@pytest.fixture(scope="module")
def counted(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Counted]:
    """Published in three parts, with a run of the pipeline behind each of them."""
    directory = tmp_path_factory.mktemp("ad-clicks")
    sample = SampleClicks(seed=6, impressions_per_s=5.0, robot_rate=0.01)
    events = list(sample.events(MINUTES * 60))
    parts = [events[: len(events) // 2], events[len(events) // 2 :]]
    parts.append(list(SampleClicks.closing_events(events[-1].timestamp_ms)))
    progress: list[Any] = []

    with Headrace(directory, SETTINGS) as broker:

        def run() -> int:
            queries = pipeline.run(
                spark, broker.bootstrap, directory / "checkpoints", trigger={"availableNow": True}
            )
            for query in queries:
                await_end(query, RUN_S)
            made = [each for query in queries for each in query.recentProgress]
            progress.extend(made)
            return sum(each.numInputRows for each in made)

        create_sources(broker.bootstrap)
        for part in parts:
            publish(broker.bootstrap, part)
            assert run() > 0
        operators = [operator for each in progress for operator in each.stateOperators]
        dropped = sum(operator.numRowsDroppedByWatermark for operator in operators)
        yield Counted(broker.bootstrap, truth(events), dropped, run)


def test_what_is_counted_is_true(counted: Counted) -> None:
    assert counted.truth.rejected.keys() == {"late", "unknown impression", "expired", "fraud"}
    assert counted.truth.duplicates > 0
    assert counts_in(counted.servers) == counted.truth.counts
    assert counted.dropped == 0, "only the rules drop rows, and the watermark none"


def test_late_clicks_are_reported(counted: Counted) -> None:
    rejected = committed(counted.servers, pipeline.REJECTED)
    assert [message.headers for message in rejected] == [(("reason", b"late"),)] * counted.truth.rejected[
        LATE
    ]
    for message in rejected:
        click = json.loads(message.value)
        assert message.key == click["impression"].encode()
        assert message.timestamp_ms - minute_ms(datetime.fromisoformat(click["clicked_at"])) > 120_000


def test_what_is_no_click_is_a_dead_letter(counted: Counted) -> None:
    dead = committed(counted.servers, pipeline.DEAD)
    letters = [read_dead_letter(message.key, message.value, message.headers) for message in dead]
    assert (
        len({(letter.topic, letter.partition, letter.offset) for letter in letters})
        == counted.truth.malformed
    )
    assert len(letters) == counted.truth.malformed
    assert any("ad is missing" in letter.reason for letter in letters)
    assert any("JSON" in letter.reason for letter in letters)


def test_another_run_adds_nothing(counted: Counted) -> None:
    topics = (pipeline.COUNTS, pipeline.REJECTED, pipeline.DEAD)
    before = {topic: len(committed(counted.servers, topic)) for topic in topics}
    assert counted.run() == 0
    assert {topic: len(committed(counted.servers, topic)) for topic in topics} == before


def test_the_same_steps_count_whole_topics_at_once(spark: SparkSession, counted: Counted) -> None:
    def read(topic: str, schema: str) -> DataFrame:
        return (
            spark.read.format("headrace")
            .schema(schema)
            .option("kafka.bootstrap.servers", counted.servers)
            .option("valueFormat", "json")
            .option("mode", "DROPMALFORMED")
            .load(topic)
        )

    counts = steps.clicks_per_minute(read(CLICKS, pipeline.CLICK), read(IMPRESSIONS, pipeline.IMPRESSION))
    rows = counts.selectExpr("ad", "unix_millis(minute) AS minute", "clicks").collect()
    assert {(row.ad, row.minute): row.clicks for row in rows} == counted.truth.counts


# --- databases --------------------------------------------------------------------------------------------


@contextmanager
def to_database(servers: str, address: str) -> Iterator[subprocess.Popen[bytes]]:
    """The program, which is killed in the end."""
    command: list[str | Path] = [
        sys.executable,
        EXAMPLE / "to_database.py",
        "--servers",
        servers,
        "--database",
        address,
    ]
    with subprocess.Popen(command) as program:
        try:
            yield program
        finally:
            program.kill()


@pytest.fixture(scope="module")
def postgresql() -> Iterator[str]:
    with postgres() as address:
        yield address


def stored(database: Any) -> Counts:
    rows = database.execute("SELECT ad, minute, clicks FROM clicks_per_minute").fetchall()
    database.rollback()  # the next question sees what was committed since
    moments = ((ad, datetime.fromisoformat(str(minute)), clicks) for ad, minute, clicks in rows)
    return {(ad, minute_ms(minute)): clicks for ad, minute, clicks in moments}


@pytest.mark.parametrize("table", ["clicks_per_minute", "headrace_offsets"])
def test_postgresql_has_what_is_true_after_a_kill_within_a_transaction(
    counted: Counted, postgresql: str, table: str
) -> None:
    """A lock stops the program at its first upsert, or between the upserts and the offsets."""

    def held_up() -> int:
        query = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = %s::regclass"
        found = lock.execute(query, (table,)).fetchone()
        assert found is not None
        return int(found[0])

    with psycopg.connect(postgresql) as database, psycopg.connect(postgresql) as lock:
        to_database_program.prepared(database)
        database.execute("TRUNCATE clicks_per_minute, headrace_offsets")
        database.commit()
        lock.execute(f"LOCK TABLE {table} IN SHARE MODE")  # it can be read, and not be written
        with to_database(counted.servers, postgresql):
            eventually(held_up, 1, WAIT_S)
        lock.rollback()
        assert stored(database) == {}
        with to_database(counted.servers, postgresql) as program:
            eventually(lambda: stored(database) == counted.truth.counts, True, WAIT_S)
            program.send_signal(signal.SIGTERM)
            eventually(program.poll, 0, WAIT_S)


def test_sqlite_has_what_is_true_and_says_where_to_go_on(counted: Counted, tmp_path: Path) -> None:
    """Of the partition whose offset is taken away everything is stored again, and of the others nothing."""
    address = f"sqlite:{tmp_path / 'clicks.db'}"
    again = {
        (count["ad"], minute_ms(datetime.fromisoformat(count["minute"])))
        for message in committed(counted.servers, pipeline.COUNTS)
        if message.partition == 1 and (count := json.loads(message.value))
    }
    assert 0 < len(again) < len(counted.truth.counts)
    with closing(sqlite3.connect(tmp_path / "clicks.db")) as database:
        to_database_program.prepared(database)
        with to_database(counted.servers, address):
            eventually(lambda: stored(database) == counted.truth.counts, True, WAIT_S)
        database.execute("DELETE FROM headrace_offsets WHERE partition_number = 1")
        database.execute("UPDATE clicks_per_minute SET clicks = -1")
        database.commit()
        expected = {place: clicks if place in again else -1 for place, clicks in counted.truth.counts.items()}
        with to_database(counted.servers, address):
            eventually(lambda: stored(database) == expected, True, WAIT_S)
