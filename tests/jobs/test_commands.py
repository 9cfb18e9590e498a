"""`headrace jobs` as a user sees it: lists, orders, wrong files and wrong names."""

from __future__ import annotations

from collections.abc import Callable

from harness.job_runs import count_records
from jobs.runners import Jobs

Fill = Callable[..., None]


def test_lists_and_wrong_names(jobs: Jobs, new_topic: Callable[..., str]) -> None:
    nobody = jobs.attempt("list")
    assert nobody.code == 1
    assert "`headrace jobs serve FILE` creates it" in nobody.err
    source, target = new_topic(), new_topic()
    options = {"kind": "replay", "source": source, "target": target}
    definitions = {
        "nightly": {**options, "schedule": "cron 0 3 * * *"},
        "later": {**options, "schedule": "on demand"},
        "typo": {**options, "schedule": "once", "target": "no-such-topic", "partition": "key"},
    }
    jobs.serve(definitions)
    jobs.wait("typo", phase="backing off")
    listed = {one["name"]: one for one in jobs("list", "--json").json}
    assert list(listed) == ["later", "nightly", "typo"]
    assert (listed["nightly"]["phase"], listed["nightly"]["schedule"]) == ("waiting", "cron 0 3 * * *")
    assert listed["nightly"]["due_ms"] % 86_400_000 == 3 * 3_600_000
    assert (listed["later"]["due_ms"], listed["later"]["runner"]) == (None, "runner-1")
    lines = jobs("list").lines
    assert lines[0].split()[:4] == ["NAME", "KIND", "SCHEDULE", "STATE"]
    text = "\n".join(jobs("status", "typo").lines)
    assert "error      topic 'no-such-topic'" in text
    assert "UNKNOWN_TOPIC_OR_PARTITION" in text
    for command in ("status", "run", "stop"):
        wrong = jobs.attempt(command, "nihgtly")
        assert wrong.code == 2
        assert "there is no job nihgtly; did you mean nightly?" in wrong.err
    jobs("stop", "typo", "--wait")
    assert jobs.status("typo")["phase"] == "stopped"


def test_a_job_that_is_no_longer_in_the_file(jobs: Jobs, new_topic: Callable[..., str]) -> None:
    options = {"kind": "replay", "source": new_topic(), "target": new_topic(), "schedule": "on demand"}
    runner = jobs.serve({"old": options, "new": options})
    jobs.wait("old", phase="waiting")
    runner.stop()
    jobs.serve({"new": options})
    jobs.wait("old", phase="removed")
    wrong = jobs.attempt("run", "old")
    assert wrong.code == 2
    assert "is not in the file" in wrong.err
    jobs.runners[-1].stop()
    jobs.serve({"old": options, "new": options})
    jobs.wait("old", phase="waiting")


def test_an_order_without_a_runner_waits_for_one(
    jobs: Jobs, new_topic: Callable[..., str], fill: Fill
) -> None:
    source, target = new_topic(), new_topic()
    fill(source, 3)
    options = {"kind": "replay", "source": source, "target": target, "schedule": "on demand"}
    runner = jobs.serve({"copy": options})
    jobs.wait("copy", phase="waiting")
    runner.stop()
    jobs("run", "copy")
    jobs.serve()
    jobs.wait("copy", run=1, phase="waiting")
    assert count_records(jobs.bootstrap, target) == 6
    jobs.runners[-1].stop()
    jobs.serve()
    jobs.runners[-1].wait_for("phase=waiting run=1")  # obeyed once
