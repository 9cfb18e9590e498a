"""A topic becomes a table: every committed record once, as it is in the topic."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import headrace
from harness.broker import Broker
from harness.outsider import outsider, read_outside
from headrace.client.errors import TimedOut, Unreachable
from headrace.lake.copying import Copied, Copier
from headrace.lake.errors import RecordsLost, TopicTruncated, WrongTable
from headrace.lake.topic import LakeTopic
from headrace.machines.lake.ledger import Held, Span
from headrace.machines.lake.plan import Log
from lake.tables import Fill, Lake, all_rows


def test_a_table_has_every_record_as_it_is(lake: Lake, topic: str, fill: Fill) -> None:
    fill(topic, 30)
    copied = lake.copy()
    assert (copied.rows, copied.commits) == (60, 1)
    assert lake.rows() == all_rows(30)
    row = read_outside(lake.path).filter([True] + [False] * 59).to_pylist()[0]
    number = row["_offset"]
    assert row == {
        "_partition": row["_partition"],
        "_offset": number,
        "_timestamp": dt.datetime.fromtimestamp(1_700_000_000 + number / 1000, dt.UTC),
        "_timestampType": 0,
        "_key": b"key-%d" % number,
        "_value": b"value-%d" % number,
        "_headers": [{"key": "number", "value": b"%d" % number}],
    }
    report = lake.verify()
    assert report.findings == []
    assert (report.rows, report.compared, report.missing_offsets) == (60, 60, 0)


def test_a_second_run_adds_nothing_and_a_later_one_what_is_new(lake: Lake, topic: str, fill: Fill) -> None:
    fill(topic, 10)
    lake.copy()
    version = lake.load().version
    assert lake.copy().rows == 0
    assert lake.load().version == version
    fill(topic, 5, first=10)
    assert lake.copy().rows == 10
    assert lake.rows() == all_rows(15)
    assert lake.verify().is_clean


def test_many_small_commits_are_the_same_table(lake: Lake, topic: str, fill: Fill) -> None:
    """More commits than a checkpoint of Delta covers: the ledger is in it."""
    fill(topic, 15)
    lake.copier()
    if lake.format == "delta":
        outsider(lake.path).set_property("delta.checkpointInterval", "10")
    assert lake.copy(offsets_per_commit=1).commits == 15
    if lake.format == "delta":
        assert list((lake.path / "_delta_log").glob("*.checkpoint.parquet")) != []
    assert lake.rows() == all_rows(15)
    assert lake.verify().is_clean


def test_the_group_shows_the_tables_progress(lake: Lake, topic: str, fill: Fill) -> None:
    fill(topic, 10)
    lake.copy()
    committed = lake.admin.list_group_offsets(f"lake-{topic}")
    assert {at.partition: each.offset for at, each in committed.items()} == {0: 10, 1: 10}


def test_empty_keys_tombstones_and_large_values(lake: Lake, topic: str, producer: headrace.Producer) -> None:
    values = [None, b"", b"x" * 900_000, b"\xff\x00"]
    for value in values:
        producer.send(topic, value, None, partition=0)
    producer.flush()
    lake.copy()
    assert [value for _, _, value in lake.rows()] == values
    assert lake.verify().is_clean


# --- transactions, compaction, retention ----------------------------------------------------------------


def test_aborted_and_control_records_are_not_rows_and_not_lost(
    lake: Lake, topic: str, broker: Broker
) -> None:
    with headrace.Producer(broker.bootstrap, transactional_id=topic) as producer:
        for number in range(3):
            with producer.transaction():
                producer.send(topic, b"good-%d" % number, partition=0)
            producer.begin_transaction()
            producer.send(topic, b"bad-%d" % number, partition=0)
            producer.flush()
            producer.abort_transaction()
    lake.copy()
    assert [value for _, _, value in lake.rows()] == [b"good-0", b"good-1", b"good-2"]
    report = lake.verify()
    assert report.findings == []
    assert (report.rows, report.compared, report.aborted, report.control) == (3, 3, 3, 6)
    assert lake.ledger[0] == Held(0, 12)


def test_an_open_transaction_holds_the_table_up_and_nothing_is_skipped(
    lake: Lake, topic: str, broker: Broker, fill: Fill
) -> None:
    with headrace.Producer(broker.bootstrap, transactional_id=topic) as producer:
        producer.begin_transaction()
        producer.send(topic, b"open", partition=0)
        producer.flush()
        fill(topic, 3, 1)
        lake.copy()
        assert lake.rows() == []
        producer.commit_transaction()
    lake.copy()
    assert [value for _, _, value in lake.rows()] == [b"open", b"value-0", b"value-1", b"value-2"]
    assert lake.verify().is_clean


def test_records_that_are_compacted_later_stay_in_the_table(
    new_topic: Callable[..., str],
    admin: headrace.Admin,
    broker: Broker,
    tmp_path: Path,
    producer: headrace.Producer,
) -> None:
    topic = new_topic(
        1,
        cleanup_policy="compact",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.01",
        max_compaction_lag_ms="100",
    )
    lake = Lake(tmp_path / "table", topic, admin, broker.bootstrap)
    for number in range(20):
        producer.send(topic, b"%d" % number, b"key", partition=0)
    producer.flush()
    lake.copy()
    stop = threading.Event()

    def has_compacted() -> bool:
        producer.send(topic, b"later", b"other", partition=0)  # another segment begins
        producer.flush()
        with headrace.Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign({(topic, 0): 0})
            return consumer.poll(5)[0].offset > 0

    for _ in range(200):
        if has_compacted():
            break
        stop.wait(0.1)
    report = lake.verify()
    assert report.findings == []
    assert report.rows == 20
    assert report.compacted > 0
    lake.copy()
    assert lake.verify().is_clean


def test_trimmed_records_stay_in_the_table(lake: Lake, topic: str, fill: Fill) -> None:
    fill(topic, 20)
    lake.copy()
    lake.admin.delete_records({(topic, 0): 15, (topic, 1): 20})
    report = lake.verify()
    assert report.findings == []
    assert (report.rows, report.compared) == (40, 5)
    fill(topic, 2, first=20)
    lake.copy()
    assert lake.rows() == all_rows(22)
    assert lake.verify().is_clean


def test_records_that_are_trimmed_before_they_are_copied_stop_the_copier(
    lake: Lake, topic: str, fill: Fill
) -> None:
    fill(topic, 20)
    lake.copy()
    fill(topic, 10, first=20)
    lake.admin.delete_records({(topic, 0): 25})
    with pytest.raises(RecordsLost, match="offsets 20 to 24 of partition 0"):
        lake.copy()
    assert lake.rows() == all_rows(20)
    copied = lake.copy(allows_loss=True)
    assert copied.lost == [Span(0, 20, 25)]
    report = lake.verify()
    assert report.findings == []
    assert (report.lost, report.rows) == (5, 55)
    assert lake.copy().rows == 0


# --- late enable and backfill ----------------------------------------------------------------------------


def test_a_late_table_is_filled_up_later(lake: Lake, topic: str, fill: Fill) -> None:
    fill(topic, 50)
    lake.copy(from_end=True)
    assert lake.rows() == []
    fill(topic, 5, first=50)
    lake.copy(from_end=True)
    assert {offset for _, offset, _ in lake.rows()} == set(range(50, 55))
    copied = lake.copier(offsets_per_commit=20).backfill()
    assert (copied.rows, copied.commits) == (100, 3)
    assert lake.rows() == all_rows(55)
    assert lake.verify().is_clean
    assert lake.copier().backfill().rows == 0


def test_a_backfill_beside_live_copies_neither_doubles_nor_skips(lake: Lake, topic: str, fill: Fill) -> None:
    fill(topic, 24)
    lake.copy(from_end=True)
    backfill = threading.Thread(target=lambda: lake.copier(offsets_per_commit=3).backfill())
    backfill.start()
    for first in range(24, 36, 3):
        fill(topic, 3, first=first)
        lake.copy(offsets_per_commit=1)
    backfill.join()
    assert lake.rows() == all_rows(36)
    assert lake.verify().is_clean


def test_new_partitions_are_copied(lake: Lake, topic: str, fill: Fill) -> None:
    fill(topic, 4)
    lake.copy()
    lake.admin.create_partitions({topic: 4})
    fill(topic, 6, 4, first=4)
    lake.copy()
    report = lake.verify()
    assert report.findings == []
    assert report.rows == 8 + 24


# --- two owners ------------------------------------------------------------------------------------------


def test_two_copiers_at_once_neither_double_nor_skip(lake: Lake, topic: str, fill: Fill) -> None:
    fill(topic, 32)
    lake.copier()
    failures: list[BaseException] = []

    def copy() -> None:
        try:
            lake.copy(offsets_per_commit=4)
        except BaseException as error:
            failures.append(error)

    owners = [threading.Thread(target=copy) for _ in range(3)]
    for owner in owners:
        owner.start()
    for owner in owners:
        owner.join()
    assert failures == []
    assert lake.rows() == all_rows(32)
    assert lake.verify().is_clean
    assert {file.name for file in lake.path.glob("*.parquet")} == set(lake.load().files)


def test_an_owner_that_was_paused_adds_nothing_when_it_wakes(lake: Lake, topic: str, fill: Fill) -> None:
    """It has written its files, sleeps through another owner's commit, and then commits."""
    fill(topic, 10)
    paused = lake.copier()
    asleep = lake.load()
    from headrace.machines.lake.plan import Plan

    plan = Plan([Span(0, 0, 10), Span(1, 0, 10)], [], [])
    files = paused.write(asleep, plan)
    lake.copy()
    fill(topic, 5, first=10)
    lake.copy()
    verdict, _ = paused.commit(asleep, files, plan)
    assert verdict.name == "HELD"
    assert lake.rows() == all_rows(15)
    assert lake.verify().is_clean


