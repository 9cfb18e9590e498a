"""`headrace jobs`: files that are wrong, and jobs as their topic describes them."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

import headrace as client
from harness.command_line import CommandLine
from headrace.jobs.progress import Batch, Progress
from headrace.jobs.state_topic import ensure_topics
from headrace.machines.jobs.job import JobError, JobState, Phase
from headrace.machines.jobs.records import (
    PROGRESS,
    STATE,
    Described,
    Key,
    encode_json,
    encode_state,
    read_order,
)
from headrace.testing import Broker

TOPIC = "headrace-jobs"
REPLAY = "kind: replay, schedule: once, source: x"


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("jobs.toml", "jobs = 3", "must be a mapping with the field jobs"),
        ("jobs.toml", "[jobs", "not TOML"),
        ("jobs.yml", "jobs: [a", "jobs.yml:1: not YAML"),
        ("jobs.txt", "", "ends with .yml, .yaml or .toml"),
        ("jobs.yml", "tpoic: a\njobs: {a: {}}", "unknown field tpoic; did you mean topic?"),
        ("jobs.yml", "takeover: soon\njobs: {a: {}}", "takeover: soon: 'soon' is not a duration"),
        ("jobs.yml", "partitions: 0\njobs: {a: {}}", "partitions: 0: must be at least 1"),
        ("jobs.yml", "jobs: {'a b': {}}", "a name has 1 to 100 letters"),
        ("jobs.yml", "jobs: {a: 3}", "must be a mapping with a kind"),
        ("jobs.yml", "jobs: {a: {kind: replya}}", "job a: unknown kind replya; did you mean replay?"),
        ("jobs.yml", "jobs: {a: {}}", "job a: the kind is missing; known are"),
        ("jobs.yml", "jobs: {a: {kind: replay}}", "the schedule is missing"),
        ("jobs.yml", "jobs: {a: {kind: replay, schedule: cron 61 * * * *}}", "minute '61': must be 0 to 59"),
        ("jobs.yml", "jobs: {a: {kind: replay, schedule: once}}", "the option source is missing"),
        ("jobs.yml", f"jobs: {{a: {{{REPLAY}, target: x}}}}", "must be another topic than the source"),
        (
            "jobs.yml",
            f"jobs: {{a: {{{REPLAY}, target: y, rat: 3}}}}",
            "unknown option rat; did you mean rate",
        ),
        ("jobs.yml", f"jobs: {{a: {{{REPLAY}, target: y, rate: 0}}}}", "rate: 0: must be at least 1"),
        ("jobs.yml", f"jobs: {{a: {{{REPLAY}, target: y, rate: fast}}}}", "is not a size"),
        ("jobs.yml", f"jobs: {{a: {{{REPLAY}, target: [y]}}}}", "must be a text"),
        ("jobs.yml", f"jobs: {{a: {{{REPLAY}, target: y, allow_loss: 3}}}}", "must be true or false"),
        ("jobs.yml", f"jobs: {{a: {{{REPLAY}, target: y, partition: any}}}}", "must be same or key"),
        ("jobs.yml", f"jobs: {{a: {{{REPLAY}, target: y, filter: open(value)}}}}", "is not allowed"),
        (
            "jobs.yml",
            f"jobs: {{a: {{{REPLAY}, target: y, from: yesterday}}}}",
            "neither an offset nor",
        ),
    ],
)
def test_wrong_files(name: str, text: str, says: str, tmp_path: Path, headrace: CommandLine) -> None:
    (tmp_path / name).write_text(text)
    assert says in headrace.refused("jobs", "serve", str(tmp_path / name), code=2)


def test_a_right_file(tmp_path: Path, headrace: CommandLine) -> None:
    """In YAML a moment is not a text."""
    path = tmp_path / "jobs.yml"
    path.write_text(f"jobs: {{a: {{{REPLAY}, target: y, from: 2026-01-31T12:00:00Z, to: 1234}}}}")
    assert headrace("jobs", "serve", str(path), "--check").lines == [f"{path}: 1 job, valid"]


@pytest.fixture
def states(broker: Broker) -> None:
    """The topic as runners leave it."""
    failed = JobState(Phase.BACKING_OFF, 3, 1, 2, 1_700_000_100_000, 1_700_000_000_000, 1_700_000_010_000)
    error = JobError("the broker is away, " + "very " * 20, "start it", 1_700_000_010_000)
    batch = Batch({"clicks-1": (5, 9), "clicks-0": (0, 7)}, "copy", 11, 1500, 1_700_000_009_000)
    progress = Progress(11, 9, 1, 1, 7.3, 1, 1500, 120, 2500, "2026-01-01T00:00:00Z", 4, {"has_ad": 3}, 2)
    progress.findings, progress.report, progress.summary = 5, "report.json", ["a line"]
    progress.recent = [batch]
    with client.Admin(broker.bootstrap_servers) as admin:
        ensure_topics(admin, TOPIC, 2)
        ensure_topics(admin, TOPIC, 2)  # they are there
    with client.Producer(broker.bootstrap_servers) as producer:
        for name, state in (
            ("copy", replace(failed, error=error)),
            ("idle", JobState()),
            ("gone", JobState(Phase.REMOVED)),
        ):
            value = encode_state(Described(state, "replay", "continuous", "one"))
            producer.send(TOPIC, value, Key(STATE, name).encode(), partition=0)
        told = encode_json({"run": 3, "at_ms": 1, "progress": progress.as_json()})
        producer.send(TOPIC, told, Key(PROGRESS, "copy").encode(), partition=0)


@pytest.mark.usefixtures("states")
def test_list_and_status(headrace: CommandLine) -> None:
    lines = headrace("jobs", "list").lines
    assert [line.split()[0] for line in lines] == ["NAME", "copy", "gone", "idle"]
    assert lines[1].split()[1:7] == ["replay", "continuous", "backing", "off", "3", "120"]
    assert lines[1].endswith("very…")
    found = headrace("jobs", "status", "copy", "--json").json
    assert (found["phase"], found["runner"], found["error"]["advice"]) == ("backing off", None, "start it")
    assert found["progress"]["recent"][0]["source"] == {"clicks-1": [5, 9], "clicks-0": [0, 7]}
    assert [one["name"] for one in headrace("jobs", "list", "--json").json] == ["copy", "gone", "idle"]
    text = "\n".join(headrace("jobs", "status", "copy").lines)
    for line in (
        "job copy: replay, continuous",
        "state      backing off, next run in 0d (2023-11-14T22:15:00.000Z)",
        "runner     nobody",
        "run        3, started 2023-11-14T22:13:20.000Z, ended 2023-11-14T22:13:30.000Z",
        "records    11 read, 9 written, 1 skipped, 1 dead letters",
        "lag        120 records, 2.5 s",
        "batches    1, the last in 1,500 ms, 7 records/s",
        "watermark  2026-01-01T00:00:00Z",
        "state      4 rows",
        "files      2",
        "findings   5",
        "report     report.json",
        "not met    has_ad: 3",
        "           a line",
        "batch      clicks-0 0..6, clicks-1 5..8 -> copy",
        "           start it",
    ):
        assert line in text


@pytest.mark.usefixtures("states")
def test_orders(headrace: CommandLine, broker: Broker) -> None:
    for command in ("status", "run", "stop"):
        assert "there is no job copi; did you mean copy?" in headrace.refused("jobs", command, "copi", code=2)
    assert "is not in the file" in headrace.refused("jobs", "run", "gone", code=2)
    first = headrace("jobs", "run", "copy", "--json").json
    assert (first["job"], first["order"]) == ("copy", "run")
    headrace("jobs", "run", "copy", "--again")
    headrace("jobs", "stop", "idle")
    orders = [one for one in broker.consume_all(TOPIC) if one.key and one.key.startswith(b"order")]
    assert [(one.key, read_order(one.value)) for one in orders] == [
        (b"order copy", "run"),
        (b"order copy", "again"),
        (b"order idle", "stop"),
    ]


@pytest.mark.usefixtures("states")
@pytest.mark.parametrize(
    ("phase", "error", "code"),
    [
        (Phase.DONE, None, 0),
        (Phase.WAITING, None, 0),
        (Phase.WAITING, JobError("of an earlier run"), 1),
        (Phase.FAILED, JobError("no such column"), 1),
        (Phase.STOPPED, None, 1),
    ],
)
def test_waiting_for_the_end_of_a_run(
    phase: Phase, error: JobError | None, code: int, headrace: CommandLine, broker: Broker
) -> None:
    def obey() -> None:
        """As a runner does, when it sees the order."""
        with client.Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([(TOPIC, 0), (TOPIC, 1)])
            consumer.seek_to_beginning()
            order = next(one for one in consumer if one.key == b"order idle")
        with client.Producer(broker.bootstrap_servers) as producer:
            for one, ended in ((Phase.RUNNING, None), (phase, error)):
                state = JobState(one, run=1, order=order.offset, error=ended)
                value = encode_state(Described(state, "replay", "once", "one"))
                producer.send(TOPIC, value, Key(STATE, "idle").encode(), partition=0)

    runner = threading.Thread(target=obey)
    runner.start()
    printed = headrace("jobs", "run", "idle", "--wait", code=code)
    runner.join()
    assert printed.lines[0] == "job idle: replay, once"
    assert (error is not None and error.message in printed.err) == (error is not None)


def test_without_a_topic(headrace: CommandLine) -> None:
    assert "`headrace jobs serve FILE` creates it" in headrace.refused("jobs", "list")
