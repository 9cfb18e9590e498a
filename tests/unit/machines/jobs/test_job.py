"""The life of a job: effects of every input."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from headrace.machines.jobs.cron import parse_cron
from headrace.machines.jobs.job import (
    STOP_PATIENCE_MS,
    Adopted,
    Closing,
    Effect,
    Failed,
    Input,
    Interrupted,
    Job,
    JobError,
    JobState,
    Kill,
    Lost,
    Order,
    Ordered,
    Persist,
    Phase,
    Progressed,
    Start,
    Stop,
    Succeeded,
    Woke,
)
from headrace.machines.jobs.schedule import Continuous, Every, Once, OnDemand, Schedule

NOW = 1_700_000_000_000
BAD = JobError("the broker is away", "start it", NOW)


class Story:
    """A job whose invariants are checked after every step."""

    def __init__(self, schedule: Schedule, digest: str = "d1") -> None:
        self.now = NOW
        self.job = Job(schedule, digest, random.Random(7))

    def step(self, event: Input, *, after_ms: int = 0) -> list[Effect]:
        self.now += after_ms
        effects = self.job.step(self.now, event)
        self.job.check()
        return effects

    @property
    def state(self) -> JobState:
        return self.job.state

    def begun(self, stored: JobState | None = None) -> Story:
        self.step(Adopted(stored))
        return self


def running(run: int = 1, **more: object) -> JobState:
    state = JobState(phase=Phase.RUNNING, run=run, started_ms=NOW, digest="d1")
    return replace(state, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("schedule", [Continuous(), Once(), Every(1000, "every 1s")])
def test_a_new_job_starts_at_once_and_is_written_down_first(schedule: Schedule) -> None:
    assert Story(schedule).step(Adopted(None)) == [Persist(running()), Start(1, 0)]


def test_a_new_job_waits_for_its_time_or_for_an_order() -> None:
    story = Story(parse_cron("@hourly"))
    due = NOW + 2_800_000
    assert story.step(Adopted(None)) == [Persist(JobState(due_ms=due, digest="d1"))]
    assert story.job.deadline() == due
    assert story.step(Woke(), after_ms=2_799_999) == []
    assert story.step(Woke(), after_ms=1) == [Persist(running(started_ms=due)), Start(1, 0)]
    assert story.job.deadline() is None
    story = Story(OnDemand()).begun()
    assert story.job.deadline() is None
    assert story.step(Ordered(5, Order.RUN)) == [Persist(running(order=5)), Start(1, 0)]


def test_success_leads_to_the_next_time() -> None:
    story = Story(Every(60_000, "every 1m")).begun()
    (persisted,) = story.step(Succeeded(1), after_ms=10_000)
    ended = NOW + 10_000
    assert persisted == Persist(running(phase=Phase.WAITING, due_ms=NOW + 60_000, ended_ms=ended))
    assert story.step(Woke(), after_ms=50_000)[1] == Start(2, 0)
    story.step(Succeeded(2), after_ms=200_000)
    assert story.state.due_ms == story.now  # it took longer than the interval


def test_a_job_for_once_is_done() -> None:
    story = Story(Once()).begun()
    assert story.step(Succeeded(1)) == [Persist(running(phase=Phase.DONE, ended_ms=NOW))]
    assert story.job.deadline() is None
    assert Story(Once()).step(Adopted(story.state)) == [Persist(story.state)]
    changed = Story(Once(), "d2")
    assert changed.step(Adopted(story.state))[1] == Start(2, 0)


def test_a_continuous_job_that_ends_starts_again_after_a_second() -> None:
    story = Story(Continuous()).begun()
    story.step(Succeeded(1))
    assert (story.state.phase, story.state.due_ms) == (Phase.WAITING, NOW + 1000)


def test_failures_wait_longer_each_time_until_a_batch_succeeds() -> None:
    story = Story(Continuous()).begun()
    waits = []
    for run in range(1, 13):
        (persisted,) = story.step(Failed(run, BAD, True))
        assert isinstance(persisted, Persist)
        assert (persisted.state.phase, persisted.state.failures) == (Phase.BACKING_OFF, run)
        assert persisted.state.error == BAD
        due = story.job.deadline()
        assert due is not None
        waits.append(due - story.now)
        assert story.step(Woke(), after_ms=waits[-1])[1] == Start(run + 1, 0)
    assert waits[0] == 1000
    assert waits == sorted(waits[:9]) + waits[9:]
    assert all(150_000 <= wait <= 300_000 for wait in waits[9:])
    assert story.step(Progressed(13)) == []
    assert story.state.failures == 0
    assert story.state.error == BAD  # still the last one
    story.step(Failed(13, BAD, True))
    assert story.state.failures == 1


def test_what_a_retry_cannot_help_fails_until_asked_or_changed() -> None:
    story = Story(Every(60_000, "every 1m")).begun()
    failed = running(phase=Phase.FAILED, failures=1, error=BAD, ended_ms=NOW)
    assert story.step(Failed(1, BAD, False)) == [Persist(failed)]
    assert story.job.deadline() is None
    assert story.step(Woke(), after_ms=10**9) == []
    assert Story(story.job.schedule).step(Adopted(failed)) == [Persist(failed)]
    assert Story(story.job.schedule, "d2").step(Adopted(failed))[1] == Start(2, 0)
    assert story.step(Ordered(9, Order.RUN))[1] == Start(2, 0)
    assert story.state.failures == 0


def test_stop_ends_the_run_and_lasts() -> None:
    story = Story(Continuous()).begun()
    assert story.step(Ordered(3, Order.STOP)) == [Persist(running(phase=Phase.STOPPING, order=3)), Stop(1)]
    assert story.step(Ordered(3, Order.STOP)) == []  # obeyed
    (persisted,) = story.step(Interrupted(1), after_ms=5)
    assert persisted == Persist(running(phase=Phase.STOPPED, order=3, ended_ms=NOW + 5))
    assert story.job.deadline() is None
    for digest in ("d1", "d2"):
        assert Story(Continuous(), digest).step(Adopted(story.state)) == [
            Persist(replace(story.state, digest=digest))
        ]
    assert story.step(Ordered(4, Order.RUN))[1] == Start(2, 0)


def test_stop_of_a_job_that_waits() -> None:
    story = Story(parse_cron("@hourly")).begun()
    assert story.step(Ordered(3, Order.STOP)) == [
        Persist(JobState(phase=Phase.STOPPED, order=3, digest="d1"))
    ]
    assert story.job.deadline() is None


def test_a_run_that_does_not_stop_is_killed() -> None:
    story = Story(Continuous()).begun()
    story.step(Ordered(3, Order.STOP))
    assert story.job.deadline() == NOW + STOP_PATIENCE_MS
    assert story.step(Woke(), after_ms=STOP_PATIENCE_MS - 1) == []
    assert story.step(Woke(), after_ms=1) == [Kill(1)]
    assert story.step(Woke(), after_ms=10**6) == []  # once is enough
    story.step(Failed(1, BAD, True))
    assert story.state.phase is Phase.STOPPED


def test_begin_again_restarts_with_the_next_generation() -> None:
    story = Story(Continuous()).begun()
    again = running(phase=Phase.RESTARTING, order=3, generation=1)
    assert story.step(Ordered(3, Order.AGAIN)) == [Persist(again), Stop(1)]
    assert Story(Continuous()).step(Adopted(again))[1] == Start(2, 1)  # also after a crash
    assert story.step(Interrupted(1))[1] == Start(2, 1)
    story.step(Ordered(4, Order.STOP))
    assert story.step(Ordered(5, Order.RUN)) == [
        Persist(running(2, phase=Phase.RESTARTING, order=5, generation=1))
    ]
    assert story.step(Interrupted(2))[1] == Start(3, 1)


def test_an_order_to_run_what_runs_is_only_noted() -> None:
    story = Story(Continuous()).begun()
    assert story.step(Ordered(3, Order.RUN)) == [Persist(running(order=3))]


def test_a_successor_resumes_what_its_predecessor_left() -> None:
    assert Story(Once()).step(Adopted(running(4, order=7))) == [Persist(running(5, order=7)), Start(5, 0)]
    stopping = running(4, phase=Phase.STOPPING, order=7)
    assert Story(Once()).step(Adopted(stopping)) == [
        Persist(replace(stopping, phase=Phase.STOPPED, ended_ms=NOW))
    ]
    story = Story(Once()).begun(running(4, order=7))
    assert story.step(Ordered(7, Order.RUN)) == []  # it was obeyed by the predecessor


def test_a_successor_keeps_the_time_of_the_next_run() -> None:
    waiting = running(4, phase=Phase.WAITING, due_ms=NOW + 5)
    story = Story(Every(60_000, "every 1m"))
    assert story.step(Adopted(waiting)) == [Persist(waiting)]
    assert story.step(Woke(), after_ms=5)[1] == Start(5, 0)
    late = replace(waiting, due_ms=NOW - 500_000)
    assert Story(Every(60_000, "every 1m")).step(Adopted(late))[1] == Start(5, 0)
    backing_off = replace(waiting, phase=Phase.BACKING_OFF, due_ms=NOW + 9_000_000)  # the clock was wrong
    assert Story(Every(60_000, "every 1m")).step(Adopted(backing_off))[1] == Start(5, 0)


def test_a_changed_definition_changes_the_time_of_the_next_run() -> None:
    waiting = running(4, phase=Phase.WAITING, due_ms=NOW + 9_000_000)
    story = Story(parse_cron("@hourly"), "d2")
    assert story.step(Adopted(waiting)) == [Persist(replace(waiting, due_ms=NOW + 2_800_000, digest="d2"))]


def test_a_job_that_is_back_in_the_file_begins() -> None:
    assert Story(Once()).step(Adopted(running(4, phase=Phase.REMOVED)))[1] == Start(5, 0)


def test_who_lost_the_job_kills_its_run_and_writes_nothing_more() -> None:
    story = Story(Continuous()).begun()
    assert story.step(Lost()) == [Kill(1)]
    for event in (Ordered(9, Order.STOP), Progressed(1), Closing(), Woke(), Failed(1, BAD, True)):
        assert story.step(event, after_ms=10**6) == []
    assert not story.job.is_alive
    assert Story(OnDemand()).begun().step(Lost()) == []


def test_a_runner_that_closes_leaves_the_job_to_the_next_one() -> None:
    story = Story(Once()).begun()
    assert story.step(Closing()) == [Stop(1)]
    (persisted,) = story.step(Interrupted(1))
    assert persisted == Persist(running(phase=Phase.WAITING, due_ms=NOW, ended_ms=NOW))
    assert story.step(Woke()) == []
    assert story.job.deadline() is None
    assert Story(Once()).step(Adopted(story.state))[1] == Start(2, 0)


def test_ends_of_other_runs_do_not_count() -> None:
    story = Story(Once()).begun(running(4))
    assert story.step(Succeeded(4)) == []
    (persisted,) = story.step(Succeeded(5))
    assert story.step(Failed(5, BAD, True)) == []
    assert persisted == Persist(running(5, phase=Phase.DONE, ended_ms=NOW)) == Persist(story.state)
