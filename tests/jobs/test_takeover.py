"""Runners and runs that are killed, paused and replaced: every record is copied once, in its order."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from functools import partial

import pytest

from harness.job_runs import contents, count_records, read_all
from harness.wait import eventually
from jobs.runners import Jobs, Runner

Fill = Callable[..., None]
RECORDS = 800  # of each of two partitions
RATE = 300


class Copying:
    """A copy that is under way, by the first of two runners."""

    def __init__(self, jobs: Jobs, source: str, target: str, fill: Fill) -> None:
        self.jobs, self.source, self.target = jobs, source, target
        options = {"kind": "replay", "schedule": "continuous", "source": source, "target": target}
        self.runner = jobs.serve({"copy": {**options, "rate": RATE}})
        self.standby = jobs.serve()
        fill(source, RECORDS)
        eventually(lambda: self.copied > 0, True)

    @property
    def copied(self) -> int:
        return count_records(self.jobs.bootstrap, self.target)

    def check(self) -> None:
        """Every record is there, once and in its order, and stays so."""
        eventually(lambda: self.copied, 2 * RECORDS, 120)
        eventually(lambda: self.jobs.status("copy")["phase"], "running")
        self.jobs("stop", "copy", "--wait")
        before, after = (read_all(self.jobs.bootstrap, topic) for topic in (self.source, self.target))
        assert {at: contents(them) for at, them in after.items()} == {
            at: contents(them) for at, them in before.items()
        }


@pytest.fixture
def copying(jobs: Jobs, new_topic: Callable[..., str], fill: Fill) -> Copying:
    return Copying(jobs, new_topic(), new_topic(), fill)


def child_of(runner: Runner) -> int:
    """The process of the run."""
    with open(f"/proc/{runner.process.pid}/task/{runner.process.pid}/children") as file:
        (child,) = map(int, file.read().split())
    return child


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_standby_takes_over_from_a_runner_that_is_killed(copying: Copying) -> None:
    child = child_of(copying.runner)
    copying.runner.kill()
    eventually(lambda: is_alive(child), False)  # the run dies with its runner
    copying.check()
    assert "run=2" in copying.standby.text
    assert copying.jobs.status("copy")["runner"] == "runner-2"


def test_a_run_that_is_killed_is_started_again(copying: Copying) -> None:
    os.kill(child_of(copying.runner), signal.SIGKILL)
    copying.check()
    assert re.search(r'phase="backing off".*was killed by SIGKILL', copying.runner.text)


def test_a_runner_that_was_paused_and_wakes_harms_nobody(copying: Copying) -> None:
    """Its run goes on while the standby begins: of two, the one that began last may write."""
    runner = copying.runner
    child = child_of(runner)
    runner.signal(signal.SIGSTOP)
    copying.standby.wait_for("run=2")
    runner.signal(signal.SIGCONT)
    runner.wait_for("partitions_lost")
    eventually(lambda: is_alive(child), False)
    copying.check()
    assert "run=3" not in runner.text


def test_a_runner_that_stops_hands_over(copying: Copying) -> None:
    """At once: the group does not have to notice that it is gone."""
    assert copying.runner.stop() == 0
    copying.standby.wait_for("run=2")
    copying.check()
    assert copying.jobs.status("copy")["failures"] == 0


def test_a_continuous_copy_follows_stops_and_goes_on(
    jobs: Jobs, new_topic: Callable[..., str], fill: Fill
) -> None:
    source, target = new_topic(), new_topic()
    options = {"kind": "replay", "schedule": "continuous", "source": source, "target": target}
    runner = jobs.serve({"copy": options})
    for number in range(2):
        fill(source, 10, first=10 * number)
        eventually(lambda: count_records(jobs.bootstrap, target), 20 * (number + 1))
    jobs("stop", "copy", "--wait")
    fill(source, 10, first=20)
    assert jobs.status("copy")["phase"] == "stopped"
    assert count_records(jobs.bootstrap, target) == 40
    jobs("run", "copy")
    eventually(lambda: count_records(jobs.bootstrap, target), 60)
    assert runner.stop() == 0
    assert jobs.status("copy")["runner"] is None
    assert jobs.status("copy")["phase"] == "waiting"


def test_a_runner_that_joins_gets_its_share_and_others_go_on(
    jobs: Jobs, new_topic: Callable[..., str], fill: Fill
) -> None:
    """With several partitions of the state topic, jobs are shared; those that stay are not restarted."""
    source = new_topic(1)
    fill(source, 100, 1)
    names = [f"copy-{number}" for number in range(4)]
    targets = {name: new_topic(1) for name in names}
    definitions = {
        name: {"kind": "replay", "schedule": "continuous", "source": source, "target": target}
        for name, target in targets.items()
    }
    jobs.serve(definitions, partitions=4, takeover="30s")  # nobody is to be lost, however busy the machine
    for target in targets.values():
        eventually(partial(count_records, jobs.bootstrap, target), 100)
    jobs.serve()
    eventually(lambda: {jobs.status(name)["runner"] for name in names}, {"runner-1", "runner-2"})
    fill(source, 100, 1, first=100)
    for target in targets.values():
        eventually(partial(count_records, jobs.bootstrap, target), 200)
    runs = {name: jobs.status(name) for name in names}
    assert {one["run"] for one in runs.values() if one["runner"] == "runner-1"} == {1}
    assert {one["run"] for one in runs.values() if one["runner"] == "runner-2"} == {2}
