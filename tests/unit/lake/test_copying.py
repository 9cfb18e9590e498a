"""A topic is copied into its table, each record once: two owners, lost answers, trimmed and cut topics."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema

from harness.failing_commits import CONFLICTS, LOST_ANSWERS, failing_commits
from harness.lake_topic import TableOfTopic, TopicInMemory, all_rows
from harness.outsider import outsider, read_outside
from headrace.client.errors import ClientError, TimedOut
from headrace.lake.copying import DOUBTS_MAX
from headrace.lake.enabling import enable
from headrace.lake.errors import LakeError, NotALakeTable, RecordsLost, TopicTruncated, WrongTable
from headrace.lake.formats import table_at
from headrace.lake.rows import RAW_SCHEMA
from headrace.lake.table import CONFLICTS_MAX
from headrace.machines.lake.ledger import Held, Span, Verdict
from headrace.machines.lake.plan import Plan


@pytest.fixture
def topic() -> TopicInMemory:
    return TopicInMemory()


@pytest.fixture
def table(tmp_path: Path, topic: TopicInMemory, format: str) -> TableOfTopic:
    return TableOfTopic(tmp_path / "table", topic, format)


def test_each_record_once_in_commits_of_bounded_size(table: TableOfTopic, topic: TopicInMemory) -> None:
    topic.fill(5)
    seen: list[int] = []
    copier = table.copier(offsets_per_commit=2)
    copied = copier.copy_available(lambda done: seen.append(done.rows))
    assert (copied.commits, copied.files, copied.rows, copied.lost) == (3, 6, 10, [])
    assert seen == [4, 8, 10]
    assert table.rows() == all_rows(range(5))
    assert table.ledger == {0: Held(0, 5), 1: Held(0, 5)}
    assert copier.copy_available().commits == 0
    topic.fill(1)
    assert copier.copy_available().rows == 2
    assert table.rows() == all_rows(range(6))
    assert table.verify().is_clean


def test_the_group_follows_the_table_and_is_committed_once_for_each_change(
    table: TableOfTopic, topic: TopicInMemory
) -> None:
    topic.fill(3)
    copier = table.copier(offsets_per_commit=2)
    copier.copy_available()
    assert topic.commits == [("lake-clicks", {0: 2, 1: 2}), ("lake-clicks", {0: 3, 1: 3})]
    copier.copy_available()
    assert len(topic.commits) == 2


def test_a_table_that_begins_at_the_end_is_filled_backwards(
    table: TableOfTopic, topic: TopicInMemory
) -> None:
    topic.fill(6)
    assert table.copy(from_end=True).rows == 0
    assert table.ledger == {0: Held(6, 6), 1: Held(6, 6)}
    topic.fill(1)
    table.copy(from_end=True)
    copier = table.copier(offsets_per_commit=2)
    copier.backfill(down_to=3)
    assert table.ledger == {0: Held(3, 7), 1: Held(3, 7)}
    assert copier.backfill().rows == 6
    assert table.rows() == all_rows(range(7))
    assert table.verify().is_clean


def test_lost_records_stop_a_copy_unless_loss_is_allowed(table: TableOfTopic, topic: TopicInMemory) -> None:
    topic.fill(2)
    table.copy()
    topic.fill(6)
    topic.trim(0, 5)
    with pytest.raises(RecordsLost, match=r"'clicks' deleted .* offsets 2 to 4 of partition 0$"):
        table.copy()
    assert table.ledger[0] == Held(0, 2)
    copied = table.copy(allows_loss=True)
    assert copied.lost == [Span(0, 2, 5)]
    report = table.verify()
    assert (report.findings, report.lost, report.rows, report.missing_offsets) == ([], 3, 13, 0)


def test_a_range_that_is_trimmed_while_it_is_read_is_planned_again(
    table: TableOfTopic, topic: TopicInMemory
) -> None:
    topic.fill(4)

    def trim(span: Span) -> None:
        if span == Span(1, 0, 4):
            topic.trim(1, 2)

    topic.on_read = trim
    copied = table.copy()
    assert (copied.commits, copied.rows) == (1, 6)
    assert table.ledger == {0: Held(0, 4), 1: Held(2, 4)}
    assert table.verify().is_clean


def test_a_topic_that_ends_before_the_table_is_asked_again_before_it_is_an_error(
    table: TableOfTopic, topic: TopicInMemory
) -> None:
    topic.fill(4)
    table.copy()
    topic.cut(0, 2)
    waits: list[float] = []
    with pytest.raises(TopicTruncated, match="has offsets 2 to 3 of partition 0, but topic 'clicks' ends"):
        table.copy(sleep=waits.append)
    assert waits == [1.0] * DOUBTS_MAX

    def elected(_: float) -> None:
        topic.write(0, b"value-2", b"value-3", b"value-4")

    assert table.copy(sleep=elected).rows == 0  # the new leader has found out how far its followers are
    assert table.copy().rows == 1
    assert table.verify().is_clean


def test_follow_waits_for_a_broker_that_is_away_and_for_nothing_else(
    table: TableOfTopic, topic: TopicInMemory
) -> None:
    topic.fill(1)
    events: list[object] = []
    copier = table.copier(sleep=lambda seconds: sleep(seconds))
    topic.failure = TimedOut("away")
    then = iter([None, ClientError("not allowed")])

    def sleep(seconds: float) -> None:
        events.append(seconds)
        topic.failure = next(then)

    with pytest.raises(ClientError, match="not allowed"):
        copier.follow(7.0, lambda copied: events.append(copied.rows))
    assert events == [7.0, 2, 7.0]


def test_of_two_owners_with_the_same_range_one_adds_it(table: TableOfTopic, topic: TopicInMemory) -> None:
    topic.fill(3)
    one, other = table.copier(), table.copier()
    snapshot = table.load()
    todo = Plan([Span(0, 0, 3)], [], [])
    ours, theirs = one.write(snapshot, todo), other.write(snapshot, todo)
    assert one.commit(snapshot, ours, todo)[0] is Verdict.FITS
    verdict, newest = other.commit(snapshot, theirs, todo)
    assert verdict is Verdict.HELD
    assert newest.ledger == {0: Held(0, 3)}
    assert not (table.path / theirs[0].name).exists()
    assert table.rows() == all_rows(range(3), 1)


def test_a_range_that_no_longer_continues_the_ledger_is_not_added(
    table: TableOfTopic, topic: TopicInMemory
) -> None:
    topic.fill(5)
    copier, snapshot = table.copier(), table.load()
    early = Plan([Span(0, 0, 3)], [], [])
    late = Plan([Span(0, 1, 5)], [], [])
    files = copier.write(snapshot, late)
    copier.commit(snapshot, copier.write(snapshot, early), early)
    verdict, newest = copier.commit(snapshot, files, late)
    assert (verdict, newest.ledger) == (Verdict.STALE, {0: Held(0, 3)})
    assert table.verify().findings == []


@pytest.mark.parametrize(
    ("format", "error"),
    [
        ("delta", CONFLICTS["delta"]),  # of a repeated request
        ("delta", LOST_ANSWERS["delta"]),
        ("iceberg", LOST_ANSWERS["iceberg"]),
    ],
)
def test_a_commit_whose_answer_is_lost_is_found_in_the_table(
    format: str, error: Exception, table: TableOfTopic, topic: TopicInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.fill(3)
    copier = table.copier()
    failing_commits(monkeypatch, format, error, times=1, is_made=True)
    copied = copier.copy_available()
    assert (copied.commits, copied.rows) == (1, 6)
    assert table.rows() == all_rows(range(3))
    assert table.verify().is_clean


def test_a_conflict_is_tried_again_and_a_full_disk_is_not(
    table: TableOfTopic, topic: TopicInMemory, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    topic.fill(3)
    copier = table.copier()
    full = OSError("No space left on device")
    with monkeypatch.context() as patched:
        failing_commits(patched, format, full, times=1, is_made=False)
        with pytest.raises(OSError, match="No space left"):
            copier.copy_available()
    with monkeypatch.context() as patched:
        raised = failing_commits(patched, format, CONFLICTS[format], times=1000, is_made=False)
        with pytest.raises(LakeError, match="commits in turn met another one: conflict"):
            copier.copy_available()
        assert len(raised) == CONFLICTS_MAX
    with monkeypatch.context() as patched:
        failing_commits(patched, format, CONFLICTS[format], times=3, is_made=False)
        assert copier.copy_available().commits == 1
    assert table.rows() == all_rows(range(3))


# --- the table ---------------------------------------------------------------------------------------------


def test_a_path_without_a_table_of_ours(tmp_path: Path) -> None:
    with pytest.raises(NotALakeTable, match="there is no Delta table at"):
        table_at(tmp_path / "none").load()
    DeltaTable.create(str(tmp_path / "foreign"), RAW_SCHEMA)
    with pytest.raises(NotALakeTable, match="was not made from a topic by Headrace"):
        table_at(tmp_path / "foreign").load()


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("delta.setTransactionRetentionDuration", "interval 1 day", "lets the ledger expire"),
        ("delta.enableDeletionVectors", "true", "lets rows be deleted"),
    ],
)
def test_a_property_that_breaks_the_ledger_or_the_proofs_is_refused(
    name: str, value: str, reason: str, tmp_path: Path
) -> None:
    ours = {"headrace.topic": "clicks", "headrace.topic.id": "id-of-clicks"}
    DeltaTable.create(
        str(tmp_path), RAW_SCHEMA, configuration=ours | {name: value}, raise_if_key_not_exists=False
    )
    with pytest.raises(WrongTable, match=f"{name}={value} {reason}.*: remove the property"):
        table_at(tmp_path).load()


def test_a_table_is_made_once_and_belongs_to_one_topic(table: TableOfTopic, topic: TopicInMemory) -> None:
    lake = table.lake
    assert not lake.exists()
    assert enable(lake, topic.as_topic(), "mine").group == "mine"
    assert enable(lake, topic.as_topic()).group == "mine"
    with pytest.raises(WrongTable, match="commits to group 'mine', not 'yours': leave the group out"):
        enable(lake, topic.as_topic(), "yours")
    again = TopicInMemory(identity="another-id")
    with pytest.raises(WrongTable, match=r"of topic 'clicks' with id id-of-clicks; .* has id another-id"):
        enable(lake, again.as_topic())
    lake.create("clicks", "another-id", "g", RAW_SCHEMA)  # as an owner that was slower
    assert lake.load().topic_id == "id-of-clicks"


def test_a_column_that_the_table_lacks_is_not_hidden(table: TableOfTopic, topic: TopicInMemory) -> None:
    topic.fill(2)
    copier, snapshot = table.copier(), table.load()
    todo = Plan([Span(0, 0, 2)], [], [])
    files = copier.write(snapshot, todo)
    (table.path / files[0].name).unlink()
    wider = pa.schema([snapshot.schema.field("_offset"), pa.field("extra", pa.string())])
    pq.write_table(pa.table([[0, 1], ["a", "b"]], schema=wider), table.path / files[0].name)
    with pytest.raises(WrongTable, match=r"column extra .*missing"):
        copier.commit(snapshot, files, todo)


def test_columns_that_a_user_added_are_null(table: TableOfTopic, topic: TopicInMemory) -> None:
    topic.fill(2)
    table.copy()
    outsider(table.path).add_column("note")
    topic.fill(1)
    table.copy()
    found = read_outside(table.path)
    assert found["note"].null_count == found.num_rows == 6
    assert table.verify().is_clean


def test_a_column_of_ours_that_is_missing_is_an_error(tmp_path: Path) -> None:
    fields = [field for field in Schema.from_arrow(RAW_SCHEMA).fields if field.name != "_key"]
    narrow = TopicInMemory()
    other = TableOfTopic(tmp_path / "narrow", narrow)
    DeltaTable.create(
        str(other.path),
        Schema(fields),
        configuration={"headrace.topic": "clicks", "headrace.topic.id": narrow.identity},
        raise_if_key_not_exists=False,
    )
    narrow.fill(1)
    with pytest.raises(WrongTable, match="column _key is missing, not binary: somebody has changed"):
        other.copy()
