"""Replays: what they copy, where they begin and end, and that they go on where they ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headrace
from harness.job_runs import JobRuns, contents, count_records, read_all
from headrace.jobs.cursor import CursorTopic

Fill = Callable[..., None]
NewTopic = Callable[..., str]


def replay(source: str, target: str, **options: Any) -> dict[str, Any]:
    return {"kind": "replay", "source": source, "target": target, **options}


def test_copies_and_goes_on(jobs: JobRuns, new_topic: NewTopic, fill: Fill) -> None:
    """Records are copied with all that they have; the next run continues; another generation begins at the
    start.
    """
    source, target = new_topic(), new_topic()
    fill(source, 50)
    fault, progress = jobs.perform("copy", replay(source, target))
    assert (fault, progress.records_out, progress.lag_records, progress.lag_ms) == (None, 100, 0, 0)
    assert progress.recent[-1].target == target
    ends = {
        at: max(batch.source[at][1] for batch in progress.recent if at in batch.source)
        for at in (f"{source}-0", f"{source}-1")
    }
    assert set(ends.values()) == {50}
    before, after = read_all(jobs.bootstrap, source), read_all(jobs.bootstrap, target)
    assert {at: contents(them) for at, them in after.items()} == {
        at: contents(them) for at, them in before.items()
    }
    fill(source, 5, first=50)
    assert jobs.perform("copy", replay(source, target)).progress.records_out == 10
    assert jobs.perform("copy", replay(source, target)).progress.records_out == 0
    assert count_records(jobs.bootstrap, target) == 110
    assert jobs.perform("copy", replay(source, target), generation=1).progress.records_out == 110
    assert count_records(jobs.bootstrap, target) == 220


def test_the_group_shows_how_far_it_is_and_decides_nothing(
    jobs: JobRuns, new_topic: NewTopic, fill: Fill, admin: headrace.Admin
) -> None:
    source, target = new_topic(1), new_topic(1)
    fill(source, 10, 1)
    jobs.perform("copy", replay(source, target))
    group = f"{jobs.topic}-copy"
    assert [one.lag for one in admin.group_lag(group)] == [0]
    admin.delete_group(group)  # as if it had expired
    assert jobs.perform("copy", replay(source, target)).progress.records_out == 0


def test_begins_and_ends_where_it_is_told(jobs: JobRuns, new_topic: NewTopic, fill: Fill) -> None:
    source, by_time, by_offset = new_topic(), new_topic(), new_topic(3)
    fill(source, 100)
    jobs.perform("by-time", replay(source, by_time, **{"from": "@1700000000010", "to": "@1700000000030"}))
    assert [[one.key for one in them] for them in read_all(jobs.bootstrap, by_time).values()] == [
        [b"key-%d" % number for number in range(10, 30)]
    ] * 2
    options = {"from": 20, "to": 40, "timestamps": "now", "partition": "key"}
    condition = 'json.user == "u3" and headers.number != "31"'
    _, progress = jobs.perform("by-offset", replay(source, by_offset, **options, filter=condition))
    assert (progress.records_in, progress.skipped) == (40, 36)
    found = [one for them in read_all(jobs.bootstrap, by_offset).values() for one in them]
    assert sorted(one.key for one in found) == [b"key-24"] * 2 + [b"key-38"] * 2
    assert min(one.timestamp_ms for one in found) > 1_750_000_000_000
    assert len({one.partition for one in found if one.key == b"key-24"}) == 1


def test_aborted_records_are_not_copied(jobs: JobRuns, new_topic: NewTopic) -> None:
    source, target = new_topic(1), new_topic(1)
    with headrace.Producer(jobs.bootstrap, transactional_id=source) as writer:
        for number in range(6):
            writer.begin_transaction()
            writer.send(source, b"%d" % number)
            if number % 2:
                writer.commit_transaction()
            else:
                writer.abort_transaction()
    assert jobs.perform("copy", replay(source, target)).fault is None
    assert [one.value for one in read_all(jobs.bootstrap, target)[0]] == [b"1", b"3", b"5"]


@pytest.mark.parametrize("allows", [False, True])
def test_records_that_were_deleted_first(
    allows: bool, jobs: JobRuns, new_topic: NewTopic, fill: Fill, admin: headrace.Admin
) -> None:
    source, target = new_topic(1), new_topic(1)
    fill(source, 10, 1)
    jobs.perform("copy", replay(source, target, allow_loss=allows))
    fill(source, 10, 1, first=10)
    admin.delete_records({(source, 0): 15})
    fault, _ = jobs.perform("copy", replay(source, target, allow_loss=allows))
    if allows:
        assert fault is None
    else:
        assert fault is not None
        assert fault.message == f"offsets 10 to 14 of {source}-0 were deleted before they were copied"
        assert "allow_loss" in fault.advice
        assert not fault.is_retriable
    assert count_records(jobs.bootstrap, target) == (15 if allows else 10)


def test_topics_that_do_not_fit(
    jobs: JobRuns, new_topic: NewTopic, fill: Fill, admin: headrace.Admin
) -> None:
    source, target = new_topic(2), new_topic(1)
    fault, _ = jobs.perform("copy", replay(source, target))
    assert fault is not None
    assert not fault.is_retriable
    assert "has 1 partitions, and" in fault.message
    fill(source, 3)
    assert jobs.perform("copy", replay(source, target, partition="key")).fault is None
    admin.delete_topic(source)
    admin.create_topic(source, partitions=2)
    fill(source, 5)
    fault, _ = jobs.perform("copy", replay(source, target, partition="key"))
    assert fault is not None
    assert not fault.is_retriable
    assert "was deleted and created again" in fault.message
    assert "jobs run copy --again" in fault.advice
    jobs.perform("copy", replay(source, target, partition="key"), generation=1)
    assert count_records(jobs.bootstrap, target) == 16
    other = new_topic(1)
    fault, _ = jobs.perform("copy", replay(other, target), generation=1)
    assert fault is not None
    assert f"the job copied topic '{source}' before" in fault.message


def test_a_job_waits_for_open_transactions_of_others_before_it_reads_its_cursor(
    jobs: JobRuns, new_topic: NewTopic, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would find an older cursor, and copy records again."""
    source, target = new_topic(1), new_topic(1)
    fill(source, 10, 1)
    jobs.perform("before", replay(source, new_topic(1)))
    with headrace.Producer(jobs.bootstrap, transactional_id="o", transaction_timeout_ms=600_000) as other:
        other.begin_transaction()
        other.send(f"{jobs.topic}-cursors", b"{}", b"other", partition=0)
        other.flush()  # and it is left open, while our cursor comes behind it
        cursors = CursorTopic.read
        monkeypatch.setattr(CursorTopic, "read", lambda self: None)  # the first run has none
        assert jobs.perform("copy", replay(source, target)).progress.records_out == 10
        monkeypatch.setattr(CursorTopic, "read", cursors)
        monkeypatch.setattr("headrace.jobs.cursor.READ_S", 1.0)
        fault, _ = jobs.perform("copy", replay(source, target))
        assert fault is not None
        assert fault.is_retriable
        assert "the cursor of job copy was not read" in fault.message
    monkeypatch.undo()
    assert jobs.perform("copy", replay(source, target)).progress.records_out == 0
    assert count_records(jobs.bootstrap, target) == 10
