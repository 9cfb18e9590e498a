"""`headrace up --sample clicks`: a broker with a topic that lives."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.running import Up
from harness.wait import WAIT_S, Patience
from headrace.sample.clicks import CLICKS, IMPRESSIONS, MINUTE_MS, Event, truth

SAMPLE = ("--sample", "clicks", "--rate", "2")


@pytest.fixture
def shell(new_shell: Callable[[str], Any]) -> Any:
    return new_shell("127.0.0.1:1")  # each test says which broker it means


@pytest.fixture
def start(shell: Any, tmp_path: Path) -> Iterator[Callable[..., Up]]:
    running: list[Up] = []

    def begin(*arguments: str) -> Up:
        running.append(Up(shell, tmp_path / "data", *arguments))
        return running[-1]

    yield begin
    for each in running:
        each.end()


def bootstrap_of(up: Up) -> str:
    word, bootstrap = up.line.split()
    assert word == "ready"
    return bootstrap


def published(shell: Any, bootstrap: str, topic: str) -> list[Event]:
    read = shell.attempt("consume", topic, "--json", "-b", bootstrap)
    assert read.code == 0, read.err
    return [
        Event(topic, each["key"].encode(), each["value"].encode(), each["timestamp"])
        for each in read.json_lines
    ]


def test_the_last_minutes_are_there_when_it_is_ready_and_time_goes_on(start: Any, shell: Any) -> None:
    bootstrap = bootstrap_of(start(*SAMPLE))
    impressions, clicks = (published(shell, bootstrap, topic) for topic in (IMPRESSIONS, CLICKS))
    assert 3_200 < len(impressions) < 4_200
    moments = [event.timestamp_ms for event in impressions]
    assert 29 * MINUTE_MS < max(moments) - min(moments) < 33 * MINUTE_MS
    found = truth([*impressions, *clicks])
    assert found.malformed == 0, "a first look is not to end with an error"
    assert found.duplicates > 0
    assert found.rejected.total() > 0
    assert 0.6 * len(clicks) < sum(found.counts.values()) < len(clicks)
    topics = shell.attempt("topic", "list", "--json", "-b", bootstrap).json
    assert {topic["name"]: topic["partitions"] for topic in topics} == {CLICKS: 3, IMPRESSIONS: 3}
    newer = shell.attempt("consume", IMPRESSIONS, "--follow", "-n", "3", "-b", bootstrap)
    assert len(newer.lines) == 3


def test_a_second_start_goes_on_and_writes_no_history_twice(start: Any, shell: Any) -> None:
    first = start(*SAMPLE)
    before = published(shell, bootstrap_of(first), IMPRESSIONS)
    assert first.stop() == 0
    bootstrap = bootstrap_of(start(*SAMPLE))
    patience, after = Patience(WAIT_S), list[Event]()
    while len(after) <= len(before):
        assert not patience.is_over, "the second start writes nothing"
        after = published(shell, bootstrap, IMPRESSIONS)
    assert set(before) <= set(after)
    assert len(after) < len(before) + 1_000
    assert len({event.key for event in after}) == len(after), "an id is used once"
    clicks = published(shell, bootstrap, CLICKS)
    assert 0 < truth([*after, *clicks]).duplicates < 0.06 * len(clicks)


def test_a_sample_that_was_killed_in_the_middle_is_gone_on_with(start: Any, shell: Any) -> None:
    """A history of which only a part was written: what is missing of it is made up for, with new ids."""
    first = start()
    bootstrap = bootstrap_of(first)
    for topic in (IMPRESSIONS, CLICKS):
        shell.attempt("topic", "create", topic, "-p", "3", "-b", bootstrap)
    line = b'{"key": "i-000041", "value": "{}", "partition": 2}\n'
    assert shell.attempt("produce", IMPRESSIONS, "--json", "-b", bootstrap, stdin=line).code == 0
    assert first.stop() == 0
    events = published(shell, bootstrap_of(start(*SAMPLE)), IMPRESSIONS)
    assert min(event.key for event in events) == b"i-000041"
    assert len(events) == len({event.key for event in events}) < 1_000


def test_topics_of_somebody_else_are_left_alone(start: Any, shell: Any, tmp_path: Path) -> None:
    first = start()
    bootstrap = bootstrap_of(first)
    assert shell.attempt("produce", CLICKS, "--create", "-b", bootstrap, stdin=b"mine\n").code == 0
    assert first.stop() == 0
    refused = shell.attempt("up", "--data", str(tmp_path / "data"), "--port", "0", *SAMPLE)
    assert (refused.code, refused.out) == (1, b"")
    assert "topic clicks exists already and is not from the sample" in refused.err
    assert not (first.node / "pid").exists(), "the node does not outlive the command"
    bootstrap = bootstrap_of(start())
    assert shell.attempt("topic", "list", "-b", bootstrap).lines == ["clicks"]
    assert shell.attempt("consume", CLICKS, "-b", bootstrap).out == b"mine\n"


def test_ctrl_c_ends_it_and_a_node_that_died_is_told_of(start: Any) -> None:
    up = start(*SAMPLE, "--json")
    told = json.loads(up.line)
    assert told["sample"] == {"topics": ["impressions", "clicks"], "impressions_per_second": 2}
    assert told["pids"] == [up.pid]
    up.process.send_signal(signal.SIGINT)
    assert up.process.wait(WAIT_S) == 0
    assert up.process.stderr.read() == b""
    assert not (up.node / "pid").exists()

    again = start(*SAMPLE)
    os.kill(again.pid, signal.SIGKILL)
    assert again.process.wait(WAIT_S) == 1
    assert (
        again.process.stderr.read().decode().startswith("Error: the node was killed by SIGKILL; its log is ")
    )


@pytest.mark.parametrize(
    ("wrong", "why"), [(["--rate", "5"], "--sample"), (["--sample", "cats"], "'clicks'")]
)
def test_wrong_use(shell: Any, wrong: list[str], why: str) -> None:
    refused = shell.attempt("up", *wrong)
    assert refused.code == 2
    assert why in refused.err