def test_the_group_is_where_the_table_is_though_another_owner_was_further(
    lake: Lake, topic: str, fill: Fill
) -> None:
    fill(topic, 4)
    slow = lake.copier(offsets_per_commit=4)
    slow.copy_available()
    fill(topic, 4, first=4)

    def overtake(_: Copied) -> None:
        fill(topic, 4, first=8)
        lake.copy()

    slow.copy_available(overtake)
    assert lake.ledger == {0: Held(0, 12), 1: Held(0, 12)}
    committed = lake.admin.list_group_offsets(f"lake-{topic}")
    assert {at.partition: each.offset for at, each in committed.items()} == {0: 12, 1: 12}


# --- brokers that fail -----------------------------------------------------------------------------------


class Faulty(LakeTopic):
    """Answers with what a test has prepared, and then as the topic does."""

    answers: list[dict[int, Log] | Exception]

    def logs(self, topic_id: str) -> dict[int, Log]:
        answer = self.answers.pop(0) if self.answers else super().logs(topic_id)
        if isinstance(answer, Exception):
            raise answer
        return answer


def faulty(lake: Lake, answers: list[dict[int, Log] | Exception], broker: Broker) -> Faulty:
    topic = Faulty(lake.admin, {"bootstrap.servers": broker.bootstrap}, lake.topic.name)
    topic.answers = answers
    return topic


