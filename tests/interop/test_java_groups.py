"""Kafka's tools for groups: consumers in both protocols, and what kafka-consumer-groups tells and does."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import dropwhile
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from clients.grouping import leaving, places, share
from harness.broker import Broker
from harness.members import CLIENTS, Member
from harness.wait import eventually
from interop.java_tools import Outcome, Run, create
from interop.side_by_side import assert_same

Brokers = tuple[Broker, Broker]
BASE_MS = 1_700_000_000_000  # 2023-11-14T22:13:20Z
PARTITIONS = 3
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


def fill(run: Run, broker: Broker, topic: str, count: int = 30) -> None:
    """A record a second on three partitions in turn."""
    create(run, broker, topic, PARTITIONS, "--config", "retention.ms=-1")
    sender = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for n in range(count):
        sender.produce(topic, str(n).encode(), partition=n % PARTITIONS, timestamp=BASE_MS + n * 1000)
    assert sender.flush(30) == 0


def consume(
    run: Run, broker: Broker, topic: str, count: int, *more: str, group: str | None = None
) -> list[str]:
    where = [
        "--topic",
        topic,
        "--group",
        group or topic,
        "--max-messages",
        str(count),
        "--timeout-ms",
        "20000",
    ]
    got = run(broker, "kafka-console-consumer", *where, *more)
    assert got.code == 0, got
    return sorted(got.lines, key=int)


def table(outcome: Outcome, *own: str) -> object:
    """A printed table: its columns and its rows, sorted; of columns `own` only whether they are filled."""
    header: list[str] = []
    rows: list[list[object]] = []
    for line in outcome.lines:
        cells = re.sub(r"\s+(\(\w+\))", r"\1", line).split()
        if cells[:1] in (["GROUP"], ["TOPIC"]):
            header = cells
        elif header and cells:
            rows.append([cell != "-" if name in own else cell for name, cell in zip(header, cells)])
    return outcome.code, header, sorted(rows, key=repr) or outcome.out, outcome.err.strip()


@PROTOCOLS
def test_the_console_consumer_goes_on_where_its_group_stopped(
    brokers: Brokers, run: Run, topic: str, protocol: str
) -> None:
    def story(broker: Broker) -> list[object]:
        fill(run, broker, topic)
        settings = ["--command-property", f"group.protocol={protocol}"]
        told: list[object] = [consume(run, broker, topic, 30, "--from-beginning", *settings)]
        fill_more = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for n in range(30, 36):
            fill_more.produce(topic, str(n).encode(), partition=n % PARTITIONS)
        assert fill_more.flush(30) == 0
        told.append(consume(run, broker, topic, 6, *settings))
        told.append(table(run(broker, "kafka-consumer-groups", "--describe", "--group", topic)))
        return told

    told = assert_same(brokers, story)
    assert told[1] == [str(n) for n in range(30, 36)]


@pytest.fixture
def groups(run: Run) -> Callable[..., Outcome]:
    def call(broker: Broker, group: str, *arguments: str) -> Outcome:
        return run(broker, "kafka-consumer-groups", "--group", group, *arguments)

    return call


def test_an_empty_group_is_told_of(
    brokers: Brokers, run: Run, groups: Callable[..., Outcome], topic: str
) -> None:
    def story(broker: Broker) -> list[object]:
        fill(run, broker, topic)
        consume(run, broker, topic, 30, "--from-beginning")
        told: list[object] = []
        for what in (
            [],
            ["--offsets"],
            ["--members"],
            ["--state"],
            ["--verbose"],
            ["--members", "--verbose"],
        ):
            told.append((what, table(groups(broker, topic, "--describe", *what))))
        for what in (
            [],
            ["--state"],
            ["--type"],
            ["--state", "Empty"],
            ["--state", "Stable"],
            ["--type", "classic"],
        ):
            lines = run(broker, "kafka-consumer-groups", "--list", *what).lines
            told.append((what, [line.split() for line in lines if line.startswith((topic, "GROUP"))]))
        for what in ([], ["--consumer"], ["--group-type", "classic"], ["--group-type", "consumer"]):
            lines = run(broker, "kafka-groups", "--list", *what).lines
            told.append((what, [line.split() for line in lines if line.startswith((topic, "GROUP"))]))
        wrong = run(broker, "kafka-consumer-groups", "--list", "--state", "Sleepy")
        told.append((wrong.code, wrong.out, wrong.err))
        return told

    assert_same(brokers, story)


@PROTOCOLS
def test_a_live_group_is_told_of(
    brokers: Brokers, run: Run, groups: Callable[..., Outcome], topic: str, protocol: str
) -> None:
    def member(broker: Broker, name: str) -> Member:
        settings: dict[str, Any] = {"client.id": name, "partition.assignment.strategy": "range"}
        if protocol == "consumer":
            settings = {"client.id": name, "group.protocol": "consumer", "group.remote.assignor": "range"}
        return CLIENTS["confluent-kafka"](broker.bootstrap, topic, [topic], instance=f"i-{name}", **settings)

    def story(broker: Broker) -> list[object]:
        fill(run, broker, topic)
        told: list[object] = []
        with leaving([member(broker, "one")]) as members:
            share(members, places(topic, PARTITIONS))
            members.append(member(broker, "two"))
            share(members, places(topic, PARTITIONS))
            eventually(lambda: "Stable" in groups(broker, topic, "--describe", "--state").out, True)
            told.append(table(groups(broker, topic, "--describe", "--state")))
            for what in (["--members"], ["--members", "--verbose"], ["--offsets"]):
                told.append((what, table(groups(broker, topic, "--describe", *what), "CONSUMER-ID")))
            for what in (["--state"], ["--type"], ["--state", "Stable"], ["--type", "consumer"]):
                lines = run(broker, "kafka-consumer-groups", "--list", *what).lines
                told.append((what, [line.split() for line in lines if line.startswith(topic)]))
            reset = ["--reset-offsets", "--topic", topic, "--to-earliest", "--execute"]
            told.append(("reset", table(groups(broker, topic, *reset))))
            told.append(
                ("delete offsets", table(groups(broker, topic, "--delete-offsets", "--topic", topic)))
            )
            told.append(("delete", table(groups(broker, topic, "--delete"))))
        return told

    told = assert_same(brokers, story)
    assert "i-two" in str(told)


def test_offsets_are_reset(
    brokers: Brokers, run: Run, groups: Callable[..., Outcome], topic: str, tmp_path: Path
) -> None:
    def story(broker: Broker) -> list[object]:
        fill(run, broker, topic)
        consume(run, broker, topic, 30, "--from-beginning")
        told: list[object] = []

        def reset(*arguments: str) -> str:
            done = groups(broker, topic, "--reset-offsets", *arguments)
            left = groups(broker, topic, "--describe")
            told.append((arguments, table(done), table(left)))
            return done.out

        reset("--topic", topic, "--to-earliest", "--dry-run")
        reset("--topic", topic, "--to-earliest")
        reset("--topic", topic, "--to-earliest", "--execute")
        reset("--topic", topic, "--to-latest", "--execute")
        reset("--topic", topic, "--to-offset", "5", "--execute")
        reset("--topic", topic, "--to-offset", "1000", "--execute")
        reset("--topic", topic, "--shift-by", "-3", "--execute")
        reset("--topic", f"{topic}:1", "--shift-by", "2", "--execute")
        reset("--topic", f"{topic}:0,2", "--to-datetime", "2023-11-14T22:13:27.000", "--execute")
        reset("--topic", topic, "--by-duration", "P1D", "--execute")
        reset("--all-topics", "--to-offset", "4", "--execute")
        exported = reset("--topic", topic, "--to-current", "--export", "--dry-run")
        file = tmp_path / "offsets.csv"
        file.write_text("".join(f"{line.rpartition(',')[0]},2\n" for line in exported.splitlines() if line))
        reset("--from-file", str(file), "--execute")
        reset("--topic", f"{topic}-nowhere", "--to-earliest", "--execute")
        reset("--topic", f"{topic}:9", "--to-earliest", "--execute")
        told.append(consume(run, broker, topic, 24))
        return told

    assert_same(brokers, story)


def test_offsets_and_groups_are_deleted(
    brokers: Brokers, run: Run, groups: Callable[..., Outcome], topic: str
) -> None:
    def story(broker: Broker) -> list[object]:
        fill(run, broker, topic)
        consume(run, broker, topic, 30, "--from-beginning")
        told: list[object] = []

        def tell(group: str, *arguments: str) -> None:
            told.append((arguments, table(groups(broker, group, *arguments))))

        tell(topic, "--delete-offsets", "--topic", f"{topic}:0")
        tell(topic, "--describe")
        tell(topic, "--delete-offsets", "--topic", f"{topic}-nowhere")
        tell(topic, "--delete-offsets", "--topic", topic)
        tell(f"{topic}-nobody", "--delete-offsets", "--topic", topic)
        tell(topic, "--delete")
        tell(topic, "--delete")
        tell(topic, "--describe")
        tell(topic, "--describe", "--state")
        tell(f"{topic}-new", "--reset-offsets", "--topic", topic, "--to-latest", "--execute")
        tell(f"{topic}-new", "--describe")
        return told

    assert_same(brokers, story)


@PROTOCOLS
def test_consumer_perf_tool(brokers: Brokers, run: Run, topic: str, protocol: str) -> None:
    def story(broker: Broker) -> object:
        create(run, broker, topic, PARTITIONS)
        amount = ["--num-records", "20000", "--record-size", "200", "--throughput", "-1"]
        run(broker, "kafka-producer-perf-test", "--topic", topic, *amount)
        settings = ["--command-property", f"group.protocol={protocol}"]
        outcome = run(
            *(broker, "kafka-consumer-perf-test", "--topic", topic, "--group", topic),
            *("--num-records", "20000", "--timeout", "60000", *settings),
        )
        assert outcome.code == 0, outcome
        header, *rest = dropwhile(lambda line: not line.startswith("start.time"), outcome.lines)
        # what the tool warns of is on stdout as well, before the figures or behind them
        figures = next(line for line in rest if line.count(", ") == header.count(", "))
        return dict(zip(header.split(", "), figures.split(", ")))["data.consumed.in.nMsg"]

    assert assert_same(brokers, story) == "20000"