def test_a_log_that_ends_early_for_a_moment_is_waited_for(
    lake: Lake, topic: str, fill: Fill, broker: Broker
) -> None:
    fill(topic, 5)
    lake.copy()
    short = {0: Log(0, 3), 1: Log(0, 5)}
    slept: list[float] = []
    Copier(lake.lake, faulty(lake, [short] * 4, broker), sleep=slept.append).copy_available()
    assert len(slept) == 3  # the first answer is where this run ends
    with pytest.raises(TopicTruncated, match="offsets 3 to 4 of partition 0"):
        Copier(lake.lake, faulty(lake, [short] * 99, broker), sleep=slept.append).copy_available()
    assert lake.rows() == all_rows(5)


def test_following_waits_for_a_broker_that_is_away_and_stops_at_other_errors(
    lake: Lake, topic: str, fill: Fill, broker: Broker
) -> None:
    fill(topic, 2)
    lake.copier()
    copied: list[int] = []
    answers: list[dict[int, Log] | Exception] = [Unreachable("nobody listens"), TimedOut("no answer")]
    source = faulty(lake, answers, broker)

    def sleep(_: float) -> None:
        if len(copied) == 2:
            source.answers.append(WrongTable("the topic was created again"))
        elif copied:
            fill(topic, 3, first=2)

    with pytest.raises(WrongTable):
        Copier(lake.lake, source, sleep=sleep).follow(1.0, lambda done: copied.append(done.rows))
    assert copied == [4, 6]
    assert lake.rows() == all_rows(5)


def test_a_recreated_topic_is_refused(lake: Lake, topic: str, fill: Fill) -> None:
    fill(topic, 3)
    copier = lake.copier()
    copier.copy_available()
    lake.admin.delete_topic(topic)
    lake.admin.create_topic(topic, partitions=2)
    with pytest.raises(WrongTable, match="deleted and created again"):
        copier.copy_available()
    with pytest.raises(WrongTable, match="use another path"):
        lake.copy()
